"""Which options are accepted but change nothing here, and why.

Accepting an option keeps existing programs running; saying that it has no effect keeps that honest. The
message is logged once per process, when the option is set to something else than its default. An option that
gains an effect loses its row.
"""

from __future__ import annotations

import logging
from typing import Any

from ._logging import log_once

_NO_DEVICE = "there is no physical device to attach to"
_TIMING = "it changes where data is kept or moved on the real machine, never the results"

NO_EFFECT: dict[str, dict[str, str]] = {
    "": {
        "sync_pattern": "the modelled machine synchronises as the schedule says",
        "ipu_id": _NO_DEVICE,
        "log_dir": "nothing is written there",
        "max_repeat_logs": "the log is short",
        "show_compilation_progress_bar": "compiling shows no bar",
        "source_location_excludes": "source lines are taken from the first frame outside poptorch and torch",
        "available_memory_proportion": _TIMING,
    },
    "Training": {
        "convolution_dithering": _TIMING,
    },
    "Precision": {
        "floating_point_exceptions": "the host's arithmetic does not stop on exceptions",
    },
    "TensorLocation": {
        "num_io_tiles": _TIMING,
        "location_activation": _TIMING,
        "location_weight": _TIMING,
        "location_optimizer": _TIMING,
        "location_accumulator": _TIMING,
    },
}

#: Options of the lower layer that the compiler or the engine looks at; all others are recorded only.
POPART_WITH_EFFECT = frozenset(
    {
        "syntheticDataMode",
        "enableStochasticRounding",
        "partialsTypeMatMuls",
        "convolutionOptions",
        "instrumentWithHardwareCycleCounter",
        "engineOptions",
        "cachePath",
        "enableEngineCaching",
        "updatableNamedBuffers",
        "autoRecomputation",
    }
)


def note_no_effect(group: str, name: str, value: Any, default: Any) -> None:
    """Say once that the option ``name`` of ``group`` has no effect, when that is so."""
    reason = NO_EFFECT.get(group, {}).get(name)
    if reason is not None and value != default:
        shown = f"{group}.{name}" if group else name
        log_once(logging.WARNING, f"The option {shown} is accepted but has no effect: {reason}.")


def note_popart_no_effect(key: str) -> None:
    """Say once that an option of the lower layer is recorded without effect, when that is so."""
    if key not in POPART_WITH_EFFECT:
        log_once(
            logging.INFO, f"The option _Popart.{key} is recorded but has no effect: it steers the vendor's compiler."
        )
