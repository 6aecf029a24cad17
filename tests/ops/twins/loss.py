"""Losses in torch."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F


def nll_loss(logp, target, weight=None, *, reduction, ignore_index):
    """Torch gives class weights no gradient, so weights are applied outside of its loss."""
    target = target.long()
    losses = F.nll_loss(logp, target, reduction="none", ignore_index=ignore_index)
    counted = (target != ignore_index).double()
    share = counted if weight is None else counted * weight[target.where(target != ignore_index, 0)]
    return reduced(losses * share, share, reduction)


def reduced(losses, share, reduction):
    return {"none": losses, "sum": losses.sum(), "mean": losses.sum() / share.sum()}[reduction]


def cross_entropy(logits, target, weight=None, *, reduction, ignore_index, smoothing):
    if target.is_floating_point():
        return F.cross_entropy(logits, target, weight, reduction=reduction, label_smoothing=smoothing)
    if weight is None:
        return F.cross_entropy(
            logits, target.long(), reduction=reduction, ignore_index=ignore_index, label_smoothing=smoothing
        )
    logp, counted = F.log_softmax(logits, 1), (target != ignore_index).double()
    share = counted * weight[target.long().where(target != ignore_index, 0)]
    per_class = weight.reshape(-1, *(1,) * (logits.ndim - 2))
    spread = -(logp * per_class).sum(1) * counted * smoothing / logits.shape[1]
    picked = F.nll_loss(logp, target.long(), reduction="none", ignore_index=ignore_index)
    return reduced((1 - smoothing) * picked * share + spread, share, reduction)


def kl_div(x, t, *, reduction, log_target):
    if reduction == "mean":  # as torch does it, without its warning
        return F.kl_div(x, t, reduction="none", log_target=log_target).mean()
    return F.kl_div(x, t, reduction=reduction, log_target=log_target)


def identity_loss(x, reduction):
    return {"none": x, "sum": x.sum(), "mean": x.mean()}[reduction]


def ctc_loss(logp, targets, steps, counts, *, blank, zero_infinity):
    if not logp.numel():  # torch refuses an empty batch
        return logp.sum((0, 2)).float()
    return F.ctc_loss(logp, targets, steps, counts, blank, "none", zero_infinity).float()


def ctc_loss_gradient(logp, targets, steps, counts, *, blank, zero_infinity):
    if not logp.numel():
        return logp.float()
    logp = logp.detach().requires_grad_()
    with torch.enable_grad():
        losses = F.ctc_loss(logp, targets, steps, counts, blank, "sum", zero_infinity)
        return torch.autograd.grad(losses, logp)[0].float()


def ctc_beam_search(logp, lengths, *, blank, beam_width, top_paths):
    """Every path is tried: with as many beams as there are label sequences the search finds the best ones."""
    steps, batch, classes = logp.shape
    scores = torch.full((batch, top_paths), -torch.inf)
    counts = torch.zeros(batch, top_paths, dtype=torch.int32)
    paths = torch.full((batch, top_paths, steps), blank, dtype=torch.int32)
    for n in range(batch):
        sums: dict = {}
        for path in itertools.product(range(classes), repeat=int(lengths[n])):
            labels = tuple(c for c, _ in itertools.groupby(path) if c != blank)
            sums.setdefault(labels, []).append(sum(float(logp[t, n, c]) for t, c in enumerate(path)))
        best = sorted(
            ((torch.tensor(v, dtype=torch.float64).logsumexp(0).item(), k) for k, v in sums.items()), reverse=True
        )
        for i, (score, labels) in enumerate(best[:top_paths]):
            scores[n, i], counts[n, i] = score, len(labels)
            paths[n, i, : len(labels)] = torch.tensor(labels, dtype=torch.int32)
    return scores, counts, paths


TWINS = {
    "ctc_loss": ctc_loss,
    "ctc_loss_gradient": ctc_loss_gradient,
    "ctc_beam_search": ctc_beam_search,
    "nll_loss": nll_loss,
    "cross_entropy": cross_entropy,
    "mse_loss": F.mse_loss,
    "l1_loss": F.l1_loss,
    "smooth_l1_loss": F.smooth_l1_loss,
    "huber_loss": F.huber_loss,
    "bce_loss": F.binary_cross_entropy,
    "bce_with_logits": F.binary_cross_entropy_with_logits,
    "kl_div": kl_div,
    "identity_loss": identity_loss,
}
