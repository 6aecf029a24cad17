"""What the optimizers share: constant and variable attributes, and state that lives on the device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from abele.errors import suggest

from .._errors import Error

IpuState = dict[str, Any]
"""``{"ipu_state": {name: tensor} | None, "ipu_param": {name: tensor} | None}``."""

NOT_FROM_IPU = "Only IPU optimizer states can be loaded onto the IPU."


class VariableAttributes:
    """Which attributes of an optimizer may change after compiling; the others are built into the program."""

    def __init__(self, variable_attributes: Iterable[str], allowed_attributes: Iterable[str]) -> None:
        self._variable_attributes = list(variable_attributes)
        self._allowed_attributes = list(allowed_attributes)

    def isConstant(self, attr: str) -> bool:
        """Whether the attribute is built into the program."""
        return self._known(attr) not in self._variable_attributes

    def markAsConstant(self, attr: str) -> None:
        """Build the attribute into the program; call it before compiling."""
        if self._known(attr) in self._variable_attributes:
            self._variable_attributes.remove(attr)

    def markAsVariable(self, attr: str) -> None:
        """Let the attribute change after compiling; call it before compiling."""
        if self._known(attr) not in self._variable_attributes:
            self._variable_attributes.append(attr)

    def _known(self, attr: str) -> str:
        if attr not in self._allowed_attributes:
            raise Error(
                f"The optimizer has no attribute {attr!r} that can be constant or variable. "
                f"{suggest(attr, self._allowed_attributes)}".rstrip()
            )
        return attr


class Optimizer:
    """The part that every optimizer of this package has besides PyTorch's.

    Its state lives with the compiled program. ``state_dict()`` holds, besides PyTorch's keys, ``ipu_state``
    (tensors that training changes) and ``ipu_param`` (attributes as the program holds them); both are None
    until a training model with this optimizer is compiled.
    """

    variable_attrs: VariableAttributes
    _own: tuple[str, ...] = ()
    """Attributes that a kind of optimizer has besides PyTorch's."""

    def __init__(self) -> None:
        self._ipu_state: Mapping[str, Any] | None = None
        self._ipu_param: Mapping[str, Any] | None = None
        self._ipu_state_is_new = False
        self._refresh: Callable[[], None] | None = None

    def connect(self, refresh: Callable[[], None] | None) -> None:
        """Call ``refresh()`` before the state is read, so that a model can hand over what training changed.

        The model calls :meth:`set_state_dict` from it. None disconnects.
        """
        self._refresh = refresh

    def state_dict(self) -> dict[str, Any]:
        """PyTorch's state with ``ipu_state`` and ``ipu_param``."""
        self._bring_up_to_date()
        return {**self.get_state_dict(), **super().state_dict()}  # type: ignore[misc]

    def _bring_up_to_date(self) -> None:
        if self._refresh is not None and not self._ipu_state_is_new:
            self._refresh()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over a state that :meth:`state_dict` returned; it reaches the device at the next call.

        Raises:
            RuntimeError: for a state of one of PyTorch's own optimizers.
        """
        if not {"ipu_state", "ipu_param"} <= set(state_dict):
            raise RuntimeError(NOT_FROM_IPU)
        self.set_state_dict(state_dict)
        self._ipu_state_is_new = state_dict["ipu_state"] is not None or state_dict["ipu_param"] is not None
        rest = {k: v for k, v in state_dict.items() if k not in ("ipu_state", "ipu_param")}
        super().load_state_dict(rest)  # type: ignore[misc]

    def get_state_dict(self) -> IpuState:
        """The state on the device as far as the host knows it."""
        return {"ipu_state": self._ipu_state, "ipu_param": self._ipu_param}

    def set_state_dict(self, state: Mapping[str, Any]) -> None:
        """Remember the state on the device; what is loaded this way counts as already there."""
        self._ipu_state, self._ipu_param = state["ipu_state"], state["ipu_param"]
        self._ipu_state_is_new = False

    def merge_state(self, state: Mapping[str, Any]) -> None:
        """Remember the state on the device below one that was loaded and has not reached it."""
        if not self._ipu_state_is_new:
            return self.set_state_dict(state)
        self._ipu_state = {**state["ipu_state"], **(self._ipu_state or {})}
        self._ipu_param = {**state["ipu_param"], **(self._ipu_param or {})}

    def has_new_state(self) -> bool:
        """Whether a state was loaded that has not reached the device."""
        return self._ipu_state_is_new

    def has_state(self) -> bool:
        """Whether the host knows a state of the device."""
        return self._ipu_state is not None or self._ipu_param is not None

    def take_new_state(self) -> IpuState | None:
        """The state that was loaded and has not reached the device, once; None when there is none."""
        if not self._ipu_state_is_new:
            return None
        self._ipu_state_is_new = False
        return self.get_state_dict()

    def __getstate__(self) -> dict[str, Any]:
        """What a copy or a pickle keeps; a copy belongs to no model."""
        self._bring_up_to_date()
        state: Any = super().__getstate__()
        return {
            **state,
            **{name: getattr(self, name) for name in self._own},
            "variable_attrs": self.variable_attrs,
            "_ipu_state": self._ipu_state,
            "_ipu_param": self._ipu_param,
            "_ipu_state_is_new": self._ipu_state_is_new,
            "_refresh": None,
        }


def given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that are not None: those that the user passed."""
    return {k: v for k, v in arguments.items() if v is not None}
