"""Training in several processes gives the numbers of one that has all the replicas."""

from __future__ import annotations

import os
import pickle
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from tests import together

import poptorch

pytestmark = together.needs_fork

REPLICAS, MICRO, ACCUMULATION = 4, 3, 2
EPOCHS = 17  # of three steps
LENGTH = 3 * REPLICAS * MICRO * ACCUMULATION + 5


class Net(torch.nn.Module):
    """Has what differs from replica to replica: running statistics and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4)
        self.dropout, self.linear = torch.nn.Dropout(0.3), torch.nn.Linear(4 * 16, 5)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.dropout(torch.relu(self.norm(self.convolution(x))))
        h = self.linear(h.flatten(1))
        return h, torch.nn.functional.cross_entropy(h, y)


def data() -> torch.utils.data.TensorDataset:
    """Pictures ``[LENGTH, 1, 6, 6]`` and classes."""
    draw = torch.Generator().manual_seed(5)
    pictures = torch.randn(LENGTH, 1, 6, 6, generator=draw)
    return torch.utils.data.TensorDataset(pictures, torch.randint(0, 5, (LENGTH,), generator=draw))


def options(rank: int, size: int, cache: Path | None = None, seed: int | None = 11) -> poptorch.Options:
    chosen = poptorch.Options().replicationFactor(REPLICAS // size).broadcastBuffers(False)
    chosen.Training.gradientAccumulation(ACCUMULATION)
    chosen.outputMode(poptorch.OutputMode.All)
    spread = poptorch.TensorLocationSettings().useReplicatedTensorSharding().minElementsForReplicatedTensorSharding(32)
    chosen.TensorLocations.setOptimizerLocation(spread)
    chosen.Distributed.configureProcessId(rank, size)
    if seed is not None:
        chosen.randomSeed(seed)
    if cache is not None:
        chosen.enableExecutableCaching(str(cache))
    return chosen


def trained(rank: int, size: int, batches: list, chosen: poptorch.Options) -> dict:
    """Losses ``[step, accumulation, replica]``, weights, and the optimizer's state after training on the batches."""
    torch.manual_seed(rank)  # other weights in each process: those of the first are the ones that count
    model = Net()
    optimizer = poptorch.optim.AdamW(model.parameters(), lr=1e-2)
    training = poptorch.trainingModel(model, chosen, optimizer)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    losses = []
    for x, y in batches:
        _, loss = training(x, y)
        losses.append(loss.reshape(ACCUMULATION, -1).numpy())
        schedule.step()
        training.setOptimizer(optimizer)
    state = {name: np.asarray(value) for name, value in optimizer.state_dict()["ipu_state"].items()}
    weights = {name: value.numpy().copy() for name, value in model.state_dict().items()}
    return {"losses": np.stack(losses), "weights": weights, "state": state}


def in_processes(size: int, folder: Path, epochs: int) -> list[dict]:
    """What each of ``size`` processes trained and on which batches, from a loader that shuffles."""

    def work(rank: int, size: int) -> None:
        chosen = options(rank, size, folder / "cache")
        loader = poptorch.DataLoader(chosen, data(), batch_size=MICRO, shuffle=True)
        batches = [batch for _ in range(epochs) for batch in loader]
        found = trained(rank, size, batches, chosen)
        (folder / str(rank)).write_bytes(pickle.dumps({**found, "batches": batches}))

    together.run(work, size)
    return [pickle.loads((folder / str(rank)).read_bytes()) for rank in range(size)]


def as_one(parts: list[dict]) -> list:
    """The batches of one process that has the replicas of all: ``[accumulation][replica][micro-batch]``."""
    joined = []
    for batches in zip(*(part["batches"] for part in parts), strict=True):
        columns = zip(*batches, strict=True)
        cut = [[t.reshape(ACCUMULATION, -1, *t.shape[1:]) for t in column] for column in columns]
        joined.append([torch.cat(column, dim=1).flatten(0, 1) for column in cut])
    return joined


@pytest.mark.parametrize("size", [2, 4])
def test_processes_together_train_as_one_with_all_replicas(size: int, tmp_path: Path) -> None:
    parts = in_processes(size, tmp_path, EPOCHS)
    one = trained(0, 1, as_one(parts), options(0, 1))
    losses = np.concatenate([part["losses"] for part in parts], axis=2)
    assert losses.shape == (3 * EPOCHS, ACCUMULATION, REPLICAS)
    np.testing.assert_allclose(losses, one["losses"], rtol=1e-5)
    for rank, part in enumerate(parts):
        for name, value in one["weights"].items():
            if rank == 0 or not name.startswith("norm.running"):  # each replica has running statistics of its own
                np.testing.assert_allclose(part["weights"][name], value, rtol=1e-5, atol=1e-7, err_msg=name)
        assert part["state"].keys() == one["state"].keys()
        for name, value in one["state"].items():
            np.testing.assert_allclose(part["state"][name], value, rtol=1e-4, atol=1e-8, err_msg=name)
    other = parts[1]["weights"]["norm.running_mean"]
    assert not np.allclose(other, one["weights"]["norm.running_mean"])
    # Every element at most once in an epoch, none twice.
    steps = len(parts[0]["batches"]) // EPOCHS
    seen = torch.cat([x.flatten(1) for part in parts for x, _ in part["batches"][:steps]])
    assert len(torch.unique(seen, dim=0)) == len(seen) == 3 * REPLICAS * MICRO * ACCUMULATION


def test_shuffling_in_several_processes_needs_a_seed_in_common() -> None:
    with pytest.raises(AssertionError, match=r"set options.randomSeed"):
        poptorch.DataLoader(options(0, 2, seed=None), data(), batch_size=MICRO, shuffle=True)


def test_without_a_seed_the_processes_share_that_of_the_first(tmp_path: Path) -> None:
    def work(rank: int, size: int) -> None:
        chosen = options(rank, size, seed=None)
        x, y = data()[: MICRO * ACCUMULATION * REPLICAS // size]
        found = trained(rank, size, [(x, y)] * 2, chosen)
        (tmp_path / str(rank)).write_bytes(pickle.dumps(found))

    together.run(work, 2)
    first, second = (pickle.loads((tmp_path / str(rank)).read_bytes()) for rank in range(2))
    np.testing.assert_array_equal(first["weights"]["linear.weight"], second["weights"]["linear.weight"])
    assert not np.array_equal(first["losses"], second["losses"])  # the same data, but each replica drops others


def test_different_learning_rates_are_an_error() -> None:
    def work(rank: int, size: int) -> None:
        model = torch.nn.Linear(2, 2)
        training = poptorch.trainingModel(Loss(model), options(rank, size), torch.optim.SGD(model.parameters(), lr=0.1))
        x = torch.ones(ACCUMULATION * REPLICAS // size, 2)
        training(x)
        training.setOptimizer(torch.optim.SGD(model.parameters(), lr=0.1 * (rank + 1)))
        with pytest.raises(poptorch.Error, match=r"The processes do different things. .* same optimizer's numbers"):
            training(x)

    together.run(work, 2)


class Loss(torch.nn.Module):
    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return poptorch.identity_loss(self.model(x), reduction="sum")


def test_a_process_killed_in_the_middle_of_training_is_named() -> None:
    def work(rank: int, size: int) -> None:
        model = torch.nn.Linear(2, 2)
        training = poptorch.trainingModel(Loss(model), options(rank, size), torch.optim.SGD(model.parameters(), lr=0.1))
        x = torch.ones(ACCUMULATION * REPLICAS // size, 2)
        for _ in range(10_000):
            training(x)
            print("step", flush=True)

    with together.started(work, 2) as processes:
        processes[1].says("step\nstep\n")
        os.kill(processes[1].pid, signal.SIGKILL)
        assert processes[0].wait(30).status == 1
        assert "poptorch._errors.Error: Rank 1 has died" in processes[0].error, processes[0].error


def test_inference_needs_no_other_process() -> None:
    chosen = options(1, 2)
    chosen.Training.gradientAccumulation(1)
    x = torch.ones(REPLICAS // 2, 2)
    model = torch.nn.Linear(2, 2)
    torch.testing.assert_close(poptorch.inferenceModel(model, chosen)(x), model(x))


def test_torchrun_s_variables_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert poptorch.Options().Distributed.numProcesses == 1
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    distributed = poptorch.Options().Distributed
    assert (distributed.processId, distributed.numProcesses) == (1, 2)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "8")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    distributed = poptorch.Options().Distributed
    assert (distributed.processId, distributed.numProcesses) == (3, 8)


def test_more_replicas_than_the_system_has_ipus_take_a_larger_system_of_its_chips() -> None:
    chosen = poptorch.Options().replicationFactor(2)
    chosen.Distributed.configureProcessId(0, 5)
    model = poptorch.inferenceModel(torch.nn.Linear(2, 2), chosen)
    model(torch.ones(2, 2))
    program = model._program
    assert program is not None and program.compiled.options.system.name == "bow-pod16"
