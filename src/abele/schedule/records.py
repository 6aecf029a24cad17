"""The schedule: the program as the machine runs it, and the one thing that is run, charged and drawn.

A ``Schedule`` holds functions; a function is an ordered list of ``Step``s, ``Call``s and ``Repeat``s over named
tensors. A step is one operation of the graph with its ``Plan``: the compute sets, one after another, that do it on
the tiles. The engine runs the operation, cost charges the plan, and the reference executor proves that the
two are the same. All records are frozen and compared by value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from abele.ir.graph import Attributes, Origin, Port
from abele.ir.types import TensorType
from abele.schedule.layout import Grid, Layout


@dataclass(frozen=True, slots=True)
class Access:
    """How the vertices of a compute set touch one tensor.

    Attributes:
        name: ``in0``, ``in1`` … for the operands of the step, ``out0`` … for its results, ``tmp0`` … for
            the temporaries of its plan.
        layout: which elements each vertex touches.
        resident: for a read: all elements already lie on the tile that reads them, so that nothing is exchanged. Of
            other reads a tile receives what does not lie on it (see ``geometry.kept``).
        over: for a write: the tensor in whose memory it is written, which the compute set reads. Its own name: every
            vertex writes anew what it reads of it. Else a temporary, of which nobody needs any more what is read.
    """

    name: str
    layout: Layout
    resident: bool = False
    over: str = ""

    @property
    def renews(self) -> bool:
        """Whether it writes anew what an earlier compute set has written."""
        return self.over == self.name


@dataclass(frozen=True)
class ComputeSet:
    """Vertices that run at the same time, one per block of the grid, after their operands have been exchanged.

    ``vertex`` names a ``VertexKind``; ``attributes`` are the fields that all its vertices share. Reads that are
    not resident are received by exchange before the vertices start, as far as they lie on other tiles.
    """

    vertex: str
    grid: Grid
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    attributes: Attributes = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.vertex, self.grid, self.reads, self.writes, tuple(self.attributes.items())))


@dataclass(frozen=True, slots=True)
class Plan:
    """How one operation is done on the tiles of one IPU.

    Attributes:
        sets: compute sets in order; empty when the tiles do nothing (a stream, a collective).
        temporaries: types of ``tmp0``, ``tmp1`` …; a temporary lies where it is written.
        homes: the layout in which each result is left.
        operands: where an operand that lies nowhere yet should lie, for plans that read it in several parts; ``None``
            or left out, and it lies as the first read of it says.
    """

    sets: tuple[ComputeSet, ...]
    temporaries: tuple[TensorType, ...] = ()
    homes: tuple[Layout, ...] = ()
    operands: tuple[Layout | None, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Use:
    """A tensor as an operation sees it. Its type may be a row-major view of the tensor's own."""

    tensor: str
    type: TensorType


@dataclass(frozen=True)
class Step:
    """One operation of the graph, laid over the tiles of one IPU.

    ``operation`` and ``attributes`` say what it means (see the registry in ``ir``), ``plan`` how the tiles do it. With
    ``beside`` it starts together with the step before: their first compute sets are one, and so are their second.
    """

    operation: str
    operands: tuple[Use, ...]
    results: tuple[Use, ...]
    attributes: Attributes
    plan: Plan
    origin: Origin = field(default_factory=Origin)
    beside: bool = False

    @property
    def group(self) -> tuple[int, int]:
        """Of a collective: the replicas in each of its groups, 0 for all of them, and how far apart they are."""
        size, stride = self.attributes.get("group", 0), self.attributes.get("stride", 1)
        assert isinstance(size, int) and isinstance(stride, int)
        return size, stride

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the tensors that it reads."""
        return tuple(use.tensor for use in self.operands)

    @property
    def makes(self) -> tuple[str, ...]:
        """Names of the tensors that it makes."""
        return tuple(use.tensor for use in self.results)


@dataclass(frozen=True, slots=True)
class Call:
    """Run a function once. Parameters and results are bound by position."""

    function: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    origin: Origin = field(default_factory=Origin)

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the tensors that it reads."""
        return self.operands

    @property
    def makes(self) -> tuple[str, ...]:
        """Names of the tensors that it makes."""
        return self.results


@dataclass(frozen=True, slots=True)
class Repeat:
    """Run a function ``count`` times; its results feed its first parameters in the next turn.

    With ``stages`` above 1 the turns overlap as a pipeline over the IPUs of the replica, in the manner of ``pipeline``
    (see ``PIPELINES``): the numbers are those of the plain loop, the time is that of the pipeline.
    """

    function: str
    count: int
    operands: tuple[str, ...]
    results: tuple[str, ...]
    stages: int = 1
    origin: Origin = field(default_factory=Origin)
    pipeline: str = "grouped"

    @property
    def overlaps(self) -> bool:
        """Whether turns overlap."""
        return self.stages > 1 and self.pipeline != "sequential"

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the tensors that it reads."""
        return self.operands

    @property
    def makes(self) -> tuple[str, ...]:
        """Names of the tensors that it makes."""
        return self.results


PIPELINES = ("grouped", "interleaved", "sequential")
"""How the stages of a pipelined loop take turns. S stages from 0; a slot is the time of one micro-batch.

- ``grouped``: in every slot an IPU runs its forward and its backward stage, on different micro-batches. Stage s runs
  its forward in slot s and its backward in slot 2·(S − 1) − s, so that it stashes 2·(S − 1 − s) + 1 micro-batches.
- ``interleaved``: a slot has two halves, in which neighbouring stages run forward and backward by turns. The backward
  of stage s comes 2·(S − s) − 1 halves after its forward: S − s micro-batches are stashed.
- ``sequential``: a micro-batch goes through all stages before the next one starts; nothing overlaps or is stashed.
"""

Node = Step | Call | Repeat


Place = tuple[int, int, bool]
"""Where a node runs: its IPU, its pipeline stage, and whether it is of the backward pass."""


def place_of(node: Node) -> Place:
    """Where a node runs."""
    return node.origin.ipu, node.origin.stage, node.origin.phase != "forward"


def abreast(nodes: Sequence[Node]) -> list[tuple[int, int]]:
    """For every node the first and the last of those that start together with it: itself, but for ``beside`` steps."""
    first: list[int] = []
    for i, node in enumerate(nodes):
        first.append(first[-1] if isinstance(node, Step) and node.beside and i else i)
    last = list(range(len(nodes)))
    for i in reversed(range(len(nodes) - 1)):
        last[i] = last[i + 1] if first[i + 1] == first[i] else i
    return list(zip(first, last, strict=True))


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the schedule.

    Attributes:
        name: unique in the schedule.
        type: its shape and element type.
        kind: ``state`` (kept between steps), ``remote`` (state in streaming memory; its home is where the tiles
            receive it), ``hyper`` (set by the host between steps), ``argument`` (bound by the caller of a function),
            ``value`` (made by a step).
        home: where its elements lie.
        ipu: the IPU of the replica that holds it.
        source: the name that the user knows it by (a parameter's name), or empty.
    """

    name: str
    type: TensorType
    kind: str
    home: Layout
    ipu: int = 0
    source: str = ""


@dataclass(frozen=True, slots=True)
class Function:
    """A list of nodes with its own parameters and results (names of tensors)."""

    name: str
    parameters: tuple[str, ...]
    results: tuple[str, ...]
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Schedule:
    """A whole program for ``replicas`` copies of ``ipus`` IPUs with ``tiles`` tiles each.

    ``io_tiles`` more of each only pass on what comes from the host and streaming memory and goes there.

    ``main`` runs once per device iteration. ``input_ports`` and ``output_ports`` say what its parameters and results
    are to the host; a state result is the next value of the state parameter of the same name. ``load``, where there is
    one, is run when weights are loaded: it reads states and stores others (named by its streams) that main reads.
    """

    name: str
    system: str
    tiles: int
    ipus: int
    replicas: int
    tensors: Mapping[str, Tensor]
    main: Function
    functions: Mapping[str, Function]
    input_ports: tuple[Port, ...] = ()
    output_ports: tuple[Port, ...] = ()
    load: Schedule | None = None
    io_tiles: int = 0

    def all_functions(self) -> Iterator[Function]:
        """Main and then the others."""
        yield self.main
        yield from self.functions.values()

    def steps(self) -> Iterator[tuple[Function, Step]]:
        """Every distinct step with its function; a step in a repeated function comes once."""
        for function in self.all_functions():
            for node in function.nodes:
                if isinstance(node, Step):
                    yield function, node

    def times_run(self) -> dict[str, int]:
        """How often one device iteration runs each function, ``main`` included."""
        times = {self.main.name: 1} | dict.fromkeys(self.functions, 0)

        def visit(function: Function, factor: int) -> None:
            for node in function.nodes:
                if isinstance(node, Call | Repeat):
                    more = factor * (node.count if isinstance(node, Repeat) else 1)
                    times[node.function] += more
                    visit(self.functions[node.function], more)

        visit(self.main, 1)
        return times
