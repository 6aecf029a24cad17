"""What an operation is: the registry of primitives and composites, and the samples that all tests share.

A *primitive* is whole: attributes, type rule, NumPy reference, gradient, flops, samples; its plan and kernel are
registered beside it by its family in ``ops/``. A *composite* is one function over other operations, from
which type rule, reference, gradient, plan and kernel follow; it may bring a gradient, plan or kernel of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from abele.errors import InvalidOperand, Unsupported, suggest
from abele.ir.graph import Attribute, Attributes, Operation, Value
from abele.ir.types import TensorType

if TYPE_CHECKING:
    from abele.ir.builder import Builder

TypeRule = Callable[[Sequence[TensorType], Attributes], Sequence[TensorType]]
Reference = Callable[[Sequence[np.ndarray], Attributes, Sequence[TensorType]], Sequence[np.ndarray]]
Gradient = Callable[["Builder", Operation, Sequence[Value | None]], Sequence[Value | None]]


@dataclass(frozen=True, slots=True)
class Arg:
    """One operand of a sample: its type and how to draw values for it.

    ``draw``: ``normal``, ``uniform`` in [low, high), ``integers`` in [low, high), ``distinct`` (all different, so
    that an arg-max has no ties), ``boolean``, ``definite`` (matrices that are symmetric and positive definite).
    """

    type: TensorType
    draw: str = "normal"
    low: float = -2.0
    high: float = 2.0

    def values(self, rng: np.random.Generator) -> np.ndarray:
        """Random values of this operand, in the NumPy type of its dtype."""
        shape, dtype = self.type.shape, self.type.dtype.numpy
        if self.draw == "normal":
            return rng.standard_normal(shape).astype(dtype)
        if self.draw == "uniform":
            return rng.uniform(self.low, self.high, shape).astype(dtype)
        if self.draw == "integers":
            return rng.integers(int(self.low), int(self.high), shape).astype(dtype)
        if self.draw == "boolean":
            return rng.integers(0, 2, shape).astype(dtype)
        if self.draw == "distinct":
            return (rng.permutation(self.type.size).reshape(shape) / max(1, self.type.size) * 4 - 2).astype(dtype)
        if self.draw == "definite":
            root = rng.standard_normal(shape)
            return (root @ root.swapaxes(-1, -2) / shape[-1] + np.eye(shape[-1])).astype(dtype)
        raise ValueError(f"unknown draw {self.draw!r}")


@dataclass(frozen=True, slots=True)
class Sample:
    """One use of an operation, drawn on by every test: reference, gradient, engine, plan, importer."""

    operands: tuple[Arg, ...]
    attributes: Attributes
    note: str = ""


@dataclass(frozen=True)
class NotDifferentiable:
    """Stands in the gradient slot of an operation whose derivative is zero or undefined, and says why."""

    reason: str


TRAITS: Mapping[str, str] = {
    "elementwise": "one function of elements of operands that broadcast: it folds, joins maps, may write in place",
    "in_place": "not elementwise itself, but may write a result over an operand of the same type",
    "uniform": "moves, repeats or drops elements: what is filled with one number stays filled with it",
    "view": "does nothing on the tiles: lowering sees its operand as its result",
    "constant": "made of attributes alone: cheaper to make again than to keep, and known before anything runs",
    "random": "draws numbers: never run a second time, nor ahead of the step it belongs to",
    "root": "may take a map behind it, as a `fused` operation",
    "collective": "done by replicas together: charged with the links, the engine runs it over all of them at once",
    "host": "talks to the host: charged with the host's link, and steps next to one another share its latency",
    "remote": "moves a state to or from streaming memory: charged with the streaming rate",
    "transfer": "moves a value to the tiles of another IPU: charged with the links between the two",
    "any_strides": "its host kernels take operands and results with any strides",
    "alike": "its host kernels want operands and results of one shape to lie alike, in any order of the dimensions",
}
"""What rooms may ask of an operation, with :func:`has`, instead of knowing its name. This is the whole list."""


@dataclass(frozen=True)
class Primitive:
    """A whole operation.

    Attributes:
        name: as in the text form.
        attributes: name to default; ``REQUIRED`` marks one that must be given.
        infer: type rule; raises ``InvalidOperand`` with the operand and the rule.
        reference: the meaning, in NumPy. Float operands arrive as float64 whatever their type, others in their own
            NumPy type; the caller rounds the results to the result types.
        gradient: builds the gradients of the operands (``None`` where there is none), or ``NotDifferentiable``.
        flops: floating-point operations (multiply-add is 2).
        samples: shapes, dtypes and edge cases for the shared tests.
        effect: True when it talks to the host or draws on outside state, so that it is never removed or merged.
        traits: see ``TRAITS``.
    """

    name: str
    attributes: Mapping[str, Any]
    infer: TypeRule
    reference: Reference
    gradient: Gradient | NotDifferentiable
    flops: Callable[[Sequence[TensorType], Sequence[TensorType], Attributes], int]
    samples: Callable[[], Iterable[Sample]]
    effect: bool = False
    traits: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Composite:
    """An operation made of others. ``expand(builder, operands, attributes)`` emits them and returns the results.

    ``gradient`` is optional: without it the expansion is differentiated. A composite without a plan of its own is
    expanded before lowering. ``calls`` names the composite that says the same in calls of the vendor's library, where
    that has no one operation for it and works in other types inside.
    """

    name: str
    attributes: Mapping[str, Any]
    expand: Callable[[Builder, Sequence[Value], Attributes], Sequence[Value]]
    samples: Callable[[], Iterable[Sample]]
    gradient: Gradient | NotDifferentiable | None = None
    effect: bool = False
    traits: frozenset[str] = frozenset()
    calls: str = ""


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()
OPERATIONS: dict[str, Primitive | Composite] = {}


def register(operation: Primitive | Composite) -> Primitive | Composite:
    """Add an operation to the registry; a name is registered once, and traits are those of ``TRAITS``."""
    for trait in operation.traits:
        if trait not in TRAITS:
            raise ValueError(f"operation {operation.name!r} has an unknown trait {trait!r}")
    if operation.name in OPERATIONS:
        raise ValueError(f"operation {operation.name!r} is registered twice")
    OPERATIONS[operation.name] = operation
    return operation


def lookup(name: str) -> Primitive | Composite:
    """The registered operation, or ``Unsupported`` with a suggestion."""
    try:
        return OPERATIONS[name]
    except KeyError:
        raise Unsupported(f"There is no operation {name!r}", remedy=suggest(name, OPERATIONS)) from None


def has(operation: str | Operation, trait: str) -> bool:
    """Whether an operation, or the one of this name, has a trait; calls and loops of a graph have none."""
    assert trait in TRAITS, trait
    found = OPERATIONS.get(operation if isinstance(operation, str) else operation.name)
    return found is not None and trait in found.traits


def complete_attributes(name: str, given: Attributes) -> dict[str, Attribute]:
    """``given`` with defaults filled in, in declared order; unknown or missing names raise ``InvalidOperand``."""
    declared = lookup(name).attributes
    for key in given:
        if key not in declared:
            raise InvalidOperand(f"{name} has no attribute {key!r}", remedy=suggest(key, declared))
    done: dict[str, Attribute] = {}
    for key, default in declared.items():
        value = given.get(key, default)
        if value is REQUIRED:
            raise InvalidOperand(f"{name} needs the attribute {key!r}")
        done[key] = _frozen(value)
    return done


def _frozen(value: Any) -> Attribute:
    if isinstance(value, list | tuple):
        return tuple(_frozen(v) for v in value)
    if isinstance(value, np.generic):
        return value.item()
    return value


def infer_types(name: str, operands: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    """Result types of an operation on operands of these types."""
    operation = lookup(name)
    if isinstance(operation, Primitive):
        return tuple(operation.infer(operands, attributes))
    return tuple(v.type for v in expansion(name, operands, attributes).outputs)


def expansion(name: str, operands: Sequence[TensorType], attributes: Attributes):
    """The graph of a composite on operands of these types (shared: the same question gives the same graph)."""
    from abele.ir.builder import Builder

    key = (name, tuple(operands), tuple(attributes.items()))
    found = _EXPANSIONS.get(key)
    if found is None:
        composite = lookup(name)
        assert isinstance(composite, Composite), name
        builder = Builder(name)
        values = [builder.input(t) for t in operands]
        found = builder.finish(composite.expand(builder, values, attributes))
        if len(_EXPANSIONS) > 4096:
            _EXPANSIONS.clear()
        _EXPANSIONS[key] = found
    return found


_EXPANSIONS: dict[Any, Any] = {}


def flops(op: Operation) -> int:
    """Floating-point operations of one operation; a composite counts its expansion."""
    return _flops(op.name, [v.type for v in op.operands], [v.type for v in op.results], op.attributes)


def _flops(name: str, operands: Sequence[TensorType], results: Sequence[TensorType], attributes: Attributes) -> int:
    operation = lookup(name)
    if isinstance(operation, Primitive):
        return int(operation.flops(operands, results, attributes))
    return sum(flops(op) for op in expansion(name, operands, attributes).operations)
