"""Operations by family: what each means (``op``), how it lies on the tiles (``plan``), how the host runs it (``kernel``).

Importing this package fills the registries of operations, plans and vertices.
"""

from importlib import import_module
from importlib.util import find_spec

for _family in (
    "elementwise shape reduce control matmul conv pooling softmax norm indexing random attention rnn loss optim"
).split():
    if find_spec(f"{__name__}.{_family}") is not None:
        import_module(f"{__name__}.{_family}")

VIEWS = frozenset({"reshape", "checkpoint"})
"""Primitives that do no work: lowering sees their operand as their result."""
