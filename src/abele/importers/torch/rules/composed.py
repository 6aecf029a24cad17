"""Functions of torch's API that are written here with others of torch, since torch's own way reads values."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Mapping
from typing import Any

import torch

from abele.errors import Unsupported
from abele.importers.torch import dependent
from abele.importers.torch.table import function, raw
from abele.importers.torch.tracer import Tracer

_TENSOR: Any = torch.Tensor


def owners(ends: torch.Tensor, count: int) -> torch.Tensor:
    """For each of ``count`` elements the number of the run that it belongs to, from where the runs end."""
    return torch.searchsorted(ends, torch.arange(count), right=True)


@function(torch.segment_reduce)
def segment_reduce(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> torch.Tensor:
    """Each element knows its segment from the running sum of the lengths; one run of segments along axis 0."""
    given = dict(zip(("data", "reduce"), args)) | kwargs
    x, how, lengths, offsets = given["data"], given["reduce"], given.get("lengths"), given.get("offsets")
    rows = lengths if lengths is not None else offsets
    if rows is None or rows.dim() != 1 or given.get("axis", 0):
        raise Unsupported(
            "torch.segment_reduce along another axis than 0, or with lengths of several dimensions",
            where=tracer.where(),
            remedy="Bring the segments to axis 0 and give lengths as a vector.",
        )
    if lengths is None:
        ends, lengths = rows[1:], rows.diff()
    else:
        ends = lengths.cumsum(0)
    count = ends.shape[0]
    initial = given.get("initial")
    start = (
        {"sum": 0, "mean": math.nan, "max": -math.inf, "min": math.inf, "prod": 1}[how] if initial is None else initial
    )
    place = owners(ends, x.shape[0])
    shape = (count, *x.shape[1:])
    if how in ("sum", "mean"):
        total = torch.zeros(shape, dtype=x.dtype).index_add(0, place, x)
        if how == "sum":
            return total + start if start else total
        size = lengths.reshape(-1, *[1] * (x.dim() - 1))
        mean = (total + (initial or 0)) / size.clamp(min=1)
        return torch.where(size > 0, mean, start)
    kind = {"max": "amax", "min": "amin", "prod": "prod"}[how]
    first = torch.full(shape, float(start), dtype=x.dtype)
    return first.index_reduce(0, place, x, kind, include_self=initial is not None or how == "prod")


@function(torch.nn.functional.embedding_bag)
def embedding_bag(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> torch.Tensor:
    """Rows of a table, reduced by bag: the rows of a matrix of indices, or runs of a vector between offsets."""
    given = inspect.signature(func).bind(*args, **kwargs)
    given.apply_defaults()
    bags = given.arguments
    index, mode, padding = bags["input"], bags["mode"], bags["padding_idx"]
    if bags["max_norm"] is not None or bags["scale_grad_by_freq"]:
        raise Unsupported(
            "embedding_bag with max_norm or scale_grad_by_freq is used",
            where=tracer.where(),
            remedy="Use embedding, which has scale_grad_by_freq, and reduce its result; renormalise the table in the "
            "optimizer.",
        )
    rows = torch.nn.functional.embedding(index, bags["weight"])
    if bags["per_sample_weights"] is not None:
        rows = rows * bags["per_sample_weights"].unsqueeze(-1)
    if padding is not None:
        padding %= bags["weight"].shape[0]
    if index.dim() == 2 and padding is None:
        if mode == "max":
            return rows.max(1).values
        return rows.sum(1) if mode == "sum" else rows.mean(1)
    if index.dim() == 2:
        count = index.shape[0]
        place = torch.arange(count).repeat_interleave(index.shape[1])
        index, rows = index.reshape(-1), rows.reshape(-1, rows.shape[-1])
    else:
        offsets = bags["offsets"][:-1] if bags["include_last_offset"] else bags["offsets"]
        count = offsets.shape[0]
        place = owners(offsets, index.shape[0]) - 1
    kept = torch.ones(index.shape[0], dtype=torch.bool) if padding is None else index != padding
    zeros = torch.zeros((count, rows.shape[-1]), dtype=rows.dtype)
    if mode == "max":
        lowest = torch.full_like(zeros, -math.inf)
        found = lowest.index_reduce(0, place, torch.where(kept.unsqueeze(1), rows, -math.inf), "amax")
        return torch.where(found == -math.inf, 0, found)
    total = zeros.index_add(0, place, torch.where(kept.unsqueeze(1), rows, 0))
    if mode == "sum":
        return total
    sizes = torch.zeros(count, dtype=rows.dtype).index_add(0, place, kept.to(rows.dtype))
    return total / sizes.clamp(min=1).unsqueeze(1)


@function(torch.combinations)
def combinations(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> torch.Tensor:
    given = dict(zip(("input", "r", "with_replacement"), args)) | kwargs
    x = given["input"]
    choose = itertools.combinations_with_replacement if given.get("with_replacement") else itertools.combinations
    chosen = list(choose(range(x.shape[0]), given.get("r", 2)))
    return x[torch.tensor(chosen, dtype=torch.int64).reshape(len(chosen), given.get("r", 2))]


@function(torch.repeat_interleave, _TENSOR.repeat_interleave)
def repeat_interleave(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> torch.Tensor:
    """With a tensor that says how often, the size of the result must be given."""
    given = dict(zip(("input", "repeats", "dim"), args)) | kwargs
    x, repeats, size = given.get("input"), given.get("repeats"), given.get("output_size")
    if not isinstance(repeats, torch.Tensor) or not tracer.involved([repeats]) or x is None:
        return func(*args, **kwargs)
    if size is None:
        dependent.refuse("repeat_interleave", tracer.where())
    dim = given.get("dim")
    x, dim = (x.reshape(-1), 0) if dim is None else (x, dim)
    return x.index_select(dim, owners(repeats.expand(x.shape[dim]).cumsum(0), size))


@function(torch.quantile, torch.nanquantile, _TENSOR.quantile, _TENSOR.nanquantile)
def quantile(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> torch.Tensor:
    """Fractions in a tensor are taken to where torch thinks that the values are."""
    x, q, *rest = (*args, *([kwargs.pop("q")] if len(args) < 2 else []))
    if isinstance(q, torch.Tensor) and q.device.type == "cpu":
        q = tracer.handle(q.to(x.dtype))
    return func(x, q, *rest, **kwargs)


@raw("grid_sampler_3d")
def grid_sampler_3d(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> torch.Tensor:
    with tracer:
        return _sampled(*args, **kwargs)


def _sampled(
    x: torch.Tensor, grid: torch.Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> torch.Tensor:
    """Volumes read at places given from -1 to 1: linear in each direction, or the nearest."""
    mode, padding, corners = interpolation_mode, padding_mode, align_corners
    batch, channels, *sizes = x.shape
    places = []
    for size, place in zip(sizes, reversed(grid.unbind(-1)), strict=True):
        at = (place + 1) / 2 * (size - 1) if corners else ((place + 1) * size - 1) / 2
        if padding == 1:
            at = at.clamp(0, size - 1)
        elif padding == 2:
            low, high = (0, size - 1) if corners else (-0.5, size - 0.5)
            at = _mirrored(at, low, high).clamp(0, size - 1)
        places.append(at)
    flat, total = x.reshape(batch, channels, -1), None
    for ends in itertools.product(*((0, 1) if mode == 0 else (0,) for _ in sizes)):
        index, weight, inside = None, None, None
        for at, size, end in zip(places, sizes, ends, strict=True):
            corner = at.round() if mode else at.floor() + end
            within = (corner >= 0) & (corner < size)
            number = corner.clamp(0, size - 1).to(torch.int64)
            share = None if mode else 1 - (at - corner).abs()
            index = number if index is None else index * size + number
            inside = within if inside is None else inside & within
            weight = share if weight is None or share is None else weight * share
        assert index is not None and inside is not None
        taken = flat.gather(2, index.reshape(batch, 1, -1).expand(-1, channels, -1)).reshape(
            batch, channels, *index.shape[1:]
        )
        factor = inside.to(x.dtype) if weight is None else torch.where(inside, weight, 0)
        part = taken * factor.unsqueeze(1)
        total = part if total is None else total + part
    assert total is not None
    return total


def _mirrored(at: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """Places beyond the bounds, reflected at them as often as it takes."""
    span = high - low
    if not span:
        return torch.zeros_like(at)
    away = (at - low).abs()
    return torch.where((away / span).floor() % 2 == 0, away % span, span - away % span) + low


_STFT = ("input", "n_fft", "hop_length", "win_length", "window", "center")


def _window(given: Mapping[Any, Any]) -> tuple[torch.Tensor, int]:
    """The window in the middle of a frame, and how far apart frames are."""
    size = given["n_fft"]
    hop, width = given.get("hop_length") or size // 4, given.get("win_length") or size
    window = torch.ones(width) if given.get("window") is None else given["window"]
    before = (size - width) // 2
    return torch.nn.functional.pad(window, (before, size - width - before)), hop


@function(torch.stft, _TENSOR.stft)
def stft(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> torch.Tensor:
    """Frames under the window, transformed; torch's own insists that signal and window be on the same device."""
    given = (
        dict(zip((*_STFT, "pad_mode", "normalized", "onesided", "return_complex", "align_to_window"), args)) | kwargs
    )
    x, size = given["input"], given["n_fft"]
    if given.get("align_to_window"):
        raise Unsupported(
            "torch.stft with align_to_window=True", where=tracer.where(), remedy="Pad the signal yourself."
        )
    window, hop = _window(given)
    batched, whole = x.dim() == 2, x.is_complex() or window.is_complex()
    if given.get("return_complex") is None and not whole:
        raise RuntimeError("stft requires the return_complex parameter be given for real inputs")
    x = x if batched else x.unsqueeze(0)
    if given.get("center", True):
        x = torch.nn.functional.pad(x.unsqueeze(1), (size // 2, size // 2), given.get("pad_mode", "reflect"))[:, 0]
    frames = x.unfold(-1, size, hop) * window
    onesided = not whole if given.get("onesided") is None else given["onesided"]
    transform = torch.fft.rfft if onesided else torch.fft.fft
    found = transform(frames, norm="ortho" if given.get("normalized") else "backward").transpose(1, 2)
    found = found if batched else found[0]
    return torch.view_as_real(found) if given.get("return_complex") is False else found


@function(torch.istft, _TENSOR.istft)
def istft(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> torch.Tensor:
    """Frames transformed back and added where they overlap, without torch's check that the windows cover everything."""
    given = dict(zip((*_STFT, "normalized", "onesided", "length"), args)) | kwargs
    x, size = given["input"], given["n_fft"]
    if given.get("return_complex"):
        raise Unsupported("torch.istft with return_complex=True", where=tracer.where(), remedy="Use torch.fft.ifft.")
    window, hop = _window(given)
    batched = x.dim() == 3
    x = x if batched else x.unsqueeze(0)
    norm = "ortho" if given.get("normalized") else "backward"
    onesided = given.get("onesided")
    onesided = x.shape[1] != size if onesided is None else onesided
    spectra = x.transpose(1, 2)
    frames = torch.fft.irfft(spectra, size, norm=norm) if onesided else torch.fft.ifft(spectra, norm=norm).real
    count = frames.shape[1]
    whole = size + hop * (count - 1)

    def added(parts: torch.Tensor) -> torch.Tensor:
        columns = parts.transpose(1, 2)
        return torch.nn.functional.fold(columns, (1, whole), (1, size), stride=(1, hop))[:, 0, 0]

    signal = added(frames * window)
    envelope = added(window.square().expand(1, count, size))
    start = size // 2 if given.get("center", True) else 0
    length = given.get("length")
    end = whole - start if length is None else start + length
    signal, envelope = signal[:, start:end], envelope[:, start:end]
    result = signal / envelope
    if end > whole:
        result = torch.nn.functional.pad(result, (0, end - whole))
    return result if batched else result[0]


@raw("_grouped_mm")
def grouped_mm(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> torch.Tensor:
    with tracer:
        return _grouped(*args, **kwargs)


def _grouped(
    a: torch.Tensor,
    b: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Products of groups, such as the rows of ``a`` for each expert's weights: group ``g`` ends before ``offs[g]``.

    Which rows (``b`` has three dimensions), columns (``a`` has) or terms are a group's is known at run time alone. So
    each group is computed over all of them, with zeros in the place of those of the others, and all groups in one
    product.
    """
    if bias is not None:
        raise RuntimeError("grouped_mm: a bias is not supported by torch either. Add it afterwards.")
    if offs is None:
        return (a @ b).to(out_dtype or a.dtype)
    split = b if a.dim() == 3 else a.T if b.dim() == 3 else a
    place, ends = torch.arange(split.shape[-1]), offs[:, None]
    inside = (place < ends) & (place >= torch.cat([torch.zeros_like(ends[:1]), ends[:-1]]))
    wide = torch.where(inside[:, None], split, 0)  # group, what is kept of each, what is split
    if b.dim() == 3:
        product = wide.flatten(0, 1).T @ b.flatten(0, 1)
    elif a.dim() == 3:
        product = a.transpose(0, 1).flatten(1) @ wide.flatten(0, 1)
    else:
        product = wide @ b
    return product.to(out_dtype or a.dtype)
