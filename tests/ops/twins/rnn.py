"""LSTM and GRU in torch, from the functions behind ``torch.nn.LSTM`` and ``torch.nn.GRU``."""

from __future__ import annotations

import torch


def lstm(x, h0, c0, w_ih, w_hh, b):
    if not x.numel():
        return x.new_zeros((*x.shape[:2], h0.shape[1])), h0, c0
    weights = [w_ih, w_hh, b, torch.zeros_like(b)]
    y, h, c = torch._VF.lstm(x, (h0[None], c0[None]), weights, True, 1, 0.0, False, False, False)
    return y, h[0], c[0]


def gru(x, h0, w_ih, w_hh, b_ih, b_hh):
    if not x.numel():
        return x.new_zeros((*x.shape[:2], h0.shape[1])), h0
    y, h = torch._VF.gru(x, h0[None], [w_ih, w_hh, b_ih, b_hh], True, 1, 0.0, False, False, False)
    return y, h[0]


TWINS = {"lstm": lstm, "gru": gru}
