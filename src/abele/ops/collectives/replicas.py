"""Collectives over real replicas, in NumPy: who belongs to which group, and what each of them gets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from abele.errors import InvalidOperand
from abele.ir.operation import Attributes


def groups(replicas: int, attributes: Attributes) -> list[list[int]]:
    """The replicas of each group, in their order in it.

    ``group`` is their number, 0 for all, and ``stride`` the distance between them: with 8 replicas, group 4 and stride
    1 give 0–3 and 4–7, group 4 and stride 2 the even and the odd ones.

    Raises:
        InvalidOperand: the groups do not divide the replicas.
    """
    size = int(attributes.get("group", 0)) or replicas
    stride = int(attributes.get("stride", 1)) if size > 1 else 1
    if replicas % (size * stride):
        raise InvalidOperand(
            f"Groups of {size} replicas, {stride} apart, do not divide {replicas} replicas",
            remedy="The size times the stride must divide the number of replicas.",
        )
    firsts = [block + offset for block in range(0, replicas, size * stride) for offset in range(stride)]
    return [[first + i * stride for i in range(size)] for first in firsts]


def over_replicas(operation: str, values: Sequence[np.ndarray], attributes: Attributes) -> list[np.ndarray]:
    """The result of a collective on every replica, from its first operand on each, in the operands' precision."""
    made: list[np.ndarray] = [np.empty(0)] * len(values)
    for members in groups(len(values), attributes):
        results = _IN_GROUP[operation]([values[r] for r in members], attributes)
        for replica, result in zip(members, results, strict=True):
            made[replica] = result
    return made


def shard_size(elements: int, members: int) -> int:
    """Elements of the part of each member: the last parts may be filled up with zeros."""
    return -(-elements // members)


def _shards(value: np.ndarray, members: int) -> np.ndarray:
    """The parts of a tensor, ``[members, shard_size]``."""
    flat = value.reshape(-1)
    size = shard_size(flat.size, members)
    if size * members != flat.size:
        flat = np.concatenate([flat, np.zeros(size * members - flat.size, flat.dtype)])
    return flat.reshape(members, size)


def _reduced(values: Sequence[np.ndarray], attributes: Attributes) -> np.ndarray:
    total = values[0].copy()
    for value in values[1:]:
        total += value
    return total / len(values) if attributes["reduction"] == "mean" else total


def _all_reduce(values: Sequence[np.ndarray], attributes: Attributes) -> Sequence[np.ndarray]:
    return [_reduced(values, attributes)] * len(values)


def _reduce_scatter(values: Sequence[np.ndarray], attributes: Attributes) -> Sequence[np.ndarray]:
    return list(_shards(_reduced(values, attributes), len(values)))


def _shard(values: Sequence[np.ndarray], attributes: Attributes) -> Sequence[np.ndarray]:
    return [_shards(value, len(values))[i] for i, value in enumerate(values)]


def _all_gather(values: Sequence[np.ndarray], attributes: Attributes) -> Sequence[np.ndarray]:
    shape = tuple(attributes["shape"])
    size = int(np.prod(shape, dtype=np.int64))
    return [np.concatenate([v.reshape(-1) for v in values])[:size].reshape(shape)] * len(values)


def _all_to_all(values: Sequence[np.ndarray], attributes: Attributes) -> Sequence[np.ndarray]:
    members = len(values)
    parts = np.stack([v.reshape(members, -1) for v in values])
    return [parts[:, i].reshape(values[0].shape) for i in range(members)]


_IN_GROUP = {
    "all_reduce": _all_reduce,
    "reduce_scatter": _reduce_scatter,
    "all_gather": _all_gather,
    "all_to_all": _all_to_all,
    "replica_shard": _shard,
}
