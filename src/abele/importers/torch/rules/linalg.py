"""Linear algebra: batches of matrices in float, whatever they come in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from abele.errors import Unsupported
from abele.importers.torch.calls import metas
from abele.importers.torch.emitter import Emitter
from abele.importers.torch.table import raw, rule
from abele.importers.torch.tracer import Tracer
from abele.ir import DType, Value


def _batch(e: Emitter, x: Value) -> Value:
    """``f32[b, n, m]``, all leading dimensions as one."""
    return e.reshape(e.cast(x, DType.F32), (math.prod(x.shape[:-2]), *x.shape[-2:]))


def _turned(e: Emitter, x: Value) -> Value:
    rank = len(x.shape)
    return e.transpose(x, (*range(rank - 2), rank - 1, rank - 2))


def _eye(e: Emitter, shape: Sequence[int]) -> Value:
    return e.expand(e.constant(np.eye(shape[-1], dtype=np.float32)), shape)


def _back(e: Emitter, value: Value, index: int = 0) -> Value:
    """A result in its shape and type."""
    return e.cast(e.reshape(value, e.outs[index].shape), e.outs[index].dtype)


def _info(e: Emitter, right: Value) -> Value:
    """What torch asks to see whether all went well, from ``bool[b, n, n]``: 0, or n where an element is false.

    Torch tells which pivot it was; that is lost with the factor, all of which is NaN.
    """
    whole = e.emit("reduce_min", e.cast(right, DType.I32), axes=(1, 2))
    zero, last = (e.number(v, DType.I32, whole.shape) for v in (0, right.shape[-1]))
    return e.reshape(e.emit("select", e.emit("gt", whole, zero), zero, last), e.outs[-1].shape)


@raw("_linalg_check_errors")
def nothing_to_check(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> None:
    """A matrix that has no answer gives NaN or infinity."""


@rule("linalg_cholesky_ex")
def cholesky_ex(e: Emitter, x: Value, upper: bool = False, check_errors: bool = False) -> tuple[Value, Value]:
    factor = cholesky(e, x, upper)
    wide = _batch(e, factor)
    off = e.expand(e.constant(~np.eye(wide.shape[-1], dtype=bool)), wide.shape)
    positive = e.emit("gt", wide, e.number(0, DType.F32, wide.shape))
    return factor, _info(e, e.emit("logical_or", off, positive))


@rule("cholesky")
def cholesky(e: Emitter, x: Value, upper: bool = False) -> Value:
    given = _batch(e, x)
    found = e.emit("cholesky", _turned(e, given) if upper else given)
    return _back(e, _turned(e, found) if upper else found)


@rule("cholesky_solve")
def cholesky_solve(e: Emitter, y: Value, factor: Value, upper: bool = False) -> Value:
    lead = np.broadcast_shapes(y.shape[:-2], factor.shape[:-2])
    a, b = (_batch(e, e.expand(v, (*lead, *v.shape[-2:]))) for v in (factor, y))
    for transpose in (upper, not upper):
        b = e.emit("triangular_solve", a, b, upper=upper, transpose=transpose)
    return _back(e, b)


@rule("cholesky_inverse")
def cholesky_inverse(e: Emitter, factor: Value, upper: bool = False) -> Value:
    return cholesky_solve(e, _eye(e, factor.shape), factor, upper)


@rule("linalg_inv_ex")
def inverse_ex(e: Emitter, x: Value, check_errors: bool = False) -> tuple[Value, Value]:
    a = _batch(e, x)
    found = e.emit("solve", a, _eye(e, a.shape))
    return _back(e, found), _info(e, e.emit("is_finite", found))


@rule("linalg_solve_triangular")
def solve_triangular(
    e: Emitter, a: Value, y: Value, upper: bool, left: bool = True, unitriangular: bool = False
) -> Value:
    lead = np.broadcast_shapes(a.shape[:-2], y.shape[:-2])
    a, y = (_batch(e, e.expand(v, (*lead, *v.shape[-2:]))) for v in (a, y))
    attributes = {"upper": upper, "unit": unitriangular}
    if left:
        return _back(e, e.emit("triangular_solve", a, y, **attributes))
    return _back(e, _turned(e, e.emit("triangular_solve", a, _turned(e, y), transpose=True, **attributes)))


@rule("triangular_solve")
def triangular_solve(
    e: Emitter, y: Value, a: Value, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Value, Value]:
    lead = np.broadcast_shapes(a.shape[:-2], y.shape[:-2])
    matrix, right = (_batch(e, e.expand(v, (*lead, *v.shape[-2:]))) for v in (a, y))
    found = e.emit("triangular_solve", matrix, right, upper=upper, transpose=transpose, unit=unitriangular)
    return _back(e, found), e.cast(e.expand(a, e.outs[1].shape), e.outs[1].dtype)


def _with_factors(tracer: Tracer, func: Any, args: tuple, kwargs: dict, results: Sequence[Value]) -> Any:
    """The first results; those behind them, the factors of an LU decomposition, may not be read."""
    outs, where = func(*metas(args), **kwargs), tracer.where()

    def factors() -> Value:
        raise Unsupported("LU factors are used", where=where, remedy="Use torch.linalg.solve, inv or slogdet.")

    for out in outs[len(results) :]:
        if out.dtype is torch.int32 and out is outs[-1]:
            tracer.bind(out, tracer.e.number(0, DType.I32, tuple(out.shape)))  # how it went
        else:
            tracer.places.add_root(out, factors)
    made = [
        tracer.bind(out, tracer.e.cast(tracer.e.reshape(v, tuple(out.shape)), v.dtype))
        for out, v in zip(outs, results, strict=False)
    ]
    return (*made, *outs[len(results) :])


@raw("_linalg_solve_ex")
def solve_ex(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    e, (a, y) = tracer.e, (tracer.read(t) for t in args[:2])
    vector = len(y.shape) == 1 or (len(y.shape) == len(a.shape) - 1 and y.shape == a.shape[:-1])
    y = e.reshape(y, (*y.shape, 1)) if vector else y
    left = kwargs.get("left", args[2] if len(args) > 2 else True)
    lead = np.broadcast_shapes(a.shape[:-2], y.shape[:-2])
    a, y = (_batch(e, e.expand(v, (*lead, *v.shape[-2:]))) for v in (a, y))
    right = not left and not vector
    found = e.emit("solve", a, _turned(e, y) if right else y, transpose=right)
    found = _turned(e, found) if right else found
    return _with_factors(tracer, func, args, kwargs, [found])


@raw("_linalg_slogdet")
def slogdet(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    e = tracer.e
    return _with_factors(tracer, func, args, kwargs, e.emit("slogdet", _batch(e, tracer.read(args[0]))))


@raw("_linalg_det")
def determinant(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    """By its logarithm: NaN, or zero with a gradient of NaN, where the matrix is singular."""
    e = tracer.e
    sign, log = e.emit("slogdet", _batch(e, tracer.read(args[0])))
    return _with_factors(tracer, func, args, kwargs, [e.emit("mul", sign, e.emit("exp", log))])


@rule("linalg_qr")
def qr(e: Emitter, x: Value, mode: str = "reduced") -> tuple[Value, Value]:
    rows, columns = x.shape[-2:]
    if mode == "complete" and rows > columns:
        raise Unsupported("torch.linalg.qr with mode='complete'", remedy="The columns beyond are free: use 'reduced'.")
    q, r = e.emit("qr", _batch(e, x))
    first = e.number(0, e.outs[0].dtype, e.outs[0].shape) if mode == "r" else _back(e, q)
    return first, _back(e, r, 1)


@rule("_linalg_eigh")
def eigh(e: Emitter, x: Value, uplo: str = "L", compute_v: bool = True) -> tuple[Value, Value]:
    given = _batch(e, x)
    values, vectors = e.emit("eigh", _turned(e, given) if uplo.upper() == "U" else given)
    return _back(e, values), _back(e, vectors, 1) if compute_v else e.number(0, e.outs[1].dtype, e.outs[1].shape)


@rule("_linalg_svd")
def svd(
    e: Emitter, x: Value, full_matrices: bool = False, compute_uv: bool = True, driver: str | None = None
) -> tuple[Value, ...]:
    if compute_uv and full_matrices and x.shape[-2] != x.shape[-1]:
        raise Unsupported(
            "torch.linalg.svd with full_matrices=True", remedy="What is beyond is free: pass full_matrices=False."
        )
    found = e.emit("svd", _batch(e, x))
    kept = [True, True, True] if compute_uv else [False, True, False]
    return tuple(
        _back(e, v, i) if keep else e.number(0, e.outs[i].dtype, e.outs[i].shape)
        for i, (v, keep) in enumerate(zip(found, kept, strict=True))
    )


@raw("linalg_matrix_exp")
def matrix_exp(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> torch.Tensor:
    """Taylor's polynomial of the matrix halved until its norm is below a half, squared as often (Moler and Van Loan).

    How often depends on the values, so that it is done as often as may be needed, and what is not needed is dropped.
    """
    with tracer:
        (x,) = args
        norm = x.detach().abs().sum(-2).amax(-1).reshape(*x.shape[:-2], 1, 1)
        halvings = (norm.clamp(min=2.0**-20).log2() + 1).ceil().clamp(0, _HALVINGS)
        small = x * torch.exp2(-halvings)
        unit = torch.eye(x.shape[-1], dtype=x.dtype)
        result = unit + small / _TERMS
        for k in range(_TERMS - 1, 0, -1):
            result = unit + small @ result / k
        for turn in range(_HALVINGS):
            result = torch.where(halvings > turn, result @ result, result)
        return result


_TERMS, _HALVINGS = 8, 10
"""Terms for a norm of a half (the next is below 1e-8), and halvings for norms up to 512."""
