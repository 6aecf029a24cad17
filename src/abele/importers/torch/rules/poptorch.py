"""The operations of the ``poptorch`` namespace, which the vendor's API adds to torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from abele.errors import InvalidOperand
from abele.importers.torch.dtypes import machine_type, to_numpy, to_torch
from abele.importers.torch.emitter import Emitter, axis_of
from abele.importers.torch.table import raw, rule
from abele.importers.torch.tensors import Overlapped
from abele.importers.torch.tracer import Tracer
from abele.ir import DType, Value
from abele.ops.control.op import HOST_FUNCTIONS


@raw("poptorch::identity_loss")
def identity_loss(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    x, reduction = (*args, *kwargs.values())
    value = tracer.e.emit("identity_loss", tracer.read(x), reduction=str(reduction))
    tracer.losses.append(value)
    return tracer.new(value, x.dtype)


@raw("poptorch::set_overlap_for_input", "poptorch::set_overlap_for_output")
def overlapped(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    x, mode = (*args, *kwargs.values())
    value = tracer.read(x)
    if mode != "no_overlap":
        used = any(value in operation.operands for operation in tracer.e.b.operations)
        tracer.overlapped.append(Overlapped(str(func).split(".")[1], value, used))
    return tracer.new(value, x.dtype)


@rule("poptorch::nop", "poptorch::set_available_memory")
def passed_on(e: Emitter, x: Value, *_: Any) -> Value:
    return x


@rule("poptorch::recomputation_checkpoint")
def checkpoint(e: Emitter, x: Value) -> Value:
    return e.emit("checkpoint", x)


@rule("poptorch::ipu_print_tensor")
def print_tensor(e: Emitter, x: Value, title: str = "", *_: Any, **__: Any) -> Value:
    return e.emit("print_tensor", x, title=title)


@rule("poptorch::internal_cast")
def internal_cast(e: Emitter, x: Value, dtype: str) -> Value:
    return e.cast(x, e.out.dtype)


def _starts(e: Emitter, x: Value, axis: int, start: Value) -> Value:
    """Where a window starts in every dimension: at ``start`` along one axis, at zero along the others."""
    parts = [e.number(0, DType.I32, (n,)) for n in (axis, len(x.shape) - axis - 1)]
    return e.concat([parts[0], e.reshape(e.cast(start, DType.I32), (1,)), parts[1]], 0)


@rule("poptorch::dynamic_slice")
def dynamic_slice(e: Emitter, x: Value, dim: int, start: Value, size: int, step: int) -> Value:
    axis = axis_of(dim, len(x.shape))
    sizes = list(x.shape)
    sizes[axis] = size
    part = e.emit("dynamic_slice", x, _starts(e, x, axis, start), sizes=tuple(sizes))
    return e.slice(part, axis, 0, size, step)


@rule("poptorch::dynamic_update")
def dynamic_update(e: Emitter, x: Value, src: Value, dim: int, start: Value, size: int) -> Value:
    axis = axis_of(dim, len(x.shape))
    return e.emit("dynamic_update", x, e.cast(src, x.dtype), _starts(e, x, axis, start))


@raw("poptorch::custom_op")
def custom_op(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    """An operation that the user registered, by its name."""
    inputs, name, attributes, examples = args
    with tracer.located():
        made = tracer.e.b.emit(name, [tracer.read(t) for t in inputs], json.loads(attributes))
        have, want = [v.type for v in made], [machine_type(t) for t in examples]
        if have != want:
            raise InvalidOperand(
                f"{name} makes {', '.join(map(str, have))}, and the example outputs are {', '.join(map(str, want))}",
                where=tracer.where(),
                remedy="Give example_outputs with the shapes and types of its results.",
            )
        return [tracer.new(value, example.dtype) for value, example in zip(made, examples, strict=True)]


@raw("poptorch::host_call")
def host_call(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    """A function of the user's that the host runs; what it makes is seen by running it once, on zeros."""
    inputs, name = args
    kinds = [t.dtype for t in inputs]
    zeros = tracer.plainly(lambda: [torch.zeros(t.shape, dtype=t.dtype) for t in inputs])
    examples = tracer.plainly(func, zeros, name)

    def run(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [to_numpy(t) for t in func([to_torch(a, kind) for a, kind in zip(arrays, kinds, strict=True)], name)]

    HOST_FUNCTIONS[name] = run
    types = [machine_type(t) for t in examples]
    attributes = {"function": name, "shapes": [t.shape for t in types], "dtypes": [str(t.dtype) for t in types]}
    with tracer.located():
        made = tracer.e.b.emit("host_call", [tracer.read(t) for t in inputs], attributes)
        return [tracer.new(value, example.dtype) for value, example in zip(made, examples, strict=True)]


@rule("poptorch::ctc_beam_search")
def ctc_beam_search(e: Emitter, logp: Value, lengths: Value, blank: int, width: int, top: int) -> tuple[Value, ...]:
    """Scores in the type of the operand, lengths and labels as integers."""
    scores, counts, paths = e.emit(
        "ctc_beam_search", logp, e.cast(lengths, DType.I32), blank=blank, beam_width=width, top_paths=top
    )
    return e.cast(scores, logp.dtype), counts, paths
