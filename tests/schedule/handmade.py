"""Small schedules made by hand: a product with partial sums, a bias that broadcasts, a stencil, loops, streams."""

import numpy as np

from abele.ir.graph import Origin, Port
from abele.ir.operation import OPERATIONS, NotDifferentiable, Primitive, register
from abele.ir.types import DType, TensorType
from abele.schedule import (
    KINDS,
    Access,
    Axis,
    Call,
    ComputeSet,
    Function,
    Grid,
    Layout,
    Plan,
    Repeat,
    Schedule,
    Span,
    Step,
    Tensor,
    Use,
    VertexKind,
    register_vertex,
    spread,
)


def _per_element(chip, work):
    return 10 + sum(work.reads) + sum(work.writes)


def _kind(name, compute, code=()):
    if name not in KINDS:
        register_vertex(VertexKind(name, compute, _per_element, code))


_kind("hand_product", lambda block, pieces, _: [(pieces[0] @ pieces[1])[None]])
_kind("hand_sum", lambda block, pieces, _: [pieces[0].sum(axis=0)])
_kind("hand_add", lambda block, pieces, _: [pieces[0] + pieces[1]])
_kind("hand_scale", lambda block, pieces, attributes: [pieces[0] * attributes["by"]])


def _stencil(block, pieces, attributes):
    start, stop = block.axes["n"]
    offset = block.reads[0][0].start
    size = attributes["size"]
    return [
        np.array([sum(pieces[0][j - offset] for j in (i - 1, i, i + 1) if 0 <= j < size) for i in range(start, stop)])
    ]


_kind("hand_stencil", _stencil)


def _operation(name, flops):
    """The steps' operations are registered when a schedule is made, so that tests over all operations miss them."""
    if name not in OPERATIONS:

        def same(operands, attributes):
            return operands[:1]

        def reference(operands, attributes, results):
            raise AssertionError(f"{name} has a plan alone")

        register(Primitive(name, {}, same, reference, NotDifferentiable("a test's"), flops, tuple))


def _operations():
    _operation("hand_matmul", lambda operands, results, attributes: 2 * operands[0].size * operands[1].shape[1])
    _operation("hand_add", lambda operands, results, attributes: results[0].size)
    _operation("hand_mul", lambda operands, results, attributes: results[0].size)
    _operation("hand_stencil", lambda operands, results, attributes: 2 * results[0].size)


def plain(grid, shape, *axes):
    """A layout whose dimensions follow these axes (``None`` for the whole dimension)."""
    return Layout(grid, tuple(shape), tuple(Span(a) for a in axes))


def product_plan(m, k, n, parts, tiles, first=0, dtype=DType.F32, home_a=None, home_b=None):
    """``[m,k] @ [k,n]`` in ``parts`` of m, k and n; partial sums over k are exchanged and summed in a second set."""
    pm, pk, pn = parts
    chunk = -(-k // pk)
    grid = Grid((Axis("m", m, pm), Axis("k", pk, pk), Axis("n", n, pn)), tiles, first)
    run = Span(1, chunk, 0, chunk)
    a, b = Layout(grid, (m, k), (Span(0), run)), Layout(grid, (k, n), (run, Span(2)))
    partials = plain(grid, (pk, m, n), 1, 0, 2)
    grid2 = Grid((Axis("m", m, pm), Axis("n", n, pn)), tiles, first)
    out = plain(grid2, (m, n), 0, 1)
    reads = (Access("in0", a, home_a == a), Access("in1", b, home_b == b))
    return Plan(
        (
            ComputeSet("hand_product", grid, reads, (Access("tmp0", partials),)),
            ComputeSet(
                "hand_sum",
                grid2,
                (Access("tmp0", plain(grid2, (pk, m, n), None, 0, 1)),),
                (Access("out0", out),),
            ),
        ),
        (TensorType((pk, m, n), dtype),),
        (out,),
    )


def bias_plan(home, columns):
    """Add a row to a matrix where the matrix lies."""
    row = Layout(home.grid, (columns,), (home.spans[1],))
    reads = (Access("in0", home, True), Access("in1", row))
    return Plan((ComputeSet("hand_add", home.grid, reads, (Access("out0", home),)),), (), (home,))


def scale_plan(home, by):
    """Scale a tensor where it lies."""
    return Plan(
        (ComputeSet("hand_scale", home.grid, (Access("in0", home, True),), (Access("out0", home),), {"by": by}),),
        (),
        (home,),
    )


def add_plan(home):
    """Add two tensors that lie alike."""
    reads = (Access("in0", home, True), Access("in1", home, True))
    return Plan((ComputeSet("hand_add", home.grid, reads, (Access("out0", home),)),), (), (home,))


def dense(m=4, k=6, n=5, parts=(2, 2, 2), tiles=8, dtype=DType.F16):
    """``(x @ w + bias) * 0.5`` with x streamed in, w and bias kept."""
    _operations()
    x_home, w_home, b_home = spread(m * k, tiles, 2), spread(k * n, tiles, 2), spread(n, tiles, 2, 1 % tiles)
    product = product_plan(m, k, n, parts, tiles, tiles // 2, dtype)
    out = product.homes[0]
    x, w, bias, y = (TensorType(s, dtype) for s in ((m, k), (k, n), (n,), (m, n)))
    at = Origin("net.py", 7, "fc")
    return Schedule(
        "dense",
        "bow-2000",
        tiles,
        1,
        1,
        {
            t.name: t
            for t in (
                Tensor("x", x, "data", x_home, source="data"),
                Tensor("w", w, "state", w_home, source="fc.weight"),
                Tensor("bias", bias, "state", b_home, source="fc.bias"),
                Tensor("xw", y, "value", out),
                Tensor("z", y, "value", out),
                Tensor("y", y, "value", out),
            )
        },
        Function(
            "main",
            ("x", "w", "bias"),
            ("y",),
            (
                Step("hand_matmul", (Use("x", x), Use("w", w)), (Use("xw", y),), {"partials": "f16"}, product, at),
                Step("hand_add", (Use("xw", y), Use("bias", bias)), (Use("z", y),), {}, bias_plan(out, n), at),
                Step("hand_mul", (Use("z", y),), (Use("y", y),), {}, scale_plan(out, 0.5), Origin("net.py", 8, "fc")),
            ),
        ),
        {},
        (Port("data", "x"), Port("state", "fc.weight"), Port("state", "fc.bias")),
        (Port("anchor", "y"),),
    )


def loop(size=12, parts=4, tiles=5, count=3, replicas=1, stages=1):
    """A state that ``count`` micro-batches are added to, each after a stencil, with a reduction over replicas."""
    _operations()
    type_ = TensorType((size,), DType.F32)
    grid = Grid((Axis("n", size, parts),), tiles, 1 % tiles)
    home, even = plain(grid, (size,), 0), spread(size, tiles)
    halo = Layout(grid, (size,), (Span(0, 1, -1, 3),))
    stencil = Plan(
        (ComputeSet("hand_stencil", grid, (Access("in0", halo),), (Access("out0", home),), {"size": size}),),
        (),
        (home,),
    )
    add = add_plan(home)
    load, reduce, store = Plan((), (), (even,)), Plan((), (), (home,)), Plan(())

    def use(name):
        return Use(name, type_)

    tensors = [
        Tensor("s", type_, "state", home, source="sum"),
        Tensor("t", type_, "value", home),
        Tensor("r", type_, "value", home),
        Tensor("acc", type_, "argument", home),
        Tensor("x", type_, "value", even),
        Tensor("c", type_, "value", home),
        Tensor("acc2", type_, "value", home),
        Tensor("d", type_, "argument", even),
        Tensor("e", type_, "value", home),
    ]
    body = Function(
        "body",
        ("acc",),
        ("acc2",),
        (
            Step("host_load", (), (use("x"),), {"stream": "data", "shape": (size,), "dtype": "f32"}, load),
            Call("smooth", ("x",), ("c",)),
            Step("hand_add", (use("acc"), use("c")), (use("acc2"),), {}, add, Origin(phase="backward")),
            Step("host_store", (use("c"),), (), {"stream": "seen"}, store),
        ),
    )
    smooth = Function("smooth", ("d",), ("e",), (Step("hand_stencil", (use("d"),), (use("e"),), {}, stencil),))
    main = Function(
        "main",
        ("s",),
        ("r",),
        (
            Repeat("body", count, ("s",), ("t",), stages),
            Step("all_reduce", (use("t"),), (use("r"),), {"reduction": "mean"}, reduce, Origin(phase="update")),
        ),
    )
    return Schedule(
        "loop",
        "bow-2000",
        tiles,
        1,
        replicas,
        {t.name: t for t in tensors},
        main,
        {"body": body, "smooth": smooth},
        (Port("state", "sum"),),
        (Port("state", "sum"),),
    )
