"""Models and machines of a user, good and bad, for the tests of the command."""

from itertools import pairwise

import torch
from torch import nn

from abele.machine import gc200, one_ipu

tight = one_ipu(gc200.derive("tight", tile_memory=340 * 1024)).with_ipus(4)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.full((4,), 2.0))

    def forward(self, x):
        return x * self.weight


def good(batch):
    return Scaled(), (torch.arange(4.0 * batch).reshape(batch, 4),)


def without_values(batch):
    with torch.device("meta"):
        return Scaled(), (torch.empty(batch, 4),)


def raises(batch):
    return {}["missing"]


class Faulty(nn.Module):
    def forward(self, x):
        return x + self.nothing  # raises


def raises_in_forward(batch):
    return Faulty(), (torch.zeros(batch, 4),)


class Branching(nn.Module):
    def forward(self, x):
        if x.sum() > 0:  # depends on data
            return x
        return -x


def branches(batch):
    return Branching(), (torch.zeros(batch, 4),)


def not_a_pair(batch):
    return Scaled()


class Perceptron(nn.Module):
    """Linear layers of these widths, trained against a target."""

    def __init__(self, *widths):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))

    def forward(self, x, y):
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        x = self.layers[-1](x)
        return x, nn.functional.mse_loss(x, y)


def with_42_million(batch):
    with torch.device("meta"):
        return Perceptron(1024, 4096, 4096, 4096, 1024), (torch.empty(batch, 1024), torch.empty(batch, 1024))


def with_27_million(batch):
    with torch.device("meta"):
        return Perceptron(1024, 3150, 3150, 3150, 1024), (torch.empty(batch, 1024), torch.empty(batch, 1024))


class Products(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (nn.Parameter(torch.empty(8192, 8192, device="meta")) for _ in range(3))

    def forward(self, x):
        return x @ self.a @ self.b @ self.c


def three_products(batch):
    return Products(), (torch.empty(8192, 8192, device="meta"),)


# Names that would end the report's script element, were they not escaped.
class Hostile(nn.Module):
    def __init__(self):
        super().__init__()
        self.add_module("</script><script>alert(1)</script>", Scaled())

    def forward(self, x):
        return next(self.children())(x)


def hostile(batch):
    return Hostile(), (torch.zeros(batch, 4),)
