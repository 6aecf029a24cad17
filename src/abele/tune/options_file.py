"""Options files: the settings of a point as ``poptorch.Options.loadFromFile`` and ``abele profile`` read them.

Each line is a call on the options, as one would write it after ``options.`` in a program. What the vendor's options
have no word for stands in comments that begin with ``# abele:``, which the vendor's loader passes over:

    replicationFactor(2)
    Training.gradientAccumulation(16)
    # abele: batchSize(4)
    # abele: stages(8)

``batchSize`` is the micro-batch, which a program gives to its data loader; ``stages`` lets the compiler cut a model
that has no blocks of its own, and ``pipeline`` says how the stages take turns.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from abele.compile.passes.sharding import USUAL
from abele.errors import InvalidOption, suggest

OWN = "# abele:"
"""Begins a line that only Abele reads."""

OWN_CALLS: dict[str, tuple[str, type]] = {
    "batchSize": ("batch", int),
    "stages": ("stages", int),
    "pipeline": ("pipeline", str),
    "recompute": ("recompute", str),
}
"""Abele's own calls: the setting of each, and the type of its argument."""

RECOMPUTATION = {0: "checkpoints", 1: "standard", 2: "norm_only", 3: "pipeline", 4: "recompute_all"}
"""The lower layer's ``RecomputationType`` by number, as its option ``autoRecomputation`` takes it."""


def write_options(settings: Mapping[str, Any], train: bool, comments: tuple[str, ...] = ()) -> str:
    """The text of an options file.

    Args:
        settings: those of a ``Point``, by name.
        train: whether they are for training.
        comments: lines for the reader, put first.
    """
    s = settings
    lines = [f"# {comment}" for comment in comments]
    lines.append(f"replicationFactor({s['replicas']})")
    lines.append(f"{'Training.gradientAccumulation' if train else 'deviceIterations'}({s['accumulate']})")
    shares = ", ".join(f'"IPU{i}": {s["memory_proportion"]:g}' for i in range(s["stages"]))
    lines.append(f"setAvailableMemoryProportion({{{shares}}})")
    if s["stages"] & (s["stages"] - 1):
        lines.append("autoRoundNumIPUs(True)")
    if s["partials"]:
        lines.append(f"Precision.setPartialsType(torch.{'half' if s['partials'] == 'f16' else 'float'})")
    place = "".join(
        text
        for text, asked in (
            (".useOnChipStorage(False)", s["offload"]),
            (".useReplicatedTensorSharding(True)", s["shard"]),
            (f".minElementsForReplicatedTensorSharding({s['shard']})", s["shard"] not in (0, USUAL)),
        )
        if asked
    )
    if place:
        lines.append(f"TensorLocations.setOptimizerLocation(poptorch.TensorLocationSettings(){place})")
    numbers = {name: number for number, name in RECOMPUTATION.items()}
    if numbers.get(s["recompute"], 0):
        lines.append(f'_Popart.set("autoRecomputation", {numbers[s["recompute"]]})')
    elif s["recompute"] not in numbers:
        lines.append(f"{OWN} recompute({s['recompute']!r})")
    lines.append(f"{OWN} batchSize({s['batch']})")
    if s["stages"] > 1:
        lines.append(f"{OWN} stages({s['stages']})")
    if s["pipeline"] != "grouped":
        lines.append(f"{OWN} pipeline({s['pipeline']!r})")
    return "\n".join(lines) + "\n"


def read_options(path: Path | str, train: bool) -> dict[str, Any]:
    """The settings that an options file asks for, by the names of ``abele profile``.

    Calls that decide nothing about what is compiled (``outputMode`` …) are passed over, as is what only concerns
    training or only inference when the other is asked for.

    Raises:
        InvalidOption: the file cannot be read, or a line is no call.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidOption(
            f"The options file {str(path)!r} cannot be read: {error}", remedy="`abele tune` writes one."
        ) from error
    found: dict[str, Any] = {}
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        try:
            if text.startswith(OWN):
                name, value = own_call(text)
                found[OWN_CALLS[name][0]] = value
            elif text and not text.startswith("#"):
                found |= _settings(text, train)
        except (ValueError, SyntaxError, IndexError) as error:
            raise InvalidOption(
                f"Line {number} of {str(path)!r} cannot be read: {text!r} ({error})",
                remedy="Each line is one call on poptorch.Options, such as deviceIterations(4).",
            ) from error
    return found


def own_call(line: str) -> tuple[str, Any]:
    """Name and argument of a line that only Abele reads; ``ValueError`` when it is none."""
    tree = ast.parse(line.strip().removeprefix(OWN).strip(), mode="eval").body
    name = ast.unparse(tree.func) if isinstance(tree, ast.Call) else ast.unparse(tree)
    if not isinstance(tree, ast.Call) or name not in OWN_CALLS:
        raise ValueError(f"Abele's own lines are calls of {' or '.join(OWN_CALLS)}. {suggest(name, OWN_CALLS)}".strip())
    value = _value(tree.args[0])
    kind = OWN_CALLS[name][1]
    if type(value) is not kind or (kind is int and value < 1):
        raise ValueError(f"{name} takes {'a whole number of 1 or more' if kind is int else 'a name in quotes'}")
    return name, value


def _settings(text: str, train: bool) -> dict[str, Any]:
    """What one call of the vendor's decides."""
    tree = ast.parse(text, mode="eval").body
    if not isinstance(tree, ast.Call):
        raise ValueError("it is no call")
    name, values = ast.unparse(tree.func), tree.args
    if name == "replicationFactor":
        return {"replicas": _value(values[0])}
    if name == ("Training.gradientAccumulation" if train else "deviceIterations"):
        return {"accumulate": _value(values[0])}
    if name == "setAvailableMemoryProportion":
        return {"memory_proportion": min(_value(values[0]).values())}
    if name == "Precision.setPartialsType":
        return {"partials": "f16" if ast.unparse(values[0]) in ("torch.half", "torch.float16") else "f32"}
    if name == "TensorLocations.setOptimizerLocation" and train:
        place = ast.unparse(values[0])
        least = re.search(r"minElementsForReplicatedTensorSharding\((\d+)\)", place)
        sharded = re.search(r"useReplicatedTensorSharding\((True)?\)", place)
        return {
            "offload": "useOnChipStorage(False)" in place,
            "shard": (int(least[1]) if least else USUAL) if sharded else 0,
        }
    if name == "_Popart.set" and _value(values[0]) == "autoRecomputation" and train:
        return {"recompute": RECOMPUTATION.get(_value(values[1]), "checkpoints")}
    return {}


def _value(node: ast.expr) -> Any:
    return ast.literal_eval(node)
