"""A user's ``torch.autograd.Function`` in a model that is trained: its forward as it is, and its backward as a graph.

While a capture runs, ``apply`` comes here. The forward is captured like any other code. Then the backward is captured
for gradients that are not known yet, into a graph of its own, which ``custom_gradient`` carries to where the
compiler differentiates.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from types import FunctionType
from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import FunctionCtx

from abele.errors import InvalidOperand
from abele.importers.torch.calls import tensors_in
from abele.importers.torch.dtypes import machine_type
from abele.importers.torch.tracer import Tracer, needed
from abele.ir import Builder, Graph, Operation, Port, Value
from abele.ir.text import print_graph

_FUNCTION: Any = Function


class _Context(FunctionCtx):
    """What forward leaves for backward."""

    to_save: tuple[torch.Tensor | None, ...] = ()
    dirty_tensors: tuple[torch.Tensor, ...] = ()
    non_differentiable: tuple[torch.Tensor, ...] = ()
    materialize_grads: bool = True

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad

    @property
    def saved_tensors(self) -> tuple[torch.Tensor | None, ...]:
        return self.to_save


class _Redirected(Function):
    """Its ``apply`` is the code that torch's runs while a capture is active; the name in it is that of this module."""

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        from abele.importers.torch import autograd

        assert __class__  # type: ignore[name-defined]
        return autograd.redirect(cls, args, kwargs)


@contextlib.contextmanager
def functions_captured(tracer: Tracer) -> Iterator[None]:
    """Capture the functions that this thread applies; nothing to do where no gradients are taken.

    Programs keep ``MyFunction.apply`` under other names, so that the code of torch's ``apply`` is exchanged, which all
    of them share.
    """
    if not tracer.training:
        yield
        return
    shared = _FUNCTION.__dict__["apply"].__func__
    with _LOCK:
        if not _TRACERS:
            _PLAIN[:] = [FunctionType(shared.__code__, shared.__globals__, "apply", None, shared.__closure__)]
            shared.__code__ = _Redirected.__dict__["apply"].__func__.__code__
        _TRACERS.append((threading.get_ident(), tracer))
    try:
        yield
    finally:
        with _LOCK:
            _TRACERS.remove((threading.get_ident(), tracer))
            if not _TRACERS:
                shared.__code__ = _PLAIN[0].__code__


def redirect(cls: Any, args: tuple, kwargs: dict) -> Any:
    """``cls.apply`` while some capture is active: captured where it is this thread's and a tensor of it takes part."""
    thread = threading.get_ident()
    tracer = next((t for owner, t in reversed(_TRACERS) if owner == thread), None)
    ours = tracer is not None and not cls.__module__.startswith("torch.")
    if tracer is None or not ours or not tracer.involved(tensors_in(args, kwargs)):
        return _PLAIN[0](cls, *args, **kwargs)
    return _applied(tracer, cls, args, kwargs)


_LOCK = threading.Lock()
_TRACERS: list[tuple[int, Tracer]] = []
_PLAIN: list[FunctionType] = []


def _applied(tracer: Tracer, cls: Any, args: tuple, kwargs: dict) -> Any:
    """Forward, backward, and the values of the one with the gradient of the other."""
    apart = cls.setup_context is not Function.setup_context
    context = _Context(tuple(isinstance(a, torch.Tensor) and a.is_floating_point() for a in args))
    with tracer.own_gradient(), torch.no_grad():
        before = {i: tracer.read(a) for i, a in enumerate(args) if context.needs_input_grad[i]}
        result = cls.forward(*args, **kwargs) if apart else cls.forward(context, *args, **kwargs)
        if apart:
            cls.setup_context(context, args, result)
        several = isinstance(result, tuple | list)
        outputs = [r for r in (result if several else (result,)) if isinstance(r, torch.Tensor)]
        made = [tracer.read(o) for o in outputs]
        skipped = {id(t) for t in context.non_differentiable}
        flows = [v.dtype.is_float and id(o) not in skipped for o, v in zip(outputs, made, strict=True)]
        bound = made
        if before and any(flows):
            bound = _with_gradient(tracer, cls, context, before, outputs, made, flows)
        fresh = {}
        for output, value in zip(outputs, bound, strict=True):
            if any(output is t for t in context.dirty_tensors):
                tracer.write(output, value)
                fresh[id(output)] = output
            else:
                fresh[id(output)] = tracer.new(value, output.dtype)
    if not several:
        return fresh.get(id(result), result)
    return tuple(fresh.get(id(r), r) for r in result)


def _with_gradient(
    tracer: Tracer,
    cls: Any,
    context: _Context,
    before: dict[int, Value],
    outputs: Sequence[torch.Tensor],
    made: Sequence[Value],
    flows: Sequence[bool],
) -> list[Value]:
    """The values of the outputs, through ``custom_gradient`` where gradients flow."""
    e, where = tracer.e, tracer.where()
    unknown: list[Value] = []
    with tracer.located(), tracer.apart("backward") as operations:
        gradients: list[torch.Tensor | None] = []
        for output, flow in zip(outputs, flows, strict=True):
            if flow:
                unknown.append(Value(machine_type(output)))
                gradients.append(tracer.new(unknown[-1], output.dtype))
            else:
                gradients.append(torch.zeros_like(output) if context.materialize_grads else None)
        backward = cls.vjp if cls.backward is Function.backward else cls.backward
        found = backward(context, *gradients)
        found = found if isinstance(found, tuple) else (found,)
        wanted = [i for i in before if i < len(found) and found[i] is not None]
        if any(i not in range(len(found)) for i in before):
            raise InvalidOperand(
                f"The backward of {cls.__name__} returns {len(found)} gradients for {len(context.needs_input_grad)} "
                "arguments",
                where=where,
                remedy="Return one for each argument of forward, None where there is none.",
            )
        given = [_fitting(tracer, cls, found[i], before[i], where) for i in wanted]
    inside = {v for op in operations for v in op.results}
    read = [v for op in operations for v in op.operands] + given
    free = list(dict.fromkeys(v for v in read if v not in inside and v not in unknown))
    graph = _graph(operations, free, unknown, given)
    flowing = [v for v, flow in zip(made, flows, strict=True) if flow]
    operands = (*flowing, *(before[i] for i in wanted), *free)
    with tracer.located():
        results = e.b.emit("custom_gradient", operands, {"backward": print_graph(graph), "results": len(flowing)})
    rest = iter(results)
    return [next(rest) if flow else v for v, flow in zip(made, flows, strict=True)]


def _fitting(tracer: Tracer, cls: Any, gradient: torch.Tensor, like: Value, where: str) -> Value:
    """A gradient in the shape and type of what it is the gradient of, as torch makes it: summed where it broadcast."""
    shape = tuple(gradient.shape)
    if shape != like.shape:
        try:
            gradient = gradient.sum_to_size(like.shape)
        except RuntimeError:
            raise InvalidOperand(
                f"The backward of {cls.__name__} returns a gradient of shape {list(shape)} for an argument of shape "
                f"{list(like.shape)}",
                where=where,
                remedy="Return gradients in the shapes of the arguments.",
            ) from None
    return tracer.e.cast(tracer.read(gradient), like.dtype)


def _graph(operations: Sequence[Operation], free: list[Value], unknown: list[Value], given: list[Value]) -> Graph:
    """The backward as a graph of what it reads and of the gradients that come in."""
    b = Builder("backward")
    b.inputs = [*free, *unknown]
    b.input_ports = [Port("argument", "")] * len(b.inputs)
    b.operations = needed(operations, given)
    return b.finish(given)
