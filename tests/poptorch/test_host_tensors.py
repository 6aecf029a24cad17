"""Tensors that a model did not make on the device, beside those that it did."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import poptorch

TABLE = torch.tensor([0.5, 1.5, 2.5, 3.5])


class Of(torch.nn.Module):
    """A model whose forward is the function given."""

    def __init__(self, forward):
        super().__init__()
        self.held = torch.tensor([4.0, 3.0, 2.0, 1.0])
        self.function = forward
        self.loose = [torch.nn.Linear(4, 2)]

    def forward(self, x):
        return self.function(self, x)


def _written(x, values):
    y = x.reshape(2, 2).clone()
    y[1] = values[:2]
    return y


@torch.inference_mode()
def _inference_table():
    return torch.arange(4.0).square_()


X = torch.tensor([1.0, 2.0, 3.0, 4.0])
REFUSED = {
    "legacy": (lambda _, x: torch.index_select(x, 0, torch.LongTensor([1, 0])), r"shape=\[2\], dtype=Long"),
    "numpy": (lambda _, x: x + torch.from_numpy(np.ones(4, np.float32)), r"shape=\[4\], dtype=Float"),
    "global": (lambda _, x: x * TABLE, r"shape=\[4\], dtype=Float"),
    "computed": (lambda _, x: x * (TABLE[None] + 1).half(), r"shape=\[1, 4\], dtype=Half"),
    "attribute": (lambda self, x: x * self.held, r"shape=\[4\], dtype=Float"),
    "written": (lambda self, x: self.held.clone().add_(x), r"shape=\[4\], dtype=Float"),
    "as well as moved": (lambda self, x: x * self.held.to(x.device) + self.held, r"shape=\[4\], dtype=Float"),
    "after an element": (lambda self, x: x * self.held[0].reshape(1) + self.held, r"shape=\[1\], dtype=Float"),
    "loose": (lambda self, x: self.loose[0](x), r"shape=\[2, 4\], dtype=Float"),
}
TAKEN = {
    "tensor": lambda _, x: torch.index_select(x, 0, torch.tensor([1, 0])),
    "as_tensor": lambda _, x: x + torch.as_tensor(np.ones(4, np.float32)),
    "new_tensor": lambda _, x: x + x.new_tensor([1.0, 2.0, 3.0, 4.0]),
    "index": lambda _, x: x[[2, 0]],
    "like": lambda self, x: x + torch.ones_like(self.held),
    "made": lambda _, x: x * torch.arange(16.0).reshape(4, 4) + torch.eye(4),
    "number": lambda _, x: x * TABLE[1] + torch.tensor(2.0),
    "moved": lambda self, x: x * self.held.to(x.device),
    "type_as": lambda self, x: x * self.held.type_as(x),
    "to a tensor": lambda self, x: x.half() * TABLE.to(x.half()),
    "copied": lambda self, x: _written(x, self.held),
    "asarray": lambda _, x: x + torch.asarray([1.0, 2.0, 3.0, 4.0]),
    "new": lambda _, x: x + x.new([1.0, 2.0, 3.0, 4.0]) + x.new(4).fill_(2),
    "name of a type": lambda _, x: x + torch.arange(4).type(x.type()),
    "inference": lambda _, x: x + _inference_table(),
    "type": lambda self, x: x.to(self.held),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_tensor_of_the_host_is_refused_beside_one_of_the_device(case):
    forward, what = REFUSED[case]
    with pytest.raises(poptorch.Error, match=r"Expected an IPU tensor but got tensor\(device=cpu, .*" + what) as error:
        poptorch.inferenceModel(Of(forward))(X)
    assert "test_host_tensors.py" in str(error.value) and "buffer" in str(error.value)


@pytest.mark.parametrize("case", TAKEN)
def test_what_the_model_makes_itself_is_on_the_device(case):
    model = Of(TAKEN[case])
    torch.testing.assert_close(poptorch.inferenceModel(model)(X), model(X))


def test_moved_by_ipu():
    model = Of(lambda self, x: x * self.held.ipu() + TABLE.to("ipu"))
    torch.testing.assert_close(poptorch.inferenceModel(model)(X), X * model.held + TABLE)


def test_tensors_say_where_they_are():
    """Those of the device differ from those of the host, and are of the type whose ways models can be captured on."""
    said = []

    def forward(self, x):
        said.extend(t.device for t in (x, x + 1, torch.ones(3), self.own.weight, TABLE.to(x.device), self.held))
        assert x.device == torch.device("ipu") == torch.device("ipu:0") and x.is_cpu
        y = torch.utils.checkpoint.checkpoint(self.own, x, use_reentrant=False)
        return y + torch.zeros(4, device=x.device) + TABLE.to(device=x.device)

    model = Of(forward)
    model.own = torch.nn.Linear(4, 4)
    result = poptorch.inferenceModel(model)(X)
    assert [str(device) for device in said] == ["cpu:0"] * 5 + ["cpu"]
    torch.testing.assert_close(result, model.own(X) + TABLE)


def test_what_a_model_keeps_by_device_is_made_on_each():
    kept = {}

    def forward(self, x):
        if str(x.device) not in kept:
            kept[str(x.device)] = self.own.weight * 2
        return x + kept[str(x.device)]

    model = Of(forward)
    model.own = torch.nn.Linear(4, 4)
    expected = model(X)
    torch.testing.assert_close(poptorch.inferenceModel(model)(X), expected)
    torch.testing.assert_close(model(X), expected)


class Caching(torch.nn.Module):
    """Keeps tables that it makes where nothing puts them back; one that it has written into is no table."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)
        self.tables = {}

    def forward(self, x, written=False):
        if "table" not in self.tables:
            self.tables["table"] = torch.arange(4.0).sqrt()
            self.tables["written"] = torch.zeros(4)
            self.tables["written"][1:] = x[0, 1:]
        out = self.fc(x) * self.tables["table"]
        out = out + self.tables["written"] if written else out
        return out, poptorch.identity_loss(out, reduction="mean")


def test_a_table_that_the_model_keeps_is_of_the_device_in_the_next_capture_too():
    model, x = Caching(), torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    poptorch.trainingModel(model)(x)
    inference = poptorch.inferenceModel(model)
    torch.testing.assert_close(inference(x)[0], model.fc(x) * torch.arange(4.0).sqrt())
    inference.destroy()
    with pytest.raises(poptorch.Error, match="Expected an IPU tensor"):
        inference(x, written=True)


def test_a_tensor_of_the_host_can_be_returned():
    host, device = poptorch.inferenceModel(Of(lambda self, x: (self.held + TABLE, x + 1)))(X)
    torch.testing.assert_close((host, device), (torch.tensor([4.5, 4.5, 4.5, 4.5]), X + 1))
