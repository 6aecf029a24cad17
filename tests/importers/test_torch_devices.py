"""Where tensors are: a model being captured is on the machine already, and each argument is a tensor of its own."""

from __future__ import annotations

import pytest
import torch
from helpers import same
from torch import nn

import poptorch
from abele.errors import Unsupported
from abele.importers.torch import capture

X = torch.arange(12.0).reshape(3, 4) / 4
PROGRAMS = {
    "moved": lambda x: x.to("ipu") * 2 + x.to(torch.device("ipu:1")) + x.ipu() + x.to("xla").cpu(),
    "moved with a type": lambda x: x.to("ipu", torch.float16) + x.to(device="ipu", dtype=torch.float32),
    "filled": lambda x: x + torch.zeros(3, 4, device="ipu") + torch.full((4,), 2.0, device=torch.device("ipu")),
    "counted": lambda x: x + torch.arange(4, device="ipu") + torch.tensor([1.0, 2, 3, 4], device="ipu"),
    "alike": lambda x: torch.zeros_like(x, device="ipu") + x.new_ones(4, device="ipu") + torch.ones(4, device=x.device),
    "written": lambda x: torch.empty(3, 4, device="ipu").copy_(x),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_the_machine_as_a_device(program):
    def on_cpu(x):
        """torch alone has no such device."""
        return program(x) if torch.overrides._get_current_function_mode() else plain(x)

    plain = {
        "moved": lambda x: x * 2 + x * 3,
        "moved with a type": lambda x: x.half() + x,
        "filled": lambda x: x + 2,
        "counted": lambda x: x + torch.arange(4) + torch.tensor([1.0, 2, 3, 4]),
        "alike": lambda x: x * 0 + 2,
        "written": lambda x: x.clone(),
    }[next(name for name, p in PROGRAMS.items() if p is program)]
    same(on_cpu, X)


def test_a_layer_is_moved_in_the_forward():
    class Moved(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 2)

        def forward(self, x):
            return self.linear.to("ipu")(x)

    model = Moved()
    torch.testing.assert_close(poptorch.inferenceModel(model)(X), model.linear(X))


def test_other_accelerators_are_refused():
    for program in (lambda x: x.cuda(), lambda x: x.to("cuda:0"), lambda x: x + torch.ones(4, device="mps")):
        with pytest.raises(Unsupported, match="captured model"):
            capture(program, (X,))


def test_one_tensor_as_two_arguments_is_refused_where_it_is_written():
    def program(a, b):
        a.add_(1)
        return a + b

    buffer = torch.zeros(4, 3)
    with pytest.raises(Unsupported, match="arguments a and b share elements"):
        capture(program, (X, X))
    with pytest.raises(Unsupported, match="share elements"):
        capture(program, (buffer[:3], buffer[1:]))
    capture(program, (buffer[:2], buffer[2:]))
    capture(lambda a, b: a + b, (X, X))


def test_one_tensor_as_two_arguments_is_refused_in_a_later_call():
    class Added(nn.Module):
        def forward(self, a, b):
            a.add_(1)
            return a + b

    model = poptorch.inferenceModel(Added())
    first, second = torch.zeros(2, 3), torch.ones(2, 3)
    assert torch.equal(model(first, second), torch.full((2, 3), 2.0)) and torch.equal(first, torch.ones(2, 3))
    with pytest.raises(poptorch.Error, match="share elements"):
        model(first, first)
