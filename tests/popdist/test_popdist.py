"""What a program learns of the instances, and options of PopTorch that follow."""

from __future__ import annotations

import pytest

import popdist
import popdist.poptorch
import poptorch
from abele.errors import InvalidOption, LostProcess
from tests import together

VARIABLES = {
    "POPDIST_NUM_TOTAL_REPLICAS": "8",
    "POPDIST_NUM_LOCAL_REPLICAS": "2",
    "POPDIST_REPLICA_INDEX_OFFSET": "6",
    "POPDIST_NUM_IPUS_PER_REPLICA": "4",
    "POPDIST_LOCAL_INSTANCE_INDEX": "1",
}


@pytest.fixture
def instance(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)


def test_a_program_alone_is_the_only_instance() -> None:
    assert not popdist.isPopdistEnvSet()
    popdist.init()
    popdist.synchronize()
    assert popdist.isBackendInitialized()
    assert (popdist.getNumInstances(), popdist.getInstanceIndex(), popdist.getLocalInstanceIndex()) == (1, 0, 0)
    assert (popdist.getNumTotalReplicas(), popdist.getNumLocalReplicas(), popdist.getReplicaIndexOffset()) == (1, 1, 0)
    assert popdist.getNumIpusPerReplica() == 1 and popdist.getDeviceId(16) == 0
    assert popdist.execute_on_instances({0}, lambda a, b: a + b, 1, b=2) == 3
    assert not popdist.isOfflineMode()


def test_an_instance_knows_its_place(instance: None) -> None:
    assert popdist.isPopdistEnvSet() and not popdist.isBackendInitialized()
    assert (popdist.getNumInstances(), popdist.getInstanceIndex(), popdist.getLocalInstanceIndex()) == (4, 3, 1)
    assert (popdist.getNumTotalReplicas(), popdist.getNumLocalReplicas(), popdist.getReplicaIndexOffset()) == (8, 2, 6)
    assert popdist.checkNumIpusPerReplica(4) and not popdist.checkNumIpusPerReplica(2)
    assert popdist.getDeviceId(4) == 1
    assert popdist.execute_on_instances({0, 1}, pytest.fail, "not here") is None
    assert popdist.execute_on_instances({3}, str, 5) == "5"
    with pytest.raises(InvalidOption, match="There are 4 instances, from 0: none is number 4"):
        popdist.execute_on_instances({4}, str)
    with pytest.raises(InvalidOption, match=r"asks for 2 IPUs .* poprun was told 4.*--ipus-per-replica 2"):
        popdist.getDeviceId(2)


def test_variables_that_are_no_numbers_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPDIST_NUM_LOCAL_REPLICAS", "two")
    with pytest.raises(InvalidOption, match="POPDIST_NUM_LOCAL_REPLICAS='two' must be a whole number"):
        popdist.getNumLocalReplicas()


def test_options_follow_the_instances(instance: None, monkeypatch: pytest.MonkeyPatch) -> None:
    options = popdist.poptorch.Options(ipus_per_replica=4)
    assert options.replication_factor == 2
    assert (options.Distributed.processId, options.Distributed.numProcesses) == (3, 4)
    for name, call in {
        "replicationFactor": lambda: options.replicationFactor(1),
        "useIpuId": lambda: options.useIpuId(0),
        "Distributed.disable": lambda: options.Distributed.disable(),
        "Distributed.setEnvVarNames": lambda: options.Distributed.setEnvVarNames("A", "B"),
        "Distributed.configureProcessId": lambda: options.Distributed.configureProcessId(0, 1),
    }.items():
        with pytest.raises(RuntimeError, match=rf"Cannot call `{name}` with popdist\.poptorch\.Options"):
            call()
    copied = options.deviceIterations(3).clone()
    assert (copied.replication_factor, copied.device_iterations, copied.Distributed.processId) == (2, 3, 3)
    with pytest.raises(InvalidOption, match="IPUs in a replica"):
        popdist.poptorch.Options(ipus_per_replica=2)
    monkeypatch.setenv("POPDIST_OFFLINE_MODE", "1")
    assert popdist.poptorch.Options().connection_type is poptorch.ConnectionType.Never


@together.needs_fork
def test_instances_wait_for_each_other() -> None:
    def work(rank: int, size: int) -> None:
        import os

        os.environ |= {"POPDIST_NUM_TOTAL_REPLICAS": str(size), "POPDIST_REPLICA_INDEX_OFFSET": str(rank)}
        popdist.init()
        assert popdist.isBackendInitialized()
        popdist.synchronize()
        if rank == 0:
            with pytest.raises(LostProcess, match="Rank 1 has ended"):
                popdist.synchronize()
        popdist.finalizeBackend()

    together.run(work, 2)
