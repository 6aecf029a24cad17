"""The device's side of a wrapped model: attaching and detaching, and copies of weights, buffers and seeds to and fro.

The device's weights are a copy of their own. What training changes reaches the user's module when something looks at
it (see ``_host_weights``); what the user changes on the host reaches the device when the model is compiled or attached,
by ``load_state_dict`` or by ``copyWeightsToDevice``.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from abele.compile.passes.rounding import SEED as ROUNDING_SEED
from abele.importers.torch.dtypes import to_numpy, to_torch

from ._device import ipuHardwareIsAvailable
from ._errors import Error, require
from ._host_weights import Link, link_of, links_of
from ._inspection import Inspection
from ._logging import logger
from ._program import Program, translated
from ._trainer import Trainer
from ._whole_states import WholeStates
from .enums import ConnectionType

_seeds = itertools.count()
_attached: weakref.WeakSet[Attachment] = weakref.WeakSet()
"""Wrappers whose options name an IPU, and which have attached to it."""


class Attachment(Inspection):
    """The part of a model's wrapper that holds the device."""

    _user_model: torch.nn.Module
    _model: torch.nn.Module
    _trainer: Trainer
    _attached: bool
    #: What ties the user's module to the wrapper that trains it; None in a wrapper that does not.
    _link: Link | None
    #: The device's tensors are newer than the host's.
    _device_ahead: bool
    #: Versions of the host's tensors that the device has, of those that other wrappers train.
    _uploaded: dict[Link, int]

    # -- weights ------------------------------------------------------------------------------------------

    def copyWeightsToHostIfNeeded(self) -> bool:
        """Bring the host's parameters and buffers up to date when training has changed them; whether it had."""
        if not self._device_ahead:
            return False
        logger.debug("Implicit copyWeightsToHost()")
        self.copyWeightsToHost()
        return True

    def copyWeightsToHost(self) -> None:
        """Give the user's model the parameters and buffers of the device.

        Raises:
            Error: when the model is not compiled.
        """
        program = self._require()
        if not self._attached:
            return
        ahead, self._device_ahead = self._device_ahead, False
        logger.debug("Writing weights from IPU to host")
        states = WholeStates(program.engine, program.groupings)
        try:
            with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
                for name in program.updated:
                    target = program.host_tensors[name]
                    target.data.copy_(to_torch(states.read(name), target.dtype))
        except BaseException:  # interrupted: the next look copies them
            self._device_ahead = ahead
            raise
        link = link_of(self._user_model)
        if link is not None:
            link.version += 1

    def copyWeightsToDevice(self) -> None:
        """Give the device the parameters and buffers of the user's model.

        Where a model is trained by several processes all of them must call it, and get those of the first.

        Raises:
            Error: when the model is not compiled.
        """
        program = self._require()
        if not self._attached:
            return
        logger.debug("Writing weights from host to IPU memory")
        states = WholeStates(program.engine, program.groupings)
        with translated(), torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            program.take_host_tensors(self._model)
            known = [name for name in program.host_tensors if name in program.engine.states]
            for name in known:
                states.write(name, to_numpy(program.host_tensors[name]))
            program.engine.share([name for name in known if name not in program.groupings])
        if self._link is not None:
            self._link.adopt()
        self._device_ahead = False
        self._uploaded = self._trained_elsewhere()

    def _trained_elsewhere(self) -> dict[Link, int]:
        """Bring the host's tensors that other wrappers train up to date; the versions that they have then."""
        others = [link for link in links_of(self._user_model) if link is not self._link]
        for link in others:
            link.refresh()
        return {link: link.version for link in others}

    def copyNamedBuffersToDevice(self) -> None:
        """Give the device the buffers that ``options.updatableNamedBuffers`` names.

        Raises:
            Error: when the model is not compiled, or the option names none.
        """
        program, names = self._require(), self._options.updatable_named_buffers
        if not names:
            raise Error("There are no buffers to copy: name them with options.updatableNamedBuffers before wrapping.")
        buffers = dict(self._model.named_buffers())
        with translated(), torch._C.DisableTorchFunctionSubclass():
            for name in names:
                if name in program.engine.states:
                    program.engine.write(name, to_numpy(buffers[name]))

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> Any:
        """As the module's own, and the device gets the new values."""
        self.copyWeightsToHostIfNeeded()
        result = self._user_model.load_state_dict(state_dict, strict)
        if self._program is not None and self._attached:
            self.copyWeightsToDevice()
        return result

    # -- the device ---------------------------------------------------------------------------------------

    def isAttachedToDevice(self) -> bool:
        """Whether the program is on the (modelled) device."""
        return self._attached

    def attachToDevice(self) -> None:
        """Put the compiled program on the device, with the host's weights.

        Raises:
            Error: when the model is not compiled, or for an offline target.
        """
        self._require()
        require(not self._attached, "The model is already attached to its device.")
        if self._options.connection_type is ConnectionType.Never:
            raise Error("With ConnectionType.Never there is no device to attach to.")
        with translated():
            self._attach()

    def detachFromDevice(self) -> None:
        """Take the program off the device; weights and optimizer state come back to the host.

        Raises:
            Error: when the model is not compiled or not attached.
        """
        self._require()
        if not self._attached:
            raise Error("Device is not attached: the model has already been detached from it.")
        self._leave_device()

    def _attach(self) -> None:
        """Put the program on the device whole, or leave it off: one that an error or Ctrl-C ended holds zeros."""
        program = self._require()
        self._acquire()
        self._attached = True
        try:
            self._fill(program)
        except BaseException:
            self._attached = False
            program.close()
            raise

    def _fill(self, program: Program) -> None:
        """Give a program that is new on the device all that it holds."""
        self._trained_elsewhere()
        constants = program.capture.constants
        for name, tensor in constants.items():
            if name in program.engine.states:
                program.engine.write(name, to_numpy(tensor))
        seeds = [name for name in ("seed", ROUNDING_SEED) if name in program.engine.states]
        for name in seeds:
            seed = self._seed()
            program.engine.write(name, np.array([seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF], np.uint32))
        program.engine.share(seeds)
        self.copyWeightsToDevice()
        self._trainer.attach(program)

    def _acquire(self) -> None:
        """Refuse an IPU that the options name while another model has it; without hardware there are as many as asked.

        Raises:
            Error: names the other model.
        """
        wanted = self._options.ipu_id
        if wanted is None or not ipuHardwareIsAvailable():
            return
        for other in _attached:
            if other is not self and other._attached and other._options.ipu_id == wanted:
                raise Error(
                    f"Failed to acquire the device {wanted}: the model {type(other._user_model).__name__} is attached "
                    "to it. Call detachFromDevice() on that model first."
                )
        _attached.add(self)

    def _seed(self) -> int:
        """The seed of the options; else one of its own for each program, from PyTorch's."""
        chosen = self._options.random_seed
        if chosen is not None:
            return chosen & (2**64 - 1)
        return (torch.initial_seed() + 0x9E3779B97F4A7C15 * next(_seeds)) & (2**64 - 1)

    def _leave_device(self, *, alone: bool = False) -> None:
        """Take the program off the device. ``alone``: other processes may not be doing the same."""
        if self._attached:
            self.copyWeightsToHostIfNeeded()
            if not (alone and self._require().training and WholeStates(self._require().engine).spread()):
                self._hand_over_optimizer_state()
        if self._program is not None:
            self._program.close()
        self._attached = False

    def _hand_over_optimizer_state(self) -> None:
        """Give the optimizer the state that the device has."""
        if self._program is not None and self._attached:
            self._trainer.hand_over(self._program)
