"""LSTM and GRU over whole sequences: layers and directions are operations of their own."""

from __future__ import annotations

from typing import Any

import torch

from abele.errors import Unsupported
from abele.importers.torch.emitter import Emitter
from abele.importers.torch.table import function
from abele.importers.torch.tracer import Tracer
from abele.ir import Value


@function(torch.lstm, torch.gru)
def recurrent(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    if len(args) != 9 or kwargs:
        raise Unsupported(
            "A packed sequence is given to an LSTM or GRU",
            where=tracer.where(),
            remedy="Give it a padded tensor, and mask the padding in what is made of its output.",
        )
    x, hidden, parameters, has_biases, layers, dropout, train, bidirectional, batch_first = args
    gated = func is torch.lstm
    e = tracer.e
    with tracer.located():
        value = tracer.read(x)
        if batch_first:
            value = e.transpose(value, (1, 0, 2))
        states = [tracer.read(t) for t in hidden] if gated else [tracer.read(hidden)]
        # weight_ih, weight_hh, the two biases and, for an LSTM with a projection, weight_hr.
        per = 2 + 2 * bool(has_biases)
        directions = 2 if bidirectional else 1
        if len(parameters) != per * layers * directions:
            raise Unsupported(
                "An LSTM with proj_size is used",
                where=tracer.where(),
                remedy="Apply a Linear layer to the output of an LSTM without projection.",
            )
        last: list[list[Value]] = [[] for _ in states]
        for layer in range(layers):
            outputs = []
            for direction in range(directions):
                at = layer * directions + direction
                weights = [e.cast(tracer.read(p), value.dtype) for p in parameters[at * per : (at + 1) * per]]
                start = [_part(e, s, at) for s in states]
                sequence = e.emit("flip", value, axes=(0,)) if direction else value
                y, *ends = _layer(e, gated, sequence, start, weights)
                outputs.append(e.emit("flip", y, axes=(0,)) if direction else y)
                for kept, end in zip(last, ends, strict=True):
                    kept.append(e.reshape(end, (1, *end.shape)))
            value = e.concat(outputs, 2)
            if dropout and train and layer < layers - 1:
                value, _ = e.emit("dropout", value, e.key(), p=float(dropout))
        if batch_first:
            value = e.transpose(value, (1, 0, 2))
        ends = [tracer.new(e.concat(kept, 0), x.dtype) for kept in last]
        return (tracer.new(value, x.dtype), *ends)


@function(torch.rnn_tanh, torch.rnn_relu)
def plain(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    """Step by step: the products with the inputs are one product, those with the state follow each other."""
    if len(args) != 9 or kwargs:
        raise Unsupported(
            "A packed sequence is given to an RNN", where=tracer.where(), remedy="Give it a padded tensor."
        )
    x, hidden, parameters, has_biases, layers, dropout, train, bidirectional, batch_first = args
    e, activation = tracer.e, func.__name__.removeprefix("rnn_")
    per, directions = 2 + 2 * bool(has_biases), 2 if bidirectional else 1
    with tracer.located():
        value = tracer.read(x)
        value = e.transpose(value, (1, 0, 2)) if batch_first else value
        states, last = tracer.read(hidden), []
        for layer in range(layers):
            outputs = []
            for direction in range(directions):
                at = layer * directions + direction
                weights = [e.cast(tracer.read(p), value.dtype) for p in parameters[at * per : (at + 1) * per]]
                start = e.cast(_part(e, states, at), value.dtype)
                steps = _steps(e, activation, value, start, weights, backwards=direction == 1)
                last.append(e.reshape(steps[0 if direction else -1], (1, *start.shape)))
                outputs.append(e.concat([e.reshape(s, (1, *start.shape)) for s in steps], 0))
            value = e.concat(outputs, 2)
            if dropout and train and layer < layers - 1:
                value, _ = e.emit("dropout", value, e.key(), p=float(dropout))
        value = e.transpose(value, (1, 0, 2)) if batch_first else value
        return tracer.new(value, x.dtype), tracer.new(e.concat(last, 0), x.dtype)


def _steps(
    e: Emitter, activation: str, x: Value, state: Value, weights: list[Value], *, backwards: bool
) -> list[Value]:
    """The states after every step, in the order of the inputs."""
    w_ih, w_hh, *biases = weights
    bias = [e.emit("add", *biases)] if biases else []
    inputs = e.emit("linear", x, w_ih, *bias)
    length = x.shape[0]
    found: dict[int, Value] = {}
    for t in reversed(range(length)) if backwards else range(length):
        step = _part(e, inputs, t)
        found[t] = state = e.emit(activation, e.emit("add", step, e.emit("linear", state, w_hh)))
    return [found[t] for t in range(length)]


def _part(e: Emitter, states: Value, at: int) -> Value:
    one = e.slice(states, 0, at, at + 1)
    return e.reshape(one, one.shape[1:])


def _layer(e: Emitter, gated: bool, x: Value, start: list[Value], weights: list[Value]) -> list[Value]:
    """One layer in one direction: output, and the state at the end (h and c, or h)."""
    w_ih, w_hh, *biases = weights
    start = [e.cast(s, x.dtype) for s in start]
    if gated:
        bias = e.emit("add", *biases) if biases else e.number(0, x.dtype, w_ih.shape[:1])
        y, h, c, _ = e.emit("lstm", x, *start, w_ih, w_hh, bias)
        return [y, h, c]
    zero = [] if biases else [e.number(0, x.dtype, w_ih.shape[:1])] * 2
    y, h, _ = e.emit("gru", x, *start, w_ih, w_hh, *biases, *zero)
    return [y, h]
