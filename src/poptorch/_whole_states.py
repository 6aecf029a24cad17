"""The states of a running program as a user sees them: whole, also where replicas keep parts or values of their own."""

from __future__ import annotations

import math

import numpy as np

from abele.engine.engine import Engine

from ._replica_groups import Groupings


class WholeStates:
    """Reads and writes the states of an engine.

    The state of an optimizer (``optimiser.<kind>.<weight>``) may be sharded over the replicas: it is then a run of
    elements of a tensor of the weight's shape on each, the last of them filled up with zeros. Where the replicas are
    those of several processes, all of them must read it at the same time.

    Args:
        engine: the engine.
        groupings: the weights of which groups of replicas have values of their own; they and their states have the
            groups' in dimension 0.
    """

    def __init__(self, engine: Engine, groupings: Groupings | None = None) -> None:
        self.engine, self.groupings = engine, groupings or {}
        self.types = engine.states

    def read(self, name: str) -> np.ndarray:
        """The value of a state or hyper value."""
        grouping = self.groupings.get(_weight(name))
        if grouping is not None:
            return self.engine.read_all(name)[grouping.firsts()]
        shape, first = self._shape(name), self.engine.read(name)
        if first.shape == shape:
            return first
        return self.engine.read_all(name).reshape(-1)[: math.prod(shape)].reshape(shape)

    def write(self, name: str, value: np.ndarray) -> None:
        """Set a state or hyper value on all replicas."""
        grouping = self.groupings.get(_weight(name))
        if grouping is not None:
            for replica in range(self.engine.replicas):
                self.engine.write(name, value[grouping.group_of(self.engine.first_replica + replica)], replica)
            return
        part = self.types[name].shape if name in self.types else value.shape
        if self._shape(name) == part or value.shape == part:
            self.engine.write(name, value)
            return
        whole = np.zeros((self.engine.schedule.replicas, part[0]), value.dtype)
        whole.reshape(-1)[: value.size] = value.reshape(-1)
        for replica in range(self.engine.replicas):
            self.engine.write(name, whole[self.engine.first_replica + replica], replica)

    def spread(self) -> bool:
        """Whether some state lies in parts on replicas of several processes: reading it then takes all of them."""
        if self.engine.replicas == self.engine.schedule.replicas:
            return False
        return any(self._shape(name) != type_.shape for name, type_ in self.types.items())

    def _shape(self, name: str) -> tuple[int, ...]:
        """The shape of the whole: of the weight that it is the state of, else its own."""
        found = self.types.get(_weight(name)) or self.types.get(name)
        return found.shape if found is not None else ()


def _weight(name: str) -> str:
    """The weight that a state is of, or is itself."""
    return name.split(".", 2)[-1] if name.startswith("optimiser.") else name
