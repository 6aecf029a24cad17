"""Every model of the zoo, small: logits and three training steps agree with torch, however the program is laid out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from abele.zoo import ZOO
from tests.models.support import TorchLoop, batches, distance, module_of, program_of

STEPS = 3

LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "adam": {"optimizer": "adam"},
    "accumulated": {"accumulate": 2},
    "replicated": {"replicas": 2},
    "pipelined": {"stages": 2, "accumulate": 4},
    "recomputed": {"recompute": "standard"},
    "norms recomputed": {"recompute": "norm_only"},
    "stages recomputed": {"stages": 2, "accumulate": 4, "recompute": "pipeline"},
    "offloaded": {"optimizer": "adam", "offload": True},
    "all": {"stages": 2, "accumulate": 4, "replicas": 2, "recompute": "layers"},
}


@pytest.fixture(autouse=True)
def one_thread():
    """Small products run slower on several threads, on both sides."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", ZOO)
def test_logits(name: str) -> None:
    module, data = module_of(name), {k: v[0] for k, v in batches(name, 1).items()}
    engine, captured = program_of(module, data)
    out = engine.run({k: v[None, None].numpy() for k, v in data.items()})
    with torch.no_grad():
        expected = module(**data)
    found = captured.result([a[0, 0] for a in out.values()])
    assert found.dtype == expected.dtype
    assert distance(found.numpy(), expected.numpy()) < 1e-5


@pytest.mark.parametrize("name", ZOO)
def test_logits_in_half(name: str) -> None:
    """No farther from the float logits of the same rounded weights and data than twice torch's own half."""
    module = module_of(name).half()
    data = {k: v[0].half() if v.is_floating_point() else v[0] for k, v in batches(name, 1).items()}
    engine, captured = program_of(module, data)
    out = engine.run({k: v[None, None].numpy() for k, v in data.items()})
    found = captured.result([a[0, 0] for a in out.values()])
    with torch.no_grad():
        theirs = module(**data)
        exact = module.float()(**{k: v.float() if v.is_floating_point() else v for k, v in data.items()}).numpy()
    assert found.dtype == torch.float16
    assert distance(found.float().numpy(), exact) < 2 * max(distance(theirs.float().numpy(), exact), 2.0**-11)


# bert-large differs from bert-base in sizes only, which the small configuration does not have.
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", [n for n in ZOO if n != "bert-large"])
def test_training(name: str, layout: str) -> None:
    options = {"optimizer": "sgd", "accumulate": 1, "replicas": 1} | LAYOUTS[layout]
    turns, replicas = options["accumulate"], options["replicas"]
    module = module_of(name, training=True)
    drawn = batches(name, STEPS * turns * replicas, training=True)
    steps = {k: v.unflatten(0, (STEPS, turns, replicas)) for k, v in drawn.items()}
    engine, captured = program_of(module, {k: v[0] for k, v in drawn.items()}, train=True, **options)
    loop = TorchLoop(module, options["optimizer"], replicas)
    for i in range(STEPS):
        data = {k: v[i] for k, v in steps.items()}
        losses = loop.step(data)
        found = engine.run({k: v.numpy() for k, v in data.items()})["loss"]
        assert distance(found, losses) < 1e-5, f"loss of step {i}"
    moved = 0
    trained = dict(loop.module.named_parameters())
    for parameter, begin in captured.parameters.items():
        theirs, start = trained[parameter].detach().numpy(), begin.detach().numpy()
        way = np.abs(theirs - start).max()
        moved += bool(way > 1e-6)
        for replica in range(replicas):
            off = np.abs(engine.read(parameter, replica) - theirs).max()
            # Within a thousandth of the way that the weight went; some have no gradient but the rounding of zero.
            assert off <= 1e-3 * way + 1e-5 * np.abs(theirs).max(), (parameter, replica)
    assert moved > len(captured.parameters) // 2
    for buffer in captured.buffers:
        for replica in range(replicas):
            theirs = loop.buffers[replica][buffer].numpy()
            assert distance(engine.read(buffer, replica), theirs) < 1e-5, (buffer, replica)
            if "running" in buffer or "batches" in buffer:
                assert (theirs != captured.buffers[buffer].numpy()).any()


def test_dropout_drops_the_share_that_it_should_and_another_each_time() -> None:
    """The loss of a network that is only a dropout counts what was kept; masks of micro-batches and replicas differ."""

    class Kept(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(()))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = torch.nn.functional.dropout(x, 0.25, self.training) * self.weight
            return y, torch.nn.functional.mse_loss(y, torch.zeros_like(y))

    ones = torch.ones(100, 100)
    engine, _ = program_of(Kept(), {"x": ones}, train=True, accumulate=2, replicas=2)
    masks = []
    for _ in range(2):
        y = engine.run({"x": np.ones((2, 2, 100, 100), np.float32)})["0"].reshape(4, -1)
        masks += [row != 0 for row in y]
    for mask in masks:
        assert abs(mask.mean() - 0.75) < 4 * (0.25 * 0.75 / mask.size) ** 0.5
    agreement = np.array([(a == b).mean() for i, a in enumerate(masks) for b in masks[:i]])
    assert np.abs(agreement - (0.75**2 + 0.25**2)).max() < 0.03
