"""Losses, with the definitions and reductions of torch. Composites; computed in float and rounded once to the operand's
type.

Reductions are ``none``, ``mean`` and ``sum`` (``kl_div`` also ``batchmean``: the sum over the size of dimension 0).
Both operands have one shape; the importer broadcasts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from abele.errors import InvalidOperand
from abele.ir import (
    Arg,
    Builder,
    Composite,
    DType,
    Operation,
    Sample,
    TensorType,
    Value,
    f16,
    f32,
    register,
)
from abele.ir.operation import Attributes
from abele.ops.rules import to_float

LOG_FLOOR = -100.0
"""Binary cross-entropy takes no logarithm below this, as torch does."""


def number(b: Builder, value: float) -> Value:
    """A float constant."""
    return b.constant(float(value), DType.F32)


def total(b: Builder, x: Value) -> Value:
    """Sum of all elements, a scalar."""
    return b.reduce_sum(x, axes=tuple(range(x.type.rank)), keep=False) if x.type.rank else x


def reduced(b: Builder, name: str, x: Value, reduction: object, dtype: DType, extra: Sequence[str] = ()) -> Value:
    """The float losses ``x`` reduced and rounded to ``dtype``."""
    if reduction == "none":
        return b.cast_to(x, dtype)
    if reduction == "sum":
        return b.cast_to(total(b, x), dtype)
    if reduction == "mean":
        return b.cast_to(b.div(total(b, x), number(b, x.type.size)), dtype)
    if reduction == "batchmean" and reduction in extra:
        return b.cast_to(b.div(total(b, x), number(b, x.shape[0] if x.shape else 1)), dtype)
    known = ", ".join(("none", "mean", "sum", *extra))
    raise InvalidOperand(f"{name}: reduction {reduction!r} is not one of {known}")


def _pair(name: str, operands: Sequence[Value]) -> tuple[Value, Value]:
    if len(operands) != 2 or operands[0].type != operands[1].type or not operands[0].dtype.is_float:
        have = ", ".join(str(v.type) for v in operands)
        raise InvalidOperand(f"{name} takes two float operands of one type, not ({have})")
    return operands[0], operands[1]


_PAIRS = (f32(4, 3), f16(3, 7), f32(5), f32(), f32(2, 3, 5), f16(1, 1))


def _pair_samples(more: Iterable[dict] = ({},), first: Callable = Arg, second: Callable = Arg):
    def samples() -> Iterable[Sample]:
        for i, type_ in enumerate((*_PAIRS, f32(0, 3))):
            for attributes in more:
                reduction = ("mean", "sum", "none")[i % 3] if type_.size else "sum"
                yield Sample((first(type_), second(type_)), {"reduction": reduction} | attributes)

    return samples


def _elementwise(name: str, formula: Callable[[Builder, Value, Value, Attributes], Value]):
    """A composite's expansion: the float losses by ``formula``, then the reduction."""

    def expand(b: Builder, operands: Sequence[Value], attributes: Attributes) -> list[Value]:
        x, t = _pair(name, operands)
        losses = formula(b, to_float(b, x), to_float(b, t), attributes)
        return [reduced(b, name, losses, attributes["reduction"], x.dtype)]

    return expand


# Regression


def _mse(b: Builder, x: Value, t: Value, attributes: Attributes) -> Value:
    d = b.sub(x, t)
    return b.mul(d, d)


def _l1(b: Builder, x: Value, t: Value, attributes: Attributes) -> Value:
    return b.abs(b.sub(x, t))


def _quadratic_then_linear(b: Builder, d: Value, edge: float) -> Value:
    """``d²/2`` up to ``edge`` and ``edge (|d| - edge/2)`` beyond."""
    size = b.abs(d)
    inner = b.mul(b.mul(d, d), number(b, 0.5))
    outer = b.mul(b.sub(size, number(b, 0.5 * edge)), number(b, edge))
    return b.select(b.lt(size, number(b, edge)), inner, outer)


def _smooth_l1(b: Builder, x: Value, t: Value, attributes: Attributes) -> Value:
    beta = float(attributes["beta"])
    if beta < 0:
        raise InvalidOperand(f"smooth_l1_loss: beta={beta} is negative")
    d = b.sub(x, t)
    return b.abs(d) if beta == 0 else b.div(_quadratic_then_linear(b, d, beta), number(b, beta))


def _huber(b: Builder, x: Value, t: Value, attributes: Attributes) -> Value:
    delta = float(attributes["delta"])
    if delta <= 0:
        raise InvalidOperand(f"huber_loss: delta={delta} is not positive")
    return _quadratic_then_linear(b, b.sub(x, t), delta)


register(Composite("mse_loss", {"reduction": "mean"}, _elementwise("mse_loss", _mse), _pair_samples()))
register(Composite("l1_loss", {"reduction": "mean"}, _elementwise("l1_loss", _l1), _pair_samples()))
register(
    Composite(
        "smooth_l1_loss",
        {"reduction": "mean", "beta": 1.0},
        _elementwise("smooth_l1_loss", _smooth_l1),
        _pair_samples(({"beta": 1.0}, {"beta": 0.25}, {"beta": 0.0})),
    )
)
register(
    Composite(
        "huber_loss",
        {"reduction": "mean", "delta": 1.0},
        _elementwise("huber_loss", _huber),
        _pair_samples(({"delta": 1.0}, {"delta": 0.25})),
    )
)


# Binary cross-entropy


def _chance(type_: TensorType) -> Arg:
    return Arg(type_, "uniform", 0.05, 0.95)


def _logs(b: Builder, p: Value) -> tuple[Value, Value]:
    """``log p`` and ``log (1 - p)``, neither below the floor."""
    floor = number(b, LOG_FLOOR)
    return b.max(b.log(p), floor), b.max(b.log1p(b.neg(p)), floor)


def _bce(b: Builder, p: Value, t: Value, attributes: Attributes) -> Value:
    log_p, log_q = _logs(b, p)
    return b.neg(b.add(b.mul(t, log_p), b.mul(b.sub(number(b, 1.0), t), log_q)))


def _share(b: Builder, op: Operation, dy: Value) -> Value:
    """The float gradient of each loss before reduction: a scalar or the losses' shape."""
    d = to_float(b, dy)
    if op.attributes["reduction"] == "mean":
        d = b.div(d, number(b, op.operands[0].type.size))
    return d


def _bce_gradient(b: Builder, op: Operation, d: Sequence[Value | None]) -> list[Value | None]:
    """``(p - t) / max(p (1 - p), 1e-12)``: finite where the formula's own derivative is not."""
    if d[0] is None:
        return [None, None]
    share, p, t = _share(b, op, d[0]), to_float(b, op.operands[0]), to_float(b, op.operands[1])
    slope = b.max(b.mul(p, b.sub(number(b, 1.0), p)), number(b, 1e-12))
    log_p, log_q = _logs(b, p)
    dp, dt = b.mul(share, b.div(b.sub(p, t), slope)), b.mul(share, b.sub(log_q, log_p))
    return [b.cast_to(x, op.operands[0].dtype) for x in (dp, dt)]


register(
    Composite(
        "bce_loss",
        {"reduction": "mean"},
        _elementwise("bce_loss", _bce),
        _pair_samples(first=_chance, second=_chance),
        _bce_gradient,
    )
)


def _bce_with_logits(b: Builder, x: Value, t: Value, attributes: Attributes) -> Value:
    """``max(x, 0) - x t + log(1 + exp(-|x|))``."""
    return b.add(b.sub(b.relu(x), b.mul(x, t)), b.log1p(b.exp(b.neg(b.abs(x)))))


def _bce_with_logits_gradient(b: Builder, op: Operation, d: Sequence[Value | None]) -> list[Value | None]:
    """``sigmoid(x) - t``, smooth where the stable form of the loss has kinks."""
    if d[0] is None:
        return [None, None]
    share, x, t = _share(b, op, d[0]), to_float(b, op.operands[0]), to_float(b, op.operands[1])
    dx, dt = b.mul(share, b.sub(b.sigmoid(x), t)), b.mul(share, b.neg(x))
    return [b.cast_to(g, op.operands[0].dtype) for g in (dx, dt)]


register(
    Composite(
        "bce_with_logits",
        {"reduction": "mean"},
        _elementwise("bce_with_logits", _bce_with_logits),
        _pair_samples(second=_chance),
        _bce_with_logits_gradient,
    )
)


# Kullback-Leibler divergence


def _kl_div(b: Builder, operands: Sequence[Value], attributes: Attributes) -> list[Value]:
    """``t (log t - x)``, with ``x`` a log-probability and ``t`` a probability (or its log)."""
    x, t = _pair("kl_div", operands)
    log_p, target = to_float(b, x), to_float(b, t)
    if attributes["log_target"]:
        losses = b.mul(b.exp(target), b.sub(target, log_p))
    else:
        # 0 log 0 is 0, in value and gradient.
        safe = b.select(b.eq(target, number(b, 0.0)), number(b, 1.0), target)
        losses = b.sub(b.mul(target, b.log(safe)), b.mul(target, log_p))
    return [reduced(b, "kl_div", losses, attributes["reduction"], x.dtype, ("batchmean",))]


def _kl_samples() -> Iterable[Sample]:
    for log_target in (False, True):
        yield from _pair_samples(({"log_target": log_target},), second=Arg if log_target else _chance)()
        yield Sample(
            (Arg(f32(4, 3)), Arg(f32(4, 3), "uniform", 0, 1)), {"reduction": "batchmean", "log_target": log_target}
        )


register(Composite("kl_div", {"reduction": "mean", "log_target": False}, _kl_div, _kl_samples))


def _identity(b: Builder, operands: Sequence[Value], attributes: Attributes) -> list[Value]:
    """The operand itself, or its mean or sum: marks a user's own loss."""
    if len(operands) != 1 or not operands[0].dtype.is_float:
        raise InvalidOperand(f"identity_loss takes one float operand, not ({', '.join(str(v.type) for v in operands)})")
    (x,) = operands
    if attributes["reduction"] == "none":
        return [x]
    return [reduced(b, "identity_loss", to_float(b, x), attributes["reduction"], x.dtype)]


register(
    Composite(
        "identity_loss",
        {"reduction": "none"},
        _identity,
        lambda: [
            Sample((Arg(t),), {"reduction": reduction}) for t in _PAIRS[:4] for reduction in ("none", "mean", "sum")
        ],
    )
)
