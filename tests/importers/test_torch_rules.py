"""The rules, against torch: one program for each form."""

from __future__ import annotations

import math

import pytest
import torch
from helpers import copied, result, run, same
from torch import nn
from torch.nn import functional as F

from abele.errors import InvalidOperand, Unsupported
from abele.importers.torch import capture

G = torch.Generator().manual_seed(7)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=G)


X, Y, P = normal(3, 5), normal(3, 5), torch.rand(3, 5, generator=G) + 0.1
Z = torch.tensor([[3, -2, 7, 0, 5], [1, 1, 2, -8, 4], [0, 9, -3, 6, 2]])
J = torch.tensor([[2, 3, 4, 1, 5], [-3, 2, 5, 3, 1], [4, 4, 2, 5, -2]])
B = X > 0
ODD = torch.tensor([[0.5, 1.5, -2.5, math.nan, math.inf], [-math.inf, 0.0, -0.0, 2.0, -1.5], [1e-3, 7.2, 3.5, -4.5, 1]])

ELEMENTWISE = {
    "arithmetic": lambda: (X + Y, X - 2, 3 - X, X * Y, X / P, -X, abs(X), X**2, X**3, P**0.5, P**-1, 2**X, P**Y),
    "alpha": lambda: (torch.add(X, Y, alpha=2), torch.sub(X, Y, alpha=0.5), torch.rsub(X, Y, alpha=3)),
    "integers": lambda: (Z + J, Z // J, Z % J, Z / J, torch.fmod(Z, J), torch.div(Z, J, rounding_mode="trunc"), Z**2),
    "floor": lambda: (X // P, X % P, torch.fmod(X, P), torch.div(X, P, rounding_mode="trunc"), X.frac()),
    "bits": lambda: (Z & J, Z | J, Z ^ J, ~Z, Z.abs() << 2, Z.abs() >> 1, B & ~B, B | (Y > 0), B ^ (Y > 0)),
    "promotion": lambda: (Z + X, B + Z, B * X, Z * 2.5, B + 1, X.half() + 1.5, X.half() + Y, Z.float() + Z.double()),
    "comparisons": lambda: (X > Y, Z >= 2, Z == J, X != 0, Z < X, B == True, (X > 0) & (Z > 0)),  # noqa: E712
    "logic": lambda: (torch.logical_and(Z, X), torch.logical_not(Z), torch.logical_xor(B, X), torch.logical_or(B, Z)),
    "exponentials": lambda: (
        X.exp(),
        X.exp2(),
        X.expm1(),
        P.log(),
        P.log2(),
        P.log10(),
        P.log1p(),
        P.sqrt(),
        P.rsqrt(),
    ),
    "trigonometry": lambda: (X.sin(), X.cos(), X.tan(), X.sinh(), X.cosh(), X.tanh(), X.atan(), torch.atan2(X, Y)),
    "inverses": lambda: ((P / 2).asin(), (P / 2).acos(), X.asinh(), (P + 1).acosh(), (P / 2).atanh(), P.reciprocal()),
    "rounding": lambda: (ODD.round(), ODD.floor(), ODD.ceil(), ODD.trunc(), X.round(decimals=1), Z.floor(), X.sign()),
    "tests": lambda: (ODD.isnan(), ODD.isinf(), ODD.isfinite(), ODD.isposinf(), Z.isnan(), ODD.signbit()),
    "odd values": lambda: (ODD.nan_to_num(), ODD.nan_to_num(1, 2, 3), torch.fmax(ODD, X), torch.maximum(ODD, X)),
    "choices": lambda: (
        torch.where(B, X, 0),
        torch.where(B, Z, X),
        X.masked_fill(B, -1),
        X.clamp(-1, 0.5),
        X.clamp(min=Y),
    ),
    "clamps": lambda: (Z.clamp(0, 4), X.clamp_min(0), X.clamp_max(Y), torch.clip(X, max=0.1)),
    "products": lambda: (
        torch.addcmul(X, Y, P, value=2),
        torch.addcdiv(X, Y, P),
        torch.lerp(X, Y, 0.3),
        torch.lerp(X, Y, P),
    ),
    "others": lambda: (
        torch.hypot(X, Y),
        torch.logaddexp(X, Y),
        X.copysign(Y),
        torch.xlogy(X, P),
        X.heaviside(Y),
        X.erf(),
    ),
    "casts": lambda: (
        X.int(),
        X.bool(),
        Z.float(),
        B.float(),
        X.half().float(),
        X.to(torch.int16),
        Z.byte(),
        X.double(),
    ),
    "activations": lambda: (
        F.gelu(X),
        F.gelu(X, approximate="tanh"),
        F.silu(X),
        F.softplus(X, 2, 1),
        F.elu(X, 0.5),
        F.mish(X),
    ),
    "more activations": lambda: (
        F.selu(X),
        F.celu(X, 2),
        F.leaky_relu(X, 0.2),
        F.hardtanh(X),
        F.relu6(X),
        F.hardswish(X),
    ),
    "yet more": lambda: (
        F.hardsigmoid(X),
        F.logsigmoid(X),
        F.hardshrink(X),
        F.softshrink(X),
        F.threshold(X, 0.1, 2),
        F.softsign(X),
    ),
    "gates": lambda: (F.glu(normal_even, -1), F.prelu(X, P[0, :1]), X.sigmoid(), F.tanhshrink(X), torch.logit(P / 2)),
    "softmax": lambda: (X.softmax(-1), F.log_softmax(X, 0), F.softmin(X, 1), X.half().softmax(1, dtype=torch.float32)),
}
normal_even = normal(3, 6)

REDUCTIONS = {
    "sums": lambda: (
        X.sum(),
        X.sum(0),
        X.sum((0, 1), keepdim=True),
        Z.sum(1),
        B.sum(),
        X.half().sum(1, dtype=torch.float32),
    ),
    "means": lambda: (X.mean(), X.mean(-1, keepdim=True), X.prod(1), Z.prod(), X.amax((0, 1)), X.amin(1)),
    "extremes": lambda: (*X.max(1), *X.min(0, keepdim=True), X.max(), Z.min(), X.argmax(), X.argmin(1), X.aminmax()[1]),
    "truths": lambda: (B.any(), B.all(1), Z.any(0), X.all(), torch.count_nonzero(Z, 1)),
    "spread": lambda: (
        X.var(),
        X.std(1),
        X.var((0, 1), correction=0),
        torch.var_mean(X, 1)[0],
        torch.std_mean(X, 0)[1],
    ),
    "norms": lambda: (
        X.norm(),
        X.norm(1, 1),
        torch.linalg.vector_norm(X, math.inf, 0),
        F.normalize(X),
        X.norm(dim=1, p=3),
    ),
    "scans": lambda: (X.cumsum(1), Z.cumsum(0), X.cumprod(1), X.logcumsumexp(0), X.logsumexp(1), X.diff(dim=1)),
    "orders": lambda: (*X.sort(1), *X.sort(0, descending=True), X.argsort(), *X.topk(2), *X.topk(2, 0, largest=False)),
    "statistics": lambda: (X.median(), *X.median(1), *X.kthvalue(2, 0), torch.quantile(X, 0.25, 1)),
    "distances": lambda: (torch.cdist(X, Y), F.cosine_similarity(X, Y), F.pairwise_distance(X, Y), torch.dist(X, Y)),
    "boundaries": lambda: (
        torch.searchsorted(X[0].sort()[0], Y),
        torch.bucketize(Y, torch.linspace(-1, 1, 5), right=True),
    ),
}

C, D = normal(2, 3, 4), normal(2, 4, 5)
MATRICES = {
    "products": lambda: (
        X @ Y.T,
        X.mm(Y.T),
        C @ D,
        C.bmm(D),
        X.mv(Y[0]),
        X[0].dot(Y[0]),
        C @ D[0],
        C[0] @ D,
        C @ D[0, :, 0],
    ),
    "sums of products": lambda: (
        torch.addmm(P[:, :3], X, Y.T, beta=0.5, alpha=2),
        torch.baddbmm(P[:, :5], C, D),
        torch.addbmm(P[:, :5], C, D, beta=0),
        torch.addmv(P[:, 0], X, Y[0]),
        torch.addr(X, Y[:, 0], Y[0]),
    ),
    "einsum": lambda: (torch.einsum("bij,bjk->bik", C, D), torch.einsum("ij,kj->ik", X, Y), torch.outer(X[0], Y[:, 0])),
    "linear": lambda: (F.linear(X, Y), F.linear(C, D[0].T, X[0]), F.linear(X[0], Y), F.bilinear(X, Y, normal_cube)),
    "half": lambda: (F.linear(X.half(), Y.half()), X.half() @ Y.half().T),
}
normal_cube = normal(2, 5, 5)

M = normal(2, 3, 4, 6)
SHAPES = {
    "views": lambda: (
        M.view(6, -1),
        M.reshape(2, 3, 24),
        M.permute(3, 0, 2, 1),
        M.transpose(1, -1),
        M.flatten(1),
        X.t(),
    ),
    "dimensions": lambda: (
        X.unsqueeze(1),
        X[None].squeeze(0),
        X[:, None].squeeze(),
        M.movedim(1, 3),
        M.unflatten(3, (2, 3)),
    ),
    "parts": lambda: (M[0], M[:, 1, ..., 2], M[..., ::2], M[1:, :2], X.narrow(1, 1, 3), M.select(2, -1), X[-1:]),
    "splits": lambda: (*X.split(2, 1), *X.chunk(2), *M.unbind(1), *X.tensor_split(3, 1), *torch.hsplit(X, [1, 4])),
    "joins": lambda: (
        torch.cat([X, Y], 1),
        torch.stack([X, Y], 1),
        torch.cat([X, Z]),
        torch.hstack([X, Y]),
        torch.vstack([X, Y]),
    ),
    "copies": lambda: (
        X.repeat(2, 3),
        X.repeat(2, 1, 1),
        X[0].expand(4, 5),
        X.tile(2),
        X.repeat_interleave(2, 1),
        X.repeat_interleave(3),
    ),
    "moves": lambda: (
        X.roll(2, 1),
        X.roll(1),
        M.roll((1, 2), (2, 3)),
        X.flip(0, 1),
        X.rot90(),
        X.rot90(3),
        torch.fliplr(X),
    ),
    "triangles": lambda: (
        X.tril(),
        X.triu(1),
        X.tril(-1),
        torch.diag(X[0]),
        X.diagonal(),
        torch.diag_embed(X),
        X.trace(),
    ),
    "pads": lambda: (
        F.pad(M, (1, 2, 0, 1), value=3),
        F.pad(M, (-1, 2)),
        F.pad(Z, (1, 1)),
        F.pad(M, (1, 1, 2, 0), "circular"),
    ),
    "borders": lambda: (
        F.pad(M, (2, 1, 1, 3), "reflect"),
        F.pad(M, (2, 1, 1, 3), "replicate"),
        F.pad(M[0], (3, 2), "replicate"),
    ),
    "windows": lambda: (X.unfold(1, 3, 1), F.unfold(M, 2, padding=1), F.fold(normal_columns, (4, 6), 2, stride=2)),
    "shuffles": lambda: (
        F.pixel_shuffle(normal_shuffle, 2),
        F.pixel_unshuffle(M, 2),
        F.channel_shuffle(normal_shuffle, 2),
    ),
    "meshes": lambda: (*torch.meshgrid(X[0], Y[1], indexing="ij"), torch.cartesian_prod(X[0], Y[1]), torch.kron(X, Y)),
}
normal_columns, normal_shuffle = normal(2, 12, 6), normal(1, 8, 2, 3)

K = torch.tensor([2, 0, 2])
Q = torch.tensor([[0, 2, 1], [1, 0, 2]])
INDEXING = {
    "reads": lambda: (X[K], X[:, K], X[K, K], X[Q], M[:, K, :, K], M[K[:2] // 2, :, 1], X[K - 3], X.index_select(1, K)),
    "gathers": lambda: (X.gather(1, Q), X.gather(0, Q), X.take(K), torch.take_along_dim(X[:2], Q[:, :1], 1)),
    "embeddings": lambda: (F.embedding(Q, X), F.embedding(Q, X, padding_idx=0), F.one_hot(Q, 4)),
    "scatters": lambda: (
        X.scatter(1, Q, Y),
        X.scatter(1, Q, 2.5),
        X.scatter_add(0, Q, Y),
        X.scatter_reduce(1, Q, Y, "amax"),
        X.scatter_reduce(1, Q, Y, "mean", include_self=False),
        X.scatter_reduce(0, Q, Y, "prod"),
        X.scatter(1, Q, Y, reduce="multiply"),
    ),
    "writes": lambda: (
        X.index_add(0, K, Y, alpha=2),
        X.index_copy(1, K[:2], Y[:, :2]),
        X.index_fill(1, K, 9),
        X.index_put((K, K), Y[0, :3], accumulate=True),
        X.masked_scatter(B, Y),
    ),
}

IMAGE, SIGNAL, VOLUME = normal(2, 4, 9, 7), normal(2, 4, 11), normal(1, 2, 5, 4, 6)
W2, W1, W3, BIAS = normal(6, 2, 3, 2), normal(6, 4, 3), normal(4, 2, 2, 2, 2), normal(6)
T2 = normal(4, 3, 3, 2)
IMAGES = {
    "convolutions": lambda: (
        F.conv2d(IMAGE, W2, BIAS, (2, 1), (1, 0), 1, 2),
        F.conv1d(SIGNAL, W1, None, 2, 2, 2),
        F.conv1d(SIGNAL, W1, padding="same"),
        F.conv3d(VOLUME, W3),
        F.conv2d(IMAGE[0], W2, BIAS, groups=2),
        F.conv2d(IMAGE.half(), W2.half(), BIAS.half(), groups=2),
    ),
    "transposed": lambda: (
        F.conv_transpose2d(IMAGE, T2, None, 2, 1, (1, 0)),
        F.conv_transpose2d(IMAGE, T2, normal_bias, 2, groups=2),
        F.conv_transpose1d(SIGNAL[0], W1.transpose(0, 1).contiguous(), None, 3, dilation=2),
        F.conv_transpose2d(IMAGE, T2, None, 1, 0, (1, 1), dilation=2),
    ),
    "max pools": lambda: (
        F.max_pool2d(IMAGE, 3, 2, 1),
        F.max_pool2d(IMAGE, 2, ceil_mode=True),
        F.max_pool1d(SIGNAL, 3, 2, 1, 2),
        F.max_pool3d(VOLUME, 2),
        F.max_pool2d(IMAGE[0], (3, 2)),
        F.adaptive_max_pool2d(IMAGE, (3, 2)),
    ),
    "average pools": lambda: (
        F.avg_pool2d(IMAGE, 3, 2, 1),
        F.avg_pool2d(IMAGE, 3, 2, 1, count_include_pad=False),
        F.avg_pool2d(IMAGE, 4, 3, 2, ceil_mode=True),
        F.avg_pool2d(IMAGE, 4, 3, 2, ceil_mode=True, count_include_pad=False),
        F.avg_pool2d(IMAGE, 2, divisor_override=3),
        F.avg_pool1d(SIGNAL, 3, 2, 1),
        F.adaptive_avg_pool2d(IMAGE, (3, 2)),
        F.adaptive_avg_pool1d(SIGNAL, 4),
        F.adaptive_avg_pool2d(IMAGE, 1),
        F.lp_pool2d(IMAGE.abs(), 2, 2),
    ),
    "resizing": lambda: (
        F.interpolate(IMAGE, scale_factor=2),
        F.interpolate(IMAGE, (5, 11)),
        F.interpolate(IMAGE, scale_factor=1.5, mode="bilinear"),
        F.interpolate(IMAGE, (4, 9), mode="bilinear", align_corners=True),
        F.interpolate(SIGNAL, 7, mode="linear"),
        F.interpolate(VOLUME, scale_factor=2, mode="trilinear"),
        F.interpolate(IMAGE, (12, 5), mode="bicubic"),
        F.interpolate(IMAGE, (5, 4), mode="bilinear", antialias=True),
        F.interpolate(IMAGE, (5, 4), mode="nearest-exact"),
        F.grid_sample(IMAGE, torch.tanh(IMAGE.reshape(2, 14, 9, 2)[:, :3]), align_corners=False),
    ),
    "norms": lambda: (
        F.layer_norm(IMAGE, (9, 7)),
        F.layer_norm(IMAGE, (7,), normal_seven, normal_seven),
        F.layer_norm(IMAGE.half(), (7,)),
        F.group_norm(IMAGE, 2),
        F.group_norm(IMAGE, 4, BIAS[:4], BIAS[:4]),
        F.instance_norm(IMAGE),
        F.rms_norm(IMAGE, (7,), normal_seven),
        F.batch_norm(IMAGE, BIAS[:4], BIAS[:4].abs(), BIAS[1:5], BIAS[2:6]),
        F.batch_norm(IMAGE, None, None, training=True),
        F.local_response_norm(IMAGE, 3),
    ),
}
normal_bias, normal_seven = normal(6), normal(7)

L, R = normal(4, 5), torch.tensor([0, 4, -100, 2])
S, V = normal(2, 5, 3), torch.tensor([[0, 4, 1], [2, 2, 0]])
HALF = torch.rand(4, 5, generator=G) * 0.8 + 0.1
T = normal(4, 5)
LOGP, WORDS = normal(6, 2, 4).log_softmax(2), torch.tensor([[1, 3], [3, 3]])
LOSSES = {
    "cross entropy": lambda: (
        F.cross_entropy(L, R),
        F.cross_entropy(L, R, reduction="none"),
        F.cross_entropy(L, R, reduction="sum", label_smoothing=0.1),
        F.cross_entropy(L, R, weight=HALF[0]),
        F.cross_entropy(L, R, weight=HALF[0], label_smoothing=0.2),
        F.cross_entropy(S, V, ignore_index=2),
        F.cross_entropy(L, T.softmax(1)),
        F.cross_entropy(L, T.softmax(1), HALF[0], reduction="none", label_smoothing=0.1),
        F.cross_entropy(L[0], R[0]),
    ),
    "likelihoods": lambda: (
        F.nll_loss(L, R),
        F.nll_loss(S, V, weight=HALF[0], reduction="sum"),
        F.poisson_nll_loss(L, T.abs()),
        F.gaussian_nll_loss(L, T, HALF, full=True),
        F.kl_div(L.log_softmax(1), T.softmax(1), reduction="batchmean"),
        F.kl_div(L, T, log_target=True),
    ),
    "unaligned labels": lambda: (
        F.ctc_loss(LOGP, WORDS, torch.tensor([6, 5]), torch.tensor([2, 1])),
        F.ctc_loss(LOGP, WORDS, [6, 5], [2, 1], reduction="sum"),
        F.ctc_loss(LOGP, WORDS, (6, 5), (2, 0), blank=2, reduction="none"),
        F.ctc_loss(LOGP, WORDS.flatten()[:3], (6, 5), (2, 1)),
        F.ctc_loss(LOGP[:, 0], WORDS[0], torch.tensor(6), torch.tensor(2)),
        F.ctc_loss(LOGP[:2], WORDS, [2, 2], [2, 2], reduction="none", zero_infinity=True),
    ),
    "pairs": lambda: (
        F.mse_loss(L, T),
        F.l1_loss(L, T, reduction="sum"),
        F.smooth_l1_loss(L, T, beta=0.5),
        F.smooth_l1_loss(L, T, beta=0),
        F.huber_loss(L, T, delta=0.7),
        F.mse_loss(L, T[:1].expand(4, 5), reduction="none"),
    ),
    "binary": lambda: (
        F.binary_cross_entropy(HALF, HALF.flip(0)),
        F.binary_cross_entropy(HALF, HALF.flip(0), HALF),
        F.binary_cross_entropy_with_logits(L, HALF),
        F.binary_cross_entropy_with_logits(L, HALF, pos_weight=HALF[0], reduction="sum"),
        F.soft_margin_loss(L, T.sign()),
        F.multilabel_soft_margin_loss(L, (T > 0).float()),
    ),
    "margins": lambda: (
        F.hinge_embedding_loss(L, T.sign()),
        F.margin_ranking_loss(L, T, HALF.round() * 2 - 1),
        F.cosine_embedding_loss(L, T, torch.tensor([1, -1, 1, -1])),
        F.triplet_margin_loss(L, T, HALF),
        F.multi_margin_loss(L, R.abs() % 5),
    ),
}

N, E = normal(2, 3, 6, 4), normal(2, 3, 8, 4)
MASK = torch.rand(6, 8, generator=G) > 0.3
ATTENTION = {
    "attention": lambda: (
        F.scaled_dot_product_attention(N, E, E),
        F.scaled_dot_product_attention(N, N, N, is_causal=True, scale=0.3),
        F.scaled_dot_product_attention(N, E, E, attn_mask=MASK),
        F.scaled_dot_product_attention(N, E, E, attn_mask=normal_mask),
        F.scaled_dot_product_attention(N, E[:, :1], E[:, :1], enable_gqa=True),
        F.scaled_dot_product_attention(N.half(), E.half(), E.half()),
    ),
    "rows that see no key": lambda: (
        F.scaled_dot_product_attention(N, E, E, attn_mask=DEAD > -1),
        F.scaled_dot_product_attention(N, E, E, attn_mask=DEAD),
        F.scaled_dot_product_attention(N, E, E, attn_mask=torch.zeros(6, 8, dtype=torch.bool)),
        F.scaled_dot_product_attention(N.half(), E.half(), E.half(), attn_mask=(DEAD > -1)[:, :1].expand(6, 8)),
    ),
}
normal_mask = normal(2, 1, 6, 8)

DEAD = torch.zeros(6, 8).masked_fill(~MASK, -math.inf)
DEAD[2] = -math.inf

TABLES = {
    "elementwise": ELEMENTWISE,
    "reduce": REDUCTIONS,
    "matmul": MATRICES,
    "shape": SHAPES,
    "indexing": INDEXING,
    "image": IMAGES,
    "loss": LOSSES,
    "attention": ATTENTION,
}
CASES = [pytest.param(f, id=f"{table}-{name}") for table, rows in TABLES.items() for name, f in rows.items()]


def tensors_of(program) -> list[str]:
    """Names of this module's tensors that a program reads."""
    return [n for n in program.__code__.co_names if isinstance(globals().get(n), torch.Tensor)]


@pytest.mark.parametrize("program", CASES)
def test_rule_matches_torch(program):
    """The tensors that the program reads from this module become its arguments."""
    names = tensors_of(program)
    saved = {n: globals()[n] for n in names}

    def called(*args):
        globals().update(zip(names, args, strict=True))
        try:
            return program()
        finally:
            globals().update(saved)

    wide = any(v.dtype == torch.float16 for v in program() if isinstance(v, torch.Tensor))
    captured = same(called, *(saved[n] for n in names), rtol=2e-3 if wide else 2e-5, atol=2e-3 if wide else 2e-5)
    assert len(captured.inputs) == len(names)


MODULES = {
    "lstm": lambda: (nn.LSTM(4, 3, 2, bidirectional=True), normal(5, 2, 4)),
    "lstm with state": lambda: (nn.LSTM(4, 3, batch_first=True), normal(2, 5, 4), (normal(1, 2, 3), normal(1, 2, 3))),
    "lstm unbatched": lambda: (nn.LSTM(4, 3, bias=False), normal(5, 4)),
    "gru": lambda: (nn.GRU(4, 3, 2, batch_first=True, bidirectional=True), normal(2, 5, 4)),
    "rnn": lambda: (nn.RNN(4, 3, 2, bidirectional=True, nonlinearity="relu"), normal(5, 2, 4), normal(4, 2, 3)),
    "cells": lambda: (nn.LSTMCell(4, 3), normal(2, 4)),
    "attention": lambda: (nn.MultiheadAttention(8, 2, batch_first=True).eval(), *[normal(2, 5, 8)] * 3),
    "encoder": lambda: (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), normal(2, 5, 8)),
    "decoder": lambda: (nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0), normal(5, 2, 8), normal(4, 2, 8)),
    "weight norm": lambda: (nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), normal(2, 4)),
    "embedding bag free": lambda: (nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.LazyLinear(2)), Q),
}


@pytest.mark.parametrize("make", MODULES.values(), ids=MODULES)
def test_module_matches_torch(make):
    torch.manual_seed(0)
    module, *args = make()
    module(*args)  # gives lazy modules their shapes
    same(module, *args)


def test_batch_norm_updates_its_statistics():
    module = nn.BatchNorm2d(4, momentum=0.3)
    captured = capture(module, (IMAGE,))
    ours = {n: run(captured, (IMAGE,))[f"state {n}"] for n in ("running_mean", "running_var", "num_batches_tracked")}
    for name, value in ours.items():
        fresh = nn.BatchNorm2d(4, momentum=0.3)
        fresh(IMAGE)
        torch.testing.assert_close(torch.from_numpy(value).to(getattr(fresh, name).dtype), getattr(fresh, name))


def test_weights_are_cast_to_the_type_of_the_activations():
    linear, conv = nn.Linear(7, 3), nn.Conv2d(4, 2, 3)

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.linear = conv, linear

        def forward(self, x):
            return self.linear(F.pad(self.conv(x), (1, 1)))

    captured = capture(Mixed(), (IMAGE.half(),))
    (value,) = captured.graph.outputs_of("anchor").values()
    assert str(value.type) == "f16[2,2,7,3]"
    assert {str(v.dtype) for v in captured.graph.inputs_of("state").values()} == {"f32"}
    ours = captured.result(list(run(captured, (IMAGE.half(),)).values()))
    torch.testing.assert_close(ours, Mixed()(IMAGE).half(), rtol=1e-2, atol=1e-2)


def test_a_product_with_a_transpose_is_one_operation():
    graph = capture(lambda a, b: (a @ b.mT, a.T @ a), (X, Y)).graph
    flags = [(op.attributes["transpose_a"], op.attributes["transpose_b"]) for op in graph.operations]
    assert [op.name for op in graph.operations] == ["matmul", "matmul"] and flags == [(False, True), (True, False)]


def test_a_product_with_a_vector_is_written_into_out():
    def program(v, a, out):
        return torch.matmul(v, a, out=out), torch.matmul(v, a, out=None)

    a, v = normal(4, 5), normal(4)
    same(program, v, a, torch.zeros(5))
    with pytest.raises(Unsupported, match="out= has shape"):
        capture(program, (v, a, torch.zeros(1, 5)))


def test_elements_are_counted_into_bins_of_a_given_number():
    x = torch.tensor([0, 3, 3, 1, 7])
    weights = torch.tensor([0.5, 1.0, 2.0, 4.0, 8.0])
    same(lambda x: torch.bincount(x, minlength=8), x)
    same(lambda x, w: x.bincount(w, 9), x, weights)
    same(lambda x, w: torch.bincount(x, weights=w, minlength=8), x, weights.half().double())
    program = capture(lambda x: torch.bincount(x, minlength=4), (x,))
    assert result(program, (x,)).tolist() == [1, 1, 0, 2]  # torch would add bins for 7


def test_torch_decompositions_stand_in_for_rules():
    """Operations without a rule of their own, which torch itself takes apart."""
    same(lambda x, p: (torch.nan_to_num(x).logit(0.1), x.deg2rad(), torch.special.entr(p), x.sinc()), X, P / 4)


def test_copied_gives_tensors_of_its_own():
    (other,) = copied((X,))
    assert other is not X and torch.equal(other, X)


MARGINS = torch.tensor([[0.4, -0.2, 0.9], [0.1, 0.3, -0.5], [1.2, 0.0, 0.7]])
LABELS = torch.tensor([[2, -1, 0], [1, 0, 2], [-1, 0, 1]])


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_labels_behind_the_end_of_a_list_do_not_count(reduction: str) -> None:
    same(lambda x, labels: F.multilabel_margin_loss(x, labels, reduction=reduction), MARGINS, LABELS)
    same(lambda x, labels: F.multilabel_margin_loss(x, labels, reduction=reduction), MARGINS[0], LABELS[0])


def test_matrices_are_transposed_inside_decompositions() -> None:
    """``mT`` of three dimensions reaches the importer as itself from torch's own decompositions only."""
    same(lambda theta: F.affine_grid(theta, [2, 1, 3, 4], align_corners=False), normal(2, 2, 3))
    same(lambda x: torch.ops.aten.mT(x) * 2, normal(2, 3, 4))
    same(lambda x: torch.ops.aten.adjoint(x) * 2, normal(2, 3, 4))


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
def test_a_list_of_lists_indexes_as_in_torch() -> None:
    same(lambda x: x[[[0, 1], [2, 0]]], normal(3, 4, 5))
    same(lambda x: x[[2, 0]], normal(3, 4, 5))


def test_numbers_beyond_the_machines_integers_are_refused() -> None:
    with pytest.raises(InvalidOperand, match="1099511627776"):
        capture(lambda x: x + 2**40, (torch.tensor([1]),))
    same(lambda x: x + -(2**31), torch.tensor([1]))


@pytest.mark.parametrize("made", [lambda x: {x}, lambda x: (x, (y for y in (x,))), lambda x: {"a": _Holder(x)}])
def test_results_that_hide_tensors_are_refused(made) -> None:
    with pytest.raises(Unsupported, match="with tensors in it"):
        capture(lambda x: made(x + 1), (normal(3),))


class _Holder:
    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
