"""Phased execution and transfers beside compute: the results of a plain program, from another schedule."""

from __future__ import annotations

import pytest
import torch

import poptorch


class Blocks(torch.nn.Module):
    """Three linear layers, each a block of its own, and a loss; its input may be marked to overlap."""

    def __init__(self, overlap: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(3)])
        self.overlap = overlap

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.overlap:
            x = poptorch.set_overlap_for_input(x, poptorch.OverlapMode.OverlapAccumulationLoop)
        for i, layer in enumerate(self.layers):
            with poptorch.Block(f"B{i}"):
                x = torch.tanh(layer(x))
        with poptorch.Block("B2"):
            return x, poptorch.identity_loss(x.square(), reduction="mean")


def trained(strategy=None, overlap: bool = False, io_tiles: int = 0):
    """The wrapped model after three steps, and the losses."""
    options = poptorch.Options()
    options.setExecutionStrategy(
        strategy or poptorch.ShardedExecution(*(poptorch.Stage(f"B{i}").ipu(0) for i in range(3)))
    )
    options.Training.gradientAccumulation(2)
    if io_tiles:
        options.TensorLocations.numIOTiles(io_tiles)
    module = Blocks(overlap)
    model = poptorch.trainingModel(module, options, poptorch.optim.SGD(module.parameters(), lr=0.1))
    data = torch.linspace(-1, 1, 64).reshape(8, 8)
    return model, [float(model(data)[1]) for _ in range(3)]


def serial(liveness):
    return poptorch.SerialPhasedExecution("B0", "B1", "B2").setTensorsLiveness(liveness)


@pytest.mark.parametrize(
    ("strategy", "phased", "ipus"),
    [
        (poptorch.ParallelPhasedExecution("B0", "B1", "B2"), "parallel", 2),
        (serial(poptorch.Liveness.OffChipAfterEachPhase), "serial", 1),
        (serial(poptorch.Liveness.AlwaysLive), "", 1),
    ],
    ids=["parallel", "serial", "always live"],
)
def test_phases(strategy, phased, ipus):
    _, expected = trained()
    model, losses = trained(strategy)
    assert losses == pytest.approx(expected, rel=1e-6)
    schedule = model._program.compiled.executable.schedule
    assert model._program.compiled.options.phased == phased
    assert schedule.ipus == ipus
    moved = {step.operation for _, step in schedule.steps()} & {"remote_load", "remote_store"}
    assert len(moved) == (2 if phased else 0)


def test_overlap_of_host_transfers_is_asked_for_with_tiles():
    _, expected = trained()
    model, losses = trained(overlap=True, io_tiles=32)
    assert losses == pytest.approx(expected, rel=1e-6)
    schedule = model._program.compiled.executable.schedule
    assert schedule.io_tiles == 32
    assert all(s.attributes["overlap"] for _, s in schedule.steps() if s.operation.startswith("host_"))
