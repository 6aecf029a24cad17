"""Marks on inputs and outputs whose transfer with the host is to overlap with compute: where they may stand."""

from __future__ import annotations

from abele.importers.torch.capture import Capture

from ._errors import Error
from .options import Options


def check_overlap(captured: Capture, options: Options, pipelined: bool) -> None:
    """Marks stand on inputs and on outputs, and where tiles are set aside for the transfers.

    Raises:
        Error: one stands elsewhere, or nothing can overlap.
    """
    inputs, outputs = captured.graph.inputs_of("data"), list(captured.graph.outputs_of("anchor").values())
    for mark in captured.overlapped:
        name = f"poptorch.{mark.function}"
        if mark.function == "set_overlap_for_input":
            if mark.value not in inputs.values():
                raise Error(f"{name} applied on a node which is not a tensor input to the model.")
            if mark.used:
                number = list(inputs.values()).index(mark.value)
                raise Error(
                    f"{name} must be the only op applied to an input. This is not the case for input {number} to the "
                    "model. Use what it returns everywhere."
                )
        elif mark.value not in outputs:
            raise Error(f"{name} applied on a node which is not a tensor output to the model.")
        elif outputs.count(mark.value) > 1:
            raise Error(
                f"{name} cannot be used with a tensor that is returned twice. Please check all returned tensors "
                "including those nested in tuples/lists."
            )
    if captured.overlapped and pipelined:
        raise Error(
            "Overlapped IO is not supported with poptorch.PipelinedExecution. If you are using only one IPU, please "
            "switch to poptorch.ShardedExecution."
        )
    if captured.overlapped and not options.TensorLocations.num_io_tiles:
        raise Error(
            "No IO tiles allocated. You must allocate at least 32 IO tiles using "
            "poptorch.Options().TensorLocations.numIOTiles."
        )
