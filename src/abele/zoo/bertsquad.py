"""BERT for SQuAD as TensorFlow's graph of it has it, operation by operation: the file ``bertsquad-12`` of the ONNX zoo.

google-research/bert ``modeling.py`` and ``run_squad.py`` write that graph, and tf2onnx made the file of it: its
chains are those that microsoft/onnxruntime looks for in models of TensorFlow (``fusion_fastgelu.py``; pull request
5492 for norms). The published runs of PopRT took it through passes that each replace one of them (graphcore/PopRT,
``examples/bert``). So layer norm and GELU are reductions and elementwise operations, or one operation each where the
pass for them ran; queries, keys and values are three products; word types are looked up by a product with one-hot
rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import nn
from torch.nn import functional as F

from abele.errors import InvalidOption, suggest

PATTERNS = ("gelu", "norm")
"""What PopRT's passes ``gelu_pattern`` and ``layer_norm_pattern`` make one operation."""


class Dense(nn.Module):
    """A product with weights ``[ins, outs]`` and the addition of a bias, as two operations."""

    def __init__(self, ins: int, outs: int) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(ins, outs))
        self.bias = nn.Parameter(torch.empty(outs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.matmul(x, self.kernel) + self.bias


class Gelu(nn.Module):
    """GELU by tanh: eight operations of the model's type, or one in float."""

    def __init__(self, one: bool) -> None:
        super().__init__()
        self.one = one

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.one:
            return F.gelu(x.float(), approximate="tanh").to(x.dtype)
        inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, x.new_full((), 3.0)))
        return x * (0.5 * (1.0 + torch.tanh(inner)))


class Norm(nn.Module):
    """Layer norm of the last axis: moments and eight elementwise operations of the model's type, or one in float."""

    def __init__(self, width: int, one: bool) -> None:
        super().__init__()
        self.one = one
        self.gamma = nn.Parameter(torch.empty(width))
        self.beta = nn.Parameter(torch.empty(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.one:
            wide = F.layer_norm(x.float(), x.shape[-1:], self.gamma.float(), self.beta.float(), 1e-12)
            return wide.to(x.dtype)
        mean = x.mean(-1, keepdim=True)
        distance = x - mean
        variance = (distance * distance).mean(-1, keepdim=True)
        scale = torch.reciprocal(torch.sqrt(variance + 1e-12)) * self.gamma
        return x * scale + (self.beta - mean * scale)


class Attention(nn.Module):
    """Self-attention of rows ``[N·T, width]`` by three products, with the mask made anew, and its output product."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (Dense(width, width) for _ in range(4))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        count, length = mask.shape
        size = x.shape[-1] // self.heads

        def split(rows: torch.Tensor) -> torch.Tensor:
            return rows.view(count, length, self.heads, size).transpose(1, 2)

        scores = torch.matmul(split(self.query(x)), split(self.key(x)).transpose(2, 3)) * (1.0 / math.sqrt(size))
        ones = torch.ones(count, length, 1, dtype=x.dtype, device=x.device)
        adder = (1.0 - (ones * mask.to(x.dtype)[:, None]).unsqueeze(1)) * -10000.0
        shares = torch.softmax(scores + adder, -1)
        context = torch.matmul(shares, split(self.value(x))).transpose(1, 2)
        return self.output(context.reshape(count * length, -1))


class Layer(nn.Module):
    """Attention and feed-forward, each with its residual and norm after it."""

    def __init__(self, width: int, heads: int, patterns: frozenset[str]) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.attention_norm = Norm(width, "norm" in patterns)
        self.intermediate = Dense(width, 4 * width)
        self.gelu = Gelu("gelu" in patterns)
        self.output = Dense(4 * width, width)
        self.output_norm = Norm(width, "norm" in patterns)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.attention_norm(self.attention(x, mask) + x)
        return self.output_norm(self.output(self.gelu(self.intermediate(x))) + x)


class BertSquad(nn.Module):
    """Scores of start and end of an answer, each ``[N, T]``, for words, mask and word types ``i64[N, T]``.

    ``patterns`` names what is one operation, of ``PATTERNS``; these are in float whatever the model's type, as the
    published script leaves them (``fp16_skip_op_types``). Another name raises ``InvalidOption``.
    """

    def __init__(
        self, layers: int, width: int, heads: int, words: int, length: int, patterns: Iterable[str] = ()
    ) -> None:
        super().__init__()
        named = frozenset(patterns)
        for name in named.difference(PATTERNS):
            raise InvalidOption(f"There is no pattern {name!r}", remedy=suggest(name, PATTERNS))
        self.words = nn.Parameter(torch.empty(words, width))
        self.types = nn.Parameter(torch.empty(2, width))
        self.positions = nn.Parameter(torch.empty(max(512, length), width))
        self.norm = Norm(width, "norm" in named)
        self.layers = nn.ModuleList(Layer(width, heads, named) for _ in range(layers))
        self.scores = nn.Parameter(torch.empty(2, width))
        self.bias = nn.Parameter(torch.empty(2))

    def forward(
        self, input_ids: torch.Tensor, input_mask: torch.Tensor, segment_ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        count, length = input_ids.shape
        types = F.one_hot(segment_ids.reshape(-1), 2).to(self.types.dtype)
        x = F.embedding(input_ids, self.words) + torch.matmul(types, self.types).view(count, length, -1)
        x = self.norm(x + self.positions[:length].unsqueeze(0))
        x = x.view(count * length, -1)
        for layer in self.layers:
            x = layer(x, input_mask)
        scores = torch.matmul(x, self.scores.t()) + self.bias
        start, end = scores.view(count, length, 2).permute(2, 0, 1).unbind(0)
        return start, end
