"""The arithmetic of LSTM and GRU in NumPy: one step of a cell, its gradient, and whole layers.

Gates stand in a dimension of their own before the hidden units, ``[..., G, H]``; a step works on any slice of the
batch and of the hidden units, which is how the tiles share it.
"""

from __future__ import annotations

import numpy as np

GATES = {"lstm": 4, "gru": 3}

Arrays = list[np.ndarray]


def sigmoid(x: np.ndarray) -> np.ndarray:
    """``1 / (1 + exp(-x))`` without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def _gates(x: np.ndarray) -> Arrays:
    return list(np.moveaxis(x, -2, 0))


def lstm_cell(gates: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The next output, and ``i f g o c`` as ``[..., 5, H]``, from the gates before their functions and the cell."""
    i, f, g, o = _gates(gates)
    i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
    c = f * c + i * g
    return o * np.tanh(c), np.stack([i, f, g, o, c], axis=-2)


def lstm_cell_grad(dh: np.ndarray, dc: np.ndarray, reserve: np.ndarray, before: np.ndarray):
    """The gradients of the gates ``[..., 4, H]`` and of the cell before, ``before`` being that cell."""
    i, f, g, o, c = _gates(reserve)
    top = np.tanh(c)
    dc = dc + dh * o * (1 - top**2)
    gates = [dc * g * i * (1 - i), dc * before * f * (1 - f), dc * i * (1 - g**2), dh * top * o * (1 - o)]
    return np.stack(gates, axis=-2), dc * f


def gru_cell(from_x: np.ndarray, from_h: np.ndarray, h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The next output, and ``r z n s`` as ``[..., 4, H]``, from what input and output bring to the gates."""
    x_r, x_z, x_n = _gates(from_x)
    h_r, h_z, s = _gates(from_h)
    r, z = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
    n = np.tanh(x_n + r * s)
    return (1 - z) * n + z * h, np.stack([r, z, n, s], axis=-2)


def gru_cell_grad(dh: np.ndarray, reserve: np.ndarray, before: np.ndarray):
    """Gradients of what input and output brought to the gates, ``[..., 3, H]`` each, and what passes by the gates."""
    r, z, n, s = _gates(reserve)
    dn = dh * (1 - z) * (1 - n**2)
    dr, dz = dn * s * r * (1 - r), dh * (before - n) * z * (1 - z)
    return np.stack([dr, dz, dn], axis=-2), np.stack([dr, dz, dn * r], axis=-2), dh * z


def cell_grad(cell: str, dh: np.ndarray, passed: np.ndarray | None, reserve: np.ndarray, before: np.ndarray) -> Arrays:
    """Of LSTM the gradients of the gates and what passes by them; of GRU those of what the output brought to the gates,
    what passes by them, and those of what the input brought. One time step, with its dimension."""
    if cell == "lstm":
        assert passed is not None
        gates, carry = lstm_cell_grad(dh, passed, reserve, before)
        return [gates[None], carry[None]]
    from_x, from_h, carry = gru_cell_grad(dh, reserve, before)
    return [from_h[None], carry[None], from_x[None]]


def _by_gate(gates: int, rows: np.ndarray) -> np.ndarray:
    """``[..., G H]`` as ``[..., G, H]``."""
    return rows.reshape(*rows.shape[:-1], gates, rows.shape[-1] // gates)


def _joined(x: np.ndarray) -> np.ndarray:
    """``[..., G, H]`` as ``[..., G H]``."""
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])


def lstm(x, h0, c0, w_ih, w_hh, b, *, dtype: np.dtype) -> Arrays:
    """``y, hT, cT, reserve``. The output of each step is rounded to ``dtype`` before it is fed back."""
    h, c, y, reserve = h0, c0, [], []
    for step in x:
        h, kept = lstm_cell(_by_gate(4, step @ w_ih.T + h @ w_hh.T + b), c)
        h, c = h.astype(dtype).astype(np.float64), kept[..., 4, :]
        y.append(h)
        reserve.append(_joined(kept))
    return [np.stack(y), h, c, np.stack(reserve)]


def lstm_grad(dy, dhT, dcT, x, h0, c0, w_ih, w_hh, y, reserve, *, dtype: np.dtype) -> Arrays:
    """``dx, dh0, dc0, dw_ih, dw_hh, db``; nothing is rounded inside."""
    kept = _by_gate(5, reserve)
    dh, dc, gates = dhT, dcT, []
    for t in reversed(range(len(x))):
        here, dc = lstm_cell_grad(dh + dy[t], dc, kept[t], kept[t - 1][..., 4, :] if t else c0)
        gates.append(_joined(here))
        dh = gates[-1] @ w_hh
    dgates = np.stack(gates[::-1])
    dw_hh = weight_gradient(dgates, fed_back(h0, y))
    return [dgates @ w_ih, dh, dc, weight_gradient(dgates, x), dw_hh, dgates.sum(axis=(0, 1))]


def gru(x, h0, w_ih, w_hh, b_ih, b_hh, *, dtype: np.dtype) -> Arrays:
    """``y, hT, reserve``. The output of each step is rounded to ``dtype`` before it is fed back."""
    h, y, reserve = h0, [], []
    for step in x:
        h, kept = gru_cell(_by_gate(3, step @ w_ih.T + b_ih), _by_gate(3, h @ w_hh.T + b_hh), h)
        h = h.astype(dtype).astype(np.float64)
        y.append(h)
        reserve.append(_joined(kept))
    return [np.stack(y), h, np.stack(reserve)]


def gru_grad(dy, dhT, x, h0, w_ih, w_hh, y, reserve, *, dtype: np.dtype) -> Arrays:
    """``dx, dh0, dw_ih, dw_hh, db_ih, db_hh``; nothing is rounded inside."""
    kept, fed = _by_gate(4, reserve), fed_back(h0, y)
    dh, all_x, all_h = dhT, [], []
    for t in reversed(range(len(x))):
        from_x, from_h, past = gru_cell_grad(dh + dy[t], kept[t], fed[t])
        all_x.append(_joined(from_x))
        all_h.append(_joined(from_h))
        dh = past + all_h[-1] @ w_hh
    from_x, from_h = np.stack(all_x[::-1]), np.stack(all_h[::-1])
    dw_ih, dw_hh = weight_gradient(from_x, x), weight_gradient(from_h, fed)
    return [from_x @ w_ih, dh, dw_ih, dw_hh, from_x.sum(axis=(0, 1)), from_h.sum(axis=(0, 1))]


def fed_back(h0: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The output that each step was given: that of the step before."""
    return np.concatenate([h0[None], y[:-1]])


def weight_gradient(dgates: np.ndarray, given: np.ndarray) -> np.ndarray:
    """``[G, K]``: the gradient of a weight matrix, summed over steps and batch."""
    return np.einsum("tbg,tbk->gk", dgates, given)
