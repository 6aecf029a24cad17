"""Plans of operations that gather statistics along some dimensions and then work element by element with them.

Softmax and the norms are such. A tensor is seen as *segments*, each kept by the statistics or summed over. The plan
stays where its operand lies whenever that follows the segments, so that nothing large is exchanged:

- summed dimensions on one tile: one compute set does everything;
- summed dimensions split: each block leaves partial statistics, a second set combines them, a third applies them.

Gradients of scale and shift are partial sums of the blocks, added up by a last set.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from abele.ir.graph import Attribute, Attributes
from abele.ir.types import DType, TensorType
from abele.machine.chip import Chip
from abele.ops.plans.layouts import LEAST_GAIN, fullest, least_of, own, read_like, split_dims, view
from abele.ops.plans.planning import Question, read
from abele.ops.plans.vertices import region_shape
from abele.schedule.layout import Grid, Layout, Span
from abele.schedule.records import Access, ComputeSet, Plan
from abele.schedule.vertex import Block, VertexKind, Work, register_vertex

Arrays = Sequence[np.ndarray]


@dataclass(frozen=True, slots=True)
class Segment:
    """Adjoining dimensions of the operand: their size, whether statistics sum over them, whether ``w`` has them."""

    size: int
    summed: bool
    scaled: bool = False


@dataclass(frozen=True)
class RowOperation:
    """What one such operation does on blocks. Arrays have the dimensions of the view; statistics keep summed ones
    with size 1.

    Attributes:
        wide: how many leading operands have the shape of the tensor.
        given: how many operands after them are statistics.
        partial: the statistics of a block, from its operands (without scale and shift in a forward operation).
        combine: statistics of all blocks together, from arrays with a leading dimension of blocks.
        apply: the result, from operands and statistics.
        returned: the statistics that are results too.
        products: what is summed into the gradients of scale and shift.
        reductions, prepared, applied: the loops of a block, by the names of their cycle estimates.
    """

    wide: int
    given: int
    partial: Callable[[Arrays, tuple[int, ...], Mapping[str, Any]], Arrays] | None
    combine: Callable[[Arrays, Mapping[str, Any]], Arrays]
    apply: Callable[[Arrays, Arrays, Mapping[str, Any]], np.ndarray]
    columns: int = 0
    combined: int = 0
    returned: Callable[[Arrays, Mapping[str, Any]], Arrays] | None = None
    products: Callable[[Arrays, Mapping[str, Any]], Arrays] | None = None
    reductions: tuple[str, ...] = ()
    prepared: tuple[str, ...] = ()
    applied: tuple[str, ...] = ()


ROWS: dict[str, RowOperation] = {}
"""The operations, by name."""


@dataclass(frozen=True, slots=True)
class _View:
    """A layout of the tensor whose dimensions each belong to one segment."""

    layout: Layout
    segments: tuple[Segment, ...]

    @property
    def grid(self) -> Grid:
        return self.layout.grid

    def pick(self, wanted: Callable[[Segment], bool]) -> tuple[tuple[int, ...], tuple[Span, ...]]:
        """Sizes and spans of the dimensions of some segments, at least one dimension."""
        chosen = [
            (size, span)
            for size, span, segment in zip(self.layout.shape, self.layout.spans, self.segments, strict=True)
            if wanted(segment)
        ] or [(1, Span())]
        return tuple(size for size, _ in chosen), tuple(span for _, span in chosen)

    def of(self, wanted: Callable[[Segment], bool]) -> Layout:
        """How a tensor with the dimensions of these segments is touched."""
        return Layout(self.grid, *self.pick(wanted))

    def partials(self, wanted: Callable[[Segment], bool], columns: int) -> tuple[Layout, tuple[int, ...]]:
        """Where partial sums over all other dimensions are left, and how many parts each of those has."""
        shape, spans = self.pick(wanted)
        split = [
            span.axis
            for span, segment in zip(self.layout.spans, self.segments, strict=True)
            if not wanted(segment) and span.axis is not None and self.grid.axes[span.axis].parts > 1
        ]
        counts = tuple(self.grid.axes[i].parts for i in split)
        parts = tuple(Span.part_of(i, self.grid.axes[i]) for i in split)
        return Layout(self.grid, (*counts, *shape, columns), (*parts, *spans, Span())), counts

    @property
    def split(self) -> bool:
        """True when a summed dimension lies on several tiles."""
        return bool(self.partials(lambda s: not s.summed, 1)[1])

    def attributes(self) -> dict[str, Attribute]:
        dims: tuple[Attribute, ...] = tuple(
            size if span.axis is None else self.grid.axes[span.axis].name
            for size, span in zip(self.layout.shape, self.layout.spans, strict=True)
        )
        return {
            "dims": dims,
            "summed": tuple(s.summed for s in self.segments),
            "scaled": tuple(s.scaled for s in self.segments),
            "count": max(1, math.prod(s for s, g in zip(self.layout.shape, self.segments, strict=True) if g.summed)),
        }


def _refined(layout: Layout, segments: Sequence[Segment]) -> _View | None:
    """The layout as it is, when every dimension of its view lies within one segment."""
    if layout.size == 0 or any(
        s.axis is not None and (s.stride, s.offset, s.extent, s.divide) != (1, 0, 1, 1) for s in layout.spans
    ):
        return None
    found: list[Segment] = []
    dims = list(layout.shape)
    for segment in segments:
        have = 1
        while have < segment.size:
            have *= dims.pop(0)
            found.append(segment)
        if have != segment.size:
            return None
    return _View(layout, (*found, *[segments[-1]] * len(dims)))


ROW_CHOICES = 3
"""Where the operand lies; evenly with summed dimensions in one piece; evenly over fewer tiles."""

COARSE = 8
"""Elements of a block of the last choice, in the fewest that are worth a tile."""


def _place(question: Question, segments: Sequence[Segment], wide: int) -> _View:
    """Where to compute: where the largest operand lies, if that follows the segments and is not too uneven; else
    evenly, with summed dimensions in one piece unless that leaves tiles idle."""
    sizes = tuple(s.size for s in segments)
    dtype, chip = question.operands[0].dtype, question.chip
    together = [i for i, s in enumerate(segments) if s.summed]
    names = [f"s{i}" for i in range(len(sizes))]
    grids = [
        split_dims(sizes, chip.tiles, first=question.first, names=names, keep=keep, least=least_of(dtype))
        for keep in (together, ())
    ]
    rows, spread = (own(grid, sizes) for grid in grids)
    fresh = rows if fullest(rows) <= LEAST_GAIN * max(least_of(dtype), fullest(spread)) else spread
    limit = LEAST_GAIN * max(fullest(fresh), least_of(dtype))
    if question.choice:
        coarse = split_dims(sizes, chip.tiles, first=question.first, names=names, least=COARSE * least_of(dtype))
        return _View(rows if question.choice == 1 else own(coarse, sizes), tuple(segments))
    for home in question.homes[:wide]:
        if home is None or not home.is_partition or fullest(home) > limit:
            continue
        other = view(home, sizes)
        for candidate in (home, other):
            seen = candidate and _refined(candidate, segments)
            if seen:
                return seen
    return _View(fresh, tuple(segments))


def plan_rows(question: Question, segments: Sequence[Segment], prefix: str, extra: Attributes) -> Plan:
    """The plan of a ``RowOperation``; ``prefix`` names the vertices of its family, ``extra`` what they need to know."""
    it = ROWS[question.operation]
    place = _place(question, segments, it.wide)
    kept, scaled = (lambda s: not s.summed), (lambda s: s.scaled)
    attributes = {"operation": question.operation, "affine": len(question.operands) - it.wide - it.given}
    attributes |= place.attributes() | dict(extra)

    def operands(affine: bool = True) -> tuple[Access, ...]:
        statistics = place.of(kept)
        last = len(question.operands) if affine else it.wide + it.given
        return (
            *(read_like(question, i, place.layout) for i in range(it.wide)),
            *(read_like(question, it.wide + i, statistics) for i in range(it.given)),
            *(read(question, i, place.of(scaled)) for i in range(it.wide + it.given, last)),
        )

    sets: list[ComputeSet] = []
    temporaries: list[TensorType] = []
    homes = [place.layout]
    result = Access("out0", place.layout)
    returned = len(question.results) - 1 if it.returned else 0
    sums, writes = [], [result]
    if it.products and attributes["affine"]:
        made, counts = place.partials(scaled, 2)
        sums = [Access(f"tmp{len(temporaries)}", made)]
        temporaries.append(TensorType(made.shape, DType.F32))
    if not place.split:
        writes += [Access(f"out{1 + i}", place.of(kept)) for i in range(returned)]
        homes += [access.layout for access in writes[1:]]
        sets.append(ComputeSet(f"{prefix}Whole", place.grid, operands(), (*writes, *sums), attributes))
    else:
        left, parts = place.partials(kept, it.columns)
        partial = Access(f"tmp{len(temporaries)}", left)
        temporaries.append(TensorType(left.shape, DType.F32))
        sets.append(ComputeSet(f"{prefix}Partial", place.grid, operands(it.given > 0), (partial, *sums), attributes))
        rows = left.shape[len(parts) : -1]
        grid = split_dims(rows, question.chip.tiles, first=question.first)
        mine = own(grid, rows)
        reads = (Access(partial.name, _over(grid, parts, rows, it.columns)),)
        statistics = f"tmp{len(temporaries)}"
        temporaries.append(TensorType((*rows, it.combined), DType.F32))
        all_of = Layout(grid, (*rows, it.combined), (*mine.spans, Span()))
        more = tuple(Access(f"out{1 + i}", mine) for i in range(returned))
        homes += [mine] * returned
        known = {**attributes, "parts": len(parts)}
        sets.append(ComputeSet(f"{prefix}Combine", grid, reads, (Access(statistics, all_of), *more), known))
        shape, spans = place.pick(kept)
        seen = Access(statistics, Layout(place.grid, (*shape, it.combined), (*spans, Span())))
        sets.append(ComputeSet(f"{prefix}Apply", place.grid, (*operands(), seen), (result,), attributes))
    if sums:
        made, counts = place.partials(scaled, 2)
        dims = made.shape[len(counts) : -1]
        grid = split_dims(dims, question.chip.tiles, first=question.first)
        mine = own(grid, dims)
        reads = (Access(sums[0].name, _over(grid, counts, dims, 2)),)
        both = tuple(Access(f"out{1 + i}", mine) for i in range(2))
        sets.append(ComputeSet(f"{prefix}Sums", grid, reads, both, {"parts": len(counts)}))
        homes += [mine, mine]
    return Plan(tuple(sets), tuple(temporaries), tuple(homes))


def _over(grid: Grid, parts: Sequence[int], dims: Sequence[int], columns: int) -> Layout:
    """All partials of the elements of a block of ``grid``, whose axes are ``dims``."""
    spans = (*(Span() for _ in parts), *(Span(i) for i in range(len(dims))), Span())
    return Layout(grid, (*parts, *dims, columns), spans)


# The vertices


def _shape(block: Block, attributes: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(block.axes[d][1] - block.axes[d][0] if isinstance(d, str) else d for d in attributes["dims"])


def _values(block: Block, pieces: Arrays, attributes: Mapping[str, Any]) -> tuple[list[np.ndarray], tuple[int, ...]]:
    """Operands in the dimensions of the view, and the summed dimensions."""
    it, shape = ROWS[attributes["operation"]], _shape(block, attributes)
    summed, scaled = attributes["summed"], attributes["scaled"]
    kept = tuple(1 if s else n for n, s in zip(shape, summed, strict=True))
    weights = tuple(n if s else 1 for n, s in zip(shape, scaled, strict=True))
    shapes = [shape] * it.wide + [kept] * it.given + [weights] * attributes["affine"]
    # forward statistics are gathered without scale and shift; they are applied with statistics behind the operands
    values = [np.reshape(p, s) for p, s in zip(pieces, shapes, strict=False)]
    return values, tuple(i for i, s in enumerate(summed) if s)


def _statistics(it: RowOperation, values: Arrays, axes: tuple[int, ...], attributes: Mapping[str, Any]) -> Arrays:
    """Of one block that has all of its rows."""
    if it.partial is None:
        return []
    return it.combine([part[None] for part in it.partial(values, axes, attributes)], attributes)


def _scale_sums(it: RowOperation, values: Arrays, attributes: Mapping[str, Any]) -> np.ndarray:
    assert it.products is not None
    axes = tuple(i for i, s in enumerate(attributes["scaled"]) if not s)
    return np.stack([product.sum(axis=axes) for product in it.products(values, attributes)], axis=-1)


def _whole(block: Block, pieces: Arrays, attributes: Mapping[str, Any]) -> Sequence[np.ndarray]:
    it = ROWS[attributes["operation"]]
    values, axes = _values(block, pieces, attributes)
    statistics = _statistics(it, values, axes, attributes)
    made = [it.apply(values, statistics, attributes)]
    if it.returned:
        made += it.returned(statistics, attributes)
    if it.products and attributes["affine"]:
        made.append(_scale_sums(it, values, attributes))
    return [np.reshape(m, region_shape(w)) for m, w in zip(made, block.writes, strict=True)]


def _partial(block: Block, pieces: Arrays, attributes: Mapping[str, Any]) -> Sequence[np.ndarray]:
    it = ROWS[attributes["operation"]]
    assert it.partial is not None
    values, axes = _values(block, pieces, attributes)
    made = [np.stack([np.squeeze(p, axes) for p in it.partial(values, axes, attributes)], axis=-1)]
    if it.products and attributes["affine"]:
        made.append(_scale_sums(it, values, attributes))
    return [np.reshape(m, region_shape(w)) for m, w in zip(made, block.writes, strict=True)]


def _combine(block: Block, pieces: Arrays, attributes: Mapping[str, Any]) -> Sequence[np.ndarray]:
    it = ROWS[attributes["operation"]]
    parts = pieces[0].reshape(-1, *pieces[0].shape[attributes["parts"] :])
    statistics = it.combine([parts[..., i] for i in range(it.columns)], attributes)
    made = [np.stack(statistics, axis=-1), *(it.returned(statistics, attributes) if it.returned else ())]
    return [np.reshape(m, region_shape(w)) for m, w in zip(made, block.writes, strict=True)]


def _apply(block: Block, pieces: Arrays, attributes: Mapping[str, Any]) -> Sequence[np.ndarray]:
    it = ROWS[attributes["operation"]]
    values, _ = _values(block, pieces, attributes)
    kept = tuple(1 if s else n for n, s in zip(_shape(block, attributes), attributes["summed"], strict=True))
    statistics = [pieces[-1][..., i].reshape(kept) for i in range(it.combined)]
    return [np.reshape(it.apply(values, statistics, attributes), region_shape(block.writes[0]))]


def _sums(block: Block, pieces: Arrays, attributes: Mapping[str, Any]) -> Sequence[np.ndarray]:
    parts = pieces[0].reshape(-1, *pieces[0].shape[attributes["parts"] :]).sum(axis=0)
    return [np.reshape(parts[..., i], region_shape(w)) for i, w in enumerate(block.writes)]


# Their cycles


def _sizes(work: Work) -> tuple[Any, Any, bool]:
    """Elements and rows of a block, and whether a row's elements lie side by side."""
    a: Mapping[str, Any] = work.attributes
    elements: Any = np.int64(1)
    rows: Any = np.int64(1)
    for dim, summed in zip(a["dims"], a["summed"], strict=True):
        length = np.maximum(work.lengths[dim], 1) if isinstance(dim, str) else max(dim, 1)
        elements = elements * length
        rows = rows if summed else rows * length
    return elements, rows, bool(a["summed"][-1])


def _gathering(chip: Chip, work: Work) -> Any:
    a: Mapping[str, Any] = work.attributes
    it, dtype = ROWS[a["operation"]], str(work.read_types[0].dtype)
    elements, rows, inner = _sizes(work)
    cycles: Any = 0
    if it.prepared:
        cycles = chip.estimate("Elementwise", n=elements, ops=it.prepared, dtype=dtype, broadcast="outer", rows=rows)
    for op in it.reductions:
        layout = "continuous" if inner else "strided"
        cycles = cycles + chip.estimate(
            "Reduce", outputs=rows, depth=elements // rows, op=op, dtype=dtype, out="f32", layout=layout
        )
    if it.products and a["affine"]:
        outputs = np.maximum(work.writes[-1] // 2, 1)
        sums = chip.estimate(
            "Reduce", outputs=outputs, depth=np.maximum(elements // outputs, 1), dtype=dtype, out="f32"
        )
        # of dy · x̂ for the scale, and of dy for the shift
        cycles = cycles + chip.estimate("Elementwise", n=elements, ops="mul", dtype=dtype) + 2 * sums
    return cycles


def _applying(chip: Chip, work: Work) -> Any:
    a: Mapping[str, Any] = work.attributes
    it, dtype = ROWS[a["operation"]], str(work.read_types[0].dtype)
    elements, rows, _ = _sizes(work)
    cycles = chip.estimate("Elementwise", n=elements, ops=it.applied, dtype=dtype, broadcast="outer", rows=rows)
    for op in ("mul", "add")[: a["affine"]]:
        cycles = cycles + chip.estimate("Elementwise", n=elements, ops=op, dtype=dtype, broadcast="inner", rows=rows)
    return cycles


def _whole_cycles(chip: Chip, work: Work) -> np.ndarray:
    return _gathering(chip, work) + _deviations(chip, work) + _applying(chip, work)


def _deviations(chip: Chip, work: Work) -> Any:
    it = ROWS[str(work.attributes["operation"])]
    _, rows, _ = _sizes(work)
    return chip.estimate("InvStd", n=rows) if it.returned else 0


def _combine_cycles(chip: Chip, work: Work) -> np.ndarray:
    columns = work.read_types[0].shape[-1]
    rows = np.maximum(work.reads[0] // columns // _depth(work), 1)
    total = chip.estimate("ReducePartials", outputs=rows * columns, depth=_depth(work), dtype="f32", out="f32")
    return total + chip.estimate("InvStd", n=rows)


def _depth(work: Work) -> int:
    return max(1, math.prod(work.read_types[0].shape[: int(work.attributes["parts"])]))


def _sums_cycles(chip: Chip, work: Work) -> np.ndarray:
    outputs = np.maximum(work.writes[0] * 2, 1)
    return chip.estimate(
        "ReducePartials", outputs=outputs, depth=_depth(work), dtype="f32", out=str(work.write_types[0].dtype)
    )


def _scratch(work: Work) -> np.ndarray:
    """Half is widened a row of all workers at a time; nothing of the whole block is kept twice."""
    elements, rows, _ = _sizes(work)
    return np.asarray(elements // rows * 4 * 6)


def register_rows(prefix: str, code: Sequence[str]) -> None:
    """Register the vertices of a family; ``code`` are the estimates whose code they hold."""
    for name, compute, cycles, scratch in (
        ("Whole", _whole, _whole_cycles, _scratch),
        ("Partial", _partial, _gathering, None),
        ("Combine", _combine, _combine_cycles, None),
        ("Apply", _apply, _applying, None),
        ("Sums", _sums, _sums_cycles, None),
    ):
        used = ("ReducePartials",) if name in ("Combine", "Sums") else tuple(code)
        register_vertex(VertexKind(prefix + name, compute, cycles, used, scratch))
