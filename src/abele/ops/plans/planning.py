"""Plans: the question that lowering asks a family, and the registry of answers.

A plan is a function of the question alone: operation, attributes, types, where the operands lie, the chip and the
options. Lowering asks each distinct question once, so that repeated layers cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from abele.errors import Bug, InvalidOption, suggest
from abele.ir.graph import Attribute
from abele.ir.types import TensorType
from abele.machine.chip import Chip
from abele.schedule.geometry import lies_in
from abele.schedule.layout import Layout
from abele.schedule.records import Access, Plan

PLANNERS = ("best", "poplibs")
SHORT = ("double", "least")


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What a user may ask of all plans.

    Attributes:
        memory_proportion: the share of tile memory that the temporaries of one operation may take. 0.6 is the default
            of ``availableMemoryProportion`` in graphcore/poplibs, poplin/ConvOptions.
        planner: ``best``, or ``poplibs``: only what the vendor's library and the frameworks on it did, one operation
            after another.
        vectorised: the codelets of stencils work on whole words; else element by element, as plain C++ does.
        contiguous: they take the neighbourhood of all that they compute as one region of memory; else row by row.
        short: what the planner ``poplibs`` does when no plan of a convolution keeps to the proportion: ``double`` it
            until one does, as PopLibs since SDK 1.3, or take the plan of the ``least`` temporary memory, as before.
    """

    memory_proportion: float = 0.6
    planner: str = "best"
    vectorised: bool = True
    contiguous: bool = False
    short: str = "double"

    def __post_init__(self) -> None:
        if self.planner not in PLANNERS:
            raise InvalidOption(f"There is no planner {self.planner!r}", remedy=suggest(self.planner, PLANNERS))
        if self.short not in SHORT:
            raise InvalidOption(
                f"There is no way {self.short!r} to plan what is short of memory", remedy=suggest(self.short, SHORT)
            )
        if not 0 < self.memory_proportion <= 1:
            raise InvalidOption(
                f"The proportion of memory is {self.memory_proportion}", remedy="It is above 0 and at most 1."
            )


@dataclass(frozen=True, slots=True)
class Question:
    """One operation to be planned.

    Attributes:
        operation, attributes: as in the graph; attributes as a tuple of pairs.
        operands, results: their types.
        homes: where each operand lies, or ``None`` when nothing has decided it yet (a weight that no operation has
            read): the plan may then read it as it likes, and it will lie so.
        chip: the chip; ``chip.tiles`` tiles are there to be used.
        first: the tile at which small results should start, so that they do not all pile up on tile 0.
        choice: which of the operation's plans is asked for (see ``choices_of``); 0 is the planner's own.
    """

    operation: str
    attributes: tuple[tuple[str, Attribute], ...]
    operands: tuple[TensorType, ...]
    results: tuple[TensorType, ...]
    homes: tuple[Layout | None, ...]
    chip: Chip
    first: int = 0
    options: PlanOptions = PlanOptions()
    choice: int = 0

    def attribute(self, name: str) -> Any:
        """The value of one attribute."""
        return dict(self.attributes)[name]


Planner = Callable[[Question], Plan]
PLANS: dict[str, Planner] = {}
CHOICES: dict[str, int] = {}


def plan_for(*names: str, choices: int = 1) -> Callable[[Planner], Planner]:
    """Register the planner of these operations, and how many plans it knows for a question."""

    def add(planner: Planner) -> Planner:
        for name in names:
            if name in PLANS:
                raise ValueError(f"operation {name!r} has two plans")
            PLANS[name] = planner
            CHOICES[name] = choices
        return planner

    return add


def choices_of(question: Question) -> int:
    """How many plans there are to choose from: for ``poplibs`` the planner's own alone."""
    return CHOICES.get(question.operation, 1) if question.options.planner == "best" else 1


def make_plan(question: Question) -> Plan:
    """The plan of one operation; the same question to the same planner is answered once."""
    planner = PLANS.get(question.operation)
    if planner is None:
        raise Bug(f"{question.operation} has no plan and was not expanded")
    key = planner, question
    found = _ANSWERS.get(key)
    if found is None:
        if len(_ANSWERS) > 16384:
            _ANSWERS.clear()
        found = _ANSWERS[key] = planner(question)
    return found


_ANSWERS: dict[tuple[Planner, Question], Plan] = {}


def read(question: Question, operand: int, layout: Layout) -> Access:
    """A read of an operand through ``layout``: resident when every block has its piece already, or may be given it."""
    home = question.homes[operand]
    resident = layout.is_partition if home is None else lies_in(layout, home)
    return Access(f"in{operand}", layout, resident)
