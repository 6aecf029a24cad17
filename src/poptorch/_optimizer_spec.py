"""From the record of an optimizer to what the compiler takes, and back to the state dictionary that users save."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from abele.compile.passes.loss_scale import FACTOR, WAITED
from abele.compile.passes.update import HYPERS, STATES, Optimiser

from ._errors import Error
from ._logging import log_once
from .optim._spec import OptimizerSpec

LOSS_SCALING = "loss_scaling"
"""Name of the hyper value that scales the loss."""

_KIND = {"sgd": "sgd", "adam": "adam", "adamw": "adam", "rmsprop": "rmsprop", "lamb": "lamb"}
#: The names that users see in ``ipu_param``, as the vendor writes them.
_PARAMETER_NAMES = {
    "learning_rate": "learningRate",
    "momentum": "momentum",
    "dampening": "dampening",
    "weight_decay": "weightDecay",
    "beta1": "beta1",
    "beta2": "beta2",
    "eps": "eps",
    "alpha": "alpha",
    "max_weight_norm": "maxWeightNorm",
}
#: Attributes without which an optimizer keeps a tensor unused.
_USED_BY = {"velocity": "use_momentum", "momentum_buffer": "use_momentum", "gradient_average": "centered"}
#: Plain gradient descent has two numbers of its own in their place.
_RATE, _DECAY = "scaledLearningRate0", "weightDecayScaleFactor0"
_STATE_NAMES = {
    "velocity": "Accl",
    "first_moment": "Accl1",
    "second_moment": "Accl2",
    "square_average": "Accl1",
    "momentum_buffer": "Accl2",
    "gradient_average": "Accl3",
}


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a program updates its weights.

    Attributes:
        spec: the optimizer's record when the program was compiled.
        optimiser: for the compiler.
        loss_scaling: name of its hyper value, or empty.
        accumulator: element type of the gradient accumulators.
        sources: for each group of ``optimiser`` the number of the user's group that it is, or is a weight of.
        divided: whether each weight is a group of its own.
    """

    spec: OptimizerSpec
    optimiser: Optimiser
    loss_scaling: str
    accumulator: str
    sources: tuple[int, ...]
    divided: bool = False

    def hypers(self, spec: OptimizerSpec) -> dict[str, np.ndarray]:
        """Hyper values of the program for an optimizer that agrees with it on everything constant."""
        found = {}
        for index, constants in enumerate(self.optimiser.constants):
            fixed = dict(constants)
            for name in HYPERS[self.optimiser.kind]:
                if name not in fixed:
                    found[f"{name}.{index}"] = np.array(_value(spec, self.sources[index], name), np.float32)
        if self.loss_scaling:
            found[self.loss_scaling] = np.array(spec.loss_scaling.value, np.float32)
        return found

    def check(self, spec: OptimizerSpec) -> None:
        """Refuse an optimizer that differs from the program in something that is built in."""
        before, now = self.spec, spec
        if (before.rule, len(before.groups)) != (now.rule, len(now.groups)):
            raise Error(
                "The optimizer has another rule or another number of groups than the one that the model was compiled "
                f"with ({before.rule}, {len(before.groups)} groups): call destroy() on the model to compile it anew."
            )
        old, new = before.constants(), now.constants()
        changed = [k for k in old if k in new and old[k] != new[k] and not k.startswith("defaults.")]
        changed += [k for k in old if k not in new and not k.startswith("defaults.")]
        if changed:
            raise Error(
                f"The optimizer's {', '.join(changed)} cannot change: it was constant when the model was compiled. "
                "Mark it with optimizer.variable_attrs.markAsVariable before compiling, or call destroy() on the model."
            )


def _user_name(name: str) -> str:
    return "lr" if name == "learning_rate" else name


def _value(spec: OptimizerSpec, group: int, name: str) -> float:
    value = spec.groups[group].values[_user_name(name)].value
    # The program has no infinity among its numbers; no norm reaches this.
    return min(value, float(np.finfo(np.float32).max))


def plan_of(
    spec: OptimizerSpec, names: Mapping[int, str], accumulates: bool, divided: bool = False, adaptive: bool = False
) -> Plan:
    """The plan for an optimizer.

    Args:
        spec: its record.
        names: the name of each trainable weight of the program, by the identity of the parameter.
        accumulates: whether gradients are accumulated.
        divided: give each weight its own numbers, for a loaded state in which those of a group differ.
        adaptive: the scale of the loss follows the gradients.

    Raises:
        Error: for groups that differ in what must be the same for all.
    """
    kind = _KIND[spec.rule]
    groups = tuple(tuple(names[id(p)] for p in g.parameters if id(p) in names) for g in spec.groups)
    sources = tuple(range(len(groups)))
    if divided:
        sources = tuple(index for index in sources for _ in groups[index])
        groups = tuple((name,) for group in groups for name in group)
    constants = []
    for index in sources:
        fixed = [h for h in HYPERS[kind] if spec.groups[index].values[_user_name(h)].constant]
        constants.append(tuple((h, _value(spec, index, h)) for h in fixed))
    scaled = adaptive or not spec.loss_scaling.constant or spec.loss_scaling.value != 1.0
    halves = [t == "float16" for t in (spec.first_moment_type, spec.second_moment_type)]
    if any(halves) and not all(halves) and kind != "sgd":
        log_once(logging.WARNING, "The two moments of the optimizer are kept in one type: float.")
    half_state = halves[0] if kind == "sgd" else all(halves)
    optimiser = Optimiser(
        kind,
        groups,
        tuple(constants),
        _attributes(spec),
        "f16" if half_state else "f32",
        LOSS_SCALING if scaled else "",
        spec.max_grad_norm or 0.0,
    )
    accumulator = {"float16": "f16"}.get(spec.accum_type, "f32") if accumulates else ""
    return Plan(spec, optimiser, LOSS_SCALING if scaled else "", accumulator, sources, divided)


def _attributes(spec: OptimizerSpec) -> tuple[tuple[str, bool], ...]:
    def used(name: str) -> bool:
        return any(name in g.values and (g.values[name].value != 0 or not g.values[name].constant) for g in spec.groups)

    if spec.rule == "sgd":
        nesterov = {bool(g.values.get("nesterov")) for g in spec.groups}
        if len(nesterov) > 1:
            raise Error("SGD with nesterov=True for some groups only is not supported: use it for all or for none.")
        return (("use_momentum", used("momentum")), ("nesterov", nesterov == {True}))
    if spec.rule in ("adam", "adamw"):
        return (("decoupled", spec.rule == "adamw"), ("bias_correction", spec.bias_correction))
    if spec.rule == "rmsprop":
        variant = ("tf_variant", spec.tensorflow_variant)
        return (("centered", spec.centered), ("use_momentum", used("momentum")), variant)
    return (("bias_correction", spec.bias_correction),)


def initial_states(states: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The values of an optimizer's states that do not begin at zero.

    Args:
        states: the names that the program has.
    """
    return {FACTOR: np.array(1.0, np.float32)} if FACTOR in states else {}


def state_dict(plan: Plan, read: Any, states: Mapping[str, Any]) -> dict[str, dict[str, torch.Tensor]]:
    """``{"ipu_state", "ipu_param"}`` of a program.

    Args:
        plan: its plan.
        read: gives the value of a state or hyper value by name.
        states: the names that the program has.
    """
    state, param = {}, {}
    for ours, theirs in _state_names(plan, states).items():
        state[theirs] = torch.from_numpy(np.array(read(ours)))
    for ours, theirs in _parameter_names(plan, states).items():
        for name in theirs:
            param[name] = torch.from_numpy(np.array(read(ours)))
    if _plain_descent(plan):
        param |= _descent_parameters(plan, read, states)
    return {"ipu_state": state, "ipu_param": param}


def _plain_descent(plan: Plan) -> bool:
    return plan.optimiser.kind == "sgd" and not dict(plan.optimiser.attributes)["use_momentum"]


def _number(plan: Plan, group: int, name: str, read: Any, states: Mapping[str, Any]) -> float:
    """A hyper value as the program has it: one of its inputs, or built in."""
    stored = f"{name}.{group}"
    return float(read(stored)) if stored in states else dict(plan.optimiser.constants[group])[name]


def _scale(plan: Plan, read: Any, states: Mapping[str, Any]) -> float:
    return float(read(plan.loss_scaling)) if plan.loss_scaling in states else plan.spec.loss_scaling.value


def _descent_parameters(plan: Plan, read: Any, states: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The two numbers that plain gradient descent has for each weight: ``lr (1 - d) / s`` and ``1 - lr (1 - d) decay``.

    ``d`` is the dampening and ``s`` the loss scaling.
    """
    found = {}
    for index, group in enumerate(plan.optimiser.groups):
        rate = _number(plan, index, "learning_rate", read, states)
        rate *= 1 - _number(plan, index, "dampening", read, states)
        decay = _number(plan, index, "weight_decay", read, states)
        for weight in group:
            found[f"{_RATE}___specific___{weight}"] = torch.tensor(rate / _scale(plan, read, states))
            found[f"{_DECAY}___specific___{weight}"] = torch.tensor(1 - rate * decay)
    return found


def _descent_names(plan: Plan) -> list[tuple[list[str], list[str]]]:
    """For each group the names of its weights' two numbers."""
    return [
        ([f"{_RATE}___specific___{w}" for w in group], [f"{_DECAY}___specific___{w}" for w in group])
        for group in plan.optimiser.groups
    ]


def divides(plan: Plan, given: Mapping[str, Any], states: Mapping[str, Any]) -> bool:
    """Whether a saved state has other numbers for some weights of a group, where the program has one for all."""
    param = given.get("ipu_param") or {}
    rows = list(_parameter_names(plan, states).values())
    if _plain_descent(plan):
        rows += [kind for names in _descent_names(plan) for kind in names]
    found = [[float(param[name]) if name in param else None for name in row] for row in rows]
    return not plan.divided and any(len(set(values)) > 1 for values in found)


def _load_descent(plan: Plan, param: Mapping[str, Any], read: Any, write: Any, states: Mapping[str, Any]) -> None:
    """Write the hyper values behind the numbers of :func:`_descent_parameters`."""
    for index, names in enumerate(_descent_names(plan)):
        rates, decays = ([float(param[n]) for n in kind if n in param] for kind in names)
        rest = 1 - _number(plan, index, "dampening", read, states)
        if rates and rest and f"learning_rate.{index}" in states:
            write(f"learning_rate.{index}", np.array(rates[0] * _scale(plan, read, states) / rest, np.float32))
        rate = _number(plan, index, "learning_rate", read, states) * rest
        if decays and rate and f"weight_decay.{index}" in states:
            write(f"weight_decay.{index}", np.array((1 - decays[0]) / rate, np.float32))


def load_state_dict(plan: Plan, given: Mapping[str, Any], read: Any, write: Any, states: Mapping[str, Any]) -> None:
    """Write what :func:`state_dict` gave; names that are missing keep the program's values."""
    state, param = given.get("ipu_state") or {}, given.get("ipu_param") or {}
    for ours, theirs in _state_names(plan, states).items():
        if theirs in state:
            write(ours, state[theirs].detach().numpy())
    for ours, theirs in _parameter_names(plan, states).items():
        first = next((param[name] for name in theirs if name in param), None)
        if first is not None:
            write(ours, first.detach().numpy())
    if _plain_descent(plan):
        _load_descent(plan, param, read, write, states)


def _state_names(plan: Plan, states: Mapping[str, Any]) -> dict[str, str]:
    found, attributes = {}, dict(plan.optimiser.attributes)
    kinds = [k for k in STATES[plan.optimiser.kind] if attributes.get(_USED_BY.get(k, ""), True)]
    for group in plan.optimiser.groups:
        for weight in group:
            for kind in kinds:
                name = f"optimiser.{kind}.{weight}"
                if name in states:
                    found[name] = f"{_STATE_NAMES[kind]}___{weight}"
    alone = {"optimiser.step": "Step", FACTOR: "lossScaleUpdateFactor", WAITED: "lossScaleWaited"}
    return found | {ours: theirs for ours, theirs in alone.items() if ours in states}


def _parameter_names(plan: Plan, states: Mapping[str, Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for index, group in enumerate(plan.optimiser.groups):
        for ours, theirs in _PARAMETER_NAMES.items() if not _plain_descent(plan) else ():
            if f"{ours}.{index}" in states:
                found[f"{ours}.{index}"] = [f"{theirs}___specific___{weight}" for weight in group]
    if plan.loss_scaling and plan.loss_scaling in states:
        found[plan.loss_scaling] = ["lossScaling_FLOAT"]
    return found
