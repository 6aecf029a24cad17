"""What ``fused`` means: its root operation, and then a map over the root's first result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from abele.errors import InvalidOperand
from abele.ir.interpret import evaluate_operation
from abele.ir.operation import REQUIRED, Arg, Primitive, Sample, complete_attributes, infer_types, lookup, register
from abele.ir.types import DType, TensorType, f16, f32
from abele.ops.elementwise.expression import (
    FUSED_LATE,
    body_of,
    body_types,
    evaluate_body,
    flops_of,
    map_flops,
    operand_dtype,
    rounded,
)
from abele.ops.rules import Attributes, broadcast


def root_of(attributes: Attributes) -> tuple[str, dict, int]:
    """Name, attributes and number of operands of the root operation."""
    pairs = attributes["root_attributes"]
    assert isinstance(pairs, tuple)
    name = str(attributes["root"])
    given = {str(key): value for key, value in pairs}
    return name, complete_attributes(name, given), int(attributes["root_operands"])


def root_types(operands: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    """The results of the root operation alone."""
    name, given, number = root_of(attributes)
    if len(operands) < number:
        raise InvalidOperand(f"fused has {len(operands)} operands; its root {name} alone takes {number}")
    return infer_types(name, operands[:number], given)


def _infer_fused(operands: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    first, *others = root_types(operands, attributes)
    number = root_of(attributes)[2]
    mapped = [first, *operands[number:]]
    types = body_types(body_of(attributes), mapped)
    shape = broadcast("fused", mapped)
    if shape != first.shape:
        raise InvalidOperand(f"fused maps {first} with operands that broadcast it to {list(shape)}")
    return (TensorType(shape, types[-1].dtype), *others)


def _fused(operands: Sequence[np.ndarray], attributes: Attributes, results: Sequence[TensorType]):
    name, given, number = root_of(attributes)
    body = body_of(attributes)
    root, dtype = lookup(name), operand_dtype(body, 0) or results[0].dtype
    types = [results[0].with_dtype(dtype), *results[1:]]
    if isinstance(root, Primitive):
        first, *others = root.reference(operands[:number], given, types)
    else:
        single = [a.astype(np.float32) if a.dtype.kind == "f" else a for a in operands[:number]]
        first, *others = evaluate_operation(name, single, given, [types[0].with_dtype(DType.F32), *types[1:]])
    mapped = evaluate_body(body, [rounded(first, dtype), *operands[number:]])
    return (np.broadcast_to(mapped, results[0].shape), *others)


def _fused_flops(operands: Sequence[TensorType], results: Sequence[TensorType], attributes: Attributes) -> int:
    name, given, number = root_of(attributes)
    types = root_types(operands, attributes)
    return flops_of(name, operands[:number], types, given) + map_flops(
        body_of(attributes), [types[0], *operands[number:]]
    )


_BIAS_RELU = (("add", "f32", (-1, -2), ()), ("relu", "f32", (0,), ()))


def _fused_samples() -> Iterable[Sample]:
    product = (("transpose_a", False), ("transpose_b", False), ("partials", "f32"))
    half = tuple((fn, "f16", args, params) for fn, _, args, params in _BIAS_RELU)
    for operands, body in (
        ((f32(5, 8), f32(8, 6), f32(6)), _BIAS_RELU),
        ((f32(2, 3, 4), f32(4, 7), f32(7)), _BIAS_RELU),
        ((f16(9, 16), f16(16, 12), f16(12)), half),
        ((f32(0, 4), f32(4, 3), f32(3)), _BIAS_RELU),
    ):
        yield Sample(
            tuple(Arg(t) for t in operands),
            {"root": "matmul", "root_attributes": product, "root_operands": 2, "body": body},
        )
    image = (
        ("strides", (1, 1)),
        ("padding", ((1, 1), (1, 1))),
        ("dilation", (1, 1)),
        ("groups", 1),
        ("partials", "f32"),
    )
    yield Sample(
        (Arg(f32(2, 3, 6, 5)), Arg(f32(4, 3, 3, 3)), Arg(f32(4, 1, 1))),
        {"root": "conv", "root_attributes": image, "root_operands": 2, "body": _BIAS_RELU},
    )

    channels = (Arg(f32(3)), Arg(f32(3)), Arg(f32(3)), Arg(f32(3), "uniform", 0.5, 2.0))
    for x, body in ((f32(2, 3, 8), _BIAS_RELU), (f16(4, 3, 5, 5), half)):
        norm = [Arg(c.type.with_dtype(x.dtype), c.draw, c.low, c.high) for c in channels[:2]]
        yield Sample(
            (Arg(x), *norm, *channels[2:], Arg(x)),
            {"root": "batch_norm_inference", "root_attributes": (("eps", 1e-5),), "root_operands": 5, "body": body},
        )


register(
    Primitive(
        "fused",
        {"root": REQUIRED, "root_attributes": REQUIRED, "root_operands": REQUIRED, "body": REQUIRED},
        _infer_fused,
        _fused,
        FUSED_LATE,
        _fused_flops,
        _fused_samples,
    )
)
