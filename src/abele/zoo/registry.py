"""The models by name. Builders import torch when they are called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from abele.zoo.model import Model

if TYPE_CHECKING:
    import torch


def _image(channels: int, size: int, small_size: int, classes: int, small_classes: int):
    """Images ``f32[batch, channels, size, size]`` and labels ``i64[batch]``."""

    def draw(batch: int, small: bool, generator: torch.Generator) -> dict[str, torch.Tensor]:
        import torch

        side, count = (small_size, small_classes) if small else (size, classes)
        return {
            "x": torch.randn(batch, channels, side, side, generator=generator),
            "labels": torch.randint(0, count, (batch,), generator=generator),
        }

    return draw


def _text(vocabulary: int, length: int, small_vocabulary: int, small_length: int, masked: bool = False):
    """Tokens ``i64[batch, length]``, perhaps a mask of them, and labels of every position."""

    def draw(batch: int, small: bool, generator: torch.Generator) -> dict[str, torch.Tensor]:
        import torch

        size, words = (small_length, small_vocabulary) if small else (length, vocabulary)
        tokens = torch.randint(0, words, (batch, size), generator=generator)
        mask = {"attention_mask": torch.ones(batch, size, dtype=torch.int64)} if masked else {}
        return {"input_ids": tokens, **mask, "labels": tokens.clone()}

    return draw


def _mlp(small: bool, training: bool) -> torch.nn.Module:
    from abele.zoo.basic import Mlp
    from abele.zoo.training import classifier

    return classifier(Mlp(*((16, 32, 4) if small else (784, 1024, 10))), training)


def _digits(small: bool, training: bool) -> torch.nn.Module:
    from abele.zoo.basic import DigitCnn
    from abele.zoo.training import classifier

    return classifier(DigitCnn(*((12, 4, 8) if small else (28, 32, 64))), training)


def _resnet18(small: bool, training: bool) -> torch.nn.Module:
    from abele.zoo.resnet import BasicBlock, ResNet
    from abele.zoo.training import classifier

    net = ResNet(BasicBlock, (1, 1), 8, 4) if small else ResNet(BasicBlock, (2, 2, 2, 2), 64, 1000)
    return classifier(net, training)


def _resnet50(small: bool, training: bool) -> torch.nn.Module:
    from abele.zoo.resnet import Bottleneck, ResNet
    from abele.zoo.training import classifier

    net = ResNet(Bottleneck, (1, 1), 8, 4) if small else ResNet(Bottleneck, (3, 4, 6, 3), 64, 1000)
    return classifier(net, training)


def _efficientnet(small: bool, training: bool) -> torch.nn.Module:
    from abele.zoo.efficientnet import EfficientNet
    from abele.zoo.training import classifier

    net = EfficientNet(0.25, 0.1, 0.2, 4, stages=3) if small else EfficientNet(1.4, 1.8, 0.4, 1000)
    return classifier(net, training)


def _unet(small: bool, training: bool) -> torch.nn.Module:
    from abele.zoo.training import classifier
    from abele.zoo.unet import UNet

    return classifier(UNet(1, 2, 4, 2) if small else UNet(1, 2, 64, 4), training)


def _draw_unet(batch: int, small: bool, generator: torch.Generator) -> dict[str, torch.Tensor]:
    import torch

    side = 16 if small else 512
    return {
        "x": torch.randn(batch, 1, side, side, generator=generator),
        "labels": torch.randint(0, 2, (batch, side, side), generator=generator),
    }


def _lstm(small: bool, training: bool) -> torch.nn.Module:
    from abele.zoo.basic import LanguageLstm
    from abele.zoo.training import classifier

    return classifier(LanguageLstm(*((20, 8, 12, 2) if small else (10000, 512, 512, 2))), training)


def _draw_lstm(batch: int, small: bool, generator: torch.Generator) -> dict[str, torch.Tensor]:
    import torch

    length, words = (6, 20) if small else (64, 10000)
    tokens = torch.randint(0, words, (batch, length + 1), generator=generator)
    return {"x": tokens[:, :-1].contiguous(), "labels": tokens[:, 1:].contiguous()}


def _bert(layers: int, width: int, heads: int):
    def make(small: bool, training: bool) -> torch.nn.Module:
        from abele.zoo.transformers import bert

        return bert(2, 16, 2, 40, 32, training) if small else bert(layers, width, heads, 30522, 512, training)

    return make


def _gpt2(small: bool, training: bool) -> torch.nn.Module:
    from abele.zoo.transformers import gpt2

    return gpt2(2, 16, 2, 40, 32, training) if small else gpt2(12, 768, 12, 50257, 1024, training)


def _vit(small: bool, training: bool) -> torch.nn.Module:
    from abele.zoo.transformers import vit

    return vit(2, 16, 2, 16, 8, 4, training) if small else vit(12, 768, 12, 224, 16, 1000, training)


def _draw_mlp(batch: int, small: bool, generator: torch.Generator) -> dict[str, torch.Tensor]:
    import torch

    width, classes = (16, 4) if small else (784, 10)
    return {
        "x": torch.randn(batch, width, generator=generator),
        "labels": torch.randint(0, classes, (batch,), generator=generator),
    }


def _draw_vit(batch: int, small: bool, generator: torch.Generator) -> dict[str, torch.Tensor]:
    drawn = _image(3, 224, 16, 1000, 4)(batch, small, generator)
    return {"pixel_values": drawn["x"], "labels": drawn["labels"]}


ZOO: dict[str, Model] = {
    model.name: model
    for model in (
        Model("mlp", "three linear layers, 784-1024-1024-10, for digits", _mlp, _draw_mlp),
        Model("mnist-cnn", "two convolutions and two linear layers, 28 x 28 digits", _digits, _image(1, 28, 12, 10, 4)),
        Model("resnet18", "ResNet-18, 11.7 M parameters, 224 x 224 images", _resnet18, _image(3, 224, 16, 1000, 4)),
        Model("resnet50", "ResNet-50, 25.6 M parameters, 224 x 224 images", _resnet50, _image(3, 224, 16, 1000, 4)),
        Model(
            "efficientnet-b4",
            "EfficientNet-B4, 19.3 M parameters, 380 x 380 images",
            _efficientnet,
            _image(3, 380, 16, 1000, 4),
        ),
        Model("unet", "U-Net, 31 M parameters, two classes in 512 x 512 images", _unet, _draw_unet),
        Model("lstm", "two LSTM layers of 512 cells, a word model over 64 steps", _lstm, _draw_lstm),
        Model(
            "bert-base",
            "BERT-base with its masked-word head, 110 M parameters, 128 tokens",
            _bert(12, 768, 12),
            _text(30522, 128, 40, 8, masked=True),
        ),
        Model(
            "bert-large",
            "BERT-large with its masked-word head, 335 M parameters, 128 tokens",
            _bert(24, 1024, 16),
            _text(30522, 128, 40, 8, masked=True),
        ),
        Model("gpt2", "GPT-2 with its word head, 124 M parameters, 128 tokens", _gpt2, _text(50257, 128, 40, 8)),
        Model("vit-base", "ViT-B/16, 86 M parameters, 224 x 224 images", _vit, _draw_vit),
    )
}
