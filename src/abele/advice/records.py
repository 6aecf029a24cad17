"""The records: a program that is advised on, a change that might be worth a compile, and what it gave."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from abele import programs
from abele.charge.spent import ACTIVATIONS, OPTIMIZER, WEIGHTS
from abele.cost.profile import Profile
from abele.errors import AbeleError

DEFAULTS: Mapping[str, Any] = {
    name: parameter.default
    for function in (programs.load, programs.compile_options)
    for name, parameter in inspect.signature(function).parameters.items()
    if parameter.default is not inspect.Parameter.empty and name != "weights"
}
"""The settings of ``abele profile`` by name, but for the model and the system, with their defaults. ``accumulate``
defaults to ``programs.usual_accumulation`` there."""

MOVED = {"offload": OPTIMIZER, "offload_weights": WEIGHTS, "offload_activations": ACTIVATIONS}
"""Settings that move tensors to streaming memory, and which, as ``Profile.spent`` names them."""


@dataclass(frozen=True, slots=True)
class Advice:
    """One change that was compiled.

    Attributes:
        text: the change in words.
        settings: what changes, by the names of ``DEFAULTS``.
        command: that applies it; empty where no command says it.
        kind: ``fit`` where it is given to a program that does not fit, else ``speed``.
        fits: whether the changed program does.
        bytes: on its fullest tile; ``gain_bytes`` fewer than before.
        throughput: in samples a second.
        cycles: of one device iteration; ``gain_cycles`` fewer than before for a sample.
        error: why it could not be compiled, in place of the figures; or empty.
    """

    text: str
    settings: Mapping[str, Any]
    command: str
    kind: str
    fits: bool = False
    bytes: int = 0
    throughput: float = 0.0
    cycles: float = 0.0
    gain_bytes: int = 0
    gain_cycles: float = 0.0
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return asdict(self)


def tried(
    text: str, settings: Mapping[str, Any], command: str, kind: str, before: Profile, compiled: Callable[[], Profile]
) -> Advice:
    """The advice of a change that ``compiled`` compiles and charges, against the profile ``before`` it."""
    try:
        after = compiled()
    except AbeleError as error:
        return Advice(text, settings, command, kind, error=str(error))
    return Advice(
        text,
        settings,
        command,
        kind,
        after.memory.fits,
        after.memory.max,
        after.throughput,
        after.cycles.total,
        before.memory.max - after.memory.max,
        before.cycles.total / before.samples - after.cycles.total / after.samples,
    )


@dataclass(frozen=True)
class Program:
    """A program that is advised on.

    Attributes:
        profile: as it is.
        settings: as it is, by the names of ``DEFAULTS``; ``batch`` and ``accumulate`` are whole numbers.
        train: whether it is trained.
        ipus: of the system; ``tiles`` of an IPU, those that may be set aside for transfers too.
        placed: its own annotations say what lies on which IPU.
        shares: for each number of stages that it can be cut into, the share of the state that falls to the heaviest,
            see ``split.shares`` and ``split.heaviest``.
        free: the settings that may change.
        compiled: compiles and charges it with changed settings; raises ``AbeleError`` where that cannot be.
        command: that applies changed settings.
        iterations: times that it runs in a call, each time on other samples.
    """

    profile: Profile
    settings: Mapping[str, Any]
    train: bool
    ipus: int
    tiles: int
    placed: bool
    free: frozenset[str]
    shares: Mapping[int, float]
    compiled: Callable[[Mapping[str, Any]], Profile]
    command: Callable[[Mapping[str, Any]], str] = field(default=lambda changed: "")
    iterations: int = 1


@dataclass(frozen=True, slots=True)
class Change:
    """A change that might help.

    Attributes:
        text: in words, for the first of the settings; ``{}`` in it stands for ``counted``'s value.
        rungs: the settings that change; several where a setting has several values worth trying, each further than
            the one before. ``start`` is the one to begin with.
        counted: the setting whose value the text names.
        promise: the share of a sample's time that it could save, by the profile: decides what is tried, and is never
            shown.
    """

    text: str
    rungs: tuple[Mapping[str, Any], ...]
    start: int = 0
    counted: str = ""
    promise: float = 0.0

    def worded(self, changed: Mapping[str, Any]) -> str:
        """The text for one of the rungs."""
        return self.text.format(changed[self.counted]) if self.counted else self.text


def profile_command(model: str, system: str, settings: Mapping[str, Any]) -> str:
    """The command ``abele profile`` for a model, whole: what is not a default is on it.

    Args:
        model, system: as the command takes them.
        settings: by the names of ``DEFAULTS``.
    """
    words = ["abele", "profile", model, "--system", system]
    usual = {"accumulate": programs.usual_accumulation(settings["stages"], settings["phased"])}
    for name, default in {**DEFAULTS, **usual}.items():
        value = settings[name]
        if value != default:
            flag = f"--{name.replace('_', '-')}"
            words += [flag] if value is True else [flag, str(value)]
    return shlex.join(words)
