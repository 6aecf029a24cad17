"""What draws random numbers: programs of 4,000 probabilities, whose results have torch's mean and spread."""

from __future__ import annotations

import torch
from torch import distributions
from torch.nn import functional as F

N = 4000
RANDOM = {
    "torch.bernoulli": torch.bernoulli,
    "torch.distributions.Bernoulli": lambda p: distributions.Bernoulli(p).sample(),
    "torch.distributions.Categorical": lambda p: distributions.Categorical(p.reshape(-1, 4)).sample(),
    "torch.distributions.Exponential": lambda p: distributions.Exponential(p).sample(),
    "torch.distributions.Gumbel": lambda p: distributions.Gumbel(p, 1.0).sample(),
    "torch.distributions.Laplace": lambda p: distributions.Laplace(p, 1.0).sample(),
    "torch.distributions.Normal": lambda p: distributions.Normal(p, 2.0).rsample(),
    "torch.distributions.Uniform": lambda p: distributions.Uniform(p, p + 2).sample(),
    "torch.multinomial": lambda p: torch.multinomial(p.reshape(-1, 4), 1),
    "torch.nn.Dropout": lambda p: F.dropout(p, 0.25),
    "torch.nn.Dropout2d": lambda p: F.dropout2d(p.reshape(40, 25, 2, 2)),
    "torch.nn.RReLU": lambda p: F.rrelu(p - 1, training=True),
    "torch.nn.functional.gumbel_softmax": lambda p: F.gumbel_softmax(p.reshape(-1, 4))[:, 0],
    "torch.normal": lambda p: torch.normal(p, p),
    "torch.rand": lambda p: p * 0 + torch.rand(N),
    "torch.rand_like": torch.rand_like,
    "torch.randint": lambda p: torch.randint(0, 5, (N,)) + 0 * p,
    "torch.randn": lambda p: p * 0 + torch.randn(N),
    "torch.randn_like": torch.randn_like,
    "torch.randperm": lambda p: torch.randperm(N) + 0 * p,
    "Tensor.bernoulli_": lambda p: torch.empty(N).bernoulli_(0.3) + 0 * p,
    "Tensor.cauchy_": lambda p: torch.empty(N).cauchy_(0.5, 2).atan() + 0 * p,
    "Tensor.exponential_": lambda p: torch.empty(N).exponential_(2.0) + 0 * p,
    "Tensor.geometric_": lambda p: torch.empty(N).geometric_(0.3) + 0 * p,
    "Tensor.log_normal_": lambda p: torch.empty(N).log_normal_(0, 0.5) + 0 * p,
    "Tensor.normal_": lambda p: torch.empty(N).normal_(1, 2) + 0 * p,
    "Tensor.random_": lambda p: torch.empty(N).random_(0, 9) + 0 * p,
    "Tensor.uniform_": lambda p: torch.empty(N).uniform_(1, 3) + 0 * p,
}
