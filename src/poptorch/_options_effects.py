"""Which options are accepted but change nothing here, and why.

Accepting an option keeps existing programs running; saying that it has no effect keeps that honest. The
message is logged once per process, when the option is set to something else than its default. An option that
gains an effect loses its row.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
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
        "module_namescope_enabled": "operations are known by the user's source lines",
        "show_compilation_progress_bar": "compiling shows no bar",
        "source_location_excludes": "source lines are taken from the first frame outside poptorch and torch",
        "stable_norm": "the moments of a normalisation are always computed so that little cancels",
    },
    "Training": {
        "convolution_dithering": _TIMING,
    },
    "TensorLocation": {
        "location_accumulator": _TIMING,
    },
}

#: Options of the lower layer that the compiler or the engine looks at; all others are recorded only.
POPART_WITH_EFFECT = frozenset(
    {
        "autoRecomputation",
        "automaticLossScalingSettings.binEdgeLocation",
        "automaticLossScalingSettings.enabled",
        "automaticLossScalingSettings.gradientTensorTrackingMethod",
        "automaticLossScalingSettings.thresholdUpperCountProportion",
        "automaticLossScalingSettings.toTrackTensors",
        "automaticLossScalingSettings.updatePeriod",
        "cachePath",
        "convolutionOptions",
        "enableEngineCaching",
        "enableFloatingPointChecks",
        "enableOutlining",
        "enableStochasticRounding",
        "engineOptions",
        "groupNormStridedChannelGrouping",
        "instrumentWithHardwareCycleCounter",
        "partialsTypeMatMuls",
        "syntheticDataMode",
    }
)
#: Engine options that ask for profiles, or say where to.
ENGINE_WITH_EFFECT = frozenset(
    f"autoReport.{name}" for name in ("all", "directory", "outputExecutionProfile", "outputGraphProfile")
)
#: Options of the lower layer that would change numbers: that they do not is worth a warning.
_NUMERIC = frozenset({"enableStableNorm"})


def note(what: str, reason: str, level: int = logging.WARNING) -> None:
    """Say once that something accepted has no effect."""
    log_once(level, f"{what} is accepted but has no effect: {reason}.")


def note_no_effect(group: str, name: str, value: Any, default: Any) -> None:
    """Say once that the option ``name`` of ``group`` has no effect, when that is so."""
    reason = NO_EFFECT.get(group, {}).get(name)
    if reason is not None and value != default:
        note(f"The option {f'{group}.{name}' if group else name}", reason)


def note_optimizer_location(settings: Mapping[str, int]) -> None:
    """Say once which settings of the optimizer's location have no effect: those but for on chip and sharded or not."""
    for name in settings:
        if name not in ("onChip", "useReplicatedTensorSharding", "minElementsForReplicatedTensorSharding"):
            note(f"The option TensorLocation.location_optimizer[{name}]", _TIMING)


def note_popart_no_effect(key: str, value: Any = None) -> None:
    """Say once that an option of the lower layer is recorded without effect, when that is so."""
    if key == "convolutionOptions" and isinstance(value, Mapping):
        for name in value:
            if name != "partialsType":
                note_popart_no_effect(f"{key}[{name}]")
    elif key == "engineOptions" and isinstance(value, Mapping):
        for name in value:
            if name not in ENGINE_WITH_EFFECT:
                note_popart_no_effect(f"{key}[{name}]")
    elif key not in POPART_WITH_EFFECT:
        level = logging.WARNING if key in _NUMERIC else logging.INFO
        note(f"The option _Popart.{key}", "it steers the vendor's compiler", level)
