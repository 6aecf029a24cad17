"""Options of PopTorch for a program that ``poprun`` has started: replicas and processes are those that it says."""

from __future__ import annotations

from typing import Any, NoReturn

import popdist
import poptorch
from poptorch.options import _DistributedOptions

__all__ = ["Options"]


def _refuse(method: str) -> NoReturn:
    raise RuntimeError(
        f"Cannot call `{method}` with popdist.poptorch.Options: it follows from how the program was started. "
        "Give poprun other --num-replicas or --num-instances, or use poptorch.Options."
    )


class _Distributed(_DistributedOptions):
    """Which of the instances this one is; it cannot be chosen."""

    def disable(self) -> NoReturn:
        """Refused."""
        _refuse("Distributed.disable")

    def setEnvVarNames(self, *names: Any, **named: Any) -> NoReturn:
        """Refused."""
        _refuse("Distributed.setEnvVarNames")

    def configureProcessId(self, *numbers: Any, **named: Any) -> NoReturn:
        """Refused."""
        _refuse("Distributed.configureProcessId")


class Options(poptorch.Options):
    """As ``poptorch.Options``; the replicas of this instance, its number and that of the instances are set.

    Args:
        ipus_per_replica: IPUs of each replica of the model; ``None`` for what ``poprun`` was told.

    Raises:
        InvalidOption: ``poprun`` was told another number.
    """

    def __init__(self, ipus_per_replica: int | None = None) -> None:
        popdist.getDeviceId(ipus_per_replica or 0)
        super().__init__()
        super().replicationFactor(popdist.getNumLocalReplicas())
        self.Distributed.configureProcessId(popdist.getInstanceIndex(), popdist.getNumInstances())
        self.Distributed.__class__ = _Distributed
        if popdist.isOfflineMode():
            self.useOfflineIpuTarget()

    def replicationFactor(self, *_: Any, **named: Any) -> NoReturn:
        """Refused: it is the number of replicas of this instance."""
        _refuse("replicationFactor")

    def useIpuId(self, *_: Any, **named: Any) -> NoReturn:
        """Refused: each instance has its own device."""
        _refuse("useIpuId")
