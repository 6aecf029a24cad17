"""Small graphs on which the passes are tried."""

from __future__ import annotations

import numpy as np

from abele.ir import Builder, DType, Graph, Origin, Port, f32


def layered(layers: int = 3, width: int = 8, batch: int = 4, *, checkpoint: bool = False) -> Graph:
    """``layers`` equal layers of a product, a bias and a gate, and a sum of squares as the loss."""
    b = Builder("net")
    h = b.input(f32(batch, width), "data", "x")
    weights = [
        (b.input(f32(width, width), "state", f"layer.{i}.w"), b.input(f32(width), "state", f"layer.{i}.b"))
        for i in range(layers)
    ]
    for i, (w, bias) in enumerate(weights):
        with b.at(Origin("net.py", 10, f"layer.{i}")):
            h = b.tanh(b.add(b.matmul(h, w), bias))
            h = b.mul(h, b.sigmoid(b.mul(h, b.constant(1.5, DType.F32))))
            if checkpoint:
                h = b.checkpoint(h)
    with b.at(Origin("net.py", 20, "loss")):
        loss = b.reduce_sum(b.mul(h, h), axes=(0, 1))
    return b.finish([h, loss], [Port("anchor", "y"), Port("loss", "loss")])


def parameters(graph: Graph) -> tuple[str, ...]:
    return tuple(n for n, v in graph.inputs_of("state").items() if v.dtype.is_float)


def random_inputs(graph: Graph, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal(v.shape) / 2).astype(v.dtype.numpy) for v in graph.inputs]
