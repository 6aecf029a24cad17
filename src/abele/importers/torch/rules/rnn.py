"""Recurrent networks over whole sequences: layers and directions are operations of their own, of plain ones steps."""

from __future__ import annotations

from typing import Any

import torch

from abele.errors import Unsupported
from abele.importers.torch.emitter import Emitter
from abele.importers.torch.table import function
from abele.importers.torch.tracer import Tracer
from abele.ir import Value

_KINDS = {torch.lstm: "lstm", torch.gru: "gru", torch.rnn_tanh: "tanh", torch.rnn_relu: "relu"}


@function(*_KINDS)
def recurrent(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    if len(args) != 9 or kwargs:
        raise Unsupported(
            "A packed sequence is given to an LSTM, GRU or RNN",
            where=tracer.where(),
            remedy="Give it a padded tensor, and mask the padding in what is made of its output.",
        )
    x, hidden, parameters, has_biases, layers, dropout, train, bidirectional, batch_first = args
    e, kind = tracer.e, _KINDS[func]
    with tracer.located():
        value = tracer.read(x)
        if batch_first:
            value = e.transpose(value, (1, 0, 2))
        states = [tracer.read(t) for t in (hidden if kind == "lstm" else [hidden])]
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
                start = [e.cast(_part(e, s, at), value.dtype) for s in states]
                y, *ends = _layer(e, kind, value, start, weights, backwards=direction == 1)
                outputs.append(y)
                for kept, end in zip(last, ends, strict=True):
                    kept.append(e.reshape(end, (1, *end.shape)))
            value = e.concat(outputs, 2)
            if dropout and train and layer < layers - 1:
                value, _ = e.emit("dropout", value, e.key(), p=float(dropout))
        if batch_first:
            value = e.transpose(value, (1, 0, 2))
        ends = [tracer.new(e.concat(kept, 0), x.dtype) for kept in last]
        return (tracer.new(value, x.dtype), *ends)


def _part(e: Emitter, states: Value, at: int) -> Value:
    one = e.slice(states, 0, at, at + 1)
    return e.reshape(one, one.shape[1:])


def _layer(
    e: Emitter, kind: str, x: Value, start: list[Value], weights: list[Value], *, backwards: bool
) -> list[Value]:
    """One layer in one direction: output, and the state at the end (of an LSTM h and c)."""
    w_ih, w_hh, *biases = weights
    if kind in ("tanh", "relu"):
        return _steps(e, kind, x, start[0], weights, backwards=backwards)
    x = e.emit("flip", x, axes=(0,)) if backwards else x
    if kind == "lstm":
        bias = e.emit("add", *biases) if biases else e.number(0, x.dtype, w_ih.shape[:1])
        y, *ends, _ = e.emit("lstm", x, *start, w_ih, w_hh, bias)
    else:
        zero = [] if biases else [e.number(0, x.dtype, w_ih.shape[:1])] * 2
        y, *ends, _ = e.emit("gru", x, *start, w_ih, w_hh, *biases, *zero)
    return [e.emit("flip", y, axes=(0,)) if backwards else y, *ends]


def _steps(
    e: Emitter, activation: str, x: Value, state: Value, weights: list[Value], *, backwards: bool
) -> list[Value]:
    """Step by step: the products with the inputs are one product, those with the state follow each other."""
    w_ih, w_hh, *biases = weights
    bias = [e.emit("add", *biases)] if biases else []
    inputs = e.emit("linear", x, w_ih, *bias)
    found: list[Value] = []
    for t in range(x.shape[0])[:: -1 if backwards else 1]:
        state = e.emit(activation, e.emit("add", _part(e, inputs, t), e.emit("linear", state, w_hh)))
        found.append(e.reshape(state, (1, *state.shape)))
    return [e.concat(found[::-1] if backwards else found, 0), state]
