"""BERT with the heads of published benchmark programs: pretraining on masked words in front, and answers of SQuAD."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from abele.zoo.transformers import _library


def _config(layers: int, width: int, heads: int, words: int, length: int):
    return _library().BertConfig(
        vocab_size=words,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        max_position_embeddings=max(512, length),
        attention_probs_dropout_prob=0.0,  # as the published pretraining configurations have it
    )


class MaskedWords(nn.Module):
    """Pretraining: words are guessed at the first positions of a sequence alone, where the data loader puts them.

    ``forward(input_ids, attention_mask, labels)``: tokens ``i64[N, T]`` and labels ``i64[N, masked]`` to the mean loss,
    ``f32[]``. The embedding's weight is the output layer's too.
    """

    def __init__(self, layers: int, width: int, heads: int, words: int, length: int) -> None:
        super().__init__()
        self.net = _library().BertForMaskedLM(_config(layers, width, heads, words, length))

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        hidden = self.net.bert(input_ids=input_ids, attention_mask=attention_mask)[0]
        scores = self.net.cls(hidden[:, : labels.shape[1]])
        return F.cross_entropy(scores.flatten(0, 1), labels.flatten())


class AnswerSpan(nn.Module):
    """SQuAD: scores of start and end of an answer at every position, ``[N, T, 2]``."""

    def __init__(self, layers: int, width: int, heads: int, words: int, length: int) -> None:
        super().__init__()
        self.net = _library().BertForQuestionAnswering(_config(layers, width, heads, words, length))

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        hidden = self.net.bert(input_ids=input_ids, attention_mask=attention_mask)[0]
        return self.net.qa_outputs(hidden)
