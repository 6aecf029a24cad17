"""Weights that differ among replicas: which replicas share a value, and how values go to and from the device.

A weight with a grouping has one more dimension on the host than the model sees: dimension 0 counts the groups.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping

import torch

from ._errors import Error, member, require
from .enums import CommGroupType, VariableRetrievalMode


@dataclasses.dataclass(frozen=True)
class Grouping:
    """How replicas share the values of one weight: groups of ``size`` replicas, ``stride`` apart, of ``replicas``."""

    size: int
    stride: int
    replicas: int

    @classmethod
    def of(
        cls, kind: CommGroupType, size: int, mode: VariableRetrievalMode, replicas: int, weight: torch.Tensor, name: str
    ) -> Grouping | None:
        """The grouping that the user asks for; None when all replicas share.

        Raises:
            Error: when the numbers do not fit together.
        """
        member("replicaGrouping", kind, CommGroupType)
        member("replicaGrouping", mode, VariableRetrievalMode)
        if kind is CommGroupType.All:
            return None
        if mode is not VariableRetrievalMode.OnePerGroup and kind is not CommGroupType.NoGrouping:
            raise Error(
                f"replicaGrouping of {name}: {mode} is not supported, which gives the value of every replica. The "
                "replicas of a group have the same: use VariableRetrievalMode.OnePerGroup."
            )
        size = 1 if kind is CommGroupType.NoGrouping else size
        require(
            size >= 1 and replicas % size == 0,
            f"replicaGrouping of {name}: {replicas} replicas do not divide into groups of {size}.",
        )
        count = replicas // size
        if count == 1:
            return None
        if not weight.dim() or weight.shape[0] != count:
            raise Error(
                f"replicaGrouping of {name}: with {count} groups of {size} of the {replicas} replicas, dimension 0 of "
                f"the weight holds their {count} values, and the weight is {list(weight.shape)}."
            )
        return cls(size, 1 if kind is CommGroupType.Consecutive else count, replicas)

    def group_of(self, replica: int) -> int:
        """The group that a replica belongs to."""
        return replica // self.size if self.stride == 1 else replica % self.stride

    def firsts(self) -> list[int]:
        """The first replica of each group, which is asked for its value."""
        count = self.replicas // self.size
        return [g * self.size if self.stride == 1 else g for g in range(count)]


Groupings = Mapping[str, Grouping]


@contextlib.contextmanager
def first_values(model: torch.nn.Module, groupings: Groupings) -> Iterator[None]:
    """The weights with the value of their first group, as one replica's model sees them."""
    weights = {name: weight for name, weight in model.named_parameters() if name in groupings}
    whole = {name: weight.data for name, weight in weights.items()}
    for name, weight in weights.items():
        weight.data = whole[name][0]
    try:
        yield
    finally:
        for name, weight in weights.items():
            weight.data = whole[name]
