"""The provider ``onednn``: torch's oneDNN operations on the engine's memory. torch is imported here alone, when asked.

Convolutions write into the arena: the product is accumulated into the result, which holds the residual or zeros, with
bias and ReLU fused; constant weights are packed once. Pools write into the arena through ``out=``. Convolution
gradients and attention have no form that does: torch makes their results, which are then copied.
Everything is in float32; a half result is rounded by a native kernel behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from abele.codegen import Expr, Kernel, Operand, Output, map_kernel
from abele.engine.offers import Bound, Call, Offer
from abele.ir.operation import Primitive, lookup
from abele.ops.hosts.expressions import body_exprs, host_operand, known
from abele.ops.hosts.kernels import Request, Spec

Arrays = Sequence[np.ndarray]
Run = Callable[[], None]
_mkldnn = torch.ops.mkldnn
_aten = torch.ops.aten
_POOLED = 16
"""Products that take as long as one comparison or sum of a pool."""


def use_threads(count: int) -> int:
    """Let torch use ``count`` threads, a setting of the whole process; returns how many it was."""
    before = torch.get_num_threads()
    if before != count:
        torch.set_num_threads(count)
    return before


class OneDnnProvider:
    """Runs convolutions, pools and attention."""

    name = "onednn"

    def offer(self, request: Request) -> Offer | None:
        operation = str(request.attributes.get("root", request.operation))
        maker = _OFFERS.get(operation)
        sizes = (*request.operands, *request.results)
        if maker is None or not all(s.type.size for s in sizes):
            return None
        offer = maker(request)
        return None if offer is None else replace(offer, use_threads=use_threads, work=_work(operation, request))


def _work(operation: str, request: Request) -> int:
    """Floating-point operations; those of pools count for more, since products are done many at a time."""
    attributes: Any = request.attributes
    operands = request.operands
    if request.operation == "fused":
        operands = operands[: attributes["root_operands"]]
        attributes = dict(attributes["root_attributes"])
    if operation == "attention":
        q, k, *_ = operands
        return 4 * q.type.size * k.shape[-2]  # two products of every query with every key
    known = lookup(operation)
    if not isinstance(known, Primitive):
        return 0
    flops = known.flops([s.type for s in operands], [s.type for s in request.results], attributes)
    return flops * _POOLED if "pool" in operation else flops


def _tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array)


def _floats(specs: Sequence[Spec]) -> bool:
    return all(s.is_float for s in specs)


def _rounding(result: Spec) -> Kernel | None:
    """A kernel that takes a result to the half grid in place, for half results."""
    if result.dtype != "f16":
        return None
    return map_kernel(result.shape, [Operand("f32", result.strides)], [], [Output(0, "f16", result.strides)])


def _simple(request: Request, bind: Callable[[Arrays, Arrays], Run]) -> Offer:
    """An offer whose ``bind(operands, results)`` gives what runs; half results are rounded after it."""
    rounders = [_rounding(r) for r in request.results]

    def bound(operands: Arrays, results: Arrays, scratch: Arrays, packed: Arrays) -> Bound:
        run = bind(operands, results)
        calls: tuple[Call, ...] = tuple(
            (k, (a.ctypes.data, a.ctypes.data)) for k, a in zip(rounders, results, strict=True) if k is not None
        )
        return Bound(calls, run)

    return Offer(bound, kernels=tuple(k for k in rounders if k is not None))


# Convolution


class _Geometry:
    """The attributes of a convolution as torch takes them. One spatial dimension is taken as two."""

    def __init__(self, a: Mapping[str, Any], spatial: int) -> None:
        self.thin = spatial == 1
        lead = [1] if self.thin else []
        self.strides = [*lead, *a["strides"]]
        self.dilation = [*lead, *a["dilation"]]
        self.padding = [*([0] if self.thin else []), *(low for low, _ in a["padding"])]
        self.groups = int(a["groups"])
        self.even = all(low == high for low, high in a["padding"])

    def __call__(self, array: np.ndarray) -> torch.Tensor:
        tensor = _tensor(array)
        return tensor.unsqueeze(2) if self.thin else tensor


def _conv(request: Request) -> Offer | None:
    fused = request.operation == "fused"
    attributes: dict[str, Any] = dict(request.attributes)
    if fused:
        attributes = dict(request.attributes["root_attributes"])
    x, w, *others = request.operands
    (y,) = request.results
    if not _floats((x, w)):
        return None
    geometry = _Geometry(attributes, len(x.shape) - 2)
    if not geometry.even:
        return None
    steps, kernel = _Epilogue(), None
    if fused:
        body: Any = request.attributes["body"]
        found = _Epilogue.read(body, others, y) if x.dtype == y.dtype == "f32" else None
        if found is not None:
            steps = found
        else:
            kernel = _after(body, x.dtype, others, y)
            if kernel is None:
                return None
    elif y.dtype == "f16":
        kernel = _rounding(y)

    def bind(operands: Arrays, results: Arrays, scratch: Arrays, packed: Arrays) -> Bound:
        xt, wt, yt = geometry(operands[0]), geometry(operands[1]), geometry(results[0])
        bias = _tensor(operands[2 + steps.bias].reshape(-1)) if steps.bias is not None else None
        residual = geometry(operands[2 + steps.residual]) if steps.residual is not None else None
        in_place = residual is not None and residual.data_ptr() == yt.data_ptr()
        weight = [wt]

        def pack() -> None:
            weight[0] = _mkldnn._reorder_convolution_weight(
                wt, geometry.padding, geometry.strides, geometry.dilation, geometry.groups, list(xt.shape)
            )

        relu = "relu" if steps.relu else None
        call = _mkldnn._convolution_pointwise_.binary
        shape = (geometry.padding, geometry.strides, geometry.dilation, geometry.groups)

        def run() -> None:
            if residual is None:
                yt.zero_()
            elif not in_place:
                yt.copy_(residual)
            call(yt, xt, weight[0], bias, *shape, "add", 1.0, relu, [], "")

        calls: tuple[Call, ...] = ()
        if kernel is not None:
            pointers = [results[0].ctypes.data, *(a.ctypes.data for a in operands[2:] if fused)]
            calls = ((kernel, (*pointers, results[0].ctypes.data)),)
        return Bound(calls, run, prepare=pack if w.constant else None)

    return Offer(bind, kernels=(kernel,) if kernel is not None else ())


class _Epilogue:
    """What oneDNN does behind a convolution: a bias, a residual, ReLU. Numbers count the further operands."""

    def __init__(self) -> None:
        self.bias: int | None = None
        self.residual: int | None = None
        self.relu = False

    @classmethod
    def read(cls, body: Sequence[Any], others: Sequence[Spec], y: Spec) -> _Epilogue | None:
        """The steps of a map, where it is nothing else."""
        done, current = cls(), -1
        for number, (fn, dtype, args, _) in enumerate(body):
            if dtype != "f32" or done.relu or current not in args:
                return None
            other = next((a for a in args if a != current), current)
            if fn == "relu":
                done.relu = True
            elif fn != "add" or other >= -1 or not done._adds(-2 - other, others[-2 - other], y):
                return None
            current = number
        return done

    def _adds(self, number: int, spec: Spec, y: Spec) -> bool:
        """Take an addend as bias or residual."""
        channel = (y.shape[1], *(1,) * (len(y.shape) - 2))
        if self.residual is not None:
            return False
        if spec.shape == y.shape:
            self.residual = number
        elif spec.shape in (channel, (1, *channel)) and spec.plain and self.bias is None:
            self.bias = number
        else:
            return False
        return True


def _after(body: Sequence[Any], dtype: str, others: Sequence[Spec], y: Spec) -> Kernel | None:
    """The map as a kernel of its own, over the result in place."""
    if not known(others):
        return None
    count = 1 + len(others)
    exprs = [Expr("cast", (0,), "f16")] if dtype == "f16" else []
    first = [count if exprs else 0, *range(1, count)]
    nodes = body_exprs(body, [dtype, *(s.dtype for s in others)], first)
    if nodes is None or y.dtype not in ("f32", "f16"):
        return None
    exprs += nodes
    operands = [Operand("f32", y.strides), *(host_operand(s, y.shape) for s in others)]
    return map_kernel(y.shape, operands, exprs, [Output(count + len(exprs) - 1, y.dtype, y.strides)])


def _gradient(request: Request, geometry: _Geometry, mask: list[bool]) -> Callable[..., tuple]:
    def call(dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> tuple:
        zeros = [0] * len(geometry.strides)
        return _aten.convolution_backward(
            dy, x, w, None, geometry.strides, geometry.padding, geometry.dilation, False, zeros, geometry.groups, mask
        )

    return call


def _untouched(shape: Sequence[int], spec: Spec) -> torch.Tensor:
    """A tensor of which torch needs the shape and strides alone; its pages are never touched."""
    tensor = torch.empty(tuple(shape))
    if spec.plain or len(shape) != 4:
        return tensor
    return (
        tensor.to(memory_format=torch.channels_last)
        if tensor.numel() < 1 << 16
        else torch.empty(tuple(shape), memory_format=torch.channels_last)
    )


def _conv_input_grad(request: Request) -> Offer | None:
    dy, w = request.operands
    (dx,) = request.results
    geometry = _Geometry(request.attributes, len(dy.shape) - 2)
    if not geometry.even or not _floats((dy, w)):
        return None
    call = _gradient(request, geometry, [True, False, False])

    def bind(operands: Arrays, results: Arrays) -> Run:
        dyt, wt, dxt = geometry(operands[0]), geometry(operands[1]), geometry(results[0])
        like = _untouched(dxt.shape, dx)

        def run() -> None:
            dxt.copy_(call(dyt, like, wt)[0])

        return run

    return _simple(request, bind)


def _conv_weight_grad(request: Request) -> Offer | None:
    dy, x = request.operands
    (dw,) = request.results
    geometry = _Geometry(request.attributes, len(dy.shape) - 2)
    if not geometry.even or not _floats((dy, x)):
        return None
    thinned = _thinned(geometry, dw, x)
    if thinned:
        geometry.strides = [1] * len(thinned)
    call = _gradient(request, geometry, [False, True, False])

    def bind(operands: Arrays, results: Arrays) -> Run:
        dyt, xt, dwt = geometry(operands[0]), geometry(operands[1]), geometry(results[0])
        if thinned:
            xt = xt[(..., *thinned)]
        like = _untouched(dwt.shape, dw)

        def run() -> None:
            dwt.copy_(call(dyt, xt, like)[1])

        return run

    return _simple(request, bind)


def _thinned(geometry: _Geometry, dw: Spec, x: Spec) -> tuple[slice, ...]:
    """What a kernel of one element reads of ``x``, to be taken before the gradient; nothing where that is not needed.

    For less than 16 channels that lie innermost, oneDNN writes beyond its own copy of them (torch 2.13, with AVX-512).
    """
    strides = geometry.strides
    if x.shape[1] >= 16 or max(strides) == 1 or max(dw.shape[2:]) > 1 or any(geometry.padding):
        return ()
    return tuple(slice(None, None, s) for s in strides)


# Pooling


class _Window:
    """The attributes of a pool over two dimensions as torch takes them, or ``None`` from ``of``."""

    def __init__(self, a: Mapping[str, Any]) -> None:
        self.kernel, self.strides = list(a["kernel"]), list(a["strides"])
        self.padding = [low for low, _ in a["padding"]]
        self.dilation = list(a.get("dilation") or (1, 1))

    @classmethod
    def of(cls, a: Mapping[str, Any], specs: Sequence[Spec]) -> _Window | None:
        even = all(low == high and 2 * low <= k for (low, high), k in zip(a["padding"], a["kernel"], strict=True))
        fits = even and len(a["kernel"]) == 2 and all(len(s.shape) == 4 for s in specs) and _floats(specs)
        return cls(a) if fits else None

    @property
    def maximum(self) -> tuple:
        return (self.kernel, self.strides, self.padding, self.dilation, False)


def _max_pool(request: Request) -> Offer | None:
    window = _Window.of(request.attributes, (*request.operands, *request.results))
    if window is None:
        return None

    def bind(operands: Arrays, results: Arrays) -> Run:
        x, y = _tensor(operands[0]), _tensor(results[0])
        where = torch.empty_like(y, dtype=torch.int64)

        def run() -> None:
            _aten.max_pool2d_with_indices.out(x, *window.maximum, out=y, indices=where)

        return run

    return _simple(request, bind)


def _max_pool_grad(request: Request) -> Offer | None:
    window = _Window.of(request.attributes, (*request.operands, *request.results))
    if window is None:
        return None

    def bind(operands: Arrays, results: Arrays) -> Run:
        x, y, dy = map(_tensor, operands)
        dx = _tensor(results[0])
        again, where = torch.empty_like(y), torch.empty_like(y, dtype=torch.int64)

        def run() -> None:
            _aten.max_pool2d_with_indices.out(x, *window.maximum, out=again, indices=where)
            _aten.max_pool2d_with_indices_backward.grad_input(dy, x, *window.maximum, where, grad_input=dx)

        return run

    return _simple(request, bind)


def _avg_pool(request: Request) -> Offer | None:
    window = _Window.of(request.attributes, (*request.operands, *request.results))
    if window is None:
        return None
    include, divisor = bool(request.attributes["count_include_pad"]), request.attributes["divisor"]

    def bind(operands: Arrays, results: Arrays) -> Run:
        x, y = _tensor(operands[0]), _tensor(results[0])
        given = (window.kernel, window.strides, window.padding, False, include, divisor)

        def run() -> None:
            _aten.avg_pool2d.out(x, *given, out=y)

        return run

    return _simple(request, bind)


def _avg_pool_grad(request: Request) -> Offer | None:
    window = _Window.of(request.attributes, (*request.operands, *request.results))
    if window is None:
        return None
    include, divisor = bool(request.attributes["count_include_pad"]), request.attributes["divisor"]

    def bind(operands: Arrays, results: Arrays) -> Run:
        dy, dx = _tensor(operands[0]), _tensor(results[0])
        like = _untouched(dx.shape, request.results[0])
        given = (window.kernel, window.strides, window.padding, False, include, divisor)

        def run() -> None:
            _aten.avg_pool2d_backward.grad_input(dy, like, *given, grad_input=dx)

        return run

    return _simple(request, bind)


# Attention


def _attention(request: Request) -> Offer | None:
    if not _floats(request.operands) or len(request.operands[0].shape) < 3:
        return None
    a = request.attributes
    causal, scale = bool(a["causal"]), float(a["scale"])
    if causal and len(request.operands) == 4:
        return None

    def bind(operands: Arrays, results: Arrays) -> Run:
        q, k, v, *masks = map(_tensor, operands)
        y = _tensor(results[0])
        mask = masks[0] if masks else None
        if mask is not None:
            mask = mask.expand(*q.shape[:-1], k.shape[-2])
        call = torch.nn.functional.scaled_dot_product_attention

        def run() -> None:
            y.copy_(call(q, k, v, mask, is_causal=causal, scale=scale))

        return run

    return _simple(request, bind)


_OFFERS: dict[str, Callable[[Request], Offer | None]] = {
    "conv": _conv,
    "conv_input_grad": _conv_input_grad,
    "conv_weight_grad": _conv_weight_grad,
    "max_pool": _max_pool,
    "max_pool_grad": _max_pool_grad,
    "avg_pool": _avg_pool,
    "avg_pool_grad": _avg_pool_grad,
    "attention": _attention,
}
