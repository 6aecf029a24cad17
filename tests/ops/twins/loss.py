"""Losses in torch."""

from __future__ import annotations

import torch.nn.functional as F


def nll_loss(logp, target, weight=None, *, reduction, ignore_index):
    return F.nll_loss(logp, target.long(), weight, reduction=reduction, ignore_index=ignore_index)


def cross_entropy(logits, target, weight=None, *, reduction, ignore_index, smoothing):
    target = target if target.is_floating_point() else target.long()
    return F.cross_entropy(
        logits, target, weight, reduction=reduction, ignore_index=ignore_index, label_smoothing=smoothing
    )


def identity_loss(x, reduction):
    return {"none": x, "sum": x.sum(), "mean": x.mean()}[reduction]


TWINS = {
    "nll_loss": nll_loss,
    "cross_entropy": cross_entropy,
    "mse_loss": F.mse_loss,
    "l1_loss": F.l1_loss,
    "smooth_l1_loss": F.smooth_l1_loss,
    "huber_loss": F.huber_loss,
    "bce_loss": F.binary_cross_entropy,
    "bce_with_logits": F.binary_cross_entropy_with_logits,
    "kl_div": F.kl_div,
    "identity_loss": identity_loss,
}
