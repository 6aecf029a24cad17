"""Options files: the settings of a point as ``poptorch.Options.loadFromFile`` and ``abele profile`` read them.

Each line is a call on the options, as one would write it after ``options.`` in a program. What the vendor's options
have no word for stands in comments that begin with ``# abele:``, which the vendor's loader passes over:

    replicationFactor(2)
    Training.gradientAccumulation(16)
    # abele: batchSize(4)
    # abele: stages(8)
    # abele: system('bow-pod16')

``system`` is the machine that the settings were found for; ``batchSize`` is the micro-batch, which a program gives to
its data loader; ``stages`` lets the compiler cut a model that has no blocks of its own, and ``pipeline`` says how the
stages take turns.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from abele.compile.passes.recompute import HOW
from abele.compile.passes.sharding import USUAL
from abele.errors import InvalidOption, suggest
from abele.schedule.records import PIPELINES

OWN = "# abele:"
"""Begins a line that only Abele reads."""

OWN_CALLS: dict[str, tuple[str, Sequence[str] | None]] = {
    "system": ("system", None),
    "batchSize": ("batch", ()),
    "stages": ("stages", ()),
    "pipeline": ("pipeline", PIPELINES),
    "recompute": ("recompute", HOW),
}
"""Abele's own calls: the setting of each, and the names that it takes; a whole number where there are none, any text
where that is ``None``."""

RECOMPUTATION = {0: "checkpoints", 1: "standard", 2: "norm_only", 3: "pipeline", 4: "recompute_all"}
"""The lower layer's ``RecomputationType`` by number, as its option ``autoRecomputation`` takes it."""


def write_options(settings: Mapping[str, Any], train: bool, comments: tuple[str, ...] = (), system: str = "") -> str:
    """The text of an options file.

    Args:
        settings: those of a ``Point``, by name.
        train: whether they are for training.
        comments: lines for the reader, put first.
        system: the machine, by name or as ``file.py:name``, or empty.
    """
    lines = [f"# {comment}" for comment in comments]
    if system:
        lines.append(f"{OWN} system({system!r})")
    return "\n".join([*lines, *option_lines(settings, train)]) + "\n"


def option_lines(settings: Mapping[str, Any], train: bool, changed: Iterable[str] | None = None) -> list[str]:
    """The lines for settings by the names of ``abele profile``.

    Args:
        settings: all that a ``Point`` has, and perhaps ``offload_weights`` and ``offload_activations``.
        train: whether they are for training.
        changed: only the lines that say these settings, also where they say what is usual; ``None``: all lines.
    """
    s = settings
    shares = ", ".join(f'"IPU{i}": {s["memory_proportion"]:g}' for i in range(s["stages"]))
    numbers = {name: number for number, name in RECOMPUTATION.items()}
    number = numbers.get(s["recompute"])
    again = f"{OWN} recompute({s['recompute']!r})" if number is None else f'_Popart.set("autoRecomputation", {number})'
    partials = f"Precision.setPartialsType(torch.{'half' if s['partials'] == 'f16' else 'float'})"
    accumulate = "Training.gradientAccumulation" if train else "deviceIterations"
    weights, activations = s.get("offload_weights", False), s.get("offload_activations", False)
    optimizer = _location("Optimizer", s["offload"], s["shard"])
    lines = [
        (("replicas",), True, f"replicationFactor({s['replicas']})"),
        (("accumulate",), True, f"{accumulate}({s['accumulate']})"),
        (("memory_proportion",), True, f"setAvailableMemoryProportion({{{shares}}})"),
        (("partials",), s["partials"], partials),
        (("offload", "shard"), s["offload"] or s["shard"], optimizer),
        (("offload_weights",), weights, _location("Weight", weights)),
        (("offload_activations",), activations, _location("Activation", activations)),
        (("recompute",), number != 0, again),
        (("batch",), True, f"{OWN} batchSize({s['batch']})"),
        (("stages",), s["stages"] > 1, f"{OWN} stages({s['stages']})"),
        (("pipeline",), s["pipeline"] != "grouped", f"{OWN} pipeline({s['pipeline']!r})"),
    ]
    if s["stages"] & (s["stages"] - 1):
        lines.insert(3, (("stages",), True, "autoRoundNumIPUs(True)"))
    asked = None if changed is None else set(changed)
    return [line for names, unusual, line in lines if (unusual if asked is None else asked.intersection(names))]


def _location(what: str, off_chip: bool, shard: int = 0) -> str:
    """The line for where tensors lie, and from how many elements on they are spread over the replicas (0: never)."""
    place = f".useOnChipStorage({not off_chip})" if off_chip or not shard else ""
    place += ".useReplicatedTensorSharding(True)" if shard else ""
    place += f".minElementsForReplicatedTensorSharding({shard})" if shard not in (0, USUAL) else ""
    return f"TensorLocations.set{what}Location(poptorch.TensorLocationSettings(){place})"


def read_options(path: Path | str, train: bool) -> dict[str, Any]:
    """The settings that an options file asks for, by the names of ``abele profile``, and perhaps its ``system``.

    The vendor's calls that ``abele profile`` has no setting for (``outputMode`` …) are passed over, as is what only
    concerns training or only inference when the other is asked for.

    Raises:
        InvalidOption: the file cannot be read, or a line is no call that there is, with arguments that it takes.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidOption(
            f"The options file {str(path)!r} cannot be read: {error}", remedy="`abele tune` writes one."
        ) from error
    return read_lines(lines, str(path), train)


def read_lines(lines: Iterable[str], name: str, train: bool) -> dict[str, Any]:
    """The same for lines that came from elsewhere, as ``name`` says."""
    found: dict[str, Any] = {}
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        try:
            if text.startswith(OWN):
                call, value = own_call(text)
                found[OWN_CALLS[call][0]] = value
            elif text and not text.startswith("#"):
                options = _Named()
                evaluate_call(f"options.{text}", {"options": options, "poptorch": _Named(), "torch": _Named()})
                for call, arguments, named in options._calls:
                    found |= _settings(call, arguments, named, train)
        except (ValueError, SyntaxError, RecursionError) as error:
            why = error.msg if isinstance(error, SyntaxError) else error
            raise InvalidOption(
                f"Line {number} of {name!r} cannot be read: {text[:100]!r} ({why})",
                remedy="Each line is one call on poptorch.Options, such as deviceIterations(4).",
            ) from error
    return found


def own_call(line: str) -> tuple[str, Any]:
    """Name and argument of a line that only Abele reads; ``ValueError`` when it is none."""
    tree = ast.parse(line.strip().removeprefix(OWN).strip(), mode="eval").body
    name = ast.unparse(tree.func) if isinstance(tree, ast.Call) else ast.unparse(tree)
    if not isinstance(tree, ast.Call) or name not in OWN_CALLS:
        raise ValueError(f"Abele's own lines are calls of {' or '.join(OWN_CALLS)}. {suggest(name, OWN_CALLS)}".strip())
    if len(tree.args) != 1 or tree.keywords:
        raise ValueError(f"{name} takes one argument")
    value = ast.literal_eval(tree.args[0])
    known = OWN_CALLS[name][1]
    if known is None:
        if not isinstance(value, str) or not value:
            raise ValueError(f"{name} takes a name in quotes")
        return name, value
    if not known:
        return name, _count(name, value)
    if value not in known:
        raise ValueError(f"{name} takes a name in quotes. {suggest(str(value), known)}")
    return name, value


def evaluate_call(text: str, names: Mapping[str, Any]) -> Any:
    """The value of a call whose arguments are literals, members of ``names``, and calls of those.

    Raises:
        SyntaxError: ``text`` is anything else.
    """
    tree = ast.parse(text, mode="eval").body
    if not isinstance(tree, ast.Call):
        raise SyntaxError("a command is a call, such as deviceIterations(4)")
    return _evaluate(tree, names)


def _evaluate(node: ast.expr | None, names: Mapping[str, Any]) -> Any:
    def of(child: ast.expr | None) -> Any:
        return _evaluate(child, names)

    rules: dict[type, Callable[[Any], Any]] = {
        ast.Constant: lambda n: n.value,
        ast.Tuple: lambda n: tuple(of(e) for e in n.elts),
        ast.List: lambda n: [of(e) for e in n.elts],
        ast.Set: lambda n: {of(e) for e in n.elts},
        ast.Dict: lambda n: {of(k): of(v) for k, v in zip(n.keys, n.values, strict=True)},
        ast.Attribute: lambda n: getattr(of(n.value), _allowed(n.attr)),
        ast.Call: lambda n: of(n.func)(*[of(a) for a in n.args], **{k.arg: of(k.value) for k in n.keywords if k.arg}),
    }
    if isinstance(node, ast.Name) and node.id in names:
        return names[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -of(node.operand)
    rule = rules.get(type(node))
    if node is None or rule is None:
        raise SyntaxError(f"{ast.unparse(node) if node else '**'!r} is not allowed in a configuration file")
    return rule(node)


def _allowed(attribute: str) -> str:
    """An attribute that a command may name: public ones, and the group of lower-layer options."""
    if attribute.startswith("_") and attribute != "_Popart":
        raise SyntaxError(f"{attribute!r} is not allowed in a configuration file")
    return attribute


class _Named:
    """Stands for an object of the vendor's: its members have names, and the calls on it are kept in order."""

    def __init__(self, name: str = "", calls: list[tuple[str, tuple, dict[str, Any]]] | None = None) -> None:
        self._name = name
        self._calls: list[tuple[str, tuple, dict[str, Any]]] = [] if calls is None else calls

    def __getattr__(self, name: str) -> _Named:
        return _Named(f"{self._name}.{name}".lstrip("."), self._calls)

    def __call__(self, *arguments: Any, **named: Any) -> _Named:
        self._calls.append((self._name, arguments, named))
        return _Named("", self._calls)


def _settings(name: str, arguments: tuple, named: Mapping[str, Any], train: bool) -> dict[str, Any]:
    """What one call of the vendor's decides."""
    if name in PASSED_OVER:
        return {}
    if name not in _CALLS:
        raise ValueError(f"poptorch.Options has no {name}. {suggest(name, (*_CALLS, *PASSED_OVER))}".strip())
    parameters, phase, read = _CALLS[name]
    missing = parameters[len(arguments) :]
    if len(arguments) > len(parameters) or set(named) != set(missing):
        raise ValueError(f"{name} takes {' and '.join(parameters)}")
    found = read(*arguments, *(named[parameter] for parameter in missing))
    return found if phase in (None, train) else {}


def _count(name: str, value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(f"{name} takes a whole number of 1 or more")
    return value


def _share(proportions: Any) -> dict[str, Any]:
    """The least, since all IPUs are planned alike."""
    if not isinstance(proportions, Mapping) or not proportions:
        raise ValueError('it takes the proportion of each IPU, as in {"IPU0": 0.5}')
    for key, value in proportions.items():
        if not re.fullmatch(r"IPU\d+", str(key)) or type(value) not in (int, float) or not 0 < value <= 1:
            raise ValueError("a proportion is that of an IPU by its name, as IPU0, and above 0 and at most 1")
    return {"memory_proportion": min(proportions.values())}


def _partials(dtype: Any) -> dict[str, Any]:
    types = {"half": "f16", "float16": "f16", "float": "f32", "float32": "f32"}
    if not isinstance(dtype, _Named) or dtype._name not in types:
        raise ValueError("the partials type is torch.float or torch.half")
    return {"partials": types[dtype._name]}


def _lower_layer(key: Any, value: Any) -> dict[str, Any]:
    if key != "autoRecomputation":
        return {}
    if type(value) is not int or value not in RECOMPUTATION:
        raise ValueError(f"autoRecomputation is one of {', '.join(map(str, RECOMPUTATION))}")
    return {"recompute": RECOMPUTATION[value]}


def _located(location: Any) -> dict[str, Any]:
    """The last argument of each setter of a ``TensorLocationSettings``, by its name."""
    calls = location._calls if isinstance(location, _Named) else []
    if not calls or calls[0][0] != "TensorLocationSettings":
        raise ValueError("a location is a poptorch.TensorLocationSettings()")
    return {name: next(iter((*arguments, *named.values())), True) for name, arguments, named in calls[1:]}


def _optimizer_at(location: Any) -> dict[str, Any]:
    place = _located(location)
    least = place.get("minElementsForReplicatedTensorSharding", USUAL)
    if type(least) is not int or least < 0:
        raise ValueError("minElementsForReplicatedTensorSharding takes a whole number")
    sharded = place.get("useReplicatedTensorSharding", False)
    return {"offload": not place.get("useOnChipStorage", True), "shard": max(1, least) if sharded else 0}


def _off_chip(setting: str) -> Callable[[Any], dict[str, Any]]:
    return lambda location: {setting: not _located(location).get("useOnChipStorage", True)}


_CALLS: dict[str, tuple[tuple[str, ...], bool | None, Callable[..., dict[str, Any]]]] = {
    "replicationFactor": (("replication_factor",), None, lambda n: {"replicas": _count("replicationFactor", n)}),
    "deviceIterations": (("device_iterations",), False, lambda n: {"accumulate": _count("deviceIterations", n)}),
    "Training.gradientAccumulation": (
        ("gradient_accumulation",),
        True,
        lambda n: {"accumulate": _count("gradientAccumulation", n)},
    ),
    "setAvailableMemoryProportion": (("available_memory_proportion",), None, _share),
    "Precision.setPartialsType": (("dtype",), None, _partials),
    "TensorLocations.setOptimizerLocation": (("location",), True, _optimizer_at),
    "TensorLocations.setWeightLocation": (("location",), None, _off_chip("offload_weights")),
    "TensorLocations.setActivationLocation": (("location",), True, _off_chip("offload_activations")),
    "TensorLocations.numIOTiles": (("num_tiles",), None, lambda n: {"io_tiles": _count("numIOTiles", n)}),
    "_Popart.set": (("key", "value"), True, _lower_layer),
}
"""Calls of the vendor's that are settings here: their parameters, whether they concern training alone (True),
inference alone (False) or both, and what they decide."""

_OTHERS = """
    Distributed.configureProcessId Distributed.disable Distributed.setEnvVarNames Jit.traceModel
    Precision.enableFloatingPointExceptions Precision.enableStochasticRounding Precision.halfFloatCasting
    Precision.runningStatisticsAlwaysFloat TensorLocations.setAccumulatorLocation
    Training.accumulationAndReplicationReductionType Training.setAutomaticLossScaling
    Training.setConvolutionDithering Training.setMeanAccumulationAndReplicationReductionStrategy
    _Popart.setEngineOptions _Popart.setPatterns anchorTensor appendToLocationExcludes autoRoundNumIPUs
    broadcastBuffers connectionType createOrSet deleteIfExists disableModuleNamescope enableExecutableCaching
    enableProfiling enableStableNorm enableSyntheticData from_json inputReplicaGrouping loadFromFile logCycleCount
    logDir maxRepeatLogs modelName outputMode randomSeed relaxOptimizerAttributesChecks set setExecutionStrategy
    showCompilationProgressBar sourceLocationExcludes syncPattern updatableNamedBuffers useIpuId useIpuModel
    useOfflineIpuTarget
"""
PASSED_OVER = frozenset(_OTHERS.split())
"""The vendor's other calls."""
