"""Passes keep the meaning of a graph, or add the one they are there for; held against the NumPy interpreter."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from abele.compile.passes.accumulate import Accumulate
from abele.compile.passes.autodiff import Autodiff
from abele.compile.passes.base import run_passes
from abele.compile.passes.common import CommonSubexpressions
from abele.compile.passes.dead_code import DeadCode
from abele.compile.passes.expand import Expand
from abele.compile.passes.fold import Fold
from abele.compile.passes.fold_norm import FoldNorm
from abele.compile.passes.fuse import Fuse
from abele.compile.passes.hoist import Hoist
from abele.compile.passes.outline import Outline
from abele.compile.passes.recompute import HOW, Recompute
from abele.compile.passes.split import Split
from abele.compile.passes.streams import Streams
from abele.compile.passes.update import Optimiser, Update
from abele.errors import InvalidOption
from abele.ir import Builder, DType, Host, Origin, Port, evaluate, f32, parse_graph

from .nets import layered, parameters, random_inputs


def same(before, after, tolerance=1e-5):
    inputs = random_inputs(before)
    for a, b in zip(evaluate(before, inputs), evaluate(after, inputs), strict=True):
        np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance)


def torch_gradients(graph):
    """The same network as ``layered`` in torch's float64: its loss, and the gradient of every parameter by name."""
    inputs = [torch.tensor(v, dtype=torch.float64) for v in random_inputs(graph)]
    named = {port.name: v.requires_grad_() for port, v in zip(graph.input_ports, inputs, strict=True)}
    h = named["x"]
    for i in range(len(named) // 2):
        h = torch.tanh(h @ named[f"layer.{i}.w"] + named[f"layer.{i}.b"])
        h = h * torch.sigmoid(1.5 * h)
    loss = (h * h).sum()
    loss.backward()
    return loss.item(), {name: named[name].grad.numpy() for name in parameters(graph)}


@pytest.mark.parametrize(
    "passes",
    [
        [Outline()],
        [Fold(), CommonSubexpressions(), DeadCode()],
        [Fuse(), DeadCode()],
        [Outline(), Fuse(), DeadCode()],
        [Expand()],
        [Split(2)],
    ],
    ids=lambda passes: "+".join(p.name for p in passes),
)
def test_meaning_is_kept(passes):
    graph = layered()
    after, _ = run_passes(graph, passes)
    same(graph, after)
    assert str(parse_graph(str(after))) == str(after)


def test_outline_makes_one_function_for_alike_layers():
    after, _ = run_passes(layered(5), [Outline()])
    assert len(after.functions) == 1
    assert [op.name for op in after.operations].count("call") == 5
    (function,) = after.functions.values()
    assert {op.origin.module for op in function.operations} == {"layer.*"}


def test_outline_leaves_different_layers_alone():
    b = Builder("net")
    h = b.input(f32(2, 4), "data", "x")
    from abele.ir import Origin

    for i, f in enumerate((b.tanh, b.exp)):
        with b.at(Origin(module=f"layer.{i}")):
            h = f(b.add(b.mul(b.neg(h), h), h))
    graph = b.finish([h], [Port("anchor", "y")])
    assert run_passes(graph, [Outline()])[0] is graph


@pytest.mark.parametrize("outline", [False, True])
@pytest.mark.parametrize("recompute_layers", [False, True])
def test_autodiff_gives_the_gradient(outline, recompute_layers):
    graph = layered(2, width=3, batch=2)
    before = [Outline()] if outline else []
    names = parameters(graph)
    after, _ = run_passes(graph, [*before, Autodiff(names, recompute_layers=recompute_layers), DeadCode()])
    made = dict(zip([p.name for p in after.output_ports], evaluate(after, random_inputs(graph)), strict=True))
    loss, expected = torch_gradients(graph)
    assert made["loss"] == pytest.approx(loss, rel=1e-6)
    for name in names:  # float32 rounds each of some twenty steps by 6e-8
        np.testing.assert_allclose(made[name], expected[name], rtol=2e-6, atol=1e-6)


def test_outlined_gradient_is_the_same_and_does_not_grow_with_layers():
    sizes = []
    for layers in (4, 8):
        graph = layered(layers)
        names = parameters(graph)
        plain, _ = run_passes(graph, [Autodiff(names)])
        outlined, _ = run_passes(graph, [Outline(), Autodiff(names), DeadCode()])
        same(plain, outlined)
        sizes.append(sum(len(f.operations) for f in outlined.functions.values()))
    assert sizes[0] == sizes[1]


def test_loss_must_be_one():
    b = Builder("net")
    x = b.input(f32(2), "data", "x")
    with pytest.raises(InvalidOption, match="0 losses"):
        run_passes(b.finish([x], [Port("anchor", "x")]), [Autodiff(())])


def test_recompute_keeps_only_checkpoints():
    graph = layered(3, checkpoint=True)
    plain, _ = run_passes(graph, [Autodiff(parameters(graph)), DeadCode()])
    again, _ = run_passes(plain, [Recompute(), DeadCode()])
    same(plain, again)
    assert kept_values(plain) > {"checkpoint", "fill"}
    assert kept_values(again) <= {"checkpoint", "fill"}
    # Merging equal operations must not undo it.
    merged, _ = run_passes(again, [CommonSubexpressions()])
    assert kept_values(merged) <= {"checkpoint", "fill"}


def test_standard_recomputation_keeps_what_crosses_few_borders():
    """Of each layer before the last segment its result alone is kept, if anything."""
    graph = layered(8)
    plain, _ = run_passes(graph, [Autodiff(parameters(graph)), DeadCode()])
    again, _ = run_passes(plain, [Recompute("standard"), DeadCode()])
    same(plain, again)
    made = again.producers()
    early = [made[v] for v in read_back(again) if made[v].origin.module in [f"layer.{i}" for i in range(5)]]
    assert 2 <= len(early) <= 5
    assert len({op.origin.module for op in early}) == len(early)
    assert {op.name for op in early} == {"mul"}
    assert len(read_back(again)) < len(read_back(plain)) / 2
    merged, _ = run_passes(again, [CommonSubexpressions(), DeadCode()])
    assert len(read_back(merged)) == len(read_back(again))


def test_norms_recomputed():
    b = Builder("net")
    x, w = b.input(f32(4, 8), "data", "x"), b.input(f32(8), "state", "w")
    for i in range(2):
        with b.at(Origin(module=f"layer.{i}")):
            y = b.layer_norm(x, w, axes=1, eps=1e-5)[0]
            x = b.mul(b.tanh(y), x)
    graph = b.finish([b.reduce_sum(x, axes=(0, 1))], [Port("loss", "loss")])
    plain, _ = run_passes(graph, [Autodiff(("w",)), DeadCode()])
    again, _ = run_passes(plain, [Recompute("norm_only"), DeadCode()])
    same(plain, again)
    assert kept_values(plain) >= {"layer_norm", "tanh"}
    assert kept_values(again) <= {"mul", "fill"}


@pytest.mark.parametrize("kept", [False, True])
def test_statistics_with_a_checkpoint_are_applied_again(kept):
    """Of a batch norm whose mean and variance are kept only the product and the sum of each element are done again."""
    b = Builder("net")
    x, w, shift = b.input(f32(4, 3, 5, 2), "data", "x"), b.input(f32(3), "state", "w"), b.input(f32(3), "state", "b")
    for _ in range(2):
        y, *statistics = b.batch_norm(x, w, shift, eps=1e-5)
        for value in statistics if kept else ():
            b.checkpoint(value)
        x = b.add(b.tanh(b.checkpoint(b.mul(y, y))), b.tanh(y))
    graph = b.finish([b.reduce_sum(x, axes=(0, 1, 2, 3))], [Port("loss", "loss")])
    plain, _ = run_passes(graph, [Autodiff(("w", "b"))])
    again, _ = run_passes(plain, [Recompute(), DeadCode()])
    same(plain, again)
    names = [op.name for op in again.operations]
    assert names.count("batch_norm") == (2 if kept else 4)
    assert names.count("rsqrt") == (2 if kept else 0)


def test_what_lies_between_checkpoints_is_not_made_again():
    b = Builder("net")
    x = b.checkpoint(b.sin(b.input(f32(4), "state", "w")))
    y = b.exp(x)  # its gradient reads its own result
    z = b.exp(b.sin(b.checkpoint(y)))
    graph = b.finish([b.reduce_sum(z, axes=(0,))], [Port("loss", "loss")])
    plain, _ = run_passes(graph, [Autodiff(("w",))])
    again, _ = run_passes(plain, [Recompute(), DeadCode()])
    same(plain, again)
    made = [op.name for op in again.operations if op.origin.phase == "backward"]
    assert made.count("exp") == made.count("sin") == 1, "those behind the last checkpoint alone"


@pytest.mark.parametrize("how", HOW)
def test_stages_are_recomputed_each_from_its_inputs(how):
    graph = layered(4)
    names = parameters(graph)
    before = [Split(2), Outline(), Autodiff(names, recompute_layers=how in ("layers", "standard"))]
    plain, _ = run_passes(graph, [Split(2), Autodiff(names), DeadCode()])
    again, _ = run_passes(graph, [*before, Recompute(how), DeadCode()])
    same(plain, again)
    if how == "pipeline":
        kept = [again.producers()[v].origin.stage for v in read_back(again)]
        assert kept.count(0) == 1 < kept.count(1)  # what the first stage hands to the second, which is the last


def read_back(graph):
    """Values of the forward phase that the backward phase reads, constants aside."""
    made = graph.producers()
    read = {v for op in graph.operations if op.origin.phase == "backward" for v in op.operands if v in made}
    return {v for v in read if made[v].origin.phase == "forward" and made[v].name != "fill"}


def kept_values(graph):
    """Names of the forward operations whose results the backward phase reads."""
    made = graph.producers()
    read = {v for op in graph.operations if op.origin.phase == "backward" for v in op.operands if v in made}
    return {made[v].name for v in read if made[v].origin.phase == "forward"}


def test_fuse_makes_one_map_and_an_epilogue():
    after, _ = run_passes(layered(1), [Fuse(), DeadCode()])
    names = [op.name for op in after.operations]
    assert names.count("fused") == 1
    assert "tanh" not in names and "sigmoid" not in names


def test_fuse_keeps_the_shape_that_a_constant_gives():
    b = Builder("net")
    x = b.input(f32(4), "data", "x")
    y = b.add(b.mul(x, x), b.constant(2.0, DType.F32, (3, 4)))
    graph = b.finish([y], [Port("anchor", "y")])
    after, _ = run_passes(graph, [Fuse(), DeadCode()])
    same(graph, after)


@pytest.mark.parametrize("groups", [1, 2])
def test_fold_norm_scales_the_weights(groups):
    b = Builder("net")
    x, w = b.input(f32(2, 4, 5, 5), "data", "x"), b.input(f32(6, 4 // groups, 3, 3), "state", "w")
    norm = [b.input(f32(6), "state", n) for n in ("scale", "shift", "mean", "variance")]
    norm[3] = b.mul(norm[3], norm[3])
    conv = b.conv(x, w, strides=(1, 1), padding=((1, 1), (1, 1)), dilation=(1, 1), groups=groups)
    y = b.relu(b.batch_norm_inference(conv, *norm, eps=1e-3))
    graph = b.finish([y], [Port("anchor", "y")])
    after, _ = run_passes(graph, [FoldNorm()])
    assert "batch_norm_inference" not in [op.name for op in after.operations]
    same(graph, after, 1e-4)
    read_twice = graph.replace(
        outputs=(*graph.outputs, conv), output_ports=(*graph.output_ports, Port("anchor", "conv"))
    )
    assert run_passes(read_twice, [FoldNorm()])[0] is read_twice


@pytest.mark.parametrize("read_twice", [False, True])
def test_folded_norms_that_are_only_added_have_one_shift(read_twice):
    b = Builder("net")
    x = b.input(f32(2, 4, 5, 5), "data", "x")
    made = []
    for i in range(2):
        w = b.input(f32(6, 4, 3, 3), "state", f"{i}.w")
        scale, shift, mean = (b.input(f32(6), "state", f"{i}.{n}") for n in ("scale", "shift", "mean"))
        y = b.conv(x, w, strides=(1, 1), padding=((1, 1), (1, 1)), dilation=(1, 1))
        made.append(b.batch_norm_inference(y, scale, shift, mean, b.mul(mean, mean), eps=1e-3))
    results = [b.relu(b.add(made[1], made[0])), *([made[0]] if read_twice else [])]
    graph = b.finish(results, [Port("anchor", f"y{i}") for i in range(len(results))])
    after, _ = run_passes(graph, [FoldNorm()])
    images = [op for op in after.operations if op.name == "add" and len(op.result.shape) == 4]
    assert len(images) == (3 if read_twice else 2)
    same(graph, after, 1e-4)


@pytest.mark.parametrize("size", [8, 2])
def test_fold_norm_in_functions_where_the_image_is_larger(size):
    b = Builder("net")
    x = b.input(f32(2, 4, size, size), "data", "x")
    weights = [b.input(f32(4, 4, 3, 3), "state", f"{i}.w") for i in range(2)]
    norms = [[b.input(f32(4), "state", f"{i}.{n}") for n in ("scale", "shift", "mean")] for i in range(2)]

    def block(inner, x, w, scale, shift, mean):
        y = inner.conv(x, w, strides=(1, 1), padding=((1, 1), (1, 1)), dilation=(1, 1))
        return [inner.relu(inner.batch_norm_inference(y, scale, shift, mean, inner.mul(mean, mean), eps=1e-3))]

    inner = Builder("block")
    values = [x, weights[0], *norms[0]]
    parameters = [inner.input(v.type) for v in values]
    b.functions["block"] = inner.finish(block(inner, *parameters))
    for w, norm in zip(weights, norms, strict=True):
        (x,) = b.call("block", (x, w, *norm))
    graph = b.finish([x], [Port("anchor", "y")])
    after, _ = run_passes(graph, [FoldNorm()])
    names = [op.name for op in after.functions["block"].operations]
    assert ("batch_norm_inference" in names) == (size == 2)
    same(graph, after, 1e-4)


def test_fold_evaluates_constants():
    b = Builder("net")
    x = b.input(f32(4), "data", "x")
    two = b.mul(b.constant(1.0, DType.F32), b.constant(2.0, DType.F32))
    y = b.mul(b.expand(two, shape=(4,)), b.mul(x, b.constant(1.0, DType.F32)))
    graph = b.finish([y], [Port("anchor", "y")])
    after, _ = run_passes(graph, [Fold(), DeadCode()])
    assert [op.name for op in after.operations] == ["fill", "mul"]
    same(graph, after)


def trained(graph, passes, batches):
    """Losses of a compiled training graph run by the interpreter, state fed back."""
    after, _ = run_passes(graph, passes)
    state = {n: a for (p, a) in zip(after.input_ports, random_inputs(after)) for n in [p.name]}
    for name, value in after.inputs_of("state").items():
        if name.startswith("optimiser."):
            state[name] = np.zeros(value.shape, value.dtype.numpy)
    state["learning_rate.0"] = np.float32(0.01)
    host = Host({"x": batches})
    while host.inputs["x"]:
        outputs = evaluate(after, [state[p.name] for p in after.input_ports], host)
        state.update({p.name: v for p, v in zip(after.output_ports, outputs, strict=True)})
    return host.outputs["loss"], state


def spec(graph, kind="sgd", **changes):
    constants = {
        "sgd": (("momentum", 0.9), ("dampening", 0.0), ("weight_decay", 0.0)),
        "adam": (("beta1", 0.9), ("beta2", 0.99), ("eps", 1e-6), ("weight_decay", 0.0)),
    }[kind]
    return Optimiser(kind, (parameters(graph),), (constants,), **changes)


def test_accumulation_is_one_large_batch():
    batches = [np.random.default_rng(i).standard_normal((2, 8)).astype(np.float32) for i in range(4)]
    small, large = layered(batch=2), layered(batch=4)
    _, split = trained(
        small,
        [Autodiff(parameters(small)), Streams(), Accumulate(2, mean=False), Update(spec(small))],
        batches,
    )
    _, whole = trained(
        large,
        [Autodiff(parameters(large)), Streams(), Update(spec(large))],
        [np.concatenate(batches[:2]), np.concatenate(batches[2:])],
    )
    for name in parameters(large):
        np.testing.assert_allclose(split[name], whole[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_training_lowers_the_loss(kind):
    graph = layered()
    batch = np.ones((4, 8), np.float32)
    losses, _ = trained(
        graph, [Outline(), Autodiff(parameters(graph)), Streams(), Update(spec(graph, kind)), DeadCode()], [batch] * 12
    )
    assert losses[-1] < losses[0]


def test_split_needs_enough_layers():
    with pytest.raises(InvalidOption, match="cannot be split into 99 stages"):
        Split(99).run(layered(3))


def test_hoist_moves_what_weights_alone_decide():
    b = Builder("net")
    x, w = b.input(f32(2, 4), "data", "x"), b.input(f32(4, 4), "state", "w")
    count = b.input(f32(4), "state", "count")
    scaled = b.mul(b.mul(w, w), b.constant(0.5, DType.F32))
    wide = b.expand(b.reshape(count, shape=(1, 4)), shape=(512, 4))
    y = b.add(b.matmul(x, scaled), b.reduce_sum(b.mul(wide, wide), axes=(0,)))
    following = b.add(count, b.constant(1.0, DType.F32))
    graph = b.finish([y, following], [Port("anchor", "y"), Port("state", "count")])
    after, _ = run_passes(graph, [Hoist(), DeadCode()])
    load = after.functions["load"]
    assert [op.name for op in load.operations if op.name != "fill"] == ["mul", "mul", "host_store"]
    assert "w" not in after.inputs_of("state") and "hoisted.0.w" in after.inputs_of("state")
    assert "count" in after.inputs_of("state")  # the program changes it
    inputs = dict(zip([p.name for p in graph.input_ports], random_inputs(graph), strict=True))
    host = Host()
    evaluate(load, [inputs[p.name] for p in load.input_ports], host)
    inputs["hoisted.0.w"] = host.outputs["hoisted.0.w"][0]
    before = evaluate(graph, [inputs[p.name] for p in graph.input_ports])
    now = evaluate(after, [inputs[p.name] for p in after.input_ports])
    for a, c in zip(before, now, strict=True):
        np.testing.assert_allclose(c, a, rtol=1e-6)


def test_what_reads_something_that_stays_is_not_hoisted():
    """The wide one would take tile memory for good, so it stays, and its exponential that is summed with it."""
    b = Builder("net")
    x, w = b.input(f32(512, 4), "data", "x"), b.input(f32(1, 4), "state", "w")
    wide = b.expand(w, shape=(512, 4))
    total = b.reduce_sum(b.exp(wide), axes=(0,))
    graph = b.finish([b.add(b.add(x, wide), total)], [Port("anchor", "y")])
    after, _ = run_passes(graph, [Hoist(), DeadCode()])
    inputs = random_inputs(graph)
    np.testing.assert_allclose(evaluate(after, inputs)[0], evaluate(graph, inputs)[0], rtol=1e-6)


def test_nothing_to_hoist_leaves_the_graph_alone():
    graph = layered()
    assert run_passes(graph, [Hoist()])[0] is graph
