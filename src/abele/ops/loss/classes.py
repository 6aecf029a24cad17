"""Losses over classes: negative log-likelihood and cross-entropy, with class weights, ignored targets and smoothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from abele.errors import InvalidOperand
from abele.ir import (
    Arg,
    Builder,
    Composite,
    DType,
    Sample,
    TensorType,
    Value,
    f16,
    f32,
    i32,
    register,
)
from abele.ir.operation import Attributes
from abele.ops.loss.op import number, reduced, total
from abele.ops.rules import to_float


def _check(name: str, operands: Sequence[Value]) -> tuple[Value, Value, Value | None]:
    """Scores ``[N, C, *]``, target classes ``i32[N, *]`` and perhaps weights ``[C]``."""
    if len(operands) not in (2, 3):
        raise InvalidOperand(f"{name} takes scores, targets and perhaps class weights, not {len(operands)} operands")
    scores, target, *weights = operands
    if scores.type.rank < 2 or not scores.dtype.is_float:
        raise InvalidOperand(f"{name}: operand 0 must be float [N, C, ...], it is {scores.type}")
    if weights and weights[0].type != scores.type.with_shape(scores.shape[1:2]):
        raise InvalidOperand(
            f"{name}: operand 2 (class weights) must be one of {scores.shape[1]} {scores.dtype} numbers"
        )
    return scores, target, weights[0] if weights else None


def _check_target(name: str, scores: Value, target: Value) -> None:
    wanted = TensorType((scores.shape[0], *scores.shape[2:]), DType.I32)
    if target.type != wanted:
        raise InvalidOperand(f"{name}: operand 1 (targets) must be {wanted}, it is {target.type}")


class _Targets:
    """What a loss over classes needs of its targets: which count, and with what weight."""

    def __init__(self, b: Builder, target: Value, weight: Value | None, ignore: int) -> None:
        self.b = b
        self.counted = b.ne(target, b.constant(ignore, DType.I32))
        self.safe = b.select(self.counted, target, b.constant(0, DType.I32))
        self.weight = None if weight is None else b.gather(to_float(b, weight), self.safe, axis=0)

    def nll(self, log_p: Value) -> Value:
        """Weighted ``-log p`` of the target class, 0 where it is ignored: float ``[N, *]``."""
        b = self.b
        index = b.reshape(self.safe, shape=(self.safe.shape[0], 1, *self.safe.shape[1:]))
        picked = b.neg(b.reshape(b.gather_elements(log_p, index, axis=1), shape=self.safe.shape))
        return self.mask(picked if self.weight is None else b.mul(picked, self.weight))

    def mask(self, losses: Value) -> Value:
        return self.b.select(self.counted, losses, number(self.b, 0.0))

    def mean(self, losses: Value) -> Value:
        """Sum over the total weight of the targets that count; not a number when none does, as in torch."""
        b = self.b
        each = b.cast(self.counted, dtype="f32") if self.weight is None else self.mask(self.weight)
        return b.div(total(b, losses), total(b, each))


def _reduced(b: Builder, name: str, losses: Value, targets: _Targets, attributes: Attributes, dtype: DType) -> Value:
    if attributes["reduction"] == "mean":
        return b.cast_to(targets.mean(losses), dtype)
    return reduced(b, name, losses, attributes["reduction"], dtype)


def _nll(b: Builder, operands: Sequence[Value], attributes: Attributes) -> list[Value]:
    log_p, target, weight = _check("nll_loss", operands)
    _check_target("nll_loss", log_p, target)
    targets = _Targets(b, target, weight, int(attributes["ignore_index"]))
    losses = targets.nll(to_float(b, log_p))
    return [_reduced(b, "nll_loss", losses, targets, attributes, log_p.dtype)]


def _cross_entropy(b: Builder, operands: Sequence[Value], attributes: Attributes) -> list[Value]:
    """``nll_loss`` of the log-softmax, in float.

    With smoothing ``s`` the target distribution is ``1 - s`` on the target and ``s / C`` on every class. A
    target of the scores' own shape and type holds probabilities (no ``ignore_index`` then).
    """
    logits, target, weight = _check("cross_entropy", operands)
    smoothing = float(attributes["smoothing"])
    if not 0.0 <= smoothing <= 1.0:
        raise InvalidOperand(f"cross_entropy: smoothing={smoothing} lies outside [0, 1]")
    log_p = b.log_softmax(to_float(b, logits), axis=1)
    if target.dtype.is_float:
        return [_soft(b, logits, log_p, target, weight, attributes)]
    _check_target("cross_entropy", logits, target)
    targets = _Targets(b, target, weight, int(attributes["ignore_index"]))
    losses = targets.nll(log_p)
    if smoothing:
        spread = targets.mask(b.neg(b.reduce_sum(_weighted(b, log_p, weight), axes=(1,), keep=False)))
        losses = b.add(b.mul(losses, number(b, 1.0 - smoothing)), b.mul(spread, number(b, smoothing / logits.shape[1])))
    return [_reduced(b, "cross_entropy", losses, targets, attributes, logits.dtype)]


def _weighted(b: Builder, x: Value, weight: Value | None) -> Value:
    """``x[N, C, *]`` times a weight for each class."""
    if weight is None:
        return x
    return b.mul(x, b.reshape(to_float(b, weight), shape=(weight.shape[0],) + (1,) * (x.type.rank - 2)))


def _soft(
    b: Builder, logits: Value, log_p: Value, target: Value, weight: Value | None, attributes: Attributes
) -> Value:
    if target.type != logits.type:
        raise InvalidOperand(f"cross_entropy: operand 1 (probabilities) must be {logits.type}, it is {target.type}")
    smoothing, classes = float(attributes["smoothing"]), logits.shape[1]
    share = to_float(b, target)
    if smoothing:
        share = b.add(b.mul(share, number(b, 1.0 - smoothing)), number(b, smoothing / classes))
    losses = b.neg(b.reduce_sum(b.mul(share, _weighted(b, log_p, weight)), axes=(1,), keep=False))
    if attributes["reduction"] == "mean":  # over the targets, each counted once whatever its weights
        return b.cast_to(b.div(total(b, losses), number(b, losses.type.size)), logits.dtype)
    return reduced(b, "cross_entropy", losses, attributes["reduction"], logits.dtype)


def _cases() -> Iterable[tuple[TensorType, TensorType, int, bool]]:
    """Scores, targets, ``ignore_index`` and whether there are class weights."""
    yield f32(5, 4), i32(5), -100, False
    yield f32(5, 4), i32(5), 2, True
    yield f16(6, 3), i32(6), -100, False
    yield f32(3, 4, 5), i32(3, 5), 1, False
    yield f32(2, 3, 2, 3), i32(2, 2, 3), -100, True
    yield f32(1, 1), i32(1), -100, False


def _samples(smoothings: Sequence[float] | None):
    def samples() -> Iterable[Sample]:
        for scores, target, ignore, weighted in _cases():
            for reduction in ("mean", "sum", "none"):
                for smoothing in smoothings or (None,):
                    attributes: dict = {"reduction": reduction, "ignore_index": ignore}
                    if smoothing is not None:
                        attributes["smoothing"] = smoothing
                    args = [Arg(scores), Arg(target, "integers", 0, scores.shape[1])]
                    if weighted:
                        args.append(Arg(scores.with_shape(scores.shape[1:2]), "uniform", 0.5, 2.0))
                    yield Sample(tuple(args), attributes, "weighted" if weighted else "")
        if smoothings:
            soft = Arg(f32(4, 3), "uniform", 0.0, 1.0)
            yield Sample((Arg(f32(4, 3)), soft), {"reduction": "mean", "smoothing": 0.1}, "probabilities")

    return samples


_ATTRIBUTES = {"reduction": "mean", "ignore_index": -100}

register(Composite("nll_loss", _ATTRIBUTES, _nll, _samples(None)))
register(Composite("cross_entropy", {**_ATTRIBUTES, "smoothing": 0.0}, _cross_entropy, _samples((0.0, 0.1))))
