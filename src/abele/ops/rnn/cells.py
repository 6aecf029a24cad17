"""The arithmetic of LSTM and GRU layers in NumPy, step by step; shapes as in ``op.py``."""

from __future__ import annotations

import numpy as np

GATES = {"lstm": 4, "gru": 3}

Arrays = list[np.ndarray]


def sigmoid(x: np.ndarray) -> np.ndarray:
    """``1 / (1 + exp(-x))`` without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def lstm(x, h0, c0, w_ih, w_hh, b, *, dtype: np.dtype) -> Arrays:
    """``y, hT, cT, reserve``. The output of each step is rounded to ``dtype`` before it is fed back."""
    steps, batch, hidden = len(x), *h0.shape
    h, c = h0, c0
    y, reserve = np.empty((steps, batch, hidden)), np.empty((steps, batch, 5 * hidden))
    for t in range(steps):
        gates = x[t] @ w_ih.T + h @ w_hh.T + b
        i, f, g, o = np.split(gates, 4, axis=1)
        i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
        c = f * c + i * g
        h = (o * np.tanh(c)).astype(dtype).astype(np.float64)
        y[t], reserve[t] = h, np.concatenate([i, f, g, o, c], axis=1)
    return [y, h, c, reserve]


def lstm_grad(dy, dhT, dcT, x, h0, c0, w_ih, w_hh, y, reserve, *, dtype: np.dtype) -> Arrays:
    """``dx, dh0, dc0, dw_ih, dw_hh, db``; nothing is rounded inside."""
    steps = len(x)
    dh, dc = dhT, dcT
    dgates = np.empty((*x.shape[:2], len(w_ih)))
    for t in reversed(range(steps)):
        i, f, g, o, c = np.split(reserve[t], 5, axis=1)
        before = np.split(reserve[t - 1], 5, axis=1)[4] if t else c0
        dh = dh + dy[t]
        top = np.tanh(c)
        dc = dc + dh * o * (1 - top**2)
        dgates[t] = np.concatenate(
            [dc * g * i * (1 - i), dc * before * f * (1 - f), dc * i * (1 - g**2), dh * top * o * (1 - o)], axis=1
        )
        dh, dc = dgates[t] @ w_hh, dc * f
    fed = np.concatenate([h0[None], y])[:steps]
    dw_ih, dw_hh = _weight_gradient(dgates, x), _weight_gradient(dgates, fed)
    return [dgates @ w_ih, dh, dc, dw_ih, dw_hh, dgates.sum(axis=(0, 1))]


def gru(x, h0, w_ih, w_hh, b_ih, b_hh, *, dtype: np.dtype) -> Arrays:
    """``y, hT, reserve``. The output of each step is rounded to ``dtype`` before it is fed back."""
    steps, batch, hidden = len(x), *h0.shape
    h = h0
    y, reserve = np.empty((steps, batch, hidden)), np.empty((steps, batch, 4 * hidden))
    for t in range(steps):
        from_x = np.split(x[t] @ w_ih.T + b_ih, 3, axis=1)
        from_h = np.split(h @ w_hh.T + b_hh, 3, axis=1)
        r, z = sigmoid(from_x[0] + from_h[0]), sigmoid(from_x[1] + from_h[1])
        n = np.tanh(from_x[2] + r * from_h[2])
        h = ((1 - z) * n + z * h).astype(dtype).astype(np.float64)
        y[t], reserve[t] = h, np.concatenate([r, z, n, from_h[2]], axis=1)
    return [y, h, reserve]


def gru_grad(dy, dhT, x, h0, w_ih, w_hh, y, reserve, *, dtype: np.dtype) -> Arrays:
    """``dx, dh0, dw_ih, dw_hh, db_ih, db_hh``; nothing is rounded inside."""
    steps = len(x)
    dh = dhT
    from_x, from_h = (np.empty((*x.shape[:2], len(w_ih))) for _ in range(2))
    for t in reversed(range(steps)):
        r, z, n, s = np.split(reserve[t], 4, axis=1)
        before = y[t - 1] if t else h0
        dh = dh + dy[t]
        dn = dh * (1 - z) * (1 - n**2)
        dr, dz = dn * s * r * (1 - r), dh * (before - n) * z * (1 - z)
        from_x[t] = np.concatenate([dr, dz, dn], axis=1)
        from_h[t] = np.concatenate([dr, dz, dn * r], axis=1)
        dh = dh * z + from_h[t] @ w_hh
    fed = np.concatenate([h0[None], y])[:steps]
    dw_ih, dw_hh = _weight_gradient(from_x, x), _weight_gradient(from_h, fed)
    return [from_x @ w_ih, dh, dw_ih, dw_hh, from_x.sum(axis=(0, 1)), from_h.sum(axis=(0, 1))]


def _weight_gradient(dgates: np.ndarray, fed: np.ndarray) -> np.ndarray:
    return dgates.reshape(-1, dgates.shape[2]).T @ fed.reshape(-1, fed.shape[2])
