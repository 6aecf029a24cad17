"""Replicated tensor sharding: which weights it takes.

The optimiser's state of a weight is spread over the replicas, a part on each. Gradients are reduce-scattered, each
replica updates its part of the weight with its part of the state, and the weights are gathered again. A part is a run
of elements of the weight in row-major order, the last one filled up with zeros (``ops.collectives``).
"""

from __future__ import annotations

from dataclasses import dataclass

from abele.ir.types import TensorType

USUAL = 8192
"""Least elements of a weight that PopART shards, unless it is told another number."""


@dataclass(frozen=True)
class Sharding:
    """Which weights are sharded.

    Attributes:
        replicas: over how many; 1 shards nothing.
        least: elements that a weight has at least, 0 for none: small ones are not worth their steps.
        alone: spread and gather the weights one after another, as PopART does unless it is told to merge them
            (``ReplicatedCollectivesSettings``); else all at once.
    """

    replicas: int = 1
    least: int = 0
    alone: bool = False

    def takes(self, weight: TensorType) -> bool:
        """Whether a weight of this type is sharded."""
        return self.replicas > 1 and self.least > 0 and weight.size >= self.least

    def groups(self) -> dict[str, int]:
        """The attributes of its collectives."""
        return {"group": self.replicas}

    def spread(self) -> dict[str, int]:
        """The attributes of its reduce-scatters and all-gathers."""
        return self.groups() | {"alone": int(self.alone)}
