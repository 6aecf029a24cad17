"""Operations that create tensors, move elements, and read and write by index."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from tests.torchops.cases import A, B, D, Draw, M, P, V, X, Y, Z, case

_draw = Draw(11)
integers, normal, positive = _draw.integers, _draw.normal, _draw.positive

T = normal(2, 3)
K, Q = torch.tensor([2, 0, 2]), torch.tensor([[0, 2, 1], [1, 0, 2]])


def _made_and_used(make):
    return case(lambda x: make(x) + x, X)


def _assign(x, write):
    y = x.clone()
    write(y)
    return y


CREATION = {
    "torch.arange": [case(lambda x: x + torch.arange(5), X), case(lambda x: x * torch.arange(0, 1, 0.2), X)],
    "torch.empty": [case(lambda x: torch.empty(3, 5).copy_(x), X)],
    "torch.eye": [case(lambda x: x @ torch.eye(5).to(x.dtype), X)],
    "torch.full": [_made_and_used(lambda x: torch.full((3, 5), 2.5))],
    "torch.full_like": [_made_and_used(lambda x: torch.full_like(x, 2))],
    "torch.linspace": [_made_and_used(lambda x: torch.linspace(0, 1, 5))],
    "torch.logspace": [_made_and_used(lambda x: torch.logspace(0, 1, 5))],
    "torch.ones": [_made_and_used(lambda x: torch.ones(3, 5))],
    "torch.ones_like": [_made_and_used(torch.ones_like)],
    "torch.tensor": [_made_and_used(lambda x: torch.tensor([1.0, 2, 3, 4, 5]))],
    "torch.tril_indices": [case(lambda x: x[tuple(torch.tril_indices(3, 5))], X)],
    "torch.zeros": [_made_and_used(lambda x: torch.zeros(3, 5))],
    "torch.zeros_like": [_made_and_used(torch.zeros_like)],
    "Tensor.fill_": [case(lambda x: x.clone().fill_(2) + x, X), case(lambda x: torch.zeros(3, 5).fill_(x[0, 0]), X)],
    "Tensor.new_empty": [case(lambda x: x.new_empty(3, 5).copy_(x), X)],
    "Tensor.new_full": [_made_and_used(lambda x: x.new_full((3, 5), 3))],
    "Tensor.new_ones": [_made_and_used(lambda x: x.new_ones(3, 5))],
    "Tensor.new_tensor": [_made_and_used(lambda x: x.new_tensor([1, 2, 3, 4, 5]))],
    "Tensor.new_zeros": [_made_and_used(lambda x: x.new_zeros(5))],
    "Tensor.zero_": [case(lambda x: x.clone().zero_() + x, X)],
}

MOVING = {
    "torch.as_strided": [case(lambda x: x.as_strided((2, 3), (5, 1), 1), X)],
    "torch.atleast_3d": [case(lambda x, v: (torch.atleast_3d(x), torch.atleast_2d(v), torch.atleast_1d(v[0])), X, V)],
    "torch.block_diag": [case(torch.block_diag, X, A[0], V)],
    "torch.broadcast_tensors": [case(lambda x, v: torch.broadcast_tensors(x, v), X, V)],
    "torch.broadcast_to": [case(lambda v: v.broadcast_to(3, 5), V)],
    "torch.cartesian_prod": [case(lambda v, x: torch.cartesian_prod(v, x[0]), V, X)],
    "torch.cat": [case(lambda x, y: torch.cat([x, y], 1), X, Y), case(lambda x, y: torch.cat((x, y, x)), X, Y)],
    "torch.chunk": [case(lambda x: x.chunk(2, 1), X)],
    "torch.column_stack": [case(lambda v, x: torch.column_stack((v, x.T)), V, X)],
    "torch.combinations": [case(lambda v: torch.combinations(v, 2), V)],
    "torch.diag": [case(lambda x, v: (torch.diag(x[:, :3]), torch.diag(v, 1)), X, V)],
    "torch.diag_embed": [case(lambda x: torch.diag_embed(x, 1), X)],
    "torch.diagonal": [case(lambda m: m.diagonal(1, 1, 3), M)],
    "torch.diagonal_scatter": [case(lambda x, y: torch.diagonal_scatter(x, y[0, :3]), X, Y)],
    "torch.dsplit": [case(lambda m: torch.dsplit(m, 2), M), case(lambda x: torch.vsplit(x, [1]), X)],
    "torch.dstack": [case(lambda x, y: torch.dstack((x, y)), X, Y)],
    "torch.flatten": [case(lambda m: m.flatten(1, 2), M)],
    "torch.flip": [case(lambda x: (x.flip(0, 1), x.fliplr(), x.flipud()), X)],
    "torch.hstack": [case(lambda x, y: torch.hstack((x, y)), X, Y)],
    "torch.kron": [case(torch.kron, X, A[0]), case(torch.kron, V, X)],
    "torch.meshgrid": [case(lambda v, x: torch.meshgrid(v, x[0], indexing="ij"), V, X)],
    "torch.movedim": [case(lambda m: m.movedim((0, 2), (2, 1)), M)],
    "torch.narrow": [case(lambda x: x.narrow(1, 1, 3), X), case(lambda x: torch.narrow_copy(x, 1, -3, 2), X)],
    "torch.permute": [case(lambda m: m.permute(3, 0, 2, 1), M)],
    "torch.ravel": [case(lambda x: x.t().ravel(), X)],
    "torch.repeat_interleave": [
        case(lambda x: (x.repeat_interleave(2, 1), x.repeat_interleave(3)), X),
        case(lambda x: x.repeat_interleave(torch.tensor([1, 0, 2]), 0), X),
        case(lambda x, n: x.repeat_interleave(n, 0, output_size=6), X, torch.tensor([1, 3, 2])),
    ],
    "torch.reshape": [case(lambda m: m.reshape(4, -1), M)],
    "torch.roll": [case(lambda m: (m.roll(2, 1), m.roll(-1), m.roll((1, 2), (2, 3))), M)],
    "torch.rot90": [
        case(lambda x: (x.rot90(), x.rot90(2), x.rot90(3), x.rot90(-1)), X),
        case(lambda m: m.rot90(1, (1, 3)), M),
    ],
    "torch.select": [case(lambda m: m.select(2, -1), M)],
    "torch.select_scatter": [case(lambda x, y: torch.select_scatter(x, y[0], 0, 1), X, Y)],
    "torch.slice_scatter": [case(lambda x, y: torch.slice_scatter(x, y[:, :2], 1, 0, 4, 2), X, Y)],
    "torch.split": [case(lambda x: (*x.split(2, 1), *x.split([1, 4], 1)), X)],
    "torch.squeeze": [case(lambda x: x[:, None].squeeze(1) + x[None].squeeze(), X)],
    "torch.stack": [case(lambda x, y: torch.stack([x, y], 1), X, Y)],
    "torch.swapaxes": [case(lambda m: m.swapaxes(1, 3), M), case(lambda m: m.swapdims(0, 1), M)],
    "torch.t": [case(lambda x: x.t() * 2, X)],
    "torch.tensor_split": [case(lambda x: x.tensor_split(3, 1), X), case(lambda x: x.tensor_split([1, 4], 1), X)],
    "torch.tile": [case(lambda x: x.tile(2, 1, 3), X)],
    "torch.transpose": [case(lambda m: m.transpose(1, -1), M)],
    "torch.tril": [
        case(lambda x: (x.tril(), x.tril(-1), x.tril(2)), X),
        case(torch.tril, M),
    ],
    "torch.triu": [case(lambda x: (x.triu(), x.triu(-1), x.triu(2)), X), case(torch.triu, Z)],
    "torch.unbind": [case(lambda m: m.unbind(1), M)],
    "torch.unflatten": [case(lambda m: m.unflatten(3, (2, 3)), M)],
    "torch.unsqueeze": [case(lambda x: x.unsqueeze(1) + x, X)],
    "torch.vander": [
        case(lambda v: torch.vander(v, 4), V, gradient="torch's own fails"),
        case(lambda v: torch.linalg.vander(v), V, half="torch has none in half"),
    ],
    "torch.vstack": [case(lambda x, y: torch.vstack((x, y)), X, Y)],
    "Tensor.contiguous": [case(lambda x: x.t().contiguous() * 2, X)],
    "Tensor.expand": [case(lambda v: v.expand(3, -1) * 2, V)],
    "Tensor.expand_as": [case(lambda v, x: v.expand_as(x) * 2, V, X)],
    "Tensor.repeat": [case(lambda x: x.repeat(2, 1, 3), X)],
    "Tensor.to": [case(lambda x: (x.to(torch.int32), x.to(torch.bool), x.double(), x.to(x), x.type_as(x)), X * 3)],
    "Tensor.type": [case(lambda z: (z.type(torch.float32), z.float(), z.short(), z.byte(), z.long()), Z.abs())],
    "Tensor.unfold": [case(lambda x: x.unfold(1, 3, 2), X)],
    "Tensor.view": [
        case(lambda m: m.view(6, -1), M),
        case(lambda m: m.view_as(m) * 2, M),
    ],
}

INDEXING = {
    "torch.argwhere": [case(lambda x: x[tuple(torch.argwhere(torch.eye(3, 5)).T)], X)],
    "torch.bincount": [
        case(lambda z: torch.bincount(z, minlength=12), integers(0, 9, 20)),
        case(lambda z, w: torch.bincount(z, w, 12), integers(0, 9, 20), positive(20), gradient="torch has none"),
    ],
    "torch.bucketize": [case(lambda x, v: (torch.bucketize(x, v), torch.bucketize(x, v, right=True)), X, V.sort()[0])],
    "torch.gather": [case(lambda x, q: (x.gather(1, q), x.gather(0, q)), X, Q)],
    "torch.histc": [case(lambda x: torch.histc(x, 6, -2, 2), X), case(lambda x: torch.histc(x, 4), X)],
    "torch.index_add": [case(lambda x, k, y: x.index_add(0, k, y, alpha=2), X, K, Y)],
    "torch.index_copy": [case(lambda x, k, y: x.index_copy(1, k, y[:, :2]), X, K[:2], Y)],
    "torch.index_fill": [case(lambda x, k: x.index_fill(1, k, 9), X, K)],
    "torch.index_put": [
        case(lambda x, k, y: x.index_put((k, k), y[0, :3], accumulate=True), X, K, Y),
        case(lambda x, k, y: x.index_put((k[:2],), y[:2]), X, K, Y),
        case(lambda x, k, y: x.index_put((k[:2],), y[0, 0]), X, K, Y),
        case(lambda x, k, y: x.index_put((k,), y, accumulate=True), X, K, Y),
        case(
            lambda m, k, y: _assign(m, lambda t: t.__setitem__((slice(None), k[:2], slice(None), k[:2]), y[0, 0])),
            M,
            K,
            Y,
        ),
    ],
    "torch.index_reduce": [
        case(lambda x, k, y: x.index_reduce(0, k, y, "prod"), X, K, Y),
        case(lambda x, k, y: x.index_reduce(0, k, y, "mean"), X, K, Y),
        case(lambda x, k, y: x.index_reduce(0, k, y, "amax"), X, K, Y),
        case(lambda x, k, y: x.index_reduce(0, k, y, "amin", include_self=False), X, K, Y),
    ],
    "torch.index_select": [case(lambda x, k: x.index_select(1, k), X, K)],
    "torch.isin": [
        case(lambda z: (torch.isin(z, torch.tensor([1, 3, 5])), torch.isin(z, 3)), Z),
        case(torch.isin, Z, torch.tensor([1, 2, 3])),
    ],
    "torch.masked_fill": [case(lambda x, b: (x.masked_fill(b, -1), x.masked_fill(b, x[0, 0])), X, B)],
    "torch.masked_scatter": [case(lambda x, b, y: x.masked_scatter(b, y), X, B, Y)],
    "torch.nonzero of constants": [case(lambda x: x[torch.nonzero(torch.eye(3, 5), as_tuple=True)], X)],
    "torch.put": [case(lambda x, k, v: torch.Tensor.put(x, k, v[:3], accumulate=True), X, K, V)],
    "torch.renorm": [case(lambda x: torch.renorm(x, 2, 0, 1.0), X), case(lambda x: torch.renorm(x, 1, 1, 0.5), X)],
    "torch.scatter": [
        case(lambda x, q, y: (x.scatter(1, q, y), x.scatter(1, q, 2.5)), X, Q, T),
        case(lambda x, q, y: x.scatter(1, q, y, reduce="multiply"), X, Q, T, gradient="torch has none"),
    ],
    "torch.scatter_add": [case(lambda x, q, y: x.scatter_add(0, q, y), X, Q, T)],
    "torch.scatter_reduce": [
        case(lambda x, q, y, how=how, own=own: x.scatter_reduce(1, q, y, how, include_self=own), X, Q, T)
        for how in ("sum", "mean", "prod", "amax", "amin")
        for own in (True, False)
    ],
    "torch.searchsorted": [
        case(lambda v, x: (torch.searchsorted(v, x), torch.searchsorted(v, x, right=True)), V.sort()[0], X),
        case(lambda y, x: torch.searchsorted(y, x, side="right"), Y.sort(1)[0], X),
    ],
    "torch.segment_reduce": [
        case(lambda x, n, how=how: torch.segment_reduce(x, how, lengths=n), normal(6, 3), torch.tensor([2, 1, 3]))
        for how in ("sum", "mean", "max", "min", "prod")
    ],
    "torch.take": [case(lambda x, k: x.take(k), X, K)],
    "torch.take_along_dim": [
        case(lambda x, q: (torch.take_along_dim(x[:2], q[:, :1], 1), torch.take_along_dim(x, q[:1])), X, Q)
    ],
    "Tensor.tril_": [case(lambda x: x.clone().tril_(1), X)],
    "torch.where": [
        case(lambda b, x, y: (torch.where(b, x, y), torch.where(b, x, 0), torch.where(b, 1.5, x)), B, X, Y)
    ],
    "Tensor.__getitem__": [
        case(lambda x, k: (x[k], x[:, k], x[k, k], x[k - 3], x[1:, k], x[..., -1], x[:, None, ::2]), X, K),
        case(lambda m, k, q: (m[:, k, :, k], m[:, q], m[q[:, :2] % 2, q[:, :2]]), M, K, Q),
        case(lambda x: x[torch.tensor([True, False, True])], X),
    ],
    "Tensor.__setitem__": [
        case(lambda x, y: _assign(x, lambda t: t.__setitem__((slice(None, None, 2), slice(1, 3)), y[:2, :2])), X, Y),
        case(lambda x, k, y: _assign(x, lambda t: t.__setitem__(k[:2], y[:2] * 2)), X, K, Y),
        case(lambda x, b: _assign(x, lambda t: t.__setitem__(b, 0.5)), X, B),
        case(lambda x, b: _assign(x, lambda t: t.__setitem__(b[:, 0], t[0] * 2)), X, B),
    ],
    "Tensor.index_fill_": [case(lambda x, k: x.clone().index_fill_(0, k, 3), X, K)],
    "Tensor.fill_diagonal_": [case(lambda x: x.clone().fill_diagonal_(3), X)],
    "torch.nn.functional.embedding": [
        case(lambda x, q: F.embedding(q, x), X, Q),
        case(lambda x, q: F.embedding(q, x, padding_idx=0), X, Q),
    ],
    "torch.nn.functional.embedding_bag": [
        case(lambda x, q, how=how: F.embedding_bag(q, x, mode=how), X, Q) for how in ("sum", "mean", "max")
    ]
    + [
        case(lambda x, q, w: F.embedding_bag(q, x, mode="sum", per_sample_weights=w[:2, :3]), X, Q, P),
        case(lambda x, q: F.embedding_bag(q, x, torch.tensor([0, 2, 2]), mode="sum"), X, Q.flatten()),
        case(lambda x, q: F.embedding_bag(q, x, torch.tensor([0, 2]), mode="mean"), X, Q.flatten()),
        case(lambda x, q, o: F.embedding_bag(q, x, o, mode="max"), X, Q.flatten(), torch.tensor([0, 2])),
        case(lambda x, q: F.embedding_bag(q, x, padding_idx=0), X, Q),
    ],
    "torch.nn.functional.one_hot": [case(lambda q: F.one_hot(q, 4), Q)],
}

ORDER = {
    "torch.argsort": [case(lambda d: (d.argsort(), d.argsort(0, descending=True)), D)],
    "torch.kthvalue": [case(lambda d: d.kthvalue(2, 1), D)],
    "torch.median": [case(lambda d: (d.median(), *d.median(1)), D)],
    "torch.msort": [case(torch.msort, D)],
    "torch.quantile": [
        case(
            lambda d: (torch.quantile(d, 0.25, 1), torch.quantile(d, torch.tensor([0.1, 0.5]).to(d.dtype))),
            D,
            half="torch has none in half",
        ),
        case(lambda d: torch.nanquantile(d, 0.5), D, half="torch has none in half"),
    ],
    "torch.sort": [
        case(lambda d: (*d.sort(1), *d.sort(0, descending=True)), D),
        case(lambda z: z.sort(stable=True), Z),
    ],
    "torch.topk": [
        case(lambda d: (*d.topk(2), *d.topk(3, 0, largest=False)), D),
        case(lambda d: d.topk(2, sorted=False)[0].sort()[0], D),
    ],
    "torch.cummax": [case(lambda d: d.cummax(1), D), case(lambda d: d.cummax(0), D)],
    "torch.cummin": [case(lambda d: d.cummin(1), D), case(lambda d: d.cummin(0), D)],
}
SECTIONS = {
    "Creating tensors": CREATION,
    "Moving elements": MOVING,
    "Reading and writing by index": INDEXING,
    "Order": ORDER,
}
