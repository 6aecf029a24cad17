"""How the effect of an option shows: a check for each way, to be called with the fixtures of a test."""

from __future__ import annotations

import inspect
import logging

import torch

import poptorch
from abele.schedule import print_schedule
from poptorch import _logging


class Net(torch.nn.Module):
    """A convolution and a product in half precision, and a mean squared error."""

    def __init__(self):
        super().__init__()
        self.conv, self.fc = torch.nn.Conv1d(16, 16, 1), torch.nn.Linear(16, 16)
        self.register_buffer("seen", torch.zeros(1, dtype=torch.half))
        self.half()

    def forward(self, x):
        self.seen.add_(1)
        y = self.fc(self.conv(x).flatten(1))
        return torch.nn.functional.mse_loss(y, torch.zeros_like(y))


def program_of(change, run=True):
    """The schedule that ``Net`` is compiled to, and what a call of it with four samples returns; or the refusal."""
    torch.manual_seed(3)
    options = poptorch.Options().broadcastBuffers(False)
    change(options)
    net = Net()
    model = poptorch.trainingModel(net, options, poptorch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9))
    x = torch.linspace(-1, 1, 64).reshape(4, 16, 1).half()
    try:
        model.compile(x)
        schedule = print_schedule(model._program.compiled.executable.schedule)
        return schedule, model(x).tolist() if run else None
    except (poptorch.Error, AssertionError) as error:
        return "refused", str(error)
    finally:
        model.destroy()


def compiles(change):
    """The option changes the program."""

    def check(usual, **_):
        schedule, _result = program_of(change, run=False)
        assert schedule not in (usual[0], "refused")

    return check


def returns(change):
    """The option changes what a call returns."""

    def check(usual, **_):
        schedule, result = program_of(change)
        assert schedule != "refused" and result != usual[1]

    return check


def refuses(change, text):
    """The option makes a call an error."""

    def check(**_):
        found, message = program_of(change)
        assert found == "refused" and text in message

    return check


def notes(change, name):
    """The option has no effect, which is said once however often it is set."""

    def check(caplog, monkeypatch, **_):
        monkeypatch.setattr(_logging, "_seen", set())
        with caplog.at_level(logging.INFO, logger=_logging.logger.name):
            for _ in range(2):
                change(poptorch.Options())
        found = [r.getMessage() for r in caplog.records if "has no effect" in r.getMessage()]
        assert len(found) == 1 and name in found[0], found

    return check


def warns(change, text):
    """A setter that is deprecated says so."""

    def check(caplog, **_):
        change(poptorch.Options())
        assert text in caplog.text

    return check


def answers(check_answer):
    """The option changes what another part of the package does; ``check_answer(options)`` asserts it."""

    def check(tmp_path, monkeypatch, caplog, **_):
        given = {"tmp_path": tmp_path, "monkeypatch": monkeypatch, "caplog": caplog}
        check_answer(**{name: given[name] for name in inspect.signature(check_answer).parameters})

    return check
