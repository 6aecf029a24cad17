"""The optimizers. On the host they step as PyTorch's do; on the device a built-in update with the same rule runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import torch

from .._errors import require
from .._logging import log_once
from ._base import Optimizer, VariableAttributes, given

_HALF_OR_FLOAT = (torch.float16, torch.float32)


def _accumulator(name: str, dtype: torch.dtype | None) -> torch.dtype:
    """The type of an accumulator: float unless the user says half."""
    chosen = torch.float32 if dtype is None else dtype
    require(chosen in _HALF_OR_FLOAT, f"{name} is torch.float16 or torch.float32, not {dtype!r}.")
    return chosen


def _attributes(passed: dict[str, Any], group: Iterable[str], own: Iterable[str]) -> VariableAttributes:
    """What the user passed is variable, the rest constant; the learning rate is always variable."""
    allowed = [*group, *own]
    return VariableAttributes([a for a in allowed if a == "lr" or passed.get(a) is not None], allowed)


class SGD(Optimizer, torch.optim.SGD):
    """Stochastic gradient descent with momentum.

    Args:
        params: parameters or groups of them.
        lr, momentum, dampening, weight_decay, nesterov, maximize, foreach, differentiable: as in PyTorch.
        loss_scaling: the loss is multiplied by this and the gradients divided by it (default 1).
        velocity_scaling: scales the velocity tensor of the combined variant (default 1).
        use_combined_accum: keep velocity and accumulated gradient in one tensor (combined) or in two
            (separate, the default).
        accum_type: the type of the gradient accumulator.
        velocity_accum_type: the type of the velocity tensor.
        max_grad_norm: clip the norm of all gradients together to this; None does not clip.
    """

    _child_vars = ("loss_scaling",)
    _group_vars = ("lr", "momentum", "dampening", "weight_decay", "nesterov")
    _own = ("use_combined_accum", "loss_scaling", "accum_type", "velocity_accum_type", "max_grad_norm")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        momentum: float | None = None,
        dampening: float | None = None,
        weight_decay: float | None = None,
        nesterov: bool | None = None,
        maximize: bool | None = None,
        foreach: bool | None = None,
        differentiable: bool | None = None,
        loss_scaling: float | None = None,
        velocity_scaling: float | None = None,
        use_combined_accum: bool | None = None,
        accum_type: torch.dtype | None = None,
        velocity_accum_type: torch.dtype | None = None,
        max_grad_norm: float | None = None,
    ) -> None:
        passed = given(locals())
        Optimizer.__init__(self)
        own = ("momentum", "dampening", "weight_decay", "nesterov", "maximize", "foreach", "differentiable")
        torch.optim.SGD.__init__(self, params, lr=lr, **{k: passed[k] for k in own if k in passed})
        self.use_combined_accum = bool(use_combined_accum)
        self.loss_scaling = 1.0 if loss_scaling is None else loss_scaling
        self.accum_type = _accumulator("accum_type", accum_type)
        self.velocity_accum_type = _accumulator("velocity_accum_type", velocity_accum_type)
        self.max_grad_norm = max_grad_norm
        variables: list[str] = list(self._child_vars)
        if self.use_combined_accum:
            variables.append("velocity_scaling")
            # A group may have a velocity scale of its own, so it is an attribute of groups.
            self.defaults["velocity_scaling"] = 1.0 if velocity_scaling is None else velocity_scaling
            for group in self.param_groups:
                group.setdefault("velocity_scaling", self.defaults["velocity_scaling"])
        elif velocity_scaling is not None:
            log_once(
                logging.WARNING,
                "SGD: velocity_scaling is only used with use_combined_accum=True; it is ignored.",
            )
        self.variable_attrs = _attributes(passed, self._group_vars, variables)


class _AdamState(Optimizer):
    """The attributes that the Adam family shares."""

    _types = ("accum_type", "first_order_momentum_accum_type", "second_order_momentum_accum_type")
    _own = ("loss_scaling", *_types, "max_grad_norm")
    loss_scaling: float

    def _take(
        self,
        passed: dict[str, Any],
        group_vars: Iterable[str],
        max_grad_norm: float | None = None,
    ) -> None:
        self.loss_scaling = passed.get("loss_scaling", 1.0)
        for name in self._types:
            setattr(self, name, _accumulator(name, passed.get(name)))
        self.max_grad_norm = max_grad_norm
        self.variable_attrs = _attributes(passed, group_vars, ("loss_scaling",))


_ADAM_ARGUMENTS = (
    "lr",
    "betas",
    "eps",
    "weight_decay",
    "amsgrad",
    "foreach",
    "maximize",
    "capturable",
    "differentiable",
    "fused",
)


class Adam(_AdamState, torch.optim.Adam):
    """Adam, with the weight decay added to the gradient (L2).

    Args:
        params: parameters or groups of them.
        lr, betas, eps, weight_decay, amsgrad, foreach, maximize, capturable, differentiable, fused: as in
            PyTorch; ``amsgrad`` cannot be compiled.
        loss_scaling: the loss is multiplied by this and the gradients divided by it (default 1).
        accum_type: the type of the gradient accumulator.
        first_order_momentum_accum_type, second_order_momentum_accum_type: the types of the moments.
        max_grad_norm: clip the norm of all gradients together to this; None does not clip.
    """

    _child_vars = ("loss_scaling",)
    _group_vars = ("lr", "betas", "eps", "weight_decay", "amsgrad")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | None = None,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        amsgrad: bool | None = None,
        foreach: bool | None = None,
        maximize: bool | None = None,
        capturable: bool | None = None,
        differentiable: bool | None = None,
        fused: bool | None = None,
        loss_scaling: float | None = None,
        accum_type: torch.dtype | None = None,
        first_order_momentum_accum_type: torch.dtype | None = None,
        second_order_momentum_accum_type: torch.dtype | None = None,
        max_grad_norm: float | None = None,
    ) -> None:
        passed = given(locals())
        Optimizer.__init__(self)
        torch.optim.Adam.__init__(self, params, **{k: passed[k] for k in _ADAM_ARGUMENTS if k in passed})
        self._take(passed, self._group_vars, max_grad_norm)


class AdamW(_AdamState, torch.optim.AdamW):
    """Adam with decoupled weight decay.

    Args:
        params: parameters or groups of them.
        lr, betas, eps, weight_decay, amsgrad, maximize, foreach, capturable, differentiable, fused: as in
            PyTorch; ``amsgrad`` cannot be compiled.
        loss_scaling: the loss is multiplied by this and the gradients divided by it (default 1).
        bias_correction: correct the moments for their start at zero (default True).
        accum_type: the type of the gradient accumulator.
        first_order_momentum_accum_type, second_order_momentum_accum_type: the types of the moments.
        max_grad_norm: clip the norm of all gradients together to this; None does not clip.
    """

    _child_vars = ("loss_scaling",)
    _group_vars = ("lr", "betas", "weight_decay", "eps", "amsgrad")
    _own = (*_AdamState._own, "bias_correction")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | None = None,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        amsgrad: bool | None = None,
        maximize: bool | None = None,
        foreach: bool | None = None,
        capturable: bool | None = None,
        differentiable: bool | None = None,
        fused: bool | None = None,
        loss_scaling: float | None = None,
        bias_correction: bool | None = None,
        accum_type: torch.dtype | None = None,
        first_order_momentum_accum_type: torch.dtype | None = None,
        second_order_momentum_accum_type: torch.dtype | None = None,
        max_grad_norm: float | None = None,
    ) -> None:
        passed = given(locals())
        Optimizer.__init__(self)
        torch.optim.AdamW.__init__(self, params, **{k: passed[k] for k in _ADAM_ARGUMENTS if k in passed})
        self.bias_correction = True if bias_correction is None else bias_correction
        self._take(passed, self._group_vars, max_grad_norm)


class RMSprop(_AdamState, torch.optim.RMSprop):
    """RMSprop, with the weight decay added to the gradient (L2).

    Args:
        params: parameters or groups of them.
        lr, alpha, eps, weight_decay, momentum, centered, foreach, maximize, differentiable: as in PyTorch.
        loss_scaling: the loss is multiplied by this and the gradients divided by it (default 1).
        accum_type: the type of the gradient accumulator.
        first_order_momentum_accum_type, second_order_momentum_accum_type: the types of the moments.
        use_tf_variant: add ``eps`` under the square root, as TensorFlow does (default False).
    """

    _child_vars = ("loss_scaling",)
    _group_vars = ("lr", "momentum", "weight_decay", "alpha", "eps", "centered")
    _own = (*_AdamState._own, "use_tf_variant")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | None = None,
        alpha: float | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        momentum: float | None = None,
        centered: bool | None = None,
        foreach: bool | None = None,
        maximize: bool | None = None,
        differentiable: bool | None = None,
        loss_scaling: float | None = None,
        accum_type: torch.dtype | None = None,
        first_order_momentum_accum_type: torch.dtype | None = None,
        second_order_momentum_accum_type: torch.dtype | None = None,
        use_tf_variant: bool | None = None,
    ) -> None:
        passed = given(locals())
        Optimizer.__init__(self)
        own = (*self._group_vars, "foreach", "maximize", "differentiable")
        torch.optim.RMSprop.__init__(self, params, **{k: passed[k] for k in own if k in passed})
        self.use_tf_variant = bool(use_tf_variant)
        self._take(passed, self._group_vars)


class LAMB(_AdamState, torch.optim.Optimizer):
    """Layer-wise adaptive moments: Adam's step, scaled for each tensor by the norm of its weights.

    After You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes" (2019).

    Args:
        params: parameters or groups of them.
        lr: the learning rate (default 1e-3).
        betas: the decay of the two moments (default 0.9, 0.999).
        eps: added to the denominator (default 1e-8).
        weight_decay: decoupled weight decay (default 0).
        bias_correction: correct the moments for their start at zero (default True).
        loss_scaling: the loss is multiplied by this and the gradients divided by it (default 1).
        max_weight_norm: the weights' norm counts at most this (default: no limit).
        accum_type: the type of the gradient accumulator.
        first_order_momentum_accum_type, second_order_momentum_accum_type: the types of the moments.
    """

    _child_vars = ("loss_scaling",)
    _group_vars = ("lr", "weight_decay", "betas", "eps", "max_weight_norm")
    _own = (*_AdamState._own, "bias_correction")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | None = None,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        bias_correction: bool | None = None,
        loss_scaling: float | None = None,
        max_weight_norm: float | None = None,
        accum_type: torch.dtype | None = None,
        first_order_momentum_accum_type: torch.dtype | None = None,
        second_order_momentum_accum_type: torch.dtype | None = None,
    ) -> None:
        passed = given(locals())
        Optimizer.__init__(self)
        defaults: dict[str, Any] = {
            "lr": 1e-3,
            "betas": (0.9, 0.999),
            "eps": 1e-8,
            "weight_decay": 0.0,
            "max_weight_norm": None,
        }
        defaults |= {k: passed[k] for k in self._group_vars if k in passed}
        if any(not 0.0 <= beta < 1.0 for beta in defaults["betas"]):
            raise ValueError(f"betas are from 0 up to but not 1, not {defaults['betas']!r}.")
        for name in ("lr", "eps", "weight_decay"):
            if defaults[name] < 0.0:
                raise ValueError(f"{name} is not negative, but {defaults[name]!r} is.")
        torch.optim.Optimizer.__init__(self, params, defaults)
        self.bias_correction = True if bias_correction is None else bias_correction
        self._take(passed, self._group_vars)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update the parameters on the host once.

        Args:
            closure: computes the loss and its gradients again.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(group, parameter)
        return loss

    def _update(self, group: dict[str, Any], parameter: torch.Tensor) -> None:
        gradient, state = parameter.grad, self.state[parameter]
        if not state:
            state["step"] = 0
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        state["step"] += 1
        beta1, beta2 = group["betas"]
        first = state["exp_avg"].mul_(beta1).add_(gradient, alpha=1 - beta1)
        second = state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        if self.bias_correction:
            first = first / (1 - beta1 ** state["step"])
            second = second / (1 - beta2 ** state["step"])
        update = first / (second.sqrt() + group["eps"]) + group["weight_decay"] * parameter
        weight_norm = parameter.norm()
        if group["max_weight_norm"] is not None:
            weight_norm = weight_norm.clamp(max=group["max_weight_norm"])
        update_norm = update.norm()
        scalable = (weight_norm > 0) & (update_norm > 0)
        trust = torch.where(scalable, weight_norm / update_norm, torch.ones_like(update_norm))
        parameter.sub_(update * (group["lr"] * trust))
