"""Factorisations and linear systems of batches of matrices, ``f32[b, n, n]``.

A matrix that has no answer (singular, or not positive definite) gives NaN or infinity, as arithmetic does, and no
error.
Gradients: Giles, "Collected matrix derivative results for forward and reverse mode", 2008; Seeger et al.,
"Auto-differentiating linear algebra", 2017, for ``qr``, ``eigh`` and ``svd``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from abele.errors import InvalidOperand, Unsupported
from abele.ir import (
    Arg,
    Builder,
    DType,
    Operation,
    Primitive,
    Sample,
    TensorType,
    Value,
    f32,
    register,
)
from abele.ir.operation import Attributes
from abele.ops.rules import need_operands

Types = Sequence[TensorType]
Arrays = Sequence[np.ndarray]
Given = Sequence[Value | None]


def _need(name: str, position: int, type_: TensorType, square: bool = True) -> tuple[int, int, int]:
    """Batch, rows and columns; raises ``InvalidOperand``."""
    if type_.rank != 3 or type_.dtype is not DType.F32 or (square and type_.shape[1] != type_.shape[2]):
        raise InvalidOperand(f"{name}: operand {position} must be f32[b, n, {'n' if square else 'm'}], it is {type_}")
    return type_.shape  # type: ignore[return-value]


def _each(function: Callable[..., np.ndarray | tuple[np.ndarray, ...]], *arrays: np.ndarray) -> list[np.ndarray]:
    """NumPy's function over the batch; what has no answer becomes NaN, the rest of the batch keeps its own."""
    first, *others = arrays
    try:
        found = function(*arrays)
    except np.linalg.LinAlgError:
        if len(first) > 1:
            rows = [_each(function, *(a[i : i + 1] for a in arrays)) for i in range(len(first))]
            return [np.concatenate(parts) for parts in zip(*rows, strict=True)]
        # the identity has an answer: of the shapes that are wanted
        like = _each(function, np.broadcast_to(np.eye(*first.shape[1:]), first.shape), *others)
        return [np.full_like(f, np.nan) for f in like]
    return list(found) if isinstance(found, tuple) else [found]


# Small things that gradients are made of


def _t(b: Builder, x: Value) -> Value:
    return b.transpose(x, permutation=(0, 2, 1))


def _filled(b: Builder, given: Value | None, like: Value) -> Value:
    return b.constant(0.0, DType.F32, like.shape) if given is None else given


def _diagonal(b: Builder, n: int, value: float = 1.0, other: float = 0.0) -> Value:
    """A matrix with one number on its diagonal and another beside it, ``[1, n, n]``."""
    row, column = (b.iota(shape=(1, n, n), axis=axis, dtype="i32") for axis in (1, 2))
    return b.select(b.eq(row, column), b.constant(value, DType.F32), b.constant(other, DType.F32))


def _spread(b: Builder, vector: Value, axis: int) -> Value:
    """A vector of each matrix as its rows or columns."""
    count, n = vector.shape
    return b.reshape(vector, shape=(count, n, 1) if axis == 1 else (count, 1, n))


def _on_diagonal(b: Builder, vector: Value) -> Value:
    return b.mul(_spread(b, vector, 1), _diagonal(b, vector.shape[1]))


# Cholesky


def _cholesky(operands: Arrays, attributes: Attributes, results: Types) -> Arrays:
    return _each(lambda a: np.linalg.cholesky(np.tril(a) + np.tril(a, -1).swapaxes(1, 2)), operands[0])


def _cholesky_gradient(b: Builder, op: Operation, given: Given) -> Given:
    """With P the lower triangle of Lᵀ dL, its diagonal halved: L⁻ᵀ P L⁻¹, made symmetric."""
    (dl,), l_ = given, op.result
    assert dl is not None
    lower = b.mul(b.tril(b.matmul(l_, dl, transpose_a=True)), _diagonal(b, l_.shape[1], 0.5, 1.0))
    left = b.triangular_solve(l_, lower, transpose=True)
    whole = _t(b, b.triangular_solve(l_, _t(b, left), transpose=True))
    return (b.mul(b.add(whole, _t(b, whole)), b.constant(0.5, DType.F32)),)


# Systems


def _solve(operands: Arrays, attributes: Attributes, results: Types) -> Arrays:
    a, y = operands
    return _each(np.linalg.solve, a.swapaxes(1, 2) if attributes["transpose"] else a, y)


def _solve_gradient(b: Builder, op: Operation, given: Given) -> Given:
    """For A X = Y: dY = A⁻ᵀ dX and dA = -dY Xᵀ."""
    (dx,), (a, _), turned = given, op.operands, bool(op.attributes["transpose"])
    dy = b.solve(a, dx, transpose=not turned)
    return (_outer(b, op.result, dy, turned), dy)


def _outer(b: Builder, x: Value, dy: Value, turned: bool) -> Value:
    first, second = (x, dy) if turned else (dy, x)
    return b.neg(b.matmul(first, second, transpose_b=True))


def _triangle(a: np.ndarray, attributes: Attributes) -> np.ndarray:
    part = np.triu(a) if attributes["upper"] else np.tril(a)
    if attributes["unit"]:
        n = np.arange(a.shape[1])
        part[:, n, n] = 1.0
    return part


def _triangular_solve(operands: Arrays, attributes: Attributes, results: Types) -> Arrays:
    """Row by row: each is known once those that it reads are."""
    a, y = _triangle(operands[0], attributes), operands[1]
    if attributes["transpose"]:
        a = a.swapaxes(1, 2)
    x = np.array(y, np.float64)
    forward = bool(attributes["upper"]) == bool(attributes["transpose"])
    order = range(a.shape[1]) if forward else range(a.shape[1] - 1, -1, -1)
    for i in order:
        done = slice(0, i) if forward else slice(i + 1, None)
        x[:, i] = (y[:, i] - np.einsum("bk,bkj->bj", a[:, i, done], x[:, done])) / a[:, i, i, None]
    return [x]


def _triangular_gradient(b: Builder, op: Operation, given: Given) -> Given:
    (dx,), (a, _), turned = given, op.operands, bool(op.attributes["transpose"])
    attributes = {**op.attributes, "transpose": not turned}
    (dy,) = b.emit("triangular_solve", (a, dx), attributes)  # type: ignore[arg-type]
    kept = -1 if op.attributes["unit"] else 0
    da = _outer(b, op.result, dy, turned)
    return (b.triu(da, diagonal=-kept) if op.attributes["upper"] else b.tril(da, diagonal=kept), dy)


def _infer_solve(name: str):
    def infer(operands: Types, attributes: Attributes) -> Types:
        need_operands(name, operands, 2)
        count, n, _ = _need(name, 0, operands[0])
        if _need(name, 1, operands[1], square=False)[:2] != (count, n):
            raise InvalidOperand(f"{name}: operand 1 must be f32[{count}, {n}, k], it is {operands[1]}")
        return [operands[1]]

    return infer


# Determinants


def _slogdet(operands: Arrays, attributes: Attributes, results: Types) -> Arrays:
    return list(np.linalg.slogdet(operands[0]))


def _slogdet_gradient(b: Builder, op: Operation, given: Given) -> Given:
    """A⁻ᵀ times the gradient of the logarithm; the sign has none."""
    (a,) = op.operands
    if given[1] is None:
        return (None,)
    unit = b.expand(_diagonal(b, a.shape[1]), shape=a.shape)
    slope = b.reshape(given[1], shape=(a.shape[0], 1, 1))
    return (b.mul(b.solve(a, unit, transpose=True), slope),)


# Orthogonal factors


def _qr(operands: Arrays, attributes: Attributes, results: Types) -> Arrays:
    return list(np.linalg.qr(operands[0]))


def _qr_gradient(b: Builder, op: Operation, given: Given) -> Given:
    """(dQ + Q M) R⁻ᵀ with M the lower triangle of R dRᵀ - dQᵀ Q, mirrored."""
    q, r = op.results
    if q.shape[2] > r.shape[2] or q.shape[1] < r.shape[2]:
        raise Unsupported(
            "The gradient of a QR factorisation of a matrix with more columns than rows",
            where=op.origin.where,
            remedy="Factorise its transpose, or its first columns.",
        )
    dq, dr = (_filled(b, g, v) for g, v in zip(given, op.results, strict=True))
    m = b.sub(b.matmul(r, dr, transpose_b=True), b.matmul(dq, q, transpose_a=True))
    m = b.add(b.tril(m), _t(b, b.tril(m, diagonal=-1)))
    whole = b.add(dq, b.matmul(q, m))
    return (_t(b, b.triangular_solve(r, _t(b, whole), upper=True)),)


def _eigh(operands: Arrays, attributes: Attributes, results: Types) -> Arrays:
    return _each(lambda a: tuple(np.linalg.eigh(a)), operands[0])


def _eigh_gradient(b: Builder, op: Operation, given: Given) -> Given:
    """V (diag(dw) + (Vᵀ dV) / E) Vᵀ with E[i, j] = w[j] - w[i]."""
    w, v = op.results
    inner = _on_diagonal(b, _filled(b, given[0], w))
    if given[1] is not None:
        gaps = b.sub(_spread(b, w, 2), _spread(b, w, 1))
        inner = b.add(inner, _over(b, b.matmul(v, given[1], transpose_a=True), gaps))
    return (b.matmul(b.matmul(v, inner), v, transpose_b=True),)


def _over(b: Builder, x: Value, gaps: Value) -> Value:
    """The quotient, zero where there is nothing to divide by."""
    none = b.constant(0.0, DType.F32)
    zero = b.eq(gaps, none)
    return b.select(zero, none, b.div(x, b.select(zero, b.constant(1.0, DType.F32), gaps)))


def _svd(operands: Arrays, attributes: Attributes, results: Types) -> Arrays:
    return _each(lambda a: tuple(np.linalg.svd(a, full_matrices=False)), operands[0])


def _svd_gradient(b: Builder, op: Operation, given: Given) -> Given:
    """U (((UᵀdU - its transpose) / E) S + S ((VᵀdV - its transpose) / E) + diag(ds)) Vᵀ, E[i, j] = s[j]² - s[i]², and
    for a matrix that is not square what dU and dV have beside U and V."""
    u, s, vt = op.results
    du, ds, dvt = given
    rows, columns = _spread(b, s, 1), _spread(b, s, 2)
    gaps = b.sub(b.mul(columns, columns), b.mul(rows, rows))
    inner = _on_diagonal(b, _filled(b, ds, s))
    beside = None
    if du is not None:
        turn = b.matmul(u, du, transpose_a=True)
        inner = b.add(inner, b.mul(_over(b, b.sub(turn, _t(b, turn)), gaps), columns))
        if u.shape[1] > u.shape[2]:
            rest = b.sub(du, b.matmul(u, turn))
            beside = b.matmul(b.div(rest, columns), vt)
    if dvt is not None:
        turn = b.matmul(vt, dvt, transpose_b=True)
        inner = b.add(inner, b.mul(rows, _over(b, b.sub(turn, _t(b, turn)), gaps)))
        if vt.shape[2] > vt.shape[1]:
            rest = b.sub(dvt, b.matmul(b.matmul(dvt, vt, transpose_b=True), vt))
            more = b.matmul(u, b.div(rest, rows))
            beside = more if beside is None else b.add(beside, more)
    whole = b.matmul(b.matmul(u, inner), vt)
    return (whole if beside is None else b.add(whole, beside),)


def _infer_one(name: str, results: Callable[[int, int, int], Sequence[tuple[int, ...]]], square: bool = True):
    def infer(operands: Types, attributes: Attributes) -> Types:
        need_operands(name, operands, 1)
        sizes = _need(name, 0, operands[0], square)
        return [TensorType(shape, DType.F32) for shape in results(*sizes)]

    return infer


_CUBES = {"cholesky": 1 / 3, "slogdet": 2 / 3, "solve": 2 / 3, "triangular_solve": 0, "qr": 4, "eigh": 9, "svd": 20}
"""Multiplications and additions of each, to the leading order, by the cube of the size."""


def factorize_flops(operation: str, operands: Types) -> int:
    """Multiplications and additions of an operation, those for right-hand sides included."""
    count, n, m = operands[0].shape
    least = min(n, m)
    right = operands[1].shape[2] if len(operands) > 1 else 0
    return int(count * (_CUBES[operation] * least * least * max(n, m) + 2 * right * n * n))


def _flops(operation: str):
    return lambda operands, results, attributes: factorize_flops(operation, operands)


def _samples(square: bool, definite: bool = False):
    def samples() -> Iterable[Sample]:
        for shape in ((3, 4, 4), (1, 5, 5), (2, 1, 1)) + (() if square else ((2, 5, 3), (1, 6, 2))):
            yield Sample((Arg(f32(*shape), "definite" if definite else "normal"),), {})

    return samples


def _system_samples(settings: Sequence[Attributes]):
    def samples() -> Iterable[Sample]:
        for setting in settings:
            yield Sample((Arg(f32(3, 4, 4), "definite"), Arg(f32(3, 4, 2))), setting)
        yield Sample((Arg(f32(1, 1, 1), "definite"), Arg(f32(1, 1, 3))), {})

    return samples


_TRIANGULAR = [
    {"upper": upper, "transpose": transpose, "unit": unit}
    for upper in (False, True)
    for transpose in (False, True)
    for unit in (False, True)
]
register(Primitive("cholesky", {}, _infer_one("cholesky", lambda c, n, _: [(c, n, n)]), _cholesky, _cholesky_gradient,
                   _flops("cholesky"), _samples(True, definite=True)))  # fmt: skip
register(Primitive("solve", {"transpose": False}, _infer_solve("solve"), _solve, _solve_gradient, _flops("solve"),
                   _system_samples([{}, {"transpose": True}])))  # fmt: skip
register(Primitive("triangular_solve", {"upper": False, "transpose": False, "unit": False},
                   _infer_solve("triangular_solve"), _triangular_solve, _triangular_gradient,
                   _flops("triangular_solve"), _system_samples(_TRIANGULAR)))  # fmt: skip
register(Primitive("slogdet", {}, _infer_one("slogdet", lambda c, n, _: [(c,), (c,)]), _slogdet, _slogdet_gradient,
                   _flops("slogdet"), _samples(True, definite=True)))  # fmt: skip
_REDUCED = {
    "qr": lambda c, n, m: [(c, n, min(n, m)), (c, min(n, m), m)],
    "svd": lambda c, n, m: [(c, n, min(n, m)), (c, min(n, m)), (c, min(n, m), m)],
}
register(Primitive("qr", {}, _infer_one("qr", _REDUCED["qr"], square=False), _qr, _qr_gradient, _flops("qr"),
                   _samples(False)))  # fmt: skip
register(Primitive("eigh", {}, _infer_one("eigh", lambda c, n, _: [(c, n), (c, n, n)]), _eigh, _eigh_gradient,
                   _flops("eigh"), _samples(True, definite=True)))  # fmt: skip
register(Primitive("svd", {}, _infer_one("svd", _REDUCED["svd"], square=False), _svd, _svd_gradient, _flops("svd"),
                   _samples(False)))  # fmt: skip
