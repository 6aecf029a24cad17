"""Message passing against torch eager: CPU time of one step on one thread, with edges drawn at random."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.programs import inference
from benchmarks.rounds import Result, compare, one_thread

NODES, EDGES, FEATURES = 10_000, 60_000, 64
REDUCTIONS = ("sum", "mean", "amax", "amin", "prod")


def _expanded(index: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return index.view(-1, 1).expand_as(like)


class _Gather(nn.Module):
    """Features of the nodes at which edges begin."""

    def forward(self, x: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return x.index_select(0, source)


class _Scatter(nn.Module):
    """Messages brought together at the nodes at which edges end."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def forward(self, messages: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        total = messages.new_zeros((NODES, FEATURES))
        if self.how == "sum":
            return total.scatter_add_(0, _expanded(target, messages), messages)
        return total.scatter_reduce_(
            0, _expanded(target, messages), messages, self.how, include_self=self.how == "prod"
        )


class _Softmax(nn.Module):
    """A softmax over the edges of each node, eight heads."""

    def forward(self, scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        index = _expanded(target, scores)
        largest = scores.new_zeros((NODES, scores.shape[1])).scatter_reduce_(
            0, index, scores, "amax", include_self=False
        )
        exponent = (scores - largest.index_select(0, target)).exp()
        total = scores.new_zeros((NODES, scores.shape[1])).scatter_add_(0, index, exponent)
        return exponent / total.index_select(0, target)


class _Convolution(nn.Module):
    """A layer of a graph convolution: gather, weigh, sum, a product of weights."""

    def __init__(self) -> None:
        super().__init__()
        self.product = nn.Linear(FEATURES, FEATURES)

    def forward(
        self, x: torch.Tensor, source: torch.Tensor, target: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        messages = x.index_select(0, source) * weight
        return self.product(torch.zeros_like(x).scatter_add_(0, _expanded(target, messages), messages)).relu()


def main() -> list[Result]:
    """Measure all; returns the results."""
    one_thread()
    torch.manual_seed(0)
    x, messages = torch.randn(NODES, FEATURES), torch.randn(EDGES, FEATURES)
    source, target = torch.randint(NODES, (EDGES,)), torch.randint(NODES, (EDGES,))
    ends, ended = {"source": source, "target": target}, {"target": target}
    cases = [
        ("gather", _Gather(), {"x": x, **ends}),
        *((f"scatter {how}", _Scatter(how), {"messages": messages, **ended}) for how in REDUCTIONS),
        ("softmax over edges", _Softmax(), {"scores": torch.randn(EDGES, 8), **ended}),
        ("graph convolution", _Convolution(), {"x": x, **ends, "weight": torch.rand(EDGES, 1)}),
    ]
    results = []
    for name, module, inputs in cases:
        run = inference(module.eval(), inputs)
        with torch.inference_mode():
            results.append(
                compare(f"{name}, {NODES} nodes, {EDGES} edges", run, lambda m=module, i=inputs: m(**i), None)
            )
    return results


if __name__ == "__main__":
    main()
