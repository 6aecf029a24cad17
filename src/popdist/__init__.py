"""The vendor's library for programs that run as several processes, called instances, started by ``poprun``.

``poprun`` says in environment variables which of them each is; without them there is one instance with one replica.
``popdist.poptorch.Options`` are options of PopTorch that follow them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar

from abele.errors import InvalidOption

if TYPE_CHECKING:
    from abele.engine.processes import Processes

__all__ = [
    "checkNumIpusPerReplica",
    "execute_on_instances",
    "finalizeBackend",
    "getDeviceId",
    "getInstanceIndex",
    "getLocalInstanceIndex",
    "getNumInstances",
    "getNumIpusPerReplica",
    "getNumLocalReplicas",
    "getNumTotalReplicas",
    "getReplicaIndexOffset",
    "init",
    "initializeBackend",
    "isBackendInitialized",
    "isOfflineMode",
    "isPopdistEnvSet",
    "synchronize",
]

Result = TypeVar("Result")

TOTAL, LOCAL, OFFSET = "POPDIST_NUM_TOTAL_REPLICAS", "POPDIST_NUM_LOCAL_REPLICAS", "POPDIST_REPLICA_INDEX_OFFSET"
IPUS, LOCAL_INSTANCE, OFFLINE = "POPDIST_NUM_IPUS_PER_REPLICA", "POPDIST_LOCAL_INSTANCE_INDEX", "POPDIST_OFFLINE_MODE"

_processes: Processes | None = None


def _number(name: str, usual: int) -> int:
    given = os.environ.get(name)
    if given is None:
        return usual
    if not given.isdecimal():
        raise InvalidOption(f"The environment variable {name}={given!r} must be a whole number")
    return int(given)


def isPopdistEnvSet() -> bool:
    """Whether ``poprun`` has started this program."""
    return TOTAL in os.environ


def getNumTotalReplicas() -> int:
    """Replicas of all instances."""
    return _number(TOTAL, 1)


def getNumLocalReplicas() -> int:
    """Replicas of this instance."""
    return _number(LOCAL, 1)


def getReplicaIndexOffset() -> int:
    """The number of this instance's first replica among all."""
    return _number(OFFSET, 0)


def getNumIpusPerReplica() -> int:
    """IPUs of each replica."""
    return _number(IPUS, 1)


def checkNumIpusPerReplica(expected: int) -> bool:
    """Whether each replica has that many IPUs."""
    return getNumIpusPerReplica() == expected


def getNumInstances() -> int:
    """How many instances there are; each has as many replicas.

    Raises:
        InvalidOption: the replicas cannot be shared out equally.
    """
    total, local = getNumTotalReplicas(), getNumLocalReplicas()
    if local < 1 or total % local:
        raise InvalidOption(f"{TOTAL}={total} is no multiple of {LOCAL}={local}")
    return total // local


def getInstanceIndex() -> int:
    """The number of this instance, from 0."""
    return getReplicaIndexOffset() // getNumLocalReplicas() if getNumInstances() > 1 else 0


def getLocalInstanceIndex() -> int:
    """The number of this instance among those of its host, from 0."""
    return _number(LOCAL_INSTANCE, 0)


def getDeviceId(ipusPerReplica: int = 0) -> int:
    """The number of the device for this instance, counted in devices of as many IPUs as an instance has.

    Args:
        ipusPerReplica: IPUs of each replica; 0 for what ``poprun`` was told.

    Raises:
        InvalidOption: it was told another number.
    """
    if ipusPerReplica and isPopdistEnvSet() and not checkNumIpusPerReplica(ipusPerReplica):
        raise InvalidOption(
            f"The program asks for {ipusPerReplica} IPUs in a replica and poprun was told {getNumIpusPerReplica()}",
            remedy=f"Give poprun --ipus-per-replica {ipusPerReplica}.",
        )
    return getLocalInstanceIndex()


def isOfflineMode() -> bool:
    """Whether programs are to be compiled and not run (``poprun --offline-mode``)."""
    return _number(OFFLINE, 0) != 0


def init() -> None:
    """Connect this instance to the others; it waits until all of them have come.

    Raises:
        InvalidOption, LostProcess: see ``abele.engine.processes.join``.
    """
    initializeBackend()


def initializeBackend() -> None:
    """As ``init``; a second call does nothing."""
    global _processes
    if _processes is None and getNumInstances() > 1:
        from abele.engine.processes import join  # here: poprun itself needs none of the engine, and starts at once

        _processes = join(getInstanceIndex(), getNumInstances())


def isBackendInitialized() -> bool:
    """Whether this instance is connected to the others, or is the only one."""
    return _processes is not None or getNumInstances() == 1


def finalizeBackend() -> None:
    """The connection ends with the program, since models that run over several instances use it too."""


def synchronize() -> None:
    """Wait until all instances have come here.

    Raises:
        LostProcess: one has died or hangs; the message names it.
    """
    init()
    if _processes is not None:
        _processes.agree("popdist.synchronize")


def execute_on_instances(
    instances: Collection[int], func: Callable[..., Result], *args: Any, **kwargs: Any
) -> Result | None:
    """Call a function in some of the instances; the others go on at once.

    What all instances must do together, such as running a model in training, must not be in it.

    Args:
        instances: the numbers of those that call it.
        func: what to call, with the arguments that follow.

    Returns:
        what the function returns; ``None`` in the other instances.

    Raises:
        InvalidOption: there is no instance of such a number.
    """
    unknown = sorted(index for index in set(instances) if not 0 <= index < getNumInstances())
    if unknown:
        raise InvalidOption(f"There are {getNumInstances()} instances, from 0: none is number {unknown[0]}")
    return func(*args, **kwargs) if getInstanceIndex() in instances else None
