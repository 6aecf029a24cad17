"""Operations that programs written for the vendor's API use in corners, against plain PyTorch."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import poptorch

X = torch.linspace(-2, 2, 12).reshape(3, 4)
NAN = torch.full((4,), float("nan"))


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


@pytest.mark.parametrize(
    ("function", "args"),
    [
        pytest.param(lambda x: F.rrelu(x, training=False), (X,), id="rrelu"),
        pytest.param(lambda x, v: torch.addmv(v[:3], x, v, beta=0, alpha=0), (X, NAN), id="addmv of nothing"),
        pytest.param(lambda x: torch.cumsum(x, 0, out=torch.empty(3, 4, dtype=torch.int32)), (X,), id="type of out"),
        pytest.param(lambda x: F.mse_loss(x, torch.ones(3, 4, dtype=torch.float64).type_as(x)), (X,), id="type_as"),
        pytest.param(
            lambda i, w: [F.embedding_bag(i, w, mode=m) for m in ("sum", "mean", "max")],
            (torch.tensor([[0, 2], [1, 1]]), X),
            id="embedding bags",
        ),
    ],
)
def test_corners_agree_with_torch(function, args):
    expected = function(*args)
    result = poptorch.inferenceModel(Function(function))(*args)
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-6)


def test_a_transformer_takes_a_mask_as_an_input():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).eval()
    model = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()
    x, mask = torch.randn(2, 4, 8), nn.Transformer.generate_square_subsequent_mask(4)
    torch.testing.assert_close(poptorch.inferenceModel(model)(x, mask), model(x, mask), rtol=1e-4, atol=1e-5)


def test_a_drawn_slope_lies_between_its_bounds():
    y = poptorch.inferenceModel(Function(lambda x: F.rrelu(x, 0.25, 0.5, training=True)))(-torch.ones(1000))
    assert -0.5 <= y.min() < -0.45 and -0.3 < y.max() <= -0.25
