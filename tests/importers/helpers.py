"""Capture a program, evaluate its graph, and hold it against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from abele.importers.torch import Capture, capture, flatten
from abele.ir import check, evaluate


def run(captured: Capture, args: tuple, kwargs: dict | None = None, seed: int = 0) -> dict[str, np.ndarray]:
    """Values of all outputs of the graph by ``kind name``."""
    state = captured.state(seed)
    data = iter(captured.arguments(args, kwargs))
    graph = captured.graph
    inputs = [next(data) if p.kind == "data" else state[p.name] for p in graph.input_ports]
    outputs = evaluate(graph, inputs)
    return {f"{p.kind} {p.name}".rstrip(): a for p, a in zip(graph.output_ports, outputs, strict=True)}


def result(captured: Capture, args: tuple, kwargs: dict | None = None) -> Any:
    """What the program returns, by way of the graph."""
    values = list(run(captured, args, kwargs).values())
    return captured.result(values[: len(captured.outputs)])


def copied(data: Any) -> Any:
    """The same data with tensors of its own."""
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.detach().clone(), data)


def same(program: Any, *args: Any, rtol: float = 1e-5, atol: float = 1e-5, **kwargs: Any) -> Capture:
    """Assert that the graph gives what torch gives: structure, types, shapes, values."""
    captured = capture(program, copied(args), copied(kwargs))
    check(captured.graph)
    found = result(captured, args, kwargs)
    with torch.no_grad():
        expected = program(*copied(args), **copied(kwargs))
    ours, theirs = flatten(found), flatten(expected)
    assert ours[1] == theirs[1]
    for a, b in zip(ours[0], theirs[0], strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        torch.testing.assert_close(a, b, rtol=rtol, atol=atol, equal_nan=True)
    return captured
