"""Plans of what the tiles themselves do not do: only where the results lie."""

from __future__ import annotations

from abele.ops.plans.layouts import flat
from abele.ops.plans.planning import Question, plan_for
from abele.schedule.records import Plan


@plan_for("host_load", "host_call")
def plan_load(question: Question) -> Plan:
    """The host spreads what it sends evenly over the tiles."""
    return Plan((), (), tuple(flat(t, question.chip, question.first) for t in question.results))


@plan_for("host_store")
def plan_store(question: Question) -> Plan:
    """The host collects the tensor from where it lies."""
    return Plan(())


@plan_for("print_tensor", "remote_load", "remote_store", "transfer")
def plan_in_place(question: Question) -> Plan:
    """The result lies as the operand does."""
    home = question.homes[0] or flat(question.operands[0], question.chip, question.first)
    return Plan((), (), (home,))
