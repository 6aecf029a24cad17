"""Operations by family: what each means (``op``), how it lies on the tiles (``plan``), how the host runs it.

Importing this package fills the registries of operations, plans and vertices.
"""

from abele.ops import (
    attention,
    collectives,
    control,
    conv,
    elementwise,
    fused,
    indexing,
    linalg,
    loss,
    matmul,
    norm,
    optim,
    pooling,
    random,
    reduce,
    rnn,
    shape,
    softmax,
    stencil,
)

__all__ = [
    "attention",
    "collectives",
    "control",
    "conv",
    "elementwise",
    "fused",
    "indexing",
    "linalg",
    "loss",
    "matmul",
    "norm",
    "optim",
    "pooling",
    "random",
    "reduce",
    "rnn",
    "shape",
    "softmax",
    "stencil",
]
