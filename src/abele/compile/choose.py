"""Choosing among the plans of an operation by what they cost.

A plan is charged as a step of its own, with the exchange from where its operands lie. What comes after is not looked
at: charging the readers of its results too cost far more of a compile's time than it gained.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from abele.charge.columns import Columns
from abele.charge.plans import PlanCharger
from abele.machine.chip import Chip
from abele.machine.system import one_ipu
from abele.ops.plans.planning import Question, choices_of, make_plan
from abele.schedule.layout import spread
from abele.schedule.records import Function, Plan, Schedule, Step, Tensor, Use


@dataclass
class Chooser:
    """Chooses plans on one chip; equal questions are planned and charged once."""

    chip: Chip
    plans: dict[Question, Plan] = field(default_factory=dict)
    prices: dict[Question, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tiles, system = self.chip.tiles, one_ipu(self.chip)
        nothing = Schedule("", system.name, tiles, 1, 1, {}, Function("main", (), (), ()), {})
        self.charger = PlanCharger(nothing, system, Columns())

    def best(self, question: Question) -> Plan:
        """The plan with the least cycles."""
        options = [replace(question, choice=i) for i in range(choices_of(question))]
        if len(options) == 1 or all(self.plan(o) is self.plan(options[0]) for o in options):
            return self.plan(options[0])
        return self.plan(min(options, key=self.price))

    def plan(self, question: Question) -> Plan:
        """The plan that answers a question."""
        found = self.plans.get(question)
        if found is None:
            found = self.plans[question] = make_plan(question)
        return found

    def price(self, question: Question) -> float:
        """Cycles of a plan. An operand that lies nowhere lies where the plan reads it."""
        if question not in self.prices:
            plan = self.plan(question)
            wanted = {a.name: a.layout for cs in plan.sets for a in cs.reads if a.resident}
            tensors = []
            for i, (type, home) in enumerate(zip(question.operands, question.homes, strict=True)):
                asked = plan.operands[i] if i < len(plan.operands) else None
                lies = home or asked or wanted.get(f"in{i}") or spread(type.size, self.chip.tiles)
                tensors.append(Tensor(f"in{i}", type, "value", lies))
            uses = tuple(Use(t.name, t.type) for t in tensors)
            results = tuple(Use(f"out{i}", type) for i, type in enumerate(question.results))
            step = Step(question.operation, uses, results, dict(question.attributes), plan)
            self.prices[question] = self.charger.alone(step, tensors).cycles.total
        return self.prices[question]
