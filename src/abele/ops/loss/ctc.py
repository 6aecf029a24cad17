"""Connectionist temporal classification: the loss of unaligned labels, its gradient, and decoding by beam search.

Source: Graves et al., "Connectionist Temporal Classification", ICML 2006. The labels of a sample are spread out with
blanks between them, ``l' = (blank, l1, blank, l2 … blank)`` of 2S + 1 places; a path walks over them in time, one or
two places a step (two only over a blank between different labels). All is done on logarithms, in float.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from abele.errors import InvalidOperand
from abele.ir import (
    Arg,
    Builder,
    DType,
    NotDifferentiable,
    Operation,
    Primitive,
    Sample,
    TensorType,
    Value,
    f16,
    f32,
    i32,
    register,
)
from abele.ir.operation import Attributes
from abele.ops.rules import need_operands, to_float

Arrays = Sequence[np.ndarray]


def _check(name: str, operands: Sequence[TensorType], attributes: Attributes, labels: bool) -> None:
    """Log-probabilities ``[T, N, C]``, labels ``i32[N, S]``, their lengths and those of the inputs, ``i32[N]``."""
    need_operands(name, operands, 4 if labels else 2)
    logp, lengths = operands[0], operands[2 if labels else 1]
    if logp.rank != 3 or not logp.dtype.is_float:
        raise InvalidOperand(f"{name}: operand 0 must be float [time, batch, class], it is {logp}")
    _, batch, classes = logp.shape
    of_batch = TensorType((batch,), DType.I32)
    if lengths != of_batch:
        raise InvalidOperand(f"{name}: input lengths must be {of_batch}, they are {lengths}")
    if not 0 <= int(attributes["blank"]) < classes:
        raise InvalidOperand(f"{name}: blank={attributes['blank']} is none of the {classes} classes")
    if labels:
        targets = operands[1]
        if targets.rank != 2 or targets.shape[0] != batch or targets.dtype is not DType.I32:
            raise InvalidOperand(f"{name}: operand 1 must be labels i32[{batch}, S], it is {targets}")
        if operands[3] != of_batch:
            raise InvalidOperand(f"{name}: label lengths must be {of_batch}, they are {operands[3]}")


class _Lattice:
    """The places of the labels over time: probabilities of reaching each, and of ending from it."""

    def __init__(self, operands: Arrays, blank: int) -> None:
        self.logp, labels, self.steps, self.counts = operands
        self.rows = np.arange(labels.shape[0])
        self.places = np.full((labels.shape[0], 2 * labels.shape[1] + 1), blank)
        self.places[:, 1::2] = np.clip(labels, 0, self.logp.shape[2] - 1)
        self.jump = np.zeros(self.places.shape, bool)
        self.jump[:, 2:] = (self.places[:, 2:] != blank) & (self.places[:, 2:] != self.places[:, :-2])
        self.here = self.logp[:, self.rows[:, None], self.places]  # [T, N, 2S + 1]

    def _ends(self) -> np.ndarray:
        """The last blank and the last label of each sample: the places where a path may end."""
        at = np.arange(self.places.shape[1])
        last = 2 * self.counts[:, None]
        return (at == last) | (at == last - 1)

    def forward(self) -> np.ndarray:
        """Log-probability of all paths that are at each place after each step; a sample that is over stands still."""
        alpha = np.full(self.here.shape, -np.inf)
        for t, here in enumerate(self.here):
            if t == 0:
                alpha[0, :, :2] = here[:, :2]
                continue
            before = alpha[t - 1]
            reached = _sum(before, _shifted(before, 1), np.where(self.jump, _shifted(before, 2), -np.inf)) + here
            alpha[t] = np.where((t < self.steps)[:, None], reached, before)
        return alpha

    def backward(self) -> np.ndarray:
        """Log-probability of all ways to the end from each place, its own step included."""
        beta = np.full(self.here.shape, -np.inf)
        after = np.full(self.places.shape, -np.inf)
        leap = _shifted(self.jump, -2, False)
        for t in range(len(self.here) - 1, -1, -1):
            here = self.here[t]
            going = _sum(after, _shifted(after, -1), np.where(leap, _shifted(after, -2), -np.inf)) + here
            ending = np.where(self._ends(), here, -np.inf)
            after = np.where(
                (self.steps == t + 1)[:, None], ending, np.where((self.steps > t)[:, None], going, -np.inf)
            )
            beta[t] = after
        return beta

    def losses(self, alpha: np.ndarray) -> np.ndarray:
        """Minus the logarithm of the probability of the labels."""
        nothing = np.where(self.counts == 0, 0.0, -np.inf)
        if not len(alpha):
            return -nothing
        final = np.where(self._ends(), alpha[-1], -np.inf)
        return -np.where(self.steps > 0, np.logaddexp.reduce(final, axis=1), nothing)


def _shifted(x: np.ndarray, by: int, fill: float | bool = -np.inf) -> np.ndarray:
    """Along the places, towards higher ones for ``by`` above 0."""
    out = np.full_like(x, fill)
    if by > 0:
        out[:, by:] = x[:, :-by]
    else:
        out[:, :by] = x[:, -by:]
    return out


def _sum(*terms: np.ndarray) -> np.ndarray:
    return np.logaddexp(np.logaddexp(terms[0], terms[1]), terms[2])


def _infer_loss(operands: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
    _check("ctc_loss", operands, attributes, labels=True)
    return [TensorType(operands[0].shape[1:2], DType.F32)]


def _loss(operands: Arrays, attributes: Attributes, results: Sequence[TensorType]) -> Arrays:
    lattice = _Lattice(operands, int(attributes["blank"]))
    losses = lattice.losses(lattice.forward())
    return [np.where(np.isinf(losses), 0.0, losses) if attributes["zero_infinity"] else losses]


def _infer_gradient(operands: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
    _check("ctc_loss_gradient", operands, attributes, labels=True)
    return [operands[0].with_dtype(DType.F32)]


def _slopes(operands: Arrays, attributes: Attributes, results: Sequence[TensorType]) -> Arrays:
    lattice = _Lattice(operands, int(attributes["blank"]))
    alpha, beta, logp = lattice.forward(), lattice.backward(), lattice.logp
    losses = lattice.losses(alpha)
    passing = alpha + beta + np.where(np.isinf(losses), np.nan, losses)[:, None]
    share = np.where(np.isneginf(passing), 0.0, np.exp(passing - np.where(np.isneginf(lattice.here), 0, lattice.here)))
    slopes = np.exp(logp)
    at = np.broadcast_to(lattice.places, share.shape)
    steps, rows = np.ogrid[: len(logp), : logp.shape[1]]
    np.subtract.at(slopes, (steps[..., None], rows[..., None], at), share)
    slopes[steps >= lattice.steps] = 0.0
    if attributes["zero_infinity"]:
        slopes[:, np.isinf(losses)] = 0.0
    return [slopes]


def _gradient(b: Builder, op: Operation, d: Sequence[Value | None]) -> list[Value | None]:
    """As torch has it: with respect to the scores that log-softmax turned into the operand.

    The derivative of the loss by the operand itself lacks ``exp(logp)``; behind a log-softmax both give the same.
    """
    if d[0] is None:
        return [None] * 4
    slopes = b.emit("ctc_loss_gradient", op.operands, op.attributes)[0]
    dy = b.reshape(to_float(b, d[0]), shape=(1, op.operands[0].shape[1], 1))
    return [b.cast_to(b.mul(slopes, dy), op.operands[0].dtype), None, None, None]


def _cells(operands: Sequence[TensorType], results: Sequence[TensorType], attributes: Attributes) -> int:
    """Ten operations for each place and step: two logarithmic sums and the step's own term."""
    steps, batch, _ = operands[0].shape
    return 10 * steps * batch * (2 * operands[1].shape[1] + 1)


def _samples() -> Iterable[Sample]:
    for logp, labels, blank in (
        (f32(7, 3, 5), 2, 0),
        (f32(9, 2, 4), 3, 3),
        (f16(6, 4, 3), 2, 1),
        (f32(5, 1, 2), 1, 0),
        (f32(4, 0, 3), 2, 0),
    ):
        steps, batch, classes = logp.shape
        # labels that are never the blank: classes above it
        low, high = (1, classes) if blank == 0 else (0, blank)
        yield Sample(
            (
                Arg(logp, "uniform", -4, -0.1),
                Arg(i32(batch, labels), "integers", low, high),
                Arg(i32(batch), "integers", 2 * labels + 1 if 2 * labels < steps else steps, steps + 1),
                Arg(i32(batch), "integers", 0, labels + 1),
            ),
            {"blank": blank},
        )
    impossible = (Arg(f32(3, 2, 4), "uniform", -3, 0), Arg(i32(2, 4), "integers", 1, 4))
    lengths = (Arg(i32(2), "integers", 3, 4), Arg(i32(2), "integers", 4, 5))
    yield Sample((*impossible, *lengths), {"zero_infinity": True}, "more labels than steps")


_ATTRIBUTES = {"blank": 0, "zero_infinity": False}
register(Primitive("ctc_loss", _ATTRIBUTES, _infer_loss, _loss, _gradient, _cells, _samples))
register(
    Primitive(
        "ctc_loss_gradient",
        _ATTRIBUTES,
        _infer_gradient,
        _slopes,
        NotDifferentiable("the second derivative of the CTC loss is not implemented, as in torch"),
        lambda *types: 2 * _cells(*types),
        _samples,
    )
)


# Decoding


def _infer_search(operands: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
    name = "ctc_beam_search"
    _check(name, operands, attributes, labels=False)
    steps, batch, _ = operands[0].shape
    width, top = int(attributes["beam_width"]), int(attributes["top_paths"])
    if not 1 <= top <= width:
        raise InvalidOperand(f"{name}: top_paths={top} and beam_width={width}: 1 <= top_paths <= beam_width must hold")
    return [
        TensorType((batch, top), DType.F32),
        TensorType((batch, top), DType.I32),
        TensorType((batch, top, steps), DType.I32),
    ]


def _search(operands: Arrays, attributes: Attributes, results: Sequence[TensorType]) -> Arrays:
    """The best label sequences of each sample: scores, lengths, labels filled up with blanks."""
    logp, lengths = operands
    blank, width, top = (int(attributes[name]) for name in ("blank", "beam_width", "top_paths"))
    steps, batch, _ = logp.shape
    scores = np.full((batch, top), -np.inf)
    counts, paths = np.zeros((batch, top), np.int64), np.full((batch, top, steps), blank, np.int64)
    for n in range(batch):
        for i, (path, score) in enumerate(_beams(logp[: int(lengths[n]), n], blank, width)[:top]):
            scores[n, i], counts[n, i] = score, len(path)
            paths[n, i, : len(path)] = path
    return [scores, counts, paths]


def _beams(logp: np.ndarray, blank: int, width: int) -> list[tuple[tuple[int, ...], float]]:
    """The best label sequences of one sample and their log-probabilities, the best first.

    A prefix is kept with the probabilities of its paths that end in a blank and of those that end in its last label.
    """
    beams = {(): (0.0, -np.inf)}
    for row in logp:
        grown: dict[tuple[int, ...], list[float]] = defaultdict(lambda: [-np.inf, -np.inf])
        for prefix, (silent, voiced) in beams.items():
            whole = np.logaddexp(silent, voiced)
            same = grown[prefix]
            same[0] = np.logaddexp(same[0], whole + row[blank])
            if prefix:
                same[1] = np.logaddexp(same[1], voiced + row[prefix[-1]])
            for label in range(len(row)):
                if label != blank:
                    longer = grown[*prefix, label]
                    came = silent if prefix and label == prefix[-1] else whole
                    longer[1] = np.logaddexp(longer[1], came + row[label])
        best = sorted(grown.items(), key=lambda item: (-np.logaddexp.reduce(item[1]), item[0]))
        beams = {prefix: (a, b) for prefix, (a, b) in best[:width]}
    return [(prefix, float(np.logaddexp(a, b))) for prefix, (a, b) in beams.items()]


def _search_samples() -> Iterable[Sample]:
    for logp, width, top, blank in ((f32(4, 2, 3), 100, 3, 0), (f16(3, 3, 3), 40, 1, 2), (f32(3, 0, 2), 2, 2, 0)):
        steps, batch, _ = logp.shape
        lengths = Arg(i32(batch), "integers", 1, steps + 1)
        yield Sample((Arg(logp, "distinct"), lengths), {"beam_width": width, "top_paths": top, "blank": blank})


register(
    Primitive(
        "ctc_beam_search",
        {"blank": 0, "beam_width": 100, "top_paths": 1},
        _infer_search,
        _search,
        NotDifferentiable("its results are labels"),
        lambda operands, results, attributes: 6 * operands[0].size * int(attributes["beam_width"]),
        _search_samples,
    )
)
