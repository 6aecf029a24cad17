"""Every option does something, or says once that it does not.

A setter is *watched* in one of four ways: the program that is compiled differs, the run or its result differs, a call
is refused, or a notice is logged. The table below has all setters; a new one without a row fails the first test.
"""

from __future__ import annotations

import inspect
import logging

import pytest
import torch

import poptorch
from poptorch import _logging, _options_base
from poptorch.enums import CommGroupType, ConnectionType, MeanReductionStrategy, OutputMode, ReductionType, SyncPattern


class Net(torch.nn.Module):
    """A convolution and a product in half precision, dropout, and a mean squared error."""

    def __init__(self):
        super().__init__()
        self.conv, self.fc = torch.nn.Conv2d(16, 16, 3).half(), torch.nn.Linear(16, 16).half()
        self.register_buffer("scale", torch.ones(1, dtype=torch.half))

    def forward(self, x):
        y = self.fc(self.conv(x).flatten(1)) * self.scale
        return torch.nn.functional.mse_loss(y, torch.zeros_like(y))


def off_chip():
    return poptorch.TensorLocationSettings().useOnChipStorage(False)


def compiled(change, training=True):
    """What is compiled and what comes back: options of the compiler, graph, replies of a call."""
    torch.manual_seed(3)
    options = poptorch.Options()
    change(options)
    net = Net()
    if training:
        model = poptorch.trainingModel(net, options, poptorch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9))
    else:
        model = poptorch.inferenceModel(net, options)
    x = torch.ones(4, 16, 3, 3).half()
    try:
        model.compile(x)
        program = model._program.compiled
        asked = program.options.describe(), program.executable.schedule.text() if hasattr(
            program.executable.schedule, "text"
        ) else str(program.graph)
        return asked, str(model(x))
    except (poptorch.Error, AssertionError) as error:
        return "refused", str(error)
    finally:
        model.destroy()
        poptorch.setLogLevel("WARN")
