"""The graph: types, values, operations and their registry, text form, rules, and a NumPy interpreter."""

from abele.ir.builder import Builder
from abele.ir.graph import Attribute, Graph, Operation, Origin, Port, Value, substitute
from abele.ir.interpret import Host, evaluate, evaluate_operation
from abele.ir.operation import (
    OPERATIONS,
    REQUIRED,
    TRAITS,
    Arg,
    Composite,
    NotDifferentiable,
    Primitive,
    Sample,
    expansion,
    flops,
    has,
    infer_types,
    lookup,
    register,
)
from abele.ir.rules import check
from abele.ir.text import parse_graph, print_graph
from abele.ir.types import DType, TensorType, boolean, f16, f32, i32

__all__ = [
    "OPERATIONS",
    "REQUIRED",
    "TRAITS",
    "Arg",
    "Attribute",
    "Builder",
    "Composite",
    "DType",
    "Graph",
    "Host",
    "NotDifferentiable",
    "Operation",
    "Origin",
    "Port",
    "Primitive",
    "Sample",
    "TensorType",
    "Value",
    "boolean",
    "check",
    "evaluate",
    "evaluate_operation",
    "expansion",
    "f16",
    "f32",
    "flops",
    "has",
    "i32",
    "infer_types",
    "lookup",
    "parse_graph",
    "print_graph",
    "register",
    "substitute",
]
