"""Annotations: which IPU or stage operations belong to, what they are called, what runs as one.

``Block``, ``BeginBlock`` and ``BlockFunction`` cut a model into blocks; ``NameScope`` names its operations,
``Attribute`` marks them; ``MultiConv`` groups convolutions. They act while a model is captured and do nothing in plain
PyTorch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import _placement
from ._errors import Error, require
from ._options_effects import note
from .enums import MultiConvPlanType


def _check_ids(user_id: Any, ipu_id: Any) -> None:
    require(
        user_id is None or isinstance(user_id, str) or (isinstance(user_id, int) and user_id >= 0),
        f"A block's user_id is a string or a whole number, not {user_id!r}.",
    )
    require(
        ipu_id is None or (isinstance(ipu_id, int) and ipu_id >= 0),
        f"A block's ipu_id is a whole number from 0, not {ipu_id!r}.",
    )


class Block(torch.nn.Module):
    """A ``with`` block whose operations form one block of the model.

    Args:
        user_id: the block's name, for use with :class:`poptorch.Stage`; numbered from "0" when None.
        ipu_id: the IPU that runs the block.
    """

    def __init__(self, user_id: str | None = None, ipu_id: int | None = None) -> None:
        super().__init__()
        _check_ids(user_id, ipu_id)
        self._user_id = user_id
        self._ipu_id = ipu_id
        self._outer: list[Any] = []

    @staticmethod
    def useAutoId() -> None:
        """Number the blocks without a ``user_id`` from "0"; call it at the start of ``forward``."""
        _placement.restart_auto_ids()

    @staticmethod
    def start(user_id: str | None = None, ipu_id: int | None = None) -> None:
        """Begin a block that lasts until another begins."""
        _check_ids(user_id, ipu_id)
        _placement.begin_block(user_id, ipu_id)

    def __enter__(self) -> None:
        self._outer.append(_placement.saved_block())
        _placement.begin_block(self._user_id, self._ipu_id)

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        _placement.restore(self._outer.pop())


class _BlockHook:
    """Begins a block whenever the module that it hangs on is called."""

    def __init__(self, user_id: str | int | None, ipu_id: int | None) -> None:
        self._user_id = user_id
        self._ipu_id = ipu_id

    def __call__(self, module: torch.nn.Module, input: Any) -> None:
        _placement.begin_block(self._user_id, self._ipu_id, layer=self)

    def __repr__(self) -> str:
        return f"BeginBlock(user_id={self._user_id}, ipu_id={self._ipu_id})"


class LegacyBeginBlockFn(torch.nn.Module):
    """What :func:`BeginBlock` returns for a function: a module that begins a block and calls it."""

    def __init__(
        self, layer_to_call: Callable[..., Any], user_id: str | None = None, ipu_id: int | None = None
    ) -> None:
        super().__init__()
        _check_ids(user_id, ipu_id)
        self._user_id = user_id
        self._ipu_id = ipu_id
        self._layer_to_call = layer_to_call

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        _placement.begin_block(self._user_id, self._ipu_id, layer=self)
        return self._layer_to_call(*args, **kwargs)


def block_hook(module: torch.nn.Module) -> _BlockHook | None:
    """The annotation that :func:`BeginBlock` left on a module, or None."""
    return next((h for h in module._forward_pre_hooks.values() if isinstance(h, _BlockHook)), None)


def BeginBlock(layer_to_call: Any, user_id: str | None = None, ipu_id: int | None = None) -> torch.nn.Module:
    """Begin a block at a layer; it lasts until the next block begins.

    The layer itself is changed (a hook is added) and returned.

    Args:
        layer_to_call: a module, or a function, which is then wrapped in one.
        user_id: the block's name, for use with :class:`poptorch.Stage`.
        ipu_id: the IPU that runs the block.

    Raises:
        Error: when the module already begins a block.
    """
    _check_ids(user_id, ipu_id)
    if not isinstance(layer_to_call, torch.nn.Module):
        require(callable(layer_to_call), "BeginBlock takes a module or a function.")
        return LegacyBeginBlockFn(layer_to_call, user_id, ipu_id)
    if block_hook(layer_to_call) is not None:
        raise Error(
            "The module has already been assigned to a block. Call poptorch.removeBlocks on it before assigning "
            "it to another one."
        )
    layer_to_call.register_forward_pre_hook(_BlockHook(user_id, ipu_id))
    return layer_to_call


def removeBlocks(module: torch.nn.Module) -> None:
    """Remove what :func:`BeginBlock` added to a module and to all modules inside it."""
    require(isinstance(module, torch.nn.Module), "removeBlocks takes a module.")
    for part in module.modules():
        for key in [k for k, h in part._forward_pre_hooks.items() if isinstance(h, _BlockHook)]:
            del part._forward_pre_hooks[key]


def BlockFunction(
    user_id: str | None = None, ipu_id: int | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: all operations of the function form one block."""
    _check_ids(user_id, ipu_id)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def inside_block(*args: Any, **kwargs: Any) -> Any:
            with Block(user_id, ipu_id):
                return function(*args, **kwargs)

        return inside_block

    return decorate


class NameScope:
    """A ``with`` block that puts ``name/`` before the names of its operations."""

    def __init__(self, name: str) -> None:
        require(isinstance(name, str), f"A name scope is a string, not {name!r}.")
        self.name = name

    def __enter__(self) -> None:
        torch.ops.poptorch.push_name_scope(self.name)

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        torch.ops.poptorch.pop_name_scope()


class Attribute:
    """Attach attributes to the operations that are created inside a ``with`` block.

    Nested blocks add to, and may overwrite, the attributes of the outer ones. Outside a capture it does
    nothing.
    """

    def __init__(self, **kwargs: Any) -> None:
        self._attributes = kwargs
        self._previous: dict[str, Any] = {}

    def __enter__(self) -> None:
        running = _placement.current_capture()
        if running is not None:
            for name in self._attributes:
                note(f"The attribute {name} of operations", "it steers the vendor's compiler")
            self._previous = running.attributes
            running.attributes = {**running.attributes, **self._attributes}

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        running = _placement.current_capture()
        if running is not None:
            running.attributes = self._previous


class MultiConv:
    """A ``with`` block whose independent convolutions run as one operation.

    Every setter takes one value for all convolutions or, where said, a list with one for each, and returns the
    object, so that calls chain.
    """

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {}

    @staticmethod
    def _each(name: str, value: Any, kinds: tuple[type, ...]) -> Any:
        values = value if isinstance(value, (list, tuple)) else [value]
        require(
            values and all(isinstance(v, kinds) for v in values),
            f"{name} takes one {kinds[0].__name__} or a list of them, not {value!r}.",
        )
        return list(value) if isinstance(value, (list, tuple)) else value

    def availableMemoryProportions(self, value: float | Sequence[float]) -> MultiConv:
        """The part of each tile's memory that a convolution may use temporarily (one value or one each)."""
        self.settings["available_memory_proportions"] = self._each("availableMemoryProportions", value, (float, int))
        return self

    def partialsTypes(self, value: torch.dtype | Sequence[torch.dtype]) -> MultiConv:
        """The type of partial sums, ``torch.half`` or ``torch.float`` (one value or one each).

        Raises:
            ValueError: for anything else.
        """
        values = value if isinstance(value, (list, tuple)) else [value]
        if not values or any(v not in (torch.float16, torch.float32) for v in values):
            raise ValueError(f"Invalid partials types: {value!r}. They are torch.half or torch.float.")
        self.settings["partials_types"] = value
        return self

    def enableConvDithering(self, value: bool | Sequence[bool]) -> MultiConv:
        """Start each convolution's mapping at another tile (one value or one each)."""
        self.settings["conv_dithering"] = self._each("enableConvDithering", value, (bool,))
        return self

    def planType(self, value: MultiConvPlanType) -> MultiConv:
        """Whether the convolutions run side by side or one after another."""
        require(
            isinstance(value, MultiConvPlanType),
            f"Invalid plan type: {value!r}. It is a poptorch.MultiConvPlanType.",
        )
        self.settings["plan_type"] = value
        return self

    def perConvReservedTiles(self, value: int) -> MultiConv:
        """The least number of tiles that each convolution gets when they run side by side."""
        require(isinstance(value, int), f"Invalid number of reserved tiles: {value!r}.")
        self.settings["per_conv_reserved_tiles"] = value
        return self

    def cycleBackOff(self, value: float) -> MultiConv:
        """How much slower than the fastest plan a convolution may be, as a part between 0 and 1."""
        require(isinstance(value, (int, float)), f"Invalid cycle back-off: {value!r}.")
        self.settings["cycle_back_off"] = float(value)
        return self

    def __enter__(self) -> None:
        running = _placement.current_capture()
        if running is None:
            return
        if self.settings:
            shown = ", ".join(self.settings)
            note(f"poptorch.MultiConv ({shown})", "each of its convolutions is planned by itself")
        if running.multi_conv is not None:
            raise Error("Nested poptorch.MultiConv is not supported: close the outer one first.")
        running.multi_conv, running.convolutions = self, 0

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        running = _placement.current_capture()
        if running is None or running.multi_conv is not self:
            return
        running.multi_conv = None
        if type is None and running.convolutions == 0:
            raise Error("Unexpected end_multi_conv: the poptorch.MultiConv block has no convolution.")
