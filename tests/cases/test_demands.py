"""What users of such machines ran into, each with the small input that shows it: a right result or a helpful answer."""

from __future__ import annotations

import logging
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import poptorch
from abele.compile import compile_graph
from abele.cost import cost, explain
from abele.errors import DataDependent, InvalidOption
from abele.importers.torch import capture
from abele.machine.system import find_system
from abele.programs import Loaded, compile_options
from tests.cli.conftest import MODELS, process
from tests.cli.conftest import abele as abele  # the command in this process
from tests.cli.conftest import own_place as own_place  # and a cache of its own
from tests.models.support import TorchLoop, distance, program_of


def line_of(marker: str) -> int:
    """The number of the line of this file that ends with this comment."""
    lines = Path(__file__).read_text().splitlines()
    return next(i for i, line in enumerate(lines, 1) if line.endswith(f"# {marker}"))


def run(program: Any, *args: torch.Tensor) -> np.ndarray:
    """The one result of a program, by way of compiler and engine."""
    if not isinstance(program, nn.Module):
        program = _Function(program)
    captured = capture(program, args, training=False)
    engine, _ = program_of(program, dict(zip((p.name for p in captured.inputs), args, strict=True)))
    (result,) = engine.run({p.name: a.numpy()[None, None] for p, a in zip(captured.inputs, args, strict=True)}).values()
    return result[0, 0]


class _Function(nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
        return self.function(x) if y is None else self.function(x, y)


def trains_as_in_torch(module: nn.Module, data: dict[str, torch.Tensor], steps: int = 3) -> None:
    """Losses and weights of some steps of SGD agree with those of torch; NaN where torch has NaN."""
    engine, captured = program_of(module, data, train=True)
    loop = TorchLoop(module, "sgd", 1)
    turn = {k: v[None, None] for k, v in data.items()}
    for _ in range(steps):
        found = engine.run({k: v.numpy() for k, v in turn.items()})["loss"]
        np.testing.assert_allclose(found, loop.step(turn), rtol=1e-5)
    trained = dict(loop.module.named_parameters())
    for name in captured.parameters:
        np.testing.assert_allclose(engine.read(name), trained[name].detach().numpy(), rtol=1e-4, atol=1e-6)


# Compile errors ------------------------------------------------------------------------------------------------------


class Divided(nn.Module):
    """Divides by zero and mends it, on the data or after the weights."""

    def __init__(self, after: bool) -> None:
        super().__init__()
        self.layer, self.after = nn.Linear(4, 4), after

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        zeros = torch.zeros_like(x)
        if self.after:
            z = torch.nan_to_num(self.layer(x) / zeros, nan=0.25, posinf=1.0, neginf=-1.0)
        else:
            z = self.layer(torch.nan_to_num(x / zeros, nan=0.25, posinf=1.0, neginf=-1.0))
        return z, nn.functional.mse_loss(z, y)


@pytest.mark.parametrize("after", [False, True])
def test_nan_to_num_trains(after: bool) -> None:
    x = torch.tensor([[1.0, -1.0, 0.0, 2.0], [0.0, 3.0, -2.0, -1.0]])
    trains_as_in_torch(Divided(after), {"x": x, "y": torch.ones(2, 4)})


def with_item(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y * y.sum().item()  # item


def with_int(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * int(y.sum())  # int


def with_if(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:  # branch
        return 2 * x
    return x - 1


def with_while(x: torch.Tensor) -> torch.Tensor:
    while x.max() > 1:  # loop
        x = x / 2
    return x


def with_mask(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].sum()  # mask


@pytest.mark.parametrize(
    ("program", "marker", "instead"),
    [
        (with_item, "item", "arithmetic"),
        (with_int, "int", "arithmetic"),
        (with_if, "branch", "torch.where"),
        (with_while, "loop", "torch.where"),
        (with_mask, "mask", "torch.where"),
    ],
)
def test_values_that_python_asks_for_are_refused_with_the_line(program: Any, marker: str, instead: str) -> None:
    args = [torch.ones(3)] * program.__code__.co_argcount
    with pytest.raises(DataDependent, match=re.escape(f"test_demands.py:{line_of(marker)}")) as raised:
        capture(program, args)
    assert instead in str(raised.value)


def test_what_is_offered_instead_is_right() -> None:
    for sign in (1.0, -1.0):
        x, y = sign * torch.tensor([1.0, 2.0, -0.5]), torch.tensor([0.5, 3.0, 1.0])
        found = run(lambda x: torch.where(x.sum() > 0, 2 * x, x - 1), x)
        np.testing.assert_array_equal(found, with_if(x).numpy())
        np.testing.assert_allclose(run(lambda x, y: x + y * y.sum(), x, y), with_item(x, y).numpy(), rtol=1e-6)


class Attention(nn.Module):
    """Scores by ``baddbmm``, as many codes write it."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        bias = torch.zeros(x.shape[0], x.shape[1], x.shape[1], dtype=x.dtype)
        scores = torch.baddbmm(bias, x, y.transpose(1, 2), beta=0.5, alpha=x.shape[-1] ** -0.5)
        return torch.bmm(scores.softmax(-1), y)


def test_half_attention_through_baddbmm() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(2, 7, 16, generator=generator).half() for _ in range(2))
    found = run(Attention(), x, y)
    assert found.dtype == np.float16
    assert distance(found, Attention()(x.float(), y.float()).numpy()) < 4 * 2.0**-11


@pytest.mark.parametrize(
    ("mistake", "named", "helped"),
    [
        (lambda: find_system("bow2000"), "bow2000", "'bow-2000'"),
        (lambda: find_system("ipu:0/{n}"), "ipu:0/{n}", ""),
        (lambda: find_system(""), "''", ""),
        (lambda: poptorch.Options().useOfflineIpuTarget(7), "7", "1, 2 and 21"),
        (lambda: poptorch.Options().useIpuId("ipu:0"), "'ipu:0'", "whole number"),
        (lambda: poptorch.Options().connectionType("always"), "'always'", "ConnectionType"),
        (lambda: poptorch.Options().deviceIteration(4), "deviceIteration", "'deviceIterations'"),
        (lambda: setattr(poptorch.Options(), "replication", 4), "replication", "'replication_factor'"),
    ],
)
def test_a_bad_option_or_device_is_named(mistake: Callable[[], Any], named: str, helped: str) -> None:
    with pytest.raises((InvalidOption, AssertionError, AttributeError)) as raised:
        mistake()
    assert named in str(raised.value) and helped in str(raised.value)


def test_a_bad_device_in_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABELE_SYSTEM", "m-2000")
    done = process("run", str(MODELS))
    assert done.status == 0, "a command that names its own machine does not ask"
    script = "import abele.compile.session as s; s.current()"
    python = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert "InvalidOption" in python.stderr and "Did you mean 'm2000'" in python.stderr


class Graph(nn.Module):
    """Two layers of a graph convolution: messages along the edges, added up at their targets."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.first, self.second, self.how = nn.Linear(3, 5), nn.Linear(5, 2), how

    def gathered(self, h: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        messages, sums = h[edges[0]], torch.zeros_like(h)
        if self.how == "index_add":
            return sums.index_add(0, edges[1], messages)
        return sums.scatter_add_(0, edges[1][:, None].expand_as(messages), messages)

    def forward(self, x: torch.Tensor, edges: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ones = torch.ones(edges.shape[1], 1)
        degree = torch.zeros(x.shape[0], 1).scatter_add(0, edges[1][:, None], ones).clamp(min=1.0)
        h = torch.relu(self.gathered(self.first(x), edges) / degree)
        z = self.gathered(self.second(h), edges) / degree
        return z, nn.functional.cross_entropy(z, labels)


@pytest.mark.parametrize("how", ["index_add", "scatter_add"])
def test_a_graph_network_trains(how: str) -> None:
    generator = torch.Generator().manual_seed(3)
    data = {
        "x": torch.randn(9, 3, generator=generator),
        "edges": torch.randint(0, 9, (2, 30), generator=generator),
        "labels": torch.randint(0, 2, (9,), generator=generator),
    }
    trains_as_in_torch(Graph(how), data)


def test_an_unknown_engine_option_is_said_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("poptorch").addHandler(caplog.handler)
    try:
        options = poptorch.Options()
        options._Popart.set("engineOptions", {"target.workerStackSizeInBytes": "0x400"})
        assert "engine option" not in caplog.text
        options._Popart.setEngineOptions({"target.workerStackSizeInByte": "0x400"})
    finally:
        logging.getLogger("poptorch").removeHandler(caplog.handler)
    assert "Did you mean 'target.workerStackSizeInBytes'" in caplog.text
    model = poptorch.inferenceModel(nn.Linear(3, 2), options)
    assert model(torch.ones(1, 3)).shape == (1, 2)


# Memory --------------------------------------------------------------------------------------------------------------


class SelfConsistent(nn.Module):
    """A few rounds of a self-consistent field: Coulomb and exchange sums over an N⁴ tensor."""

    def __init__(self, n: int, device: str = "cpu") -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0) if device == "cpu" else None
        self.register_buffer("integrals", torch.rand(n, n, n, n, generator=generator, device=device) / n**2)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            coulomb = torch.einsum("ijkl,kl->ij", self.integrals, y)
            exchange = torch.einsum("ikjl,kl->ij", self.integrals, y)
            fock = x + coulomb - 0.5 * exchange
            y = fock @ fock
            y = y / y.diagonal().sum()
        return (y * x).sum()


def profiled(module: nn.Module, *args: torch.Tensor, system: str = "bow-2000") -> Any:
    captured = capture(module, args, training=False)
    options = compile_options(Loaded("model", captured.graph, 1, False), system=system)
    return cost(compile_graph(captured.graph, options).schedule, options.system)


def test_a_loop_over_an_n4_tensor() -> None:
    """Right at N=8; at N=32 … 80 it fits without any option, and the tensor that grows is the one that is named.

    The two sums read it in two orders, which are made once, not once in each round.
    """
    x = torch.rand(8, 8, generator=torch.Generator().manual_seed(1)) + torch.eye(8)
    module = SelfConsistent(8)
    assert distance(run(module, x, x), module(x, x).numpy()) < 1e-5
    before = 0
    for n in (32, 56, 80):
        profile = profiled(SelfConsistent(n, "meta"), torch.empty(n, n), torch.empty(n, n))
        found = explain(profile)
        assert found.fits and before < found.demand <= 624 * 1024
        copies = [t for t in found.tensors if "integrals" in t.source]
        assert 1 <= len(copies) <= 2 and all(t.total_bytes == 4 * n**4 for t in copies)  # as read by the two sums
        assert found.tensors[0] in copies
        before = found.demand


def test_more_parameters_do_not_fit_with_less_data_and_the_report_says_why(abele) -> None:
    """On a machine between the two: weights and what the optimiser keeps of them fill it, not the batch."""
    system = ("--system", f"{MODELS}:tight", "--train", "--json")
    small = abele("profile", f"{MODELS}:with_27_million", "--batch", "50", *system).json
    large = abele("profile", f"{MODELS}:with_42_million", "--batch", "10", *system).json
    assert small["tile_memory"]["fits"] and not large["tile_memory"]["fits"]
    found = large["explanation"]
    assert max(found["categories"], key=found["categories"].get) == "state"
    assert found["gap"] == large["tile_memory"]["max"] - large["tile_memory"]["limit"] > 0
    assert "layers.1.weight f32[4096,4096]" in found["text"] and "optimiser.velocity" in found["text"]
    advice = large["advice"]
    assert not any(each["fits"] for each in advice if "micro-batch" in each["text"])
    helps = [each for each in advice if each["fits"]]
    assert helps, advice
    for each in helps:
        again = abele(*shlex.split(each["command"])[1:], "--json").json
        assert again["tile_memory"]["fits"] and again["tile_memory"]["max"] == each["bytes"]
        assert again["throughput"] == each["throughput"]


def test_out_of_memory_names_tensors_and_remedies_and_still_profiles(abele, tmp_path: Path) -> None:
    done = abele("profile", f"{MODELS}:three_products", "--json", "--report", tmp_path)
    found = done.json
    assert done.status == 0 and not found["tile_memory"]["fits"]
    assert found["cycles"] > 0 and found["by_operation"] and found["energy_joules"] > 0
    named = {t["source"] or t["operation"]: t for t in found["explanation"]["tensors"]}
    assert {"a", "b", "c", "matmul"} <= named.keys()
    assert named["a"]["type"] == "f32[8192,8192]" and named["a"]["bytes"] > 170 * 1024
    line = next(i for i, text in enumerate(MODELS.read_text().splitlines(), 1) if "x @ self.a" in text)
    assert f"models.py:{line}" in found["explanation"]["text"]
    assert "0x" not in found["explanation"]["text"]
    assert found["advice"] and all(each["kind"] == "fit" for each in found["advice"])
    assert (tmp_path / "report.html").stat().st_size > 1000
