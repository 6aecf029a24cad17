"""The optimizer in use: its record, its values on the device, and its state to and from there."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from . import _optimizer_spec, optim
from ._logging import logger
from ._program import Program
from ._whole_states import WholeStates
from .optim._spec import AttributeTracker, OptimizerSpec, log_spec
from .optim._spec import read as read_optimizer

_told: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()


def _tell_of_state(optimizer: torch.optim.Optimizer) -> None:
    """Say, where a program saves or has loaded it, that an optimizer of PyTorch's own has not the device's state."""
    if optimizer in _told or not any(g.get("momentum", 1) for g in optimizer.param_groups):
        return
    _told.add(optimizer)
    name = type(optimizer).__name__
    remedy = f"Use poptorch.optim.{name}, whose state is that of the device."
    if any(isinstance(v, torch.Tensor) and v.dim() for state in optimizer.state.values() for v in state.values()):
        logger.warning("The state that torch.optim.%s has is not taken to the device. %s", name, remedy)

    def tell(optimizer: torch.optim.Optimizer) -> None:
        saved.remove()
        logger.warning("state_dict() of torch.optim.%s has nothing of its state on the device. %s", name, remedy)

    saved = optimizer.register_state_dict_pre_hook(tell)


class Trainer:
    """The optimizer of one wrapped model.

    Args:
        relaxed: do not warn about attributes that are not used.
        refresh: called when the optimizer's state is read, to hand over what training changed.

    Attributes:
        optimizer, spec: the one in use, and its record when it was set last; None in inference.
        ahead: the device's state is newer than what the optimizer knows.
    """

    def __init__(self, relaxed: bool, refresh: Callable[[], None]) -> None:
        self.optimizer: torch.optim.Optimizer | None = None
        self.spec: OptimizerSpec | None = None
        self.ahead = False
        # The state of an optimizer of PyTorch's own, which has no place for it, while no program has it.
        self._kept: tuple[torch.optim.Optimizer, dict[str, Any]] | None = None
        self._tracker = AttributeTracker(relaxed)
        # Weak: the optimizer, which is the user's, must not keep the model.
        self._refresh = weakref.WeakMethod(refresh)

    def set(self, optimizer: torch.optim.Optimizer, program: Program | None, attached: bool) -> None:
        """Use an optimizer, or what has changed in it.

        Raises:
            Error: when it differs from the program's in something that is built in.
        """
        spec = read_optimizer(optimizer, self._tracker)
        if program is not None and program.plan is not None:
            program.plan.check(spec)
            if self.optimizer is not optimizer and attached:
                self.hand_over(program)
        previous, self.optimizer, self.spec = self.optimizer, optimizer, spec
        if previous is not optimizer:
            if isinstance(previous, optim.Optimizer):
                previous.connect(None)
            if isinstance(optimizer, optim.Optimizer):
                optimizer.connect(self._handing_over())
            else:
                _tell_of_state(optimizer)

    def stepped(self) -> None:
        """Let the schedulers of PyTorch, which look for a call of ``step``, know that the weights were updated."""
        if self.optimizer is not None:
            self.optimizer._opt_called = True  # pyright: ignore[reportAttributeAccessIssue]

    def _handing_over(self) -> Callable[[], None]:
        weak = self._refresh

        def refresh() -> None:
            found = weak()
            if found is not None:
                found()

        return refresh

    def attach(self, program: Program) -> None:
        """Give a program that is new on the device the optimizer's values, and its state where there is one."""
        self.write_hypers(program)
        for name, value in _optimizer_spec.initial_states(program.engine.states).items():
            program.engine.write(name, value)
        optimizer, state = self.optimizer, None
        if isinstance(optimizer, optim.Optimizer) and optimizer.has_state() and not self.divides(program):
            loaded = optimizer.take_new_state()
            state = loaded or {"ipu_state": optimizer.get_state_dict()["ipu_state"]}
        elif self._kept is not None and self._kept[0] is optimizer:
            state = {"ipu_state": self._kept[1]["ipu_state"]}
        state = program.engine.share_object(state, "copying the optimizer's state to the device")
        if state is not None:
            self._load(program, state)
        self.ahead = program.training

    def write_hypers(self, program: Program) -> None:
        """Give the device the numbers that may change."""
        if program.plan is None or self.spec is None:
            return
        log_spec(self.spec, "Updating")
        for name, value in program.plan.hypers(self.spec).items():
            if name in program.engine.states:
                program.engine.write(name, value)

    def write_new_state(self, program: Program) -> None:
        """Give the device a state that was loaded into the optimizer since the last call."""
        if isinstance(self.optimizer, optim.Optimizer):
            loaded = self.optimizer.take_new_state()
            if loaded is not None:
                self._load(program, loaded)

    def divides(self, program: Program) -> bool:
        """Whether a state waits to be loaded for which each weight needs numbers of its own."""
        optimizer = self.optimizer
        if program.plan is None or not isinstance(optimizer, optim.Optimizer) or not optimizer.has_new_state():
            return False
        return _optimizer_spec.divides(program.plan, optimizer.get_state_dict(), program.engine.states)

    def hand_over(self, program: Program) -> None:
        """Give the optimizer the state that the device has; what was loaded since takes precedence."""
        optimizer = self.optimizer
        if program.plan is None or optimizer is None:
            return
        own = isinstance(optimizer, optim.Optimizer)
        if self.ahead or (own and not optimizer.has_state()):
            if own:
                logger.debug("Writing optimiser state tensors from IPU to host.")
            states = WholeStates(program.engine, program.groupings)
            state = _optimizer_spec.state_dict(program.plan, states.read, states.types)
            if own:
                optimizer.merge_state(state)
            else:
                self._kept = optimizer, state
            self.ahead = False
        elif own:
            logger.debug("Using cached optimiser state dict")

    def _load(self, program: Program, state: dict[str, Any]) -> None:
        if program.plan is not None:
            if isinstance(self.optimizer, optim.Optimizer):
                logger.debug("Writing optimiser state tensors from host to IPU memory")
            states = WholeStates(program.engine, program.groupings)
            _optimizer_spec.load_state_dict(program.plan, state, states.read, states.write, states.types)
