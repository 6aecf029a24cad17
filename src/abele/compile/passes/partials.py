"""Partials: the type in which matrix products and convolutions are summed, for a whole program at once.

Before: every product says for itself (float unless the program asked for half). After: all of them sum in one type.
It runs first, so that gradients inherit it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from abele.errors import InvalidOption
from abele.ir.graph import Graph

TYPES = ("f16", "f32")


@dataclass(frozen=True)
class Partials:
    """Set the attribute ``partials`` of every operation that has one to ``dtype`` (``f16`` or ``f32``)."""

    dtype: str
    name: str = "partials"

    def run(self, graph: Graph) -> Graph:
        if self.dtype not in TYPES:
            raise InvalidOption(f"Products cannot be summed in {self.dtype!r}", remedy="Known: f16, f32.")
        functions = {name: self._set(f) for name, f in graph.functions.items()}
        return self._set(graph).replace(functions=functions)

    def _set(self, graph: Graph) -> Graph:
        operations = tuple(
            replace(op, attributes={**op.attributes, "partials": self.dtype}) if "partials" in op.attributes else op
            for op in graph.operations
        )
        return graph.replace(operations=operations)
