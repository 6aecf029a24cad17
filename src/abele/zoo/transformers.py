"""Transformers, from the configurations of the library of that name, with random weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from abele.errors import Unsupported
from abele.zoo.training import WithLoss


class Scores(nn.Module):
    """A model of ``transformers`` that gives its scores alone."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, **inputs: Any) -> torch.Tensor:
        return self.net(**inputs)[0]


def _library() -> Any:
    try:
        import transformers
    except ImportError:
        raise Unsupported(
            "This model needs the package transformers", remedy="Install it: pip install 'abele[zoo]'."
        ) from None
    return transformers


def _wrapped(net: nn.Module, training: bool) -> nn.Module:
    return WithLoss(net) if training else Scores(net)


def bert(layers: int, width: int, heads: int, words: int, positions: int, training: bool) -> nn.Module:
    """BERT with its masked-word head (Devlin et al., 2018). ``i64[N, T]`` to ``f32[N, T, words]``."""
    library = _library()
    config = library.BertConfig(
        vocab_size=words,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        max_position_embeddings=positions,
    )
    return _wrapped(library.BertForMaskedLM(config), training)


def gpt2(layers: int, width: int, heads: int, words: int, positions: int, training: bool) -> nn.Module:
    """GPT-2 with its word head (Radford et al., 2019). ``i64[N, T]`` to ``f32[N, T, words]``."""
    library = _library()
    config = library.GPT2Config(
        vocab_size=words,
        n_embd=width,
        n_layer=layers,
        n_head=heads,
        n_positions=positions,
        bos_token_id=words - 1,
        eos_token_id=words - 1,
        use_cache=False,
    )
    return _wrapped(library.GPT2LMHeadModel(config), training)


def vit(layers: int, width: int, heads: int, side: int, patch: int, classes: int, training: bool) -> nn.Module:
    """ViT with a class head (Dosovitskiy et al., 2020). ``f32[N, 3, side, side]`` to ``f32[N, classes]``."""
    library = _library()
    config = library.ViTConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        image_size=side,
        patch_size=patch,
        num_labels=classes,
    )
    return _wrapped(library.ViTForImageClassification(config), training)
