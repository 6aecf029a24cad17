"""Anchored tensors: values inside the program that come back to the host beside the outputs.

What is anchored becomes an output stream of its own, or is a state that is read after each run. The names are those
that ``getTensorNames`` lists, close to the vendor's: weights and buffers by their own names; inputs and outputs; the
results of operations by module and operation (``fc1/linear:0``); and in training ``Gradient___`` and any name of a
float, ``UpdatedVar___`` and a weight's name, and the scale of the loss.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np

from abele.importers.torch.capture import Capture
from abele.ir import Port, Value
from abele.ir.rules import CONTROL

from ._compiling import scales_loss
from ._errors import Error
from ._logging import logger
from ._outputs import Collector, resolved
from .enums import OutputMode
from .options import Options

GRADIENT, UPDATED = "Gradient___", "UpdatedVar___"
LOSS = "loss"
LOSS_SCALE = "finalLossScale"
"""The number that the loss is multiplied by, in training with automatic loss scaling."""

_STREAM = "anchored."


def stream_names(paths: list[str]) -> list[str]:
    """Names of the output streams, from the paths of the tensors in the model's result."""
    return [f"output.{path}" if path else "output" for path in paths]


@dataclasses.dataclass(frozen=True)
class Anchor:
    """One anchored tensor of a program.

    Attributes:
        source: the output stream that carries it, or the state that it is.
        stream: which of the two.
        mode, period: which values of a call are kept.
    """

    source: str
    stream: bool
    mode: OutputMode
    period: int


def forward_values(captured: Capture) -> dict[str, Value]:
    """The values that a forward computes and takes in, by name."""
    graph = captured.graph
    found = {f"input/{name}": value for name, value in graph.inputs_of("data").items()}
    paths = iter(stream_names([t.name for t in captured.outputs]))
    for value, port in zip(graph.outputs, graph.output_ports, strict=True):
        if port.kind == "anchor" and port.name not in captured.updated_inputs.values():
            found[next(paths)] = value
    times: dict[str, int] = {}
    for op in graph.operations:
        if op.name in CONTROL:
            continue
        stem = f"{op.origin.module.replace('.', '/')}/{op.name}".lstrip("/")
        turn = times.get(stem, 0)
        times[stem] = turn + 1
        for index, value in enumerate(op.results):
            found[f"{stem}:{index}" + (f"/{turn}" if turn else "")] = value
    return found


def names(captured: Capture, host_tensors: Iterable[str], weights: list[str], training: bool) -> list[str]:
    """Names of the tensors inside a program, as users see them.

    Args:
        captured: the model.
        host_tensors: names of its parameters and buffers that the program uses.
        weights: those that are updated.
        training: whether it is trained.
    """
    forward = list(forward_values(captured))
    found = [f"input/{t.name}" for t in captured.inputs if f"input/{t.name}" not in forward]
    found += [*host_tensors, *forward]
    if training:
        found += [LOSS, *(f"{GRADIENT}{w}" for w in weights), *(f"{UPDATED}{w}" for w in weights)]
        found += ["scaledLearningRate0___default___FLOAT", "weightDecayScaleFactor0___default___FLOAT"]
    return found


@dataclasses.dataclass
class Anchors:
    """What a program has to give for the anchors of its options.

    Attributes:
        anchors: by the user's short names.
        ports: further outputs of the captured graph.
        loss_scale: the stream for the scale of the loss, or empty.
    """

    anchors: dict[str, Anchor]
    ports: list[tuple[Value, Port]]
    loss_scale: str = ""

    @classmethod
    def of(
        cls, options: Options, captured: Capture, loss: Value | None, states: Iterable[str], training: bool
    ) -> Anchors:
        """The anchors of these options.

        Args:
            options: of the wrapper.
            captured: the model.
            loss: what is minimised; None in inference.
            states: names of the parameters and buffers that the program has.
            training: whether it is trained.

        Raises:
            Error: for a name that the program does not have.
        """
        made = cls({}, [])
        if not options.anchored_tensors:
            return made
        states, inputs = set(states), captured.graph.inputs_of("state")
        values = forward_values(captured)
        gradients = {n: v for n, v in {**values, **inputs}.items() if v.dtype.is_float}
        if loss is not None:
            values[LOSS] = loss
        for short, asked in options.anchored_tensors.items():
            name, mode, period = asked.long_name, asked.output_mode, asked.output_return_period
            if mode is OutputMode.Default:
                mode, period = resolved(options.output_mode, training), options.output_return_period
            period = period if mode is OutputMode.EveryN else 1
            stream = f"{_STREAM}{len(made.anchors)}"
            if name.removeprefix(UPDATED) in states and (training or not name.startswith(UPDATED)):
                made.anchors[short] = Anchor(name.removeprefix(UPDATED), False, mode, period)
                continue
            if name in values:
                made.ports.append((values[name], Port("anchor", stream)))
            elif training and name.startswith(GRADIENT) and name.removeprefix(GRADIENT) in gradients:
                made.ports.append((gradients[name.removeprefix(GRADIENT)], Port("cotangent", stream)))
            elif training and name == LOSS_SCALE and scales_loss(options):
                made.loss_scale = stream
            else:
                raise Error(
                    f"The tensor {name!r} cannot be anchored as {short!r}: the program has none of that name. "
                    "poptorch_model.getTensorNames() lists those of a compiled model, among them "
                    f"{', '.join([*sorted(states), *values][:12])}."
                )
            made.anchors[short] = Anchor(stream, True, mode, period)
            logger.debug("Anchored %s %s/%d", name, mode.name, period)
        return made

    def collectors(self) -> dict[str, Collector]:
        """New collectors for a call, by short name."""
        return {short: Collector(a.mode, a.period) for short, a in self.anchors.items()}

    def collect(self, collectors: Mapping[str, Collector], results: dict[str, np.ndarray], read, replicas: int) -> None:
        """Take what one run gave, out of ``results`` or from the states.

        Args:
            collectors: of :meth:`collectors`.
            results: what the run returned, by stream; those of anchors are removed.
            read: gives a state's value by name and replica.
            replicas: of the program.
        """
        for short, anchor in self.anchors.items():
            if not anchor.stream:
                collectors[short].add(np.stack([read(anchor.source, r) for r in range(replicas)])[None])
        for stream in {a.source for a in self.anchors.values() if a.stream}:
            array = results.pop(stream)
            for short, anchor in self.anchors.items():
                if anchor.source == stream:
                    collectors[short].add(array)
