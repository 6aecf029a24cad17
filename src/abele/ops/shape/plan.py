"""How moved elements lie: the result is split over the tiles and each tile copies its piece from what it reads.

Where the operand's split can be kept (a transpose, a slice of unsplit dimensions, padding of them) the tiles copy
their own elements and exchange nothing. Where a split dimension gets a little longer or shorter the result is cut into
as many parts, and only what passes a boundary is exchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from abele.machine.chip import Chip
from abele.ops.plans.layouts import LEAST_GAIN, even, fullest, least_of, resized, same_elements, view, widened
from abele.ops.plans.planning import Question, plan_for, read
from abele.ops.plans.vertices import region_shape
from abele.ops.rules import Attributes
from abele.ops.shape.op import clamped, pieces_of
from abele.schedule.geometry import kept
from abele.schedule.layout import Layout, Span
from abele.schedule.records import Access, ComputeSet, Plan
from abele.schedule.vertex import Block, VertexKind, Work, register_vertex

Pieces = Sequence[np.ndarray]


def _plan(
    question: Question,
    vertex: str,
    layout: Layout,
    spans: Sequence[Sequence[Span]],
    attributes: Attributes,
) -> Plan:
    """One compute set that writes the result through ``layout`` and reads each operand through its spans."""
    reads = []
    for i, (operand, own) in enumerate(zip(question.operands, spans, strict=True)):
        access = read(question, i, Layout(layout.grid, operand.shape, tuple(own)))
        home = question.homes[i]
        if home is not None and home.is_partition and access.layout.is_partition and same_elements(home, access.layout):
            access = Access(access.name, access.layout, True)
        reads.append(access)
    done = ComputeSet(vertex, layout.grid, tuple(reads), (Access("out0", layout),), dict(attributes))
    return Plan((done,), (), (layout,))


def _follow(question: Question, keep: Callable[[Layout], Layout | None]) -> Layout | None:
    """The result laid as operand 0 lies, where ``keep`` says how and the tiles share the work well."""
    home, (operand, *_), result = question.homes[0], question.operands, question.results[0]
    if home is None or not home.is_partition or not result.size:
        return None
    seen = view(home, operand.shape)
    found = keep(seen) if seen is not None else None
    if found is None or not found.is_partition:
        return None
    fresh = even(result, question.chip, question.first)
    return found if fullest(found) <= LEAST_GAIN * max(fullest(fresh), least_of(result.dtype)) else None


def _follow_about(question: Question, spans: Callable[[Layout, int], Sequence[Span]]) -> Layout | None:
    """The result in blocks like those of its largest operand, where most of it then comes from its own tile.

    ``spans`` says how an operand is read for the result in a layout.
    """
    result, operands = question.results[0], question.operands
    largest = max(range(len(operands)), key=lambda i: operands[i].size)
    home, operand = question.homes[largest], operands[largest]
    found = resized(home, operand.shape, result.shape) if home is not None and result.size else None
    if found is None or home is None:
        return None
    stays = int(kept(Layout(found.grid, operand.shape, tuple(spans(found, largest))), [home]).sum())
    fresh = even(result, question.chip, question.first)
    balanced = fullest(found) <= LEAST_GAIN * max(fullest(fresh), least_of(result.dtype))
    return found if balanced and 2 * stays >= result.size else None


def _copy_cycles(chip: Chip, work: Work) -> np.ndarray:
    """Copies of pieces that are whole rows of a layout: at the rate of the tile's memory."""
    return chip.estimate("Copy", bytes=work.writes[0] * work.write_types[0].dtype.bytes)


def _rearrange_cycles(chip: Chip, work: Work) -> np.ndarray:
    """Copies of single elements out of their order."""
    atom = work.write_types[0].dtype.bytes
    return chip.estimate("Rearrange", bytes=work.writes[0] * atom, atom=max(2, atom))


# transpose


def _transpose(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    return [np.transpose(pieces[0], attributes["permutation"])]


def _transpose_cycles(chip: Chip, work: Work) -> np.ndarray:
    """A block is matrices of its innermost read dimension by its innermost written one."""
    order = work.attributes["permutation"]
    assert isinstance(order, tuple)
    if not order or order[-1] == len(order) - 1:
        return _copy_cycles(chip, work)
    names = list(work.lengths)
    rows, cols = work.lengths[names[order.index(len(order) - 1)]], work.lengths[names[-1]]
    blocks = work.writes[0] // np.maximum(rows * cols, 1)
    return chip.estimate(
        "Transpose", rows=rows, cols=cols, dtype=str(work.write_types[0].dtype), blocks=np.maximum(blocks, 1)
    )


register_vertex(VertexKind("Transpose", _transpose, _transpose_cycles, ("Transpose", "Copy")))


@plan_for("transpose")
def plan_transpose(question: Question) -> Plan:
    """Each tile transposes its piece; split as the result is, or as the operand lies."""
    order, (result,) = question.attribute("permutation"), question.results
    home = question.homes[0]
    named = home is not None and len(home.grid.axes) == result.rank

    def keep(seen: Layout) -> Layout | None:
        # The vertex finds its rows and columns by the grid's axes, which must then be the result's dimensions.
        spans = tuple(seen.spans[d] for d in order)
        plain = all(s.axis is None or s.axis == i for i, s in enumerate(spans))
        return Layout(seen.grid, result.shape, spans) if named and plain else None

    layout = _follow(question, keep) or even(result, question.chip, question.first)
    spans: list[Span] = [Span()] * result.rank
    for i, d in enumerate(order):
        spans[d] = layout.spans[i]
    return _plan(question, "Transpose", layout, [spans], {"permutation": order})


# expand


def _expand(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    return [np.broadcast_to(pieces[0], region_shape(block.writes[0]))]


register_vertex(VertexKind("Expand", _expand, _copy_cycles, ("Copy",)))


@plan_for("expand")
def plan_expand(question: Question) -> Plan:
    """Each tile reads what its piece repeats."""
    (operand,), (result,) = question.operands, question.results
    extra = result.rank - operand.rank

    def keep(seen: Layout) -> Layout | None:
        found = widened(seen, result.shape[extra:])
        return found and Layout(seen.grid, result.shape, (Span(),) * extra + found.spans)

    layout = _follow(question, keep) or even(result, question.chip, question.first)
    spans = [
        Span() if n == 1 and want != 1 else span
        for n, want, span in zip(operand.shape, result.shape[extra:], layout.spans[extra:], strict=True)
    ]
    return _plan(question, "Expand", layout, [spans], {})


# slice and pad


def _slice(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    steps = attributes["steps"]
    assert isinstance(steps, tuple)
    return [pieces[0][tuple(slice(None, None, step) for step in steps)]]


def _slice_cycles(chip: Chip, work: Work) -> np.ndarray:
    steps = work.attributes["steps"]
    assert isinstance(steps, tuple)
    return _rearrange_cycles(chip, work) if steps and steps[-1] != 1 else _copy_cycles(chip, work)


register_vertex(VertexKind("Slice", _slice, _slice_cycles, ("Copy", "Rearrange")))


@plan_for("slice")
def plan_slice(question: Question) -> Plan:
    """Each tile reads the stretch of the operand that holds its piece."""
    (operand,), (result,) = question.operands, question.results
    starts, steps = question.attribute("starts"), question.attribute("steps")
    same = [n == m for n, m in zip(operand.shape, result.shape, strict=True)]

    def spans(layout: Layout, _: int = 0) -> list[Span]:
        return [
            span if whole or span.axis is None else Span(span.axis, step, start)
            for span, start, step, whole in zip(layout.spans, starts, steps, same, strict=True)
        ]

    followed = _follow(question, lambda seen: widened(seen, result.shape))
    layout = followed or _follow_about(question, spans) or even(result, question.chip, question.first)
    if followed is None:
        return _plan(question, "Slice", layout, [spans(layout)], {"steps": steps})
    # The tiles have whole rows of the cut dimensions and take their parts of them.
    attributes = {key: question.attribute(key) for key in ("starts", "stops", "steps")}
    return _plan(question, "SliceRows", layout, [spans(layout)], attributes)


def _slice_rows(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    shape = region_shape(block.writes[0])
    cuts = zip(attributes["starts"], attributes["stops"], attributes["steps"], strict=True)
    # A dimension that is not cut may be split; its piece is taken whole.
    return [
        pieces[0][
            tuple(
                slice(None) if n == m else slice(*cut) for n, m, cut in zip(pieces[0].shape, shape, cuts, strict=True)
            )
        ]
    ]


register_vertex(VertexKind("SliceRows", _slice_rows, _slice_cycles, ("Copy", "Rearrange")))


def _pad(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    written, (source,) = block.writes[0], block.reads
    low = attributes["low"]
    assert isinstance(low, tuple)
    done = np.full(region_shape(written), attributes["value"], pieces[0].dtype)
    done[
        tuple(
            slice(max(0, s.start + p - w.start), max(0, s.stop + p - w.start))
            for s, p, w in zip(source, low, written, strict=True)
        )
    ] = pieces[0]
    return [done]


register_vertex(VertexKind("Pad", _pad, _copy_cycles, ("Copy",)))


@plan_for("pad")
def plan_pad(question: Question) -> Plan:
    """Each tile fills its piece and copies what of the operand falls in it."""
    (operand,), (result,) = question.operands, question.results
    low = question.attribute("low")
    same = [n == m for n, m in zip(operand.shape, result.shape, strict=True)]

    def spans(layout: Layout, _: int = 0) -> list[Span]:
        return [
            span if whole or span.axis is None else Span(span.axis, offset=-p)
            for span, p, whole in zip(layout.spans, low, same, strict=True)
        ]

    layout = _follow(question, lambda seen: widened(seen, result.shape)) or _follow_about(question, spans)
    layout = layout or even(result, question.chip, question.first)
    return _plan(question, "Pad", layout, [spans(layout)], {"low": low, "value": question.attribute("value")})


# concat


def _concat(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    axis = int(attributes["axis"])
    return [np.concatenate(pieces, axis=axis)]


register_vertex(VertexKind("Concat", _concat, _copy_cycles, ("Copy",)))


@plan_for("concat")
def plan_concat(question: Question) -> Plan:
    """Each tile reads of every operand what falls in its piece, which is nothing for most where the axis is split."""
    axis, (result,) = question.attribute("axis"), question.results
    shapes = [t.shape for t in question.operands]
    starts = pieces_of(shapes, axis)

    def spans(layout: Layout, operand: int) -> list[Span]:
        own = list(layout.spans)
        if own[axis].axis is not None and shapes[operand][axis] != result.shape[axis]:
            own[axis] = Span(own[axis].axis, offset=-starts[operand])
        return own

    layout = _follow(question, lambda seen: widened(seen, result.shape)) or _follow_about(question, spans)
    layout = layout or even(result, question.chip, question.first)
    return _plan(question, "Concat", layout, [spans(layout, i) for i in range(len(shapes))], {"axis": axis})


# flip


def _flip(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    axes = attributes["axes"]
    assert isinstance(axes, tuple)
    turned = np.flip(pieces[0], axes)
    return [turned[tuple(w if d in axes else slice(None) for d, w in enumerate(block.writes[0]))]]


register_vertex(VertexKind("Flip", _flip, _rearrange_cycles, ("Rearrange",)))


@plan_for("flip")
def plan_flip(question: Question) -> Plan:
    """Split over the other dimensions where they suffice; else every tile reads the turned dimensions whole."""
    (result,), axes = question.results, question.attribute("axes")
    layout = even(result, question.chip, question.first, keep=axes)
    if fullest(layout) > LEAST_GAIN * fullest(even(result, question.chip)):
        layout = even(result, question.chip, question.first)
    spans = [Span() if d in axes else span for d, span in enumerate(layout.spans)]
    return _plan(question, "Flip", layout, [spans], {"axes": axes})


# dynamic slices


def _dynamic_slice(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    x, starts = pieces
    shape, sizes = attributes["shape"], attributes["sizes"]
    assert isinstance(shape, tuple) and isinstance(sizes, tuple)
    at = clamped(starts, sizes, shape)
    cuts = []
    for d, (start, written, source) in enumerate(zip(at, block.writes[0], block.reads[0], strict=True)):
        if sizes[d] == shape[d]:
            cuts.append(slice(None))
        else:
            cuts.append(slice(start + written.start - source.start, start + written.stop - source.start))
    return [x[tuple(cuts)]]


def _dynamic_slice_cycles(chip: Chip, work: Work) -> np.ndarray:
    return chip.estimate("DynamicSlice", n=work.writes[0], dtype=str(work.write_types[0].dtype))


register_vertex(VertexKind("DynamicSlice", _dynamic_slice, _dynamic_slice_cycles, ("DynamicSlice",)))


@plan_for("dynamic_slice")
def plan_dynamic_slice(question: Question) -> Plan:
    """Split over the dimensions that are not cut where they suffice; the cut ones are read whole."""
    (operand, starts), (result,) = question.operands, question.results
    cut = [d for d in range(result.rank) if result.shape[d] != operand.shape[d]]
    layout = even(result, question.chip, question.first, keep=cut)
    if fullest(layout) > LEAST_GAIN * fullest(even(result, question.chip)):
        layout = even(result, question.chip, question.first)
    spans = [Span() if d in cut else span for d, span in enumerate(layout.spans)]
    attributes = {"sizes": question.attribute("sizes"), "shape": operand.shape}
    return _plan(question, "DynamicSlice", layout, [spans, [Span()] * starts.rank], attributes)


def _dynamic_update(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    x, update, starts = pieces
    sizes, shape = attributes["sizes"], attributes["shape"]
    assert isinstance(shape, tuple) and isinstance(sizes, tuple)
    at = clamped(starts, sizes, shape)
    into, out_of = [], []
    for d, (start, written, source) in enumerate(zip(at, block.writes[0], block.reads[1], strict=True)):
        first, last = max(start, written.start), min(start + sizes[d], written.stop)
        last = max(first, last)
        into.append(slice(first - written.start, last - written.start))
        begin = start + source.start
        out_of.append(slice(first - begin, last - begin))
    done = np.array(x)
    if all(s.stop > s.start for s in into):
        done[tuple(into)] = update[tuple(out_of)]
    return [done]


register_vertex(VertexKind("DynamicUpdate", _dynamic_update, _dynamic_slice_cycles, ("DynamicSlice",)))


@plan_for("dynamic_update")
def plan_dynamic_update(question: Question) -> Plan:
    """Where the tensor lies; every tile reads the update whole along the dimensions in which it is smaller."""
    (x, update, starts), (result,) = question.operands, question.results
    layout = _follow(question, lambda seen: seen) or even(result, question.chip, question.first)
    spans = [span if n == m else Span() for n, m, span in zip(x.shape, update.shape, layout.spans, strict=True)]
    attributes = {"sizes": update.shape, "shape": x.shape}
    return _plan(question, "DynamicUpdate", layout, [layout.spans, spans, [Span()] * starts.rank], attributes)
