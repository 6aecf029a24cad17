"""Scaled dot-product attention, and its gradient with the probabilities made again.

``attention`` stays one operation through differentiation: its gradient is ``attention_grad``, which computes the scores
and probabilities anew from ``q`` and ``k``, so that nothing of size L × S lives from forward to backward.
Everything inside is in float, whatever the type of the operands; each result is rounded once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from abele.errors import InvalidOperand
from abele.ir import (
    REQUIRED,
    Arg,
    Builder,
    Composite,
    DType,
    NotDifferentiable,
    Operation,
    Sample,
    TensorType,
    Value,
    f16,
    f32,
    register,
)
from abele.ir.operation import Attributes
from abele.ops.rules import to_float, unbroadcast


def _check(name: str, q: TensorType, k: TensorType, v: TensorType, mask: TensorType | None) -> None:
    if q.rank < 2 or not q.dtype.is_float:
        raise InvalidOperand(f"{name}: q must be float [..., L, E], it is {q}")
    lead = q.shape[:-2]
    if k.rank != q.rank or k.shape[:-2] != lead or k.shape[-1] != q.shape[-1] or k.dtype != q.dtype:
        raise InvalidOperand(
            f"{name}: k must be {q.dtype} [..., S, E] with the leading sizes and E of q {q}, it is {k}"
        )
    if v.rank != q.rank or v.shape[:-1] != k.shape[:-1] or v.dtype != q.dtype:
        raise InvalidOperand(
            f"{name}: v must be {q.dtype} [..., S, V] with the leading sizes and S of k {k}, it is {v}"
        )
    if mask is None:
        return
    scores = (*lead, q.shape[-2], k.shape[-2])
    fits = mask.rank <= len(scores) and all(m in (1, s) for m, s in zip(mask.shape[::-1], scores[::-1], strict=False))
    if not mask.dtype.is_float or not fits:
        raise InvalidOperand(f"{name}: the mask is added to scores {list(scores)} and must be float, it is {mask}")


def _probabilities(b: Builder, q: Value, k: Value, mask: Value | None, attributes: Attributes) -> Value:
    """``softmax(scale · q kᵀ + mask)`` in float, over the last axis; ``q`` and ``k`` are float already.

    A query for which every key is masked with minus infinity gets zeros, as in torch.
    """
    scores = b.mul(b.matmul(q, k, transpose_b=True), b.constant(float(attributes["scale"]), DType.F32))
    if mask is not None:
        scores = b.add(scores, to_float(b, mask))
    if attributes["causal"]:
        shape = scores.shape[-2:]
        row, column = (b.iota(shape=shape, axis=axis, dtype="i32") for axis in (0, 1))
        scores = b.select(b.ge(row, column), scores, b.constant(float("-inf"), DType.F32))
    return b.softmax(scores, axis=len(scores.shape) - 1, safe=True)


def _attention(b: Builder, operands: Sequence[Value], attributes: Attributes) -> list[Value]:
    if len(operands) not in (3, 4):
        raise InvalidOperand(f"attention takes q, k, v and perhaps a mask, not {len(operands)} operands")
    q, k, v, *masks = operands
    mask = masks[0] if masks else None
    _check("attention", q.type, k.type, v.type, mask.type if mask else None)
    p = _probabilities(b, to_float(b, q), to_float(b, k), mask, attributes)
    return [b.cast_to(b.matmul(p, to_float(b, v)), q.dtype)]


def _attention_gradient(b: Builder, op: Operation, d: Sequence[Value | None]) -> list[Value | None]:
    (dy,) = d
    if dy is None:
        return [None] * len(op.operands)
    found: list[Value | None] = list(b.emit("attention_grad", (dy, *op.operands), op.attributes))
    if len(op.operands) == 4:
        found.append(b.emit("attention_mask_grad", (dy, *op.operands), op.attributes)[0])
    return found


def _score_gradient(b: Builder, operands: Sequence[Value], attributes: Attributes) -> tuple[Value, Value]:
    """The probabilities and the gradient of the scores before masking and scaling, both float[..., L, S].

    With ``dP = dy vᵀ``: ``dS = P · (dP - sum(P · dP))``, the sum over keys.
    """
    dy, q, k, v, *masks = operands
    p = _probabilities(b, to_float(b, q), to_float(b, k), masks[0] if masks else None, attributes)
    dp = b.matmul(to_float(b, dy), to_float(b, v), transpose_b=True)
    row = b.reduce_sum(b.mul(p, dp), axes=(len(p.shape) - 1,), keep=True)
    return p, b.mul(p, b.sub(dp, row))


def _check_grad(name: str, operands: Sequence[Value]) -> None:
    if len(operands) not in (4, 5):
        raise InvalidOperand(f"{name} takes dy, q, k, v and perhaps a mask, not {len(operands)} operands")
    dy, q, k, v, *masks = (x.type for x in operands)
    _check(name, q, k, v, masks[0] if masks else None)
    wanted = q.with_shape((*q.shape[:-1], v.shape[-1]))
    if dy != wanted:
        raise InvalidOperand(f"{name}: dy must be {wanted}, it is {dy}")


def _attention_grad(b: Builder, operands: Sequence[Value], attributes: Attributes) -> list[Value]:
    _check_grad("attention_grad", operands)
    dy, q, k = operands[:3]
    p, ds = _score_gradient(b, operands, attributes)
    ds = b.mul(ds, b.constant(float(attributes["scale"]), DType.F32))
    dq = b.matmul(ds, to_float(b, k))
    dk = b.matmul(ds, to_float(b, q), transpose_a=True)
    dv = b.matmul(p, to_float(b, dy), transpose_a=True)
    return [b.cast_to(x, q.dtype) for x in (dq, dk, dv)]


def _attention_mask_grad(b: Builder, operands: Sequence[Value], attributes: Attributes) -> list[Value]:
    _check_grad("attention_mask_grad", operands)
    if len(operands) != 5:
        raise InvalidOperand("attention_mask_grad takes dy, q, k, v and the mask")
    mask = operands[4]
    ds = _score_gradient(b, operands, attributes)[1]
    return [b.cast_to(unbroadcast(b, ds, mask.shape), mask.dtype)]


def _cases() -> Iterable[tuple[TensorType, TensorType, TensorType, TensorType | None, bool]]:
    yield f32(2, 3, 5, 4), f32(2, 3, 7, 4), f32(2, 3, 7, 6), None, False
    yield f32(2, 2, 6, 4), f32(2, 2, 6, 4), f32(2, 2, 6, 4), None, True
    yield f16(1, 3, 5, 8), f16(1, 3, 5, 8), f16(1, 3, 5, 8), f16(1, 1, 1, 5), False
    yield f32(2, 3, 5, 4), f32(2, 3, 7, 4), f32(2, 3, 7, 4), f32(2, 1, 5, 7), False
    yield f32(5, 4), f32(3, 4), f32(3, 2), f32(5, 3), False
    yield f16(3, 9, 2), f16(3, 9, 2), f16(3, 9, 2), None, True
    yield f32(3, 1, 4), f32(3, 1, 4), f32(3, 1, 4), None, False
    yield f32(0, 2, 4), f32(0, 3, 4), f32(0, 3, 4), None, False


def _samples(grad: bool, masked: bool | None = None) -> Iterable[Sample]:
    for q, k, v, mask, causal in _cases():
        if masked and mask is None:
            continue
        types = [q, k, v] if mask is None else [q, k, v, mask]
        if grad:
            types.insert(0, q.with_shape((*q.shape[:-1], v.shape[-1])))
        attributes = {"scale": q.shape[-1] ** -0.5, "causal": causal}
        yield Sample(tuple(Arg(t) for t in types), attributes, "masked" if mask else "")


def _attention_calls(b: Builder, operands: Sequence[Value], attributes: Attributes) -> list[Value]:
    """Attention as the vendor's frameworks ran it: scores, scaling, mask and softmax are operations of their own, each
    in the operands' type."""
    q, k, v, *masks = operands
    _check("attention_calls", q.type, k.type, v.type, masks[0].type if masks else None)
    scores = b.matmul(q, k, transpose_b=True)
    scores = b.mul(scores, b.constant(float(attributes["scale"]), q.dtype))
    if masks:
        scores = b.add(scores, b.cast_to(masks[0], q.dtype))
    if attributes["causal"]:
        row, column = (b.iota(shape=scores.shape[-2:], axis=axis, dtype="i32") for axis in (0, 1))
        scores = b.select(b.ge(row, column), scores, b.constant(float("-inf"), q.dtype))
    return [b.matmul(b.softmax(scores, axis=len(scores.shape) - 1, safe=True), v)]


_ATTRIBUTES = {"scale": REQUIRED, "causal": False}
_SECOND = NotDifferentiable("second derivatives of attention are not provided")

register(
    Composite(
        "attention", _ATTRIBUTES, _attention, lambda: _samples(False), _attention_gradient, calls="attention_calls"
    )
)
# In half every result inside is rounded, so that only float samples can be held against attention in one go.
register(
    Composite(
        "attention_calls",
        _ATTRIBUTES,
        _attention_calls,
        lambda: (s for s in _samples(False) if s.operands[0].type.dtype is DType.F32),
    )
)
register(Composite("attention_grad", _ATTRIBUTES, _attention_grad, lambda: _samples(True), _SECOND))
register(Composite("attention_mask_grad", _ATTRIBUTES, _attention_mask_grad, lambda: _samples(True, True), _SECOND))
