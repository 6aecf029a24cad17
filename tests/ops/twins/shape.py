"""Shape operations in torch."""

from __future__ import annotations

import torch


def _pad(x, low, high, value):
    pairs = [p for pair in reversed(list(zip(low, high, strict=True))) for p in pair]
    return torch.nn.functional.pad(x, pairs, value=value) if pairs else x


def _starts(starts, sizes, shape):
    return [min(max(0, s), n - m) for s, m, n in zip(starts.tolist(), sizes, shape, strict=True)]


def _dynamic_slice(x, starts, sizes):
    for d, (start, size) in enumerate(zip(_starts(starts, sizes, x.shape), sizes, strict=True)):
        x = x.narrow(d, start, size)
    return x


def _dynamic_update(x, update, starts):
    at = _starts(starts, update.shape, x.shape)
    done = x.clone()
    done[tuple(slice(s, s + m) for s, m in zip(at, update.shape, strict=True))] = update
    return done


TWINS = {
    "reshape": lambda x, shape: x.reshape(shape),
    "transpose": lambda x, permutation: x.permute(permutation),
    "expand": lambda x, shape: x.expand(shape),
    "slice": lambda x, starts, stops, steps: x[tuple(slice(*r) for r in zip(starts, stops, steps, strict=True))],
    "pad": _pad,
    "concat": lambda *x, axis: torch.cat(x, axis),
    "flip": lambda x, axes: torch.flip(x, axes),
    "dynamic_slice": _dynamic_slice,
    "dynamic_update": _dynamic_update,
    "stack": lambda *x, axis: torch.stack(x, axis),
    "roll": lambda x, shifts, axes: torch.roll(x, shifts, axes),
    "tril": lambda x, diagonal: torch.tril(x, diagonal),
    "triu": lambda x, diagonal: torch.triu(x, diagonal),
    "repeat_interleave": lambda x, repeats, axis: torch.repeat_interleave(x, repeats, axis),
}
