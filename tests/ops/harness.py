"""What all tests of operations share: samples, twins in torch, gradients, and a small runner of plans.

Every operation's samples go through the same three questions: does the reference agree with torch, does the gradient,
and does the plan, run block by block, write each element once, read only what is there and give the same numbers.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

import abele.ops  # noqa: F401  (fills the registries)
from abele.ir import (
    OPERATIONS,
    Builder,
    Composite,
    NotDifferentiable,
    Port,
    Primitive,
    Sample,
    TensorType,
    evaluate,
    evaluate_operation,
    infer_types,
    lookup,
)
from abele.ir.operation import complete_attributes
from abele.ir.text import Scanner, print_attribute
from abele.ir.types import DType
from abele.machine.chip import Chip
from abele.machine.presets import gc200
from abele.ops.plans.planning import PlanOptions, Question, make_plan
from abele.schedule.layout import Layout
from abele.schedule.records import Access, ComputeSet, Plan, Use
from abele.schedule.rules import check_plan
from abele.schedule.vertex import Block, Work, vertex_kind
from tests.ops import twins

Twin = Callable[..., "torch.Tensor | tuple[torch.Tensor, ...]"]


def load_twins() -> dict[str, Twin]:
    """``TWINS`` of every module of ``tests.ops.twins``: name -> callable(*tensors, **attributes).

    Floats arrive as float64 tensors, bool as bool, u32 as int64 and other integers as their own type.
    """
    found: dict[str, Twin] = {}
    for module in pkgutil.iter_modules(twins.__path__):
        found |= importlib.import_module(f"{twins.__name__}.{module.name}").TWINS
    return found


TWINS = load_twins()


@dataclass(frozen=True)
class Case:
    """One sample of one operation, with its types worked out."""

    name: str
    number: int
    sample: Sample

    @property
    def id(self) -> str:
        return f"{self.name}-{self.number}"

    @property
    def operation(self) -> Primitive | Composite:
        return lookup(self.name)

    @property
    def operands(self) -> tuple[TensorType, ...]:
        return tuple(arg.type for arg in self.sample.operands)

    @property
    def attributes(self) -> dict:
        return complete_attributes(self.name, self.sample.attributes)

    @property
    def results(self) -> tuple[TensorType, ...]:
        return infer_types(self.name, self.operands, self.attributes)

    def values(self, seed: int = 0) -> list[np.ndarray]:
        """The operands' values: the same ones for the same seed."""
        rng = np.random.default_rng([seed, self.number])
        return [arg.values(rng) for arg in self.sample.operands]

    @property
    def half(self) -> bool:
        return any(str(t.dtype) == "f16" for t in (*self.operands, *self.results))


def cases(names: Sequence[str] | None = None) -> list[Case]:
    """The samples of these operations, or of all."""
    chosen = OPERATIONS if names is None else names
    return [Case(name, i, s) for name in chosen for i, s in enumerate(lookup(name).samples())]


# Torch


def to_torch(array: np.ndarray) -> torch.Tensor:
    if array.dtype.kind == "f":
        return torch.from_numpy(np.asarray(array, np.float64))
    return torch.from_numpy(array.astype(np.int64) if array.dtype == np.uint32 else np.array(array))


def twin_results(case: Case, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """What torch makes of the operands."""
    found = TWINS[case.name](*tensors, **case.attributes)
    return found if isinstance(found, tuple) else (found,)


def tolerance(expected: np.ndarray, type: TensorType) -> np.ndarray | float:
    """How far a result may be off: float 1e-5 of it (and 1e-6 of the largest), half 2 units in the last place."""
    if not type.dtype.is_float:
        return 0.0
    finite = np.where(np.isfinite(expected), np.abs(expected), 0.0)
    if str(type.dtype) == "f16":
        return 2.0 * np.spacing(np.minimum(finite, 65504.0).astype(np.float16)).astype(np.float64)
    return 1e-5 * finite + 1e-6 * finite.max(initial=0.0) + 2.0 * float(np.finfo(np.float32).smallest_subnormal)


def excess(actual: np.ndarray, expected: np.ndarray, type: TensorType) -> np.ndarray:
    """How far each element is beyond its tolerance from ``expected`` rounded to ``type``; at most 0 where right."""
    with np.errstate(over="ignore"):
        rounded = expected.astype(type.dtype.numpy).astype(np.float64)
    actual = actual.astype(np.float64)
    with np.errstate(invalid="ignore"):
        off = np.abs(actual - rounded) - tolerance(rounded, type)
    same = (actual == rounded) | (np.isnan(actual) & np.isnan(rounded))
    return np.where(same, -np.inf, np.where(np.isnan(off), np.inf, off))


def assert_close(
    actual: np.ndarray,
    expected: np.ndarray,
    type: TensorType,
    what: str,
    *others: np.ndarray,
    summed: np.ndarray | float = 0.0,
) -> None:
    """Fail with the worst element when ``actual`` is not ``expected`` rounded to ``type`` within its tolerance.

    Each element may agree with one of ``others`` instead. ``summed`` is the sum of the sizes of the rounded terms that
    an element is the sum of: where they cancel, it is off by a rounding of each of them.
    """
    assert actual.shape == expected.shape, f"{what}: shape {actual.shape}, not {expected.shape}"
    if not type.dtype.is_float:
        np.testing.assert_array_equal(actual, expected.astype(actual.dtype), err_msg=what)
        return
    off = np.min([excess(actual, e, type) for e in (expected, *others)], axis=0)
    off = off - np.finfo(np.float32).eps / 2 * summed
    if off.size and off.max() > 0:
        worst = np.unravel_index(off.argmax(), off.shape)
        raise AssertionError(f"{what}: element {worst} is {actual[worst]!r}, not {expected[worst]!r}")


# Gradients


def differentiable(case: Case) -> list[int]:
    """Operands whose gradient is to be held against torch's."""
    if isinstance(case.operation.gradient, NotDifferentiable):
        return []
    if not any(t.dtype.is_float for t in case.results):
        return []
    return [i for i, t in enumerate(case.operands) if t.dtype.is_float]


def cotangents(case: Case, seed: int = 1) -> list[np.ndarray | None]:
    """Random gradients of the float results."""
    rng = np.random.default_rng([seed, case.number])
    return [rng.standard_normal(t.shape).astype(t.dtype.numpy) if t.dtype.is_float else None for t in case.results]


def gradients(case: Case, values: Sequence[np.ndarray], weights: Sequence[np.ndarray | None]) -> list[np.ndarray]:
    """The gradients that the graph gives: of the sum of ``weights`` times the results, to the float operands."""
    from abele.compile.passes.autodiff import Autodiff

    b = Builder("gradient")
    operands = [b.input(t, "state", f"in{i}") for i, t in enumerate(case.operands)]
    results = b.emit(case.name, operands, case.attributes)
    loss = b.constant(0.0, DType.F32)
    seeds = []
    for i, (result, weight) in enumerate(zip(results, weights, strict=True)):
        if weight is None:
            continue
        seeds.append(weight)
        scaled = b.mul(result, b.input(result.type, "data", f"dy{i}"))
        total = b.reduce_sum(scaled, axes=tuple(range(len(result.shape))))
        loss = b.add(loss, total if str(total.dtype) == "f32" else b.cast(total, dtype="f32"))
    graph = b.finish([loss], [Port("loss", "loss")])
    wanted = differentiable(case)
    done = Autodiff(tuple(f"in{i}" for i in wanted)).run(graph)
    outputs = [v for v, p in zip(done.outputs, done.output_ports, strict=True) if p.kind == "gradient"]
    return list(evaluate(replace(done, outputs=tuple(outputs), output_ports=()), [*values, *seeds]))


def twin_gradients(
    case: Case, values: Sequence[np.ndarray], weights: Sequence[np.ndarray | None], half: bool = False
) -> list[np.ndarray]:
    """What torch's autograd gives for the same, in float64, or with ``half`` in half as it is."""

    def convert(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.array(array)) if half and array.dtype.kind == "f" else to_torch(array)

    tensors = [convert(v) for v in values]
    wanted = [tensors[i].requires_grad_() for i in differentiable(case)]
    results = twin_results(case, tensors)
    pairs = [(r, convert(w)) for r, w in zip(results, weights, strict=True) if w is not None and r.requires_grad]
    if not pairs:
        return [np.zeros(t.shape) for t in wanted]
    found = torch.autograd.grad([r for r, _ in pairs], wanted, [w.to(r.dtype) for r, w in pairs], allow_unused=True)
    return [np.zeros(t.shape) if g is None else g.double().numpy() for t, g in zip(wanted, found, strict=True)]


def numerical_slope(
    case: Case, values: Sequence[np.ndarray], weights: Sequence[np.ndarray | None], directions: Sequence[np.ndarray]
) -> float:
    """Central difference of the weighted sum of a primitive's results along ``directions``, in float64."""
    primitive = case.operation
    assert isinstance(primitive, Primitive), f"{case.name} has no twin in torch"
    wanted, step = differentiable(case), 1e-5

    def total(sign: float) -> float:
        moved = [v.astype(np.float64) if v.dtype.kind == "f" else v for v in values]
        for i, direction in zip(wanted, directions, strict=True):
            moved[i] = moved[i] + sign * step * direction
        results = primitive.reference(moved, case.attributes, case.results)
        return sum(float(np.sum(r * w)) for r, w in zip(results, weights, strict=True) if w is not None)

    return (total(1.0) - total(-1.0)) / (2 * step)


# Plans


def machine(tiles: int) -> Chip:
    """A GC200 with few tiles."""
    return gc200.derive(f"gc200-{tiles}", tiles=tiles)


def ask(case: Case, chip: Chip, homes: Sequence[Layout | None] | None = None, first: int = 0) -> Question:
    """The question that lowering would ask for this case."""
    return Question(
        case.name,
        tuple(case.attributes.items()),
        case.operands,
        case.results,
        tuple(homes) if homes is not None else (None,) * len(case.operands),
        chip,
        first,
    )


class _Memory:
    """One tensor of a plan: values, which elements are there, and the tile of each."""

    def __init__(self, type: TensorType, values: np.ndarray | None = None, home: Layout | None = None) -> None:
        self.type = type
        self.values = np.zeros(type.size, type.dtype.numpy) if values is None else np.array(values).reshape(-1)
        self.there = np.full(type.size, values is not None)
        self.tile = np.full(type.size, -1)
        if home is not None:
            self.tile = tiles_of(home)

    def piece(self, array: np.ndarray, layout: Layout, block: int) -> np.ndarray:
        return array.reshape(layout.shape)[layout.region(block)]


def tiles_of(home: Layout) -> np.ndarray:
    """The tile of every element of a tensor that lies so; fails unless each has exactly one."""
    owners = np.zeros(home.size, np.int64)
    tile = np.full(home.size, -1)
    for b in range(home.grid.blocks):
        owners.reshape(home.shape)[home.region(b)] += 1
        tile.reshape(home.shape)[home.region(b)] = home.grid.tile(b)
    assert (owners == 1).all(), f"an element lies on {owners.max()} or {owners.min()} tiles: {home}"
    return tile


def run_plan(question: Question, plan: Plan, values: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Run a plan block by block and hold it to the rules; returns the results."""
    memories = {
        f"in{i}": _Memory(t, v, h)
        for i, (t, v, h) in enumerate(zip(question.operands, values, question.homes, strict=True))
    }
    memories |= {f"out{i}": _Memory(t) for i, t in enumerate(question.results)}
    memories |= {f"tmp{i}": _Memory(t) for i, t in enumerate(plan.temporaries)}
    for number, compute_set in enumerate(plan.sets):
        where = f"{question.operation}, set {number} ({compute_set.vertex})"
        check_set(question, compute_set, memories, where)
        run_set(question, compute_set, memories, where)
    results = []
    assert len(plan.homes) == len(question.results)
    for i, (type_, home) in enumerate(zip(question.results, plan.homes, strict=True)):
        memory = memories[f"out{i}"]
        assert home.is_partition, f"{question.operation}: home of result {i} is not a partition: {home}"
        assert home.size == type_.size
        assert memory.there.all(), f"{question.operation}: {np.sum(~memory.there)} elements of result {i} not written"
        np.testing.assert_array_equal(
            memory.tile, tiles_of(home), err_msg=f"{question.operation}: result {i} was not written where it lies"
        )
        results.append(memory.values.reshape(type_.shape))
    for i in range(len(plan.temporaries)):
        assert memories[f"tmp{i}"].there.any() or not plan.temporaries[i].size, f"tmp{i} is never written"
    return results


def check_set(question: Question, s: ComputeSet, memories: Mapping[str, _Memory], where: str) -> None:
    assert s.grid.tiles == question.chip.tiles, where
    names = [axis.name for axis in s.grid.axes]
    assert len(set(names)) == len(names), f"{where}: axes {names}"
    for key, value in s.attributes.items():
        assert repr(Scanner(print_attribute(value)).attribute()) == repr(value), f"{where}: attribute {key}={value!r}"
    for access in (*s.reads, *s.writes):
        assert access.layout.grid == s.grid, f"{where}: {access.name} uses another grid"
        assert access.name in memories, f"{where}: there is no {access.name}"
        assert access.layout.size == memories[access.name].type.size, f"{where}: view of {access.name}"
    assert not {a.name for a in s.writes} & {f"in{i}" for i in range(len(question.operands))}, where
    kind, work = vertex_kind(s.vertex), work_of(s, memories)
    for name in kind.code:
        question.chip.estimate_of(name)
    cycles = np.broadcast_to(np.asarray(kind.cycles(question.chip, work)), work_counts(s).shape)
    assert np.isfinite(cycles).all() and (cycles >= 0).all(), f"{where}: cycles {cycles}"
    if kind.temporary_bytes is not None:
        assert (np.asarray(kind.temporary_bytes(work)) >= 0).all(), where


def work_counts(s: ComputeSet) -> np.ndarray:
    return s.grid.classes()[0]


def work_of(s: ComputeSet, memories: Mapping[str, _Memory]) -> Work:
    """The work of a set by class, as cost makes it."""
    _, lengths = s.grid.classes()
    blocks = np.arange(s.grid.blocks)
    mine = [axis.stop(p) - axis.start(p) for axis, p in zip(s.grid.axes, s.grid.parts(blocks), strict=True)]
    belongs = np.ones((len(work_counts(s)), s.grid.blocks), bool)
    for column, length in zip(lengths, mine, strict=True):
        belongs &= column[:, None] == np.broadcast_to(length, s.grid.blocks)
    assert (belongs.sum(axis=1) == work_counts(s)).all()

    def most(access: Access) -> np.ndarray:
        return np.where(belongs, access.layout.elements(), 0).max(axis=1)

    return Work(
        {axis.name: np.asarray(column) for axis, column in zip(s.grid.axes, lengths, strict=True)},
        tuple(most(a) for a in s.reads),
        tuple(most(a) for a in s.writes),
        tuple(memories[a.name].type for a in s.reads),
        tuple(memories[a.name].type for a in s.writes),
        s.attributes,
    )


def run_set(question: Question, s: ComputeSet, memories: Mapping[str, _Memory], where: str) -> None:
    before = {name: m.there.copy() for name, m in memories.items()}
    kind = vertex_kind(s.vertex)
    for b in range(s.grid.blocks):
        tile, pieces = s.grid.tile(b), []
        for access in s.reads:
            memory = memories[access.name]
            piece = memory.piece(memory.values, access.layout, b)
            assert memory.piece(before[access.name], access.layout, b).all(), f"{where}: reads {access.name} too early"
            lies = memory.piece(memory.tile, access.layout, b)
            if access.resident and access.name.startswith("in") and question.homes[int(access.name[2:])] is None:
                assert access.layout.is_partition, f"{where}: {access.name} is not there"
            elif access.resident:
                assert (lies == tile).all(), f"{where}: {access.name} is said to lie on tile {tile}"
            pieces.append(np.array(piece, np.float64 if piece.dtype.kind == "f" else piece.dtype))
        axes = {
            axis.name: (int(axis.start(p)), int(axis.stop(p)))
            for axis, p in zip(s.grid.axes, s.grid.parts(b), strict=True)
        }
        block = Block(axes, tuple(a.layout.region(b) for a in s.reads), tuple(a.layout.region(b) for a in s.writes))
        with np.errstate(all="ignore"):
            made = kind.compute(block, pieces, s.attributes)
        assert len(made) == len(s.writes), f"{where}: {len(made)} pieces made"
        for access, new in zip(s.writes, made, strict=True):
            memory = memories[access.name]
            assert not memory.piece(memory.there, access.layout, b).any(), f"{where}: {access.name} written twice"
            region = access.layout.region(b)
            shape = memory.piece(memory.values, access.layout, b).shape
            assert np.shape(new) == shape, f"{where}: {access.name} got a piece {np.shape(new)} for {shape}"
            with np.errstate(all="ignore"):
                memory.values.reshape(access.layout.shape)[region] = np.asarray(new).astype(memory.values.dtype)
            memory.there.reshape(access.layout.shape)[region] = True
            memory.tile.reshape(access.layout.shape)[region] = tile


def plan_and_run(
    case: Case,
    chip: Chip,
    homes: Sequence[Layout | None] | None = None,
    first: int = 0,
    choice: int = 0,
    options: PlanOptions | None = None,
) -> Plan:
    """Plan a case, run the plan and hold the results against the reference; returns the plan."""
    question = replace(ask(case, chip, homes, first), choice=choice, options=options or PlanOptions())
    plan, values = make_plan(question), case.values()
    if not plan.sets:
        assert len(plan.homes) == len(case.results)
        return plan
    uses = ([Use(f"t{i}", t) for i, t in enumerate(types)] for types in (case.operands, case.results))
    assert not list(check_plan(plan, *uses, question.homes, chip.tiles))
    actual = run_plan(question, plan, values)
    expected = evaluate_operation(case.name, values, case.attributes, case.results)
    for i, (a, e, t) in enumerate(zip(actual, expected, case.results, strict=True)):
        assert_close(a, e.astype(np.float64) if t.dtype.is_float else e, t, f"{case.id} result {i}")
    return plan
