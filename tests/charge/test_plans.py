"""What the charging of a plan looks at."""

import pytest
import torch

from abele.charge.columns import Columns
from abele.charge.plans import PlanCharger
from abele.compile.executable import compile_graph
from abele.compile.pipelines import CompileOptions
from abele.importers.torch import capture
from abele.machine.system import find_system

STEPS = 12


@pytest.mark.parametrize("module", [torch.nn.LSTM, torch.nn.GRU])
def test_a_step_of_a_layer_through_time_reads_from_the_steps_beside_it(module):
    """Each step writes its part of the output: what reads one part has nothing to do with the others."""
    captured = capture(module(8, 16), (torch.zeros(STEPS, 2, 8),), training=False)
    system = find_system("bow-2000")
    schedule = compile_graph(captured.graph, CompileOptions(system)).schedule
    charger = PlanCharger(schedule, system, Columns())
    (step,) = (s for _, s in schedule.steps() if s.operation in ("lstm", "gru"))
    tensors = [schedule.tensors[use.tensor] for use in step.operands]
    fetches = [fetch for _, reads in charger.fetched(step, tensors) for fetch in reads]
    assert sum(fetch.name == "out0" for fetch in fetches) == STEPS - 1
    assert max(len(fetch.lies) for fetch in fetches) == 1
