"""Programs by name: what is captured of a user's own file."""

from __future__ import annotations

from pathlib import Path

from abele import programs

NETS = """
import torch

class Net(torch.nn.Module):
    def __init__(self, frozen=False):
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 8), torch.nn.Linear(8, 4)
        self.a.weight.requires_grad_(not frozen)
    def forward(self, x):
        return torch.nn.functional.mse_loss(self.b(self.a(x)), x)

places = []

def plain(batch):
    net = Net(frozen=True)
    places.append(net.a.weight.device.type)
    return net, (torch.zeros(batch, 4),)

def valued(batch):
    net = Net()
    net.scale = net.a.weight.sum().item()
    places.append(net.a.weight.device.type)
    return net, (torch.zeros(batch, 4),)

TABLE = torch.ones(4)

class Constant(Net):
    def __init__(self):
        super().__init__()
        self.table = torch.arange(4.0)
    def forward(self, x):
        return super().forward(x * self.table + TABLE)

def constant(batch):
    return Constant(), (torch.zeros(batch, 4),)
"""


def test_values_are_made_only_where_they_are_needed(tmp_path: Path) -> None:
    """For a large model they take most of the time and of the memory."""
    from abele.user import load_file

    path = tmp_path / "nets.py"
    path.write_text(NETS)
    places = load_file(path).places
    found = programs.load(f"{path}:plain", train=True, batch=2)
    assert places == ["meta"] and found.batch == 2 and not found.state
    assert found.parameters == ("a.bias", "b.weight", "b.bias")  # one is frozen
    real = programs.load(f"{path}:plain", train=True, batch=2, weights=True)
    assert places == ["meta", "cpu"] and real.state and real.parameters == found.parameters
    assert str(real.graph) == str(found.graph)
    programs.load(f"{path}:valued", train=True)
    assert places == ["meta", "cpu", "cpu"]
    for weights in (False, True):
        constant = programs.load(f"{path}:constant", train=True, weights=weights).graph
        assert "constant.0" in constant.inputs_of("state")
