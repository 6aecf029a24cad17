"""Activations, norms, losses, recurrent layers, attention, dropout."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from tests.torchops.cases import A, Draw, M, P, X, Y, case

_draw = Draw(13)
integers, normal, positive = _draw.integers, _draw.normal, _draw.positive

NO_HALF = "torch has none in half"


def one(f, *args, **kw):
    return [case(f, *args, **kw)]


def layer(make, *args, **kw):
    """A module whose parameters are arguments of the program."""
    torch.manual_seed(3)
    module = make()
    names = [n for n, _ in module.named_parameters()]
    weights = [p.detach().half().float() for _, p in module.named_parameters()]
    count = len(args)

    def program(*given):
        return torch.func.functional_call(module, dict(zip(names, given[count:], strict=True)), given[:count])

    return [case(program, *args, *weights, **kw)]


ACTIVATIONS = {
    "torch.nn.CELU": one(lambda x: (F.celu(x), F.celu(x, 2)), X),
    "torch.nn.ELU": one(lambda x: (F.elu(x), F.elu(x, 0.5)), X),
    "torch.nn.GELU": one(lambda x: (F.gelu(x), F.gelu(x, approximate="tanh")), X),
    "torch.nn.GLU": one(lambda m: (F.glu(m), F.glu(m, 2)), M),
    "torch.nn.Hardshrink": one(F.hardshrink, X),
    "torch.nn.Hardsigmoid": one(F.hardsigmoid, X * 2),
    "torch.nn.Hardswish": one(F.hardswish, X * 2),
    "torch.nn.Hardtanh": one(lambda x: F.hardtanh(x, -0.5, 0.7), X),
    "torch.nn.LeakyReLU": one(lambda x: F.leaky_relu(x, 0.2), X),
    "torch.nn.LogSigmoid": one(F.logsigmoid, X),
    "torch.nn.LogSoftmax": one(lambda x: F.log_softmax(x, 1), X),
    "torch.nn.Mish": one(F.mish, X),
    "torch.nn.PReLU": one(lambda x, w: F.prelu(x, w), X, X[0, :1]) + one(lambda x, w: F.prelu(x, w), X, P[0]),
    "torch.nn.ReLU": one(torch.relu, X),
    "torch.nn.ReLU6": one(lambda x: F.relu6(x * 5), X),
    "torch.nn.RReLU": one(lambda x: F.rrelu(x, 0.1, 0.3), X),
    "torch.nn.SELU": one(F.selu, X),
    "torch.nn.SiLU": one(F.silu, X),
    "torch.nn.Sigmoid": one(torch.sigmoid, X),
    "torch.nn.Softmax": one(lambda x: (F.softmax(x, 1), F.softmax(x, 0)), X),
    "torch.nn.Softmax2d": one(nn.Softmax2d(), M),
    "torch.nn.Softmin": one(lambda x: F.softmin(x, 1), X),
    "torch.nn.Softplus": one(lambda x: (F.softplus(x), F.softplus(x, 2, 1)), X),
    "torch.nn.Softshrink": one(F.softshrink, X),
    "torch.nn.Softsign": one(F.softsign, X),
    "torch.nn.Tanh": one(torch.tanh, X),
    "torch.nn.Tanhshrink": one(F.tanhshrink, X),
    "torch.nn.Threshold": one(lambda x: F.threshold(x, 0.1, 2), X),
    "torch.nn.functional.normalize": one(lambda x: (F.normalize(x), F.normalize(x, 1, 0)), X),
}

C3, MEAN, VAR = normal(3), normal(3), positive(3)
NORMS = {
    "torch.nn.BatchNorm1d": one(lambda x, w, b: F.batch_norm(x, None, None, w, b, True), A, C3, MEAN),
    "torch.nn.BatchNorm2d": one(
        lambda m, w, b, u, v: F.batch_norm(m, u, v, w, b), M, C3, C3, MEAN, VAR, gradient="torch has none of statistics"
    )
    + one(lambda m, w, b: F.batch_norm(m, None, None, w, b, True), M, C3, C3)
    + one(lambda m: F.batch_norm(m, None, None, training=True), M),
    "torch.nn.BatchNorm3d": one(lambda m, w, b: F.batch_norm(m.unsqueeze(2), None, None, w, b, True), M, C3, C3),
    "torch.nn.GroupNorm": one(lambda m, w, b: F.group_norm(m, 3, w, b), M, C3, C3)
    + one(lambda m: F.group_norm(m, 1), M),
    "torch.nn.InstanceNorm1d": one(lambda a: F.instance_norm(a), A),
    "torch.nn.InstanceNorm2d": one(lambda m, w, b: F.instance_norm(m, weight=w, bias=b), M, C3, C3),
    "torch.nn.InstanceNorm3d": one(lambda m: F.instance_norm(m.reshape(1, 2, 3, 4, 6)), M),
    "torch.nn.LayerNorm": one(lambda m, w: F.layer_norm(m, (6,), w, w), M, normal(6))
    + one(lambda m: F.layer_norm(m, (4, 6)), M),
    "torch.nn.LocalResponseNorm": one(lambda m: F.local_response_norm(m, 3), M),
    "torch.nn.RMSNorm": one(lambda m, w: F.rms_norm(m, (6,), w, 1e-5), M, normal(6)),
    "torch.nn.utils.weight_norm": layer(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(5, 3)), X),
}

T, SIGNS = integers(0, 5, 3), (X > 0).float() * 2 - 1
LOGITS, IMAGE, LABELS = normal(4, 5), normal(2, 5, 3), integers(0, 5, 2, 3)
PROB = positive(4, 5, low=0.1, high=0.9)
LOSSES = {
    "torch.nn.BCELoss": one(
        lambda p, y: (F.binary_cross_entropy(p, y), F.binary_cross_entropy(p, y, y.detach(), reduction="sum")),
        PROB,
        PROB.flip(0).contiguous(),
    ),
    "torch.nn.BCEWithLogitsLoss": one(
        lambda x, p: (
            F.binary_cross_entropy_with_logits(x, p),
            F.binary_cross_entropy_with_logits(x, p, pos_weight=p[0].detach(), reduction="sum"),
        ),
        LOGITS,
        PROB,
    ),
    "torch.nn.CTCLoss": one(
        lambda x, y: F.ctc_loss(x.log_softmax(2), y, [6, 5], [2, 1]),
        normal(6, 2, 4),
        torch.tensor([[1, 3], [3, 3]]),
        half=NO_HALF,
        tolerance=1e-4,
    ),
    "torch.nn.CosineEmbeddingLoss": one(
        lambda x, y: F.cosine_embedding_loss(x, y, torch.tensor([1, -1, 1]), margin=0.1), X, Y
    ),
    "torch.nn.CrossEntropyLoss": one(
        lambda x, t: (
            F.cross_entropy(x, t),
            F.cross_entropy(x, t, reduction="none"),
            F.cross_entropy(x, t, reduction="sum", label_smoothing=0.1),
        ),
        X,
        T,
    )
    + one(lambda x, t, w: F.cross_entropy(x, t, weight=w.detach()), X, T, P[0])
    + one(lambda x, t: F.cross_entropy(x, t, ignore_index=2), IMAGE, LABELS)
    + one(lambda x, y: F.cross_entropy(x, y.softmax(1)), X, Y),
    "torch.nn.GaussianNLLLoss": one(lambda x, y, p: F.gaussian_nll_loss(x, y, p), X, Y, P),
    "torch.nn.HingeEmbeddingLoss": one(lambda x, s: F.hinge_embedding_loss(x, s), X, SIGNS),
    "torch.nn.HuberLoss": one(lambda x, y: F.huber_loss(x, y, delta=0.7), X, Y),
    "torch.nn.KLDivLoss": one(
        lambda x, p: (F.kl_div(x.log_softmax(1), p, reduction="batchmean"), F.kl_div(x, p, log_target=True)),
        LOGITS,
        PROB,
    ),
    "torch.nn.L1Loss": one(lambda x, y: (F.l1_loss(x, y), F.l1_loss(x, y, reduction="sum")), X, Y),
    "torch.nn.MSELoss": one(lambda x, y: (F.mse_loss(x, y), F.mse_loss(x, y, reduction="none")), X, Y),
    "torch.nn.MarginRankingLoss": one(lambda x, y, s: F.margin_ranking_loss(x, y, s, margin=0.1), X, Y, SIGNS),
    "torch.nn.MultiLabelMarginLoss": one(
        lambda x, t: F.multilabel_margin_loss(x, t), X[:, :3], torch.tensor([[2, -1, 0], [1, 0, 2], [-1, 0, 1]])
    ),
    "torch.nn.MultiLabelSoftMarginLoss": one(
        lambda x, s: F.multilabel_soft_margin_loss(x, (s > 0).to(x.dtype)), X, SIGNS
    ),
    "torch.nn.MultiMarginLoss": one(lambda x, t: F.multi_margin_loss(x, t), X, T),
    "torch.nn.NLLLoss": one(lambda x, t: (F.nll_loss(x, t), F.nll_loss(x, t, reduction="sum")), X, T)
    + one(lambda x, t, w: F.nll_loss(x, t, w.detach()), IMAGE, LABELS, P[0]),
    "torch.nn.PoissonNLLLoss": one(
        lambda x, p: (F.poisson_nll_loss(x, p), F.poisson_nll_loss(x, p, full=True)), LOGITS, PROB * 4
    ),
    "torch.nn.SmoothL1Loss": one(lambda x, y: F.smooth_l1_loss(x, y, beta=0.5), X, Y),
    "torch.nn.SoftMarginLoss": one(lambda x, s: F.soft_margin_loss(x, s.detach()), X, SIGNS),
    "torch.nn.TripletMarginLoss": one(lambda x, y, p: F.triplet_margin_loss(x, y, p), X, Y, P),
}

SEQ, QKV = normal(5, 2, 4), normal(2, 5, 8)
QUERY, KEYS = normal(2, 3, 6, 4), normal(2, 3, 8, 4)
MASK = torch.rand(6, 8, generator=torch.Generator().manual_seed(1)) > 0.3
RECURRENT = {
    "torch.nn.GRU": layer(lambda: nn.GRU(4, 3), SEQ)
    + layer(lambda: nn.GRU(4, 3, 2, bidirectional=True, bias=False), SEQ),
    "torch.nn.GRUCell": layer(lambda: nn.GRUCell(4, 3), SEQ[0], normal(2, 3)),
    "torch.nn.LSTM": layer(lambda: nn.LSTM(4, 3), SEQ)
    + layer(lambda: nn.LSTM(4, 3, 2, bidirectional=True, batch_first=True), SEQ),
    "torch.nn.LSTMCell": layer(lambda: nn.LSTMCell(4, 3), SEQ[0]),
    "torch.nn.RNN": layer(lambda: nn.RNN(4, 3), SEQ) + layer(lambda: nn.RNN(4, 3, 2, nonlinearity="relu"), SEQ),
    "torch.nn.RNNCell": layer(lambda: nn.RNNCell(4, 3), SEQ[0]),
}
ATTENTION = {
    "torch.nn.MultiheadAttention": layer(lambda: nn.MultiheadAttention(8, 2, batch_first=True), QKV, QKV, QKV)
    + layer(lambda: nn.MultiheadAttention(8, 2, batch_first=True).eval(), QKV, QKV, QKV),
    "torch.nn.TransformerDecoderLayer": layer(lambda: nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0), QKV, QKV * 2),
    "torch.nn.TransformerEncoderLayer": layer(
        lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), QKV
    )
    + layer(lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True).eval(), QKV),
    "torch.nn.functional.scaled_dot_product_attention": one(F.scaled_dot_product_attention, QUERY, KEYS, KEYS.flip(2))
    + one(lambda q, k, m: F.scaled_dot_product_attention(q, k, k, attn_mask=m), QUERY, KEYS, MASK)
    + one(lambda q, k, m: F.scaled_dot_product_attention(q, k, k, attn_mask=m), QUERY, KEYS, normal(2, 1, 6, 8))
    + one(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True, scale=0.3), QUERY)
    + one(lambda q, k: F.scaled_dot_product_attention(q, k[:, :1], k[:, :1], enable_gqa=True), QUERY, KEYS),
}
LINEAR = {
    "torch.nn.AlphaDropout": one(lambda x: F.alpha_dropout(x, 0.5, False), X),
    "torch.nn.Bilinear": layer(lambda: nn.Bilinear(5, 5, 2), X, Y),
    "torch.nn.CosineSimilarity": one(nn.CosineSimilarity(1), X, Y),
    "torch.nn.Dropout": one(lambda x: (F.dropout(x, 0.5, False), F.dropout(x, 0.0)), X),
    "torch.nn.Embedding": layer(lambda: nn.Embedding(5, 4), LABELS)
    + layer(lambda: nn.Embedding(5, 4, padding_idx=1), LABELS),
    "torch.nn.EmbeddingBag": layer(lambda: nn.EmbeddingBag(5, 4), LABELS),
    "torch.nn.Flatten": one(nn.Flatten(), M),
    "torch.nn.Identity": one(lambda x: nn.Identity()(x) * 1, X),
    "torch.nn.Linear": layer(lambda: nn.Linear(5, 3), X) + layer(lambda: nn.Linear(4, 3, bias=False), A),
    "torch.nn.PairwiseDistance": one(nn.PairwiseDistance(), X, Y),
    "torch.nn.Unflatten": one(nn.Unflatten(3, (2, 3)), M),
}
SECTIONS = {
    "Activations": ACTIVATIONS,
    "Linear and embedding layers": LINEAR,
    "Normalisation": NORMS,
    "Recurrent layers": RECURRENT,
    "Attention": ATTENTION,
    "Losses": LOSSES,
}
