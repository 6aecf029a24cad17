"""Reads an optimizer of PyTorch or of this package into the plain record that the compiler takes."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Mapping
from typing import Any

import torch

from .._errors import Error
from .._logging import logger
from ._base import Optimizer
from ._optimizers import LAMB, SGD, Adam, AdamW, RMSprop


@dataclasses.dataclass(frozen=True)
class Value:
    """A hyper-parameter: its value, and whether it is built into the program."""

    value: float
    constant: bool = True

    def __str__(self) -> str:
        return f"{self.value:g}{' (const)' if self.constant else ''}"


@dataclasses.dataclass(frozen=True)
class GroupSpec:
    """The hyper-parameters of one group, and the identities of its parameters in order."""

    values: Mapping[str, Value]
    parameters: tuple[torch.Tensor, ...] = dataclasses.field(default=(), compare=False, repr=False)


@dataclasses.dataclass(frozen=True)
class OptimizerSpec:
    """An optimizer as the compiler sees it. Two that compare equal need no update of the program.

    ``rule`` is one of ``sgd``, ``adam``, ``adamw``, ``rmsprop`` and ``lamb``. Types are names: ``float16`` or
    ``float32``.
    """

    rule: str
    defaults: GroupSpec
    groups: tuple[GroupSpec, ...]
    loss_scaling: Value
    accum_type: str = "float32"
    first_moment_type: str = "float32"
    second_moment_type: str = "float32"
    max_grad_norm: float | None = None
    bias_correction: bool = True
    centered: bool = False
    tensorflow_variant: bool = False

    def constants(self) -> dict[str, float]:
        """Everything that is built into the program; a later optimizer must agree on it."""
        found = {f"defaults.{k}": v.value for k, v in self.defaults.values.items() if v.constant}
        for number, group in enumerate(self.groups):
            found |= {f"group {number} {k}": v.value for k, v in group.values.items() if v.constant}
        if self.loss_scaling.constant:
            found["loss_scaling"] = self.loss_scaling.value
        return found


# AdamW before Adam: since PyTorch 2.6 the first derives from the second.
_RULES: tuple[tuple[type, type, str], ...] = (
    (SGD, torch.optim.SGD, "sgd"),
    (AdamW, torch.optim.AdamW, "adamw"),
    (Adam, torch.optim.Adam, "adam"),
    (RMSprop, torch.optim.RMSprop, "rmsprop"),
    (LAMB, LAMB, "lamb"),
)
_GROUP_VALUES = {
    "sgd": ("lr", "momentum", "dampening", "weight_decay"),
    "adam": ("lr", "betas", "eps", "weight_decay"),
    "adamw": ("lr", "betas", "eps", "weight_decay"),
    "rmsprop": ("lr", "momentum", "alpha", "eps", "weight_decay"),
    "lamb": ("lr", "betas", "eps", "weight_decay", "max_weight_norm"),
}
_DISPLAY = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "rmsprop": "RMSprop", "lamb": "LAMB"}
SUBCLASS_WARNING = (
    "Poptorch does not run Python optimizer code directly: %s is compiled as %s, from its numbers, and what it adds to "
    "that is passed over."
)


MINIMUM = sys.float_info.min
"""Of what must be above 0, since numbers are divided by it."""

OF_SCHEDULERS = frozenset({"step", "initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum", "swa_lr"})
"""What PyTorch's schedulers of learning rates leave in the optimizers and groups that they drive."""


class AttributeTracker:
    """Warns once about each attribute of an optimizer that appears after the first look and is not used."""

    def __init__(self, relaxed: bool = False) -> None:
        self.relaxed = relaxed
        self._first: dict[str, set[str]] = {}
        self._warned: set[tuple[str, str]] = set()
        self._warned_subclass = False

    def look(self, place: str, present: set[str], rule: str) -> None:
        """Compare the attributes ``present`` at ``place`` with those of the first look."""
        first = self._first.setdefault(place, present)
        for name in sorted(present - first - OF_SCHEDULERS):
            if (place, name) not in self._warned and not self.relaxed:
                self._warned.add((place, name))
                logger.warning("Ignoring unexpected %s attribute '%s' in %s optimizer", place, name, _DISPLAY[rule])

    def subclass(self, kind: type, base: type) -> None:
        """Warn once that the code of a derived optimizer does not run."""
        if not self._warned_subclass:
            self._warned_subclass = True
            logger.warning(SUBCLASS_WARNING, kind.__name__, base.__name__)


def read(optimizer: torch.optim.Optimizer, tracker: AttributeTracker | None = None) -> OptimizerSpec:
    """The record of an optimizer.

    Args:
        optimizer: of ``poptorch.optim``, or SGD, Adam, AdamW or RMSprop of ``torch.optim``.
        tracker: warns about attributes that are not used; None does not.

    Raises:
        Error: for any other optimizer, or a setting that no built-in update has.
    """
    for own, upstream, rule in _RULES:
        if isinstance(optimizer, upstream):
            if tracker is not None and type(optimizer) not in (own, upstream):
                tracker.subclass(type(optimizer), own if isinstance(optimizer, own) else upstream)
            if rule == "adam" and _of_all_groups(optimizer, "decoupled_weight_decay"):
                rule = "adamw"
            return _read(optimizer, rule, own, tracker)
    raise Error(
        f"The optimizer {type(optimizer).__name__} is not supported: use SGD, Adam, AdamW, RMSprop or LAMB of "
        "poptorch.optim."
    )


def _read(optimizer: Any, rule: str, own: type, tracker: AttributeTracker | None) -> OptimizerSpec:
    _refuse(optimizer, rule)
    if tracker is not None:
        ignored = ("defaults", "state", "param_groups")
        attributes = {k for k in vars(optimizer) if not k.startswith("_") and k not in ignored}
        tracker.look("optimizer", attributes, rule)
        for number, group in enumerate(optimizer.param_groups):
            tracker.look(f"group {number}", set(group), rule)
    names = list(_GROUP_VALUES[rule])
    combined = rule == "sgd" and bool(getattr(optimizer, "use_combined_accum", False))
    if combined:
        names.append("velocity_scaling")
    scale = _number("loss_scaling", getattr(optimizer, "loss_scaling", 1.0), least=MINIMUM)
    loss_scaling = Value(scale, _is_constant(optimizer, "loss_scaling", 1.0, own))
    norm = getattr(optimizer, "max_grad_norm", None)

    def values(source: Mapping[str, Any]) -> GroupSpec:
        found = _values(optimizer, source, names, own)
        if rule == "sgd" and not combined:
            # The separate variant keeps the velocity at the scale of the loss.
            found["velocity_scaling"] = loss_scaling
        return GroupSpec(found, tuple(source.get("params", ())))

    return OptimizerSpec(
        rule=rule,
        defaults=values(optimizer.defaults),
        groups=tuple(values(g) for g in optimizer.param_groups),
        loss_scaling=loss_scaling,
        accum_type=_type_name(optimizer, "accum_type"),
        first_moment_type=_type_name(
            optimizer, "velocity_accum_type" if rule == "sgd" else "first_order_momentum_accum_type"
        ),
        second_moment_type=_type_name(optimizer, "second_order_momentum_accum_type"),
        max_grad_norm=None if norm is None else _number("max_grad_norm", norm, least=0.0),
        bias_correction=bool(getattr(optimizer, "bias_correction", True)),
        centered=_of_all_groups(optimizer, "centered"),
        tensorflow_variant=bool(getattr(optimizer, "use_tf_variant", False)),
    )


def _refuse(optimizer: Any, rule: str) -> None:
    for group in optimizer.param_groups:
        if group.get("amsgrad"):
            raise Error(f"{_DISPLAY[rule]} with amsgrad=True is not supported: leave amsgrad out.")
        if group.get("maximize"):
            raise Error(f"{_DISPLAY[rule]} with maximize=True is not supported: negate the loss.")
        if group.get("nesterov") and getattr(optimizer, "use_combined_accum", False):
            raise Error("SGD with nesterov=True needs use_combined_accum=False.")


def _of_all_groups(optimizer: Any, name: str) -> bool:
    """Whether the groups have this turned on.

    Raises:
        Error: some have, and others have not.
    """
    found = {bool(group.get(name)) for group in optimizer.param_groups}
    if len(found) > 1:
        raise Error(f"All groups of an optimizer must have the same {name}: one kind of update is compiled for them.")
    return any(found)


def _values(optimizer: Any, source: Mapping[str, Any], names: list[str], own: type) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for name in names:
        value = source.get(name, optimizer.defaults.get(name))
        constant = _is_constant(optimizer, name, value, own)
        if name == "betas":
            if not isinstance(value, tuple | list) or len(value) != 2:
                raise Error(f"The optimizer's betas must be two numbers, not {value!r}.")
            for key, beta in zip(("beta1", "beta2"), value, strict=True):
                found[key] = Value(_number("betas", beta), constant)
        elif name == "max_weight_norm":
            found[name] = Value(float("inf") if value is None else _number(name, value, least=0.0), constant)
        else:
            found[name] = Value(_number(name, value, least=MINIMUM if name == "velocity_scaling" else None), constant)
    if source.get("nesterov"):
        found["nesterov"] = Value(1.0)
    return found


def _number(name: str, value: Any, *, least: float | None = None) -> float:
    try:
        number = math.nan if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if math.isnan(number):
        raise Error(f"The optimizer's {name} must be a number, not {value!r}.")
    divides = least == MINIMUM
    if least is not None and (number < least or (divides and math.isinf(number))):
        bounds = "above 0 and finite" if divides else f"{least:g} or more"
        raise Error(f"The optimizer's {name} must be {bounds}, not {value!r}.")
    return number


def _is_constant(optimizer: Any, name: str, value: Any, own: type) -> bool:
    """Whether an attribute is built in: unmarked ones here; in PyTorch's optimizers those left at default."""
    if isinstance(optimizer, Optimizer):
        allowed = optimizer.variable_attrs._allowed_attributes
        return name not in allowed or optimizer.variable_attrs.isConstant(name)
    if name == "lr":
        return False
    default = _upstream_defaults(type(optimizer)).get(name, value)
    return bool(value == default)


def _upstream_defaults(kind: type) -> dict[str, Any]:
    upstream = next(u for _, u, _ in _RULES if issubclass(kind, u))
    return upstream([torch.zeros(1)], lr=1.0).defaults


def _type_name(optimizer: Any, attribute: str) -> str:
    return str(getattr(optimizer, attribute, torch.float32)).removeprefix("torch.")


def log_spec(spec: OptimizerSpec, verb: str) -> None:
    """Log the record at debug level, one line for the defaults and one for each group.

    Args:
        spec: the record.
        verb: ``"Setting"`` at the first time, ``"Updating"`` later.
    """
    types = (
        f"accumType={spec.accum_type}, firstOrderMomentumAccumType={spec.first_moment_type}, "
        f"secondOrderMomentumAccumType={spec.second_moment_type}"
    )
    shown = ", ".join(f"default{_camel(k)[0].upper()}{_camel(k)[1:]}={v}" for k, v in spec.defaults.values.items())
    name = _DISPLAY[spec.rule]
    logger.debug("%s graph optimizer with %s: %s, lossScaling=%s, %s", verb, name, shown, spec.loss_scaling, types)
    for number, group in enumerate(spec.groups):
        shown = ", ".join(f"{_camel(k)}={v}" for k, v in group.values.items())
        logger.debug("%s group %d optimizer with %s: %s", verb, number, name, shown)


def _camel(name: str) -> str:
    first, *rest = {"lr": "learning_rate"}.get(name, name).split("_")
    return first + "".join(part.capitalize() for part in rest)
