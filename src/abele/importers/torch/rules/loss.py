"""Losses. A known loss of torch is one operation, and the capture remembers the value that it made."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from abele.errors import Unsupported
from abele.importers.torch.dtypes import machine_dtype
from abele.importers.torch.emitter import Emitter
from abele.importers.torch.table import function, rule
from abele.importers.torch.tracer import Tracer
from abele.ir import DType, Value

_REDUCTION = ("none", "mean", "sum")


def _arguments(func: Callable[..., Any], args: tuple, kwargs: dict) -> dict[str, Any]:
    bound = inspect.signature(func).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


def _mark(tracer: Tracer, result: torch.Tensor) -> torch.Tensor:
    tracer.losses.append(tracer.read(result))
    return result


def _reduction(given: dict[str, Any]) -> str:
    """The reduction, also from the arguments that older programs use."""
    if given.get("size_average") is None and given.get("reduce") is None:
        return given["reduction"]
    if given.get("reduce") is False:
        return "none"
    return "sum" if given.get("size_average") is False else "mean"


def _pair(tracer: Tracer, given: dict[str, Any]) -> tuple[Value, Value, torch.dtype]:
    """Input and target broadcast to one shape, in the type of their arithmetic."""
    e, x, t = tracer.e, given["input"], given["target"]
    kind = torch.result_type(x, t)
    shape = torch.broadcast_shapes(x.shape, t.shape)
    a, b = (e.expand(e.cast(tracer.read(v), machine_dtype(kind)), shape) for v in (x, t))
    return a, b, kind


def _between(name: str, **extra: str):
    """A loss between two tensors of like shape; ``extra``: attribute to argument."""

    def loss(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
        given = _arguments(func, args, kwargs)
        if given.get("weight") is not None or given.get("pos_weight") is not None:
            return _mark(tracer, func(*args, **kwargs))
        with tracer.located():
            a, b, kind = _pair(tracer, given)
            attributes = {k: float(given[v]) for k, v in extra.items()}
            value = tracer.e.emit(name, a, b, reduction=_reduction(given), **attributes)
            return _mark(tracer, tracer.new(value, kind))

    return loss


function(F.mse_loss)(_between("mse_loss"))
function(F.l1_loss)(_between("l1_loss"))
function(F.huber_loss)(_between("huber_loss", delta="delta"))
function(F.binary_cross_entropy)(_between("bce_loss"))
function(F.binary_cross_entropy_with_logits)(_between("bce_with_logits"))


@function(F.smooth_l1_loss)
def smooth_l1_loss(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    given = _arguments(func, args, kwargs)
    loss = _between("smooth_l1_loss", beta="beta") if given["beta"] else _between("l1_loss")
    return loss(tracer, func, args, kwargs)


@function(F.kl_div)
def kl_div(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    given = _arguments(func, args, kwargs)
    with tracer.located():
        a, b, kind = _pair(tracer, given)
        log_target = bool(given["log_target"])
        value = tracer.e.emit("kl_div", a, b, reduction=_reduction(given), log_target=log_target)
        return _mark(tracer, tracer.new(value, kind))


def _classes(e: Emitter, logp: Value, target: Value) -> tuple[Value, Value]:
    """Scores and labels with a batch dimension."""
    if len(logp.shape) == 1:
        logp = e.reshape(logp, (1, *logp.shape))
        target = e.reshape(target, (1,) if len(target.shape) == 0 else (1, *target.shape))
    return logp, target


def weighted_nll(
    e: Emitter, logp: Value, target: Value, weight: Value, reduction: str, ignore: int, smoothing: float = 0.0
) -> Value:
    """Negative log likelihood with a weight for every class; ``mean`` divides by the sum of the weights used."""
    kept = e.emit("ne", target, e.number(ignore, DType.I32))
    safe = e.emit("select", kept, target, e.number(0, DType.I32))
    weight = e.cast(weight, logp.dtype)
    none = e.number(0, logp.dtype)
    used = e.emit("select", kept, e.emit("gather", weight, safe, axis=0), none)
    column = e.reshape(safe, (safe.shape[0], 1, *safe.shape[1:]))
    picked = e.reshape(e.emit("gather_elements", logp, column, axis=1), target.shape)
    losses = e.emit("neg", e.emit("mul", picked, used))
    if smoothing:
        every = e.emit("mul", logp, e.broadcast_vector(weight, len(logp.shape), 1))
        spread = e.emit("neg", e.emit("reduce_sum", every, axes=(1,), keep=False))
        spread = e.emit("select", kept, spread, none)
        share = e.emit("mul", spread, e.number(smoothing / logp.shape[1], logp.dtype))
        losses = e.emit("add", e.emit("mul", losses, e.number(1 - smoothing, logp.dtype)), share)
    if reduction == "none":
        return losses
    axes = tuple(range(len(losses.shape)))
    total = e.emit("reduce_sum", losses, axes=axes, keep=False)
    if reduction == "sum":
        return total
    return e.emit("div", total, e.emit("reduce_sum", used, axes=axes, keep=False))


@function(F.cross_entropy)
def cross_entropy(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    given = _arguments(func, args, kwargs)
    reduction, smoothing = _reduction(given), float(given["label_smoothing"])
    x, target, weight = given["input"], given["target"], given["weight"]
    e = tracer.e
    with tracer.located():
        logits, labels = tracer.read(x), tracer.read(target)
        if target.is_floating_point():
            value = _soft_cross_entropy(tracer, logits, labels, weight, reduction, smoothing)
            return _mark(tracer, tracer.new(value, x.dtype))
        batched = len(logits.shape) > 1
        logits, labels = _classes(e, logits, e.cast(labels, DType.I32))
        ignore = int(given["ignore_index"])
        if weight is None:
            value = e.emit(
                "cross_entropy", logits, labels, reduction=reduction, ignore_index=ignore, smoothing=smoothing
            )
        else:
            logp = e.emit("log_softmax", logits, axis=1)
            value = weighted_nll(e, logp, labels, tracer.read(weight), reduction, ignore, smoothing)
        if reduction == "none" and not batched:
            value = e.reshape(value, target.shape)
        return _mark(tracer, tracer.new(value, x.dtype))


def _soft_cross_entropy(
    tracer: Tracer, logits: Value, target: Value, weight: torch.Tensor | None, reduction: str, smoothing: float
) -> Value:
    """Cross entropy against probabilities."""
    e = tracer.e
    axis = 1 if len(logits.shape) > 1 else 0
    target = e.cast(target, logits.dtype)
    if smoothing:
        classes = logits.shape[axis]
        target = e.emit("mul", target, e.number(1 - smoothing, logits.dtype))
        target = e.emit("add", target, e.number(smoothing / classes, logits.dtype))
    terms = e.emit("mul", e.emit("log_softmax", logits, axis=axis), target)
    if weight is not None:
        scale = e.cast(tracer.read(weight), logits.dtype)
        terms = e.emit("mul", terms, e.broadcast_vector(scale, len(logits.shape), axis))
    losses = e.emit("neg", e.emit("reduce_sum", terms, axes=(axis,), keep=False))
    if reduction == "none" or not losses.shape:
        return losses
    total = e.emit("reduce_sum", losses, axes=tuple(range(len(losses.shape))), keep=False)
    return total if reduction == "sum" else e.emit("div", total, e.number(losses.type.size, logits.dtype))


@function(F.nll_loss)
def nll_loss(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    given = _arguments(func, args, kwargs)
    x, target, weight = given["input"], given["target"], given["weight"]
    e, reduction, ignore = tracer.e, _reduction(given), int(given["ignore_index"])
    with tracer.located():
        logp, labels = _classes(e, tracer.read(x), e.cast(tracer.read(target), DType.I32))
        if weight is None:
            value = e.emit("nll_loss", logp, labels, reduction=reduction, ignore_index=ignore)
        else:
            value = weighted_nll(e, logp, labels, tracer.read(weight), reduction, ignore)
        if reduction == "none":
            value = e.reshape(value, target.shape)
        return _mark(tracer, tracer.new(value, x.dtype))


@function(
    F.poisson_nll_loss,
    F.hinge_embedding_loss,
    F.margin_ranking_loss,
    F.cosine_embedding_loss,
    F.triplet_margin_loss,
    F.triplet_margin_with_distance_loss,
    F.soft_margin_loss,
    F.multi_margin_loss,
    F.multilabel_soft_margin_loss,
)
def composed(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    """A loss that torch composes of operations that have rules."""
    return _mark(tracer, func(*args, **kwargs))


@function(F.multilabel_margin_loss)
def multilabel_margin_loss(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    """Hinges between each label of a row and each class that is none of them; a label of -1 ends a row's list.

    Composed here: torch's own decomposition also counts the entries behind the end, as label 0.
    """
    given = _arguments(func, args, kwargs)
    x, labels = (t.unsqueeze(0) if t.dim() == 1 else t for t in (given["input"], given["target"]))
    valid = (labels < 0).to(torch.int32).cumsum(1) == 0
    is_label = (valid.unsqueeze(2) & (labels.unsqueeze(2) == torch.arange(x.shape[1]))).any(1)
    chosen = x.gather(1, labels.clamp(min=0))
    hinges = (1 - chosen.unsqueeze(2) + x.unsqueeze(1)).clamp(min=0)  # [row, label, class]
    counted = valid.unsqueeze(2) & ~is_label.unsqueeze(1)
    losses = torch.where(counted, hinges, 0).sum((1, 2)) / x.shape[1]
    reduction = _reduction(given)
    if reduction == "none":
        return _mark(tracer, losses if given["input"].dim() > 1 else losses.squeeze(0))
    return _mark(tracer, losses.mean() if reduction == "mean" else losses.sum())


@function(F.gaussian_nll_loss)
def gaussian_nll_loss(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    """Without torch's check that no variance is negative, which would read values."""
    given = _arguments(func, args, kwargs)
    x, target, var = given["input"], given["target"], given["var"]
    if isinstance(var, float):
        var = torch.full((), var, dtype=x.dtype)
    elif var.dim() == x.dim() - 1:
        var = var.unsqueeze(-1)
    var = var.clamp(min=given["eps"])
    losses = 0.5 * (var.log() + (x - target).square() / var)
    if given["full"]:
        losses = losses + 0.5 * math.log(2 * math.pi)
    reduction = given["reduction"]
    total = losses if reduction == "none" else losses.mean() if reduction == "mean" else losses.sum()
    return _mark(tracer, total)


@function(F.ctc_loss)
def ctc_loss(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    """Labels in one row after another need lengths that are Python numbers: they are put in rows of one length here."""
    given = _arguments(func, args, kwargs)
    x, labels, e = given["log_probs"], given["targets"], tracer.e
    steps, counts = given["input_lengths"], given["target_lengths"]
    batch = x.shape[1] if x.dim() == 3 else 1
    in_a_row = labels.dim() == 1 and x.dim() == 3
    if in_a_row and isinstance(counts, torch.Tensor):
        raise Unsupported(
            "F.ctc_loss with the labels of all samples in one row and lengths in a tensor",
            where=tracer.where(),
            remedy="Pass labels as [batch, longest], or target_lengths as a list of numbers.",
        )
    with tracer.located():
        rows = e.cast(tracer.read(labels), DType.I32)
        if in_a_row:
            ends = list(itertools.accumulate(counts))
            most = max(counts, default=0)
            parts = [e.slice(rows, 0, end - n, end) for n, end in zip(counts, ends, strict=True)]
            padded = [e.concat([p, e.number(0, DType.I32, (most - n,))], 0) for n, p in zip(counts, parts, strict=True)]
            rows = e.concat(padded, 0)
        rows = e.reshape(rows, (batch, rows.type.size // batch if batch else 0))
        lengths = [
            e.reshape(e.cast(tracer.read(v), DType.I32), (batch,))
            if isinstance(v, torch.Tensor)
            else e.constant(np.array(v, np.int32).reshape(batch))
            for v in (steps, counts)
        ]
        logp = e.reshape(tracer.read(x), (x.shape[0], batch, x.shape[-1]))
        attributes = {"blank": int(given["blank"]), "zero_infinity": bool(given["zero_infinity"])}
        value = e.emit("ctc_loss", logp, rows, *lengths, **attributes)
        reduction = given["reduction"]
        if reduction == "mean":
            least = e.emit("max", lengths[1], e.number(1, DType.I32))
            value = e.emit("mean", e.emit("div", value, e.cast(least, DType.F32)), axes=(0,), keep=False)
        elif reduction == "sum":
            value = e.emit("reduce_sum", value, axes=(0,), keep=False)
        elif x.dim() == 2:
            value = e.reshape(value, ())
        return _mark(tracer, tracer.new(e.cast(value, machine_dtype(x.dtype)), x.dtype))


# The same losses where they arrive as ATen operations: called from inside torch


@rule("mse_loss", "huber_loss", "smooth_l1_loss")
def aten_pair(e: Emitter, x: Value, target: Value, reduction: int = 1, scale: float = 1.0) -> Value:
    shape = torch.broadcast_shapes(x.shape, target.shape)
    a, b = e.expand(e.operand(x), shape), e.expand(e.operand(target), shape)
    extra = {"huber_loss": {"delta": float(scale)}, "smooth_l1_loss": {"beta": float(scale)}}.get(e.name, {})
    return e.emit(e.name, a, b, reduction=_REDUCTION[reduction], **extra)


@rule("binary_cross_entropy")
def aten_bce(e: Emitter, p: Value, target: Value, weight: Value | None = None, reduction: int = 1) -> Value:
    p, target = e.operand(p), e.operand(target)
    if weight is None:
        return e.emit("bce_loss", p, target, reduction=_REDUCTION[reduction])
    losses = e.binary("mul", e.emit("bce_loss", p, target, reduction="none"), weight, p.dtype)
    if reduction == 0:
        return losses
    return e.emit("mean" if reduction == 1 else "reduce_sum", losses, axes=tuple(range(len(losses.shape))), keep=False)


@rule("nll_loss_forward", "nll_loss2d_forward")
def aten_nll(
    e: Emitter, x: Value, target: Value, weight: Value | None, reduction: int, ignore_index: int
) -> tuple[Value, Value]:
    logp, labels = _classes(e, x, e.cast(target, DType.I32))
    kind = _REDUCTION[reduction]
    if weight is None:
        value = e.emit("nll_loss", logp, labels, reduction=kind, ignore_index=ignore_index)
    else:
        value = weighted_nll(e, logp, labels, weight, kind, ignore_index)
    # The second result, the sum of the weights, is for the backward.
    return e.reshape(value, e.out.shape), e.number(0, e.outs[1].dtype, e.outs[1].shape)
