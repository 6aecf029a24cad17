"""Choosing among the plans of an operation by what they cost it and those that come after it.

A plan decides where results lie, and so what the operations that read them exchange and how evenly they work. Each
plan is charged together with the plans that its readers would then get, a few operations deep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from abele.charge.columns import Columns
from abele.charge.plans import PlanCharger
from abele.ir.graph import Graph, Operation, Value
from abele.ir.operation import has
from abele.ir.rules import CONTROL
from abele.machine.chip import Chip
from abele.machine.system import one_ipu
from abele.ops.plans.planning import Question, choices_of, make_plan
from abele.schedule.layout import Layout, spread
from abele.schedule.records import Function, Plan, Schedule, Step, Tensor, Use

DEPTH = 1
"""Readers of readers that are looked at. More of them took twice the time of a compile and gained 0.1 % (ResNet-50)."""

READERS = 3
"""Of a value with more readers these are looked at."""

Ask = Callable[[Operation, Sequence[Layout | None]], Question]


@dataclass
class Chooser:
    """Chooses plans on one chip; equal questions are planned and charged once."""

    chip: Chip
    plans: dict[Question, Plan] = field(default_factory=dict)
    prices: dict[Question, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tiles, system = self.chip.tiles, one_ipu(self.chip)
        nothing = Schedule("", system.name, tiles, 1, 1, {}, Function("main", (), (), ()), {})
        self.charger = PlanCharger(nothing, system, Columns(tiles))

    def best(self, op: Operation, question: Question, look: Look) -> Plan:
        """The plan with the least cycles of ``op`` and of the operations that read its results."""
        options = [replace(question, choice=i) for i in range(choices_of(question))]
        if len(options) == 1:
            return self.plan(question)
        return self.plan(min(options, key=lambda q: self._total(op, q, look, DEPTH)))

    def plan(self, question: Question) -> Plan:
        """The plan that answers a question."""
        found = self.plans.get(question)
        if found is None:
            found = self.plans[question] = make_plan(question)
        return found

    def _total(self, op: Operation, question: Question, look: Look, depth: int) -> float:
        total = self._price(question)
        if depth:
            for value, home in zip(op.results, self.plan(question).homes, strict=True):
                for reader, homes in look.readers(value, home):
                    total += self._total(reader, look.ask(reader, homes), look, depth - 1)
        return total

    def _price(self, question: Question) -> float:
        """Cycles of a plan. An operand that lies nowhere lies where the plan reads it."""
        if question not in self.prices:
            plan = self.plan(question)
            wanted = {a.name: a.layout for cs in plan.sets for a in cs.reads if a.resident}
            tensors = []
            for i, (type, home) in enumerate(zip(question.operands, question.homes, strict=True)):
                lies = home or wanted.get(f"in{i}") or spread(type.size, self.chip.tiles)
                tensors.append(Tensor(f"in{i}", type, "value", lies))
            uses = tuple(Use(t.name, t.type) for t in tensors)
            results = tuple(Use(f"out{i}", type) for i, type in enumerate(question.results))
            step = Step(question.operation, uses, results, dict(question.attributes), plan)
            self.prices[question] = self.charger.alone(step, tensors).cycles.total
        return self.prices[question]


@dataclass(frozen=True)
class Look:
    """What comes after: the readers of values in one graph, and the homes that are known."""

    users: Mapping[Value, Sequence[Operation]]
    known: Callable[[Value], Layout | None]
    ask: Ask

    @classmethod
    def over(cls, graph: Graph, known: Callable[[Value], Layout | None], ask: Ask) -> Look:
        """Over the readers in one graph."""
        return cls(graph.users(), known, ask)

    def readers(self, value: Value, home: Layout) -> Iterator[tuple[Operation, list[Layout | None]]]:
        """Operations that read a value, views passed over, each with the homes of its operands if it lies so."""
        for op, seen in list(self._reading(value))[:READERS]:
            yield op, [home if v is seen else self.known(v) for v in op.operands]

    def _reading(self, value: Value) -> Iterator[tuple[Operation, Value]]:
        for op in dict.fromkeys(self.users.get(value, ())):
            if has(op, "view"):
                yield from self._reading(op.result)
            elif op.name not in CONTROL:
                yield op, value
