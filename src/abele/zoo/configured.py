"""Models in the configurations of published benchmarks: any batch, image side, sequence length, depth and width.

Built on torch's device ``meta``, so that no weight is ever made: enough to compile and to charge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from abele.errors import InvalidOption, suggest
from abele.zoo import resnet
from abele.zoo.bert_heads import AnswerSpan, MaskedWords
from abele.zoo.bertsquad import BertSquad
from abele.zoo.efficientnet import EfficientNet
from abele.zoo.training import FromBytes, classifier
from abele.zoo.transformers import gpt2, vit

_IMAGES = {"f32": torch.float32, "u8": torch.uint8}


@dataclass(frozen=True)
class Request:
    """What is asked for: ``sizes`` may name ``image``, ``patch``, ``depth``, ``width``, ``heads``, ``vocabulary``,
    ``mask_tokens``; what it does not name is the model's own. ``image_type`` ``u8`` has a ResNet take bytes."""

    batch: int
    train: bool
    length: int
    sizes: Mapping[str, Any]

    def size(self, name: str, default: int) -> int:
        return int(self.sizes.get(name, default))

    def transformer(self, depth: int, width: int, heads: int) -> tuple[int, int, int]:
        return self.size("depth", depth), self.size("width", width), self.size("heads", heads)

    def images(self, side: int, name: str = "x") -> dict[str, torch.Tensor]:
        side = self.size("image", side)
        labels = {"labels": torch.empty(self.batch, dtype=torch.int64)} if self.train else {}
        return {name: torch.empty(self.batch, 3, side, side, dtype=_IMAGES[self.image_type]), **labels}

    @property
    def image_type(self) -> str:
        found = str(self.sizes.get("image_type", "f32"))
        if found not in _IMAGES:
            raise InvalidOption(f"There are no images of {found!r}", remedy=suggest(found, _IMAGES))
        return found

    def tokens(self, length: int) -> torch.Tensor:
        return torch.empty(self.batch, length, dtype=torch.int64)


Built = tuple[nn.Module, dict[str, torch.Tensor]]
Maker = Callable[[Request], Built]


def _resnet(block: type[resnet.BasicBlock | resnet.Bottleneck], *depths: int) -> Maker:
    def make(r: Request) -> Built:
        net: nn.Module = resnet.ResNet(block, depths, 64, 1000)
        return classifier(FromBytes(net) if r.image_type == "u8" else net, r.train), r.images(224)

    return make


def _efficientnet(width: float, depth: float, dropout: float, side: int) -> Maker:
    return lambda r: (classifier(EfficientNet(width, depth, dropout, 1000), r.train), r.images(side))


def _vit(*sizes: int) -> Maker:
    def make(r: Request) -> Built:
        side = r.size("image", 224)
        net = vit(*r.transformer(*sizes), side, r.size("patch", 16), 1000, r.train)
        return net, r.images(side, "pixel_values")

    return make


def _gpt2(*sizes: int) -> Maker:
    def make(r: Request) -> Built:
        length = r.length or 1024
        net = gpt2(*r.transformer(*sizes), r.size("vocabulary", 50257), length, r.train)
        tokens = r.tokens(length)
        return net, {"input_ids": tokens, "labels": tokens} if r.train else {"input_ids": tokens}

    return make


def _bert(*sizes: int) -> Maker:
    def make(r: Request) -> Built:
        length = r.length or 128
        shape = (*r.transformer(*sizes), r.size("vocabulary", 30522), length)
        inputs = {"input_ids": r.tokens(length), "attention_mask": r.tokens(length)}
        if not r.train:
            return AnswerSpan(*shape), inputs
        return MaskedWords(*shape), inputs | {"labels": r.tokens(r.size("mask_tokens", 20))}

    return make


def _bertsquad(*sizes: int) -> Maker:
    def make(r: Request) -> Built:
        length = r.length or 256
        patterns = [name for name in str(r.sizes.get("patterns", "")).split("/") if name]
        shape = (*r.transformer(*sizes), r.size("vocabulary", 30522), length)
        inputs = {name: r.tokens(length) for name in ("input_ids", "input_mask", "segment_ids")}
        return BertSquad(*shape, patterns), inputs

    return make


CONFIGURED: Mapping[str, Maker] = {
    "resnet18": _resnet(resnet.BasicBlock, 2, 2, 2, 2),
    "resnet34": _resnet(resnet.BasicBlock, 3, 4, 6, 3),
    "resnet50": _resnet(resnet.Bottleneck, 3, 4, 6, 3),
    "resnet101": _resnet(resnet.Bottleneck, 3, 4, 23, 3),
    "resnet152": _resnet(resnet.Bottleneck, 3, 8, 36, 3),
    "efficientnet-b0": _efficientnet(1.0, 1.0, 0.2, 224),
    "efficientnet-b4": _efficientnet(1.4, 1.8, 0.4, 380),
    "vit-base": _vit(12, 768, 12),
    "vit-large": _vit(24, 1024, 16),
    "gpt2": _gpt2(12, 768, 12),
    "gpt2-medium": _gpt2(24, 1024, 16),
    "gpt2-large": _gpt2(36, 1280, 20),
    "bert-base": _bert(12, 768, 12),
    "bert-large": _bert(24, 1024, 16),
    "bertsquad": _bertsquad(12, 768, 12),
}
"""Makers by name. BERT in training has the loss of words masked in front, in inference the answers of SQuAD."""


def build(
    name: str, *, batch: int, train: bool, half: bool = False, length: int = 0, sizes: Mapping[str, Any] | None = None
) -> Built:
    """A module on the device ``meta`` and its keyword arguments.

    Args:
        name: of ``CONFIGURED``; another raises ``InvalidOption``.
        batch: samples.
        train: in training mode, with a loss in what it returns and labels among its arguments.
        half: weights and floating-point arguments in half.
        length: tokens of a sample, 0 for the model's own.
        sizes: see ``Request``.
    """
    if name not in CONFIGURED:
        raise InvalidOption(f"There is no model {name!r} to configure", remedy=suggest(name, CONFIGURED))
    maker = CONFIGURED[name]
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        module, inputs = maker(Request(batch, train, length, sizes or {}))
    module.train(train)
    if half:
        module.half()
        inputs = {k: v.half() if v.is_floating_point() else v for k, v in inputs.items()}
    return module, inputs
