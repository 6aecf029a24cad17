"""Small classics: a perceptron, a digit network, a word model."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class Mlp(nn.Module):
    """Three linear layers with ReLU between them. ``f32[N, inputs]`` to ``f32[N, classes]``."""

    def __init__(self, inputs: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, classes)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class DigitCnn(nn.Module):
    """Two convolutions with pooling, two linear layers. ``f32[N, 1, side, side]`` to ``f32[N, classes]``."""

    def __init__(self, side: int, first: int, second: int) -> None:
        super().__init__()
        classes = 10 if side == 28 else 4
        self.conv1 = nn.Conv2d(1, first, 3)
        self.conv2 = nn.Conv2d(first, second, 3)
        after = ((side - 2) // 2 - 2) // 2
        self.fc1 = nn.Linear(second * after * after, 128)
        self.drop = nn.Dropout(0.5)
        self.fc2 = nn.Linear(128, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return self.fc2(self.drop(x))


class LanguageLstm(nn.Module):
    """Embedding, LSTM layers and a linear layer over the vocabulary. ``i64[N, T]`` to ``f32[N, T, words]``."""

    def __init__(self, words: int, width: int, cells: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, cells, layers, batch_first=True)
        self.head = nn.Linear(cells, words)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, _ = self.lstm(self.embedding(x))
        return self.head(y)
