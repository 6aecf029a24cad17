"""Elementwise operations as expressions that ``codegen`` compiles: single ones, bodies of maps, whole expansions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from abele.codegen import FUNCTIONS, ROUND_TO_FLOAT8, Expr, Operand, Output, map_kernel
from abele.ir.graph import Graph, Value
from abele.ir.operation import expansion, has
from abele.ops.elementwise.expression import Body
from abele.ops.hosts.kernels import HostPlan, Request, Spec, in_order, ins, outs

_NAMES = {"logical_and": "and", "logical_or": "or", "logical_xor": "xor"}
_BITS_ALIKE = frozenset(["add", "sub", "mul", "bit_and", "bit_or", "bit_xor", "bit_not", "shl", "eq", "ne", "select"])
"""Functions that are the same on unsigned and signed words."""
_WORDS = ("i32", "u32")
_FLOAT = ("f32", "f16")


def host_name(dtype: str) -> str | None:
    """The name of a dtype in ``codegen``; unsigned words travel as signed ones, 8-bit floats as half.

    16-bit integers do not travel at all.
    """
    return {"u32": "i32", "i16": None, "f143": "f16", "f152": "f16"}.get(dtype, dtype)


def node(fn: str, dtype: str, args: Sequence[int], kinds: Sequence[str], params: Sequence[Any]) -> Expr | None:
    """One elementwise primitive as an expression, ``None`` when ``codegen`` does not have it for these dtypes."""
    host = host_name(dtype)
    if host is None or "i16" in kinds:
        return None
    if fn == "constant":
        value = params[0]
        signed = int(value) - (1 << 32) if dtype == "u32" and int(value) >= 1 << 31 else value
        return Expr("const", (), host, value=signed)
    if fn == "cast":
        if dtype in ROUND_TO_FLOAT8:
            return Expr(dtype, args, host) if kinds[0] in _FLOAT or kinds[0] in ROUND_TO_FLOAT8 else None
        unsigned = "u32" in (dtype, *kinds)
        if unsigned and not (dtype in _WORDS and kinds[0] in _WORDS):
            return None
        return Expr("cast", args, host)
    name = _NAMES.get(fn, fn)
    if name not in FUNCTIONS and name != "select":
        return None
    if "u32" in (dtype, *kinds) and fn not in _BITS_ALIKE:
        return None
    if fn == "pow" and dtype not in _FLOAT:
        return None
    if fn in ("shl", "shr") and dtype == "bool":
        return None
    return Expr(name, args, host)


def body_exprs(body: Body, dtypes: Sequence[str], first: Sequence[int] | None = None) -> list[Expr] | None:
    """The nodes of a map's body as expressions.

    Args:
        body: see ``expression``.
        dtypes: of the operands.
        first: the numbers that stand for the operands in the expressions, 0, 1 … by default; body nodes follow
            after ``len(dtypes)``, or after the largest number in ``first``.
    """
    numbers = list(first) if first is not None else list(range(len(dtypes)))
    start = max(numbers, default=-1) + 1
    done: list[Expr] = []
    kinds = [str(d) for d in dtypes]
    made: list[str] = []
    for fn, dtype, args, params in body:
        given = [made[a] if a >= 0 else kinds[-1 - a] for a in args]
        expr = node(fn, str(dtype), [start + a if a >= 0 else numbers[-1 - a] for a in args], given, params)
        if expr is None:
            return None
        done.append(expr)
        made.append(str(dtype))
    return done


def over(spec: Spec, shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of an operand over the shape that it broadcasts to."""
    extra = len(shape) - len(spec.shape)
    return (0,) * extra + tuple(0 if n == 1 else s for n, s in zip(spec.shape, spec.strides, strict=True))


def host_operand(spec: Spec, shape: Sequence[int]) -> Operand:
    """An operand as ``codegen`` reads it over ``shape``."""
    name = host_name(spec.dtype)
    assert name is not None, spec
    return Operand(name, over(spec, shape))


def known(specs: Sequence[Spec]) -> bool:
    """Whether ``codegen`` has all these dtypes."""
    return all(host_name(s.dtype) is not None for s in specs)


def map_plan(request: Request, exprs: Sequence[Expr], nodes: Sequence[int]) -> HostPlan | None:
    """One loop over the first result's shape that stores these nodes of the expressions."""
    if not known((*request.operands, *request.results)):
        return None
    shape = request.results[0].shape
    operands = [host_operand(s, shape) for s in request.operands]
    outputs = [Output(n, str(host_name(s.dtype)), s.strides) for n, s in zip(nodes, request.results, strict=True)]
    pointers = (*ins(len(operands)), *outs(len(outputs)))
    return in_order(map_kernel(shape, operands, exprs, outputs), pointers)


# Composites whose expansion is elementwise throughout: one loop with several results


def graph_exprs(graph: Graph) -> tuple[list[Expr], list[int]] | None:
    """The expressions of a graph of elementwise operations, and the node of each output; ``None`` for any other."""
    numbers: dict[Value, int] = {v: i for i, v in enumerate(graph.inputs)}
    exprs: list[Expr] = []
    for op in graph.operations:
        if op.name in ("reshape", "expand", "checkpoint") and _same_number(op.operands[0], op.result):
            numbers[op.result] = numbers[op.operands[0]]
            continue
        fn = "constant" if op.name == "fill" else op.name
        if fn != "constant" and not has(fn, "elementwise"):
            return None
        params = (op.attributes["value"],) if fn == "constant" else tuple(op.attributes.values())
        kinds = [str(v.dtype) for v in op.operands]
        expr = node(fn, str(op.result.dtype), [numbers[v] for v in op.operands], kinds, params)
        if expr is None:
            return None
        numbers[op.result] = len(graph.inputs) + len(exprs)
        exprs.append(expr)
    return exprs, [numbers[v] for v in graph.outputs]


def _same_number(before: Value, after: Value) -> bool:
    """Whether each element of ``after`` is the element of ``before`` that broadcasting would give it."""
    lead = (1,) * (len(after.shape) - len(before.shape))
    return all(b in (1, a) for b, a in zip((*lead, *before.shape), after.shape, strict=False)) and len(
        before.shape
    ) <= len(after.shape)


def expanded_map(request: Request) -> HostPlan | None:
    """A composite over operands that broadcast to its results, as one loop."""
    graph = _expansion(request.operation, request.attributes, request.operands)
    found = graph_exprs(graph)
    shape = request.results[0].shape
    if found is None or any(s.shape != shape for s in request.results):
        return None
    return map_plan(request, *found)


def _expansion(name: str, attributes: Mapping[str, Any], operands: Sequence[Spec]) -> Graph:
    return expansion(name, [s.type for s in operands], attributes)
