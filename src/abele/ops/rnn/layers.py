"""The sizes of a recurrent layer, its two grids, and the views through which its steps touch sequences and weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from abele.ir.types import TensorType
from abele.machine.exchange import exchange_cycles
from abele.ops.plans.planning import Question
from abele.ops.plans.products import product_cycles
from abele.ops.plans.search import DOES_NOT_FIT, few_part_counts
from abele.ops.rnn.cells import GATES
from abele.ops.rnn.op import BACKWARD, FORWARD, RESERVED
from abele.schedule.geometry import lies_in
from abele.schedule.layout import Axis, Grid, Layout, Span
from abele.schedule.records import Access


def choose_grid(
    question: Question,
    names: Sequence[str],
    sizes: tuple[int, int],
    cost: Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]],
    before: tuple[Axis, ...] = (),
) -> Grid:
    """The split of two dimensions with the least cycles.

    ``cost(a, b, parts_a)`` gives cycles and bytes on the tile for blocks of ``a`` × ``b`` steps. Lengths of parts are
    tried in steps that grow with them.
    """
    tiles = question.chip.tiles
    parts = [few_part_counts(size, 40) for size in sizes]
    pa, pb = (x.ravel() for x in np.meshgrid(*parts, indexing="ij"))
    pa, pb = pa[pa * pb <= tiles], pb[pa * pb <= tiles]
    cycles, size = cost(-(-sizes[0] // pa), -(-sizes[1] // pb), pa)
    limit = question.options.memory_proportion * question.chip.tile_memory
    score = np.where(size <= limit, cycles, DOES_NOT_FIT + size)
    best = np.lexsort((pa * pb, score))[0]
    axes = (Axis(names[0], sizes[0], int(pa[best])), Axis(names[1], sizes[1], int(pb[best])))
    return Grid((*before, *axes), tiles, question.first)


@dataclass(frozen=True)
class Layer:
    """A layer as its plan sees it. ``grid`` is that of the steps: axes ``t`` (one step), ``b`` and ``h``."""

    question: Question
    cell: str
    steps: int
    batch: int
    inputs: int
    hidden: int
    grid: Grid
    homes: dict[int, Layout]

    @classmethod
    def of(cls, question: Question) -> Layer:
        """Sizes from the question; the grid of the steps by exchange and product of one step, times the steps."""
        backward = question.operation.endswith("_grad")
        cell = question.operation.removesuffix("_grad")
        names = (BACKWARD if backward else FORWARD)[cell]
        steps, batch, inputs = question.operands[names.index("x")].shape
        hidden = question.operands[names.index("h0")].shape[1]
        layer = cls(question, cell, steps, batch, inputs, hidden, Grid((), question.chip.tiles), {})

        def cost(b: np.ndarray, h: np.ndarray, parts_b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            weights = layer.gates * h * hidden * question.operands[names.index("x")].dtype.bytes
            spreading = np.where(parts_b > 1, exchange_cycles(question.chip, weights), 0)
            step, received = layer.cost(b, h)
            return steps * step + spreading, weights + received

        grid = choose_grid(question, ("b", "h"), (batch, hidden), cost, (Axis("t", 1),))
        homes = {i: home for i, home in enumerate(question.homes) if home is not None}
        return cls(question, cell, steps, batch, inputs, hidden, grid, homes)

    def cost(self, b: np.ndarray | int, h: np.ndarray | int, counted: bool = False):
        """Cycles of a step that leaves ``b`` rows and ``h`` hidden units to a tile, and the bytes that it receives.

        ``counted``: with the time that messages take, one from each tile that holds some of what is received.
        """
        chip, dtype, backward = self.question.chip, self.type("x").dtype, self.question.operation.endswith("_grad")
        # A step of the gradient receives the gates' gradients, in float, where a step forward receives the output.
        depth, wide = (self.gates * self.hidden, 4) if backward else (self.hidden, dtype.bytes)
        made = 1 if backward else self.gates
        received = b * depth * wide + b * h * self.gates * 4
        messages = b * -(-depth // h) if counted else 0
        step = exchange_cycles(chip, received, messages=messages)
        step = step + product_cycles(chip, 1, b, made * h, depth, str(dtype))
        return step + chip.estimate("Rnn", n=b * h, cell=self.cell, dtype="f32"), received

    @property
    def gates(self) -> int:
        return GATES[self.cell]

    @property
    def reserved(self) -> int:
        return RESERVED[self.cell]

    @property
    def names(self) -> tuple[str, ...]:
        return (BACKWARD if self.question.operation.endswith("_grad") else FORWARD)[self.cell]

    def operand(self, name: str) -> int:
        return self.names.index(name)

    def type(self, name: str) -> TensorType:
        return self.question.operands[self.operand(name)]

    def read(self, name: str, layout: Layout) -> Access:
        """A read of an operand, by its name in ``op.py``. The first read of one that lies nowhere yet says where it
        lies; reads are asked for in the order of their compute sets."""
        operand = self.operand(name)
        home = self.homes.get(operand)
        if home is None and layout.is_partition:
            home = self.homes[operand] = layout
        return Access(f"in{operand}", layout, home is not None and lies_in(layout, home))

    # Views on the grid of the steps: a step ``t`` stands for itself by the axis of size 1, moved to ``t``.

    def own(self, t: int) -> Layout:
        """Step ``t`` of ``[T, B, H]``: the block's own hidden units."""
        return Layout(self.grid, (self.steps, self.batch, self.hidden), (Span(0, offset=t), Span(1), Span(2)))

    def row(self, t: int) -> Layout:
        """Step ``t`` of ``[T, B, H]``: all hidden units of the block's batch rows."""
        return Layout(self.grid, (self.steps, self.batch, self.hidden), (Span(0, offset=t), Span(1), Span()))

    def every(self) -> Layout:
        """``[T, B, H]`` as the steps leave it."""
        return Layout(self.grid, (self.steps, self.batch, self.hidden), (Span(), Span(1), Span(2)))

    def state(self) -> Layout:
        """The block's own units of ``[B, H]``."""
        return Layout(self.grid, (self.batch, self.hidden), (Span(1), Span(2)))

    def state_row(self) -> Layout:
        """All units of the block's rows of ``[B, H]``."""
        return Layout(self.grid, (self.batch, self.hidden), (Span(1), Span()))

    def kinds(self, count: int, t: int | None, kind: int | None = None) -> Layout:
        """Own units of step ``t`` (or of all) of ``[T, B, count, H]``, of one kind or of all."""
        when = Span() if t is None else Span(0, offset=t)
        which = Span() if kind is None else Span(0, offset=kind)
        return Layout(self.grid, (self.steps, self.batch, count, self.hidden), (when, Span(1), which, Span(2)))

    def kinds_row(self, count: int, t: int) -> Layout:
        """All units of the block's rows of step ``t`` of ``[T, B, count, H]``."""
        shape = (self.steps, self.batch, count, self.hidden)
        return Layout(self.grid, shape, (Span(0, offset=t), Span(1), Span(), Span()))
