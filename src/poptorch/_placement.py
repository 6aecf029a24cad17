"""What the user's annotations say about the operation being captured.

While a model is captured, ``Block``, ``BeginBlock``, ``NameScope``, ``Attribute`` and ``MultiConv`` change
the state of the current :class:`Capture`; the importer calls :func:`on_operation` once for every operation it
captures and keeps what that returns with the operation. Outside a capture the annotations do nothing, so an
annotated model runs as plain PyTorch.

The state is per thread: two models may be captured at the same time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from ._errors import Error

BlockOfUser = tuple[str, int | None]
"""``(user_id, ipu_id)`` as the user's annotation gave them."""


class Strategy(Protocol):
    """What a capture needs of an execution strategy: where the operations of a block go."""

    def place(self, user_id: str | None, ipu_id: int | None) -> Placement: ...

    def restart(self) -> None: ...


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where an operation runs: IPU within the replica, pipeline stage or shard, and phase (phased only)."""

    ipu: int = 0
    stage: int = 0
    phase: int | None = None
    block: str | None = None


@dataclasses.dataclass(frozen=True)
class OperationContext:
    """All that the annotations say about one captured operation."""

    placement: Placement
    name_scope: str
    attributes: Mapping[str, Any]
    multi_conv: Any = None


@dataclasses.dataclass
class Capture:
    """The annotation state of one running capture."""

    training: bool = False
    strategy: Strategy | None = None
    current: BlockOfUser | None = None
    #: False only after a ``Block`` scope has closed and nothing has taken its place.
    active: bool = True
    placement: Placement = dataclasses.field(default_factory=Placement)
    auto_id: int = 0
    #: The number of each layer without a name that begins a block: called again, it begins the same one.
    layer_ids: dict[int, str] = dataclasses.field(default_factory=dict)
    names: list[str] = dataclasses.field(default_factory=list)
    attributes: dict[str, Any] = dataclasses.field(default_factory=dict)
    multi_conv: Any = None
    convolutions: int = 0
    suspended: int = 0


_state = threading.local()


def current_capture() -> Capture | None:
    """The capture running in this thread, or None."""
    capture = getattr(_state, "capture", None)
    return None if capture is None or capture.suspended else capture


@contextlib.contextmanager
def capture(strategy: Strategy | None = None, *, training: bool = False) -> Iterator[Capture]:
    """Run the body as the capture of one model.

    Args:
        strategy: the execution strategy that turns blocks into IPUs and stages; None puts all on IPU 0.
        training: whether the model is captured for training (``cond`` and ``for_loop`` refuse that).
    """
    previous = getattr(_state, "capture", None)
    if strategy is not None:
        strategy.restart()
    _state.capture = Capture(training=training, strategy=strategy)
    try:
        yield _state.capture
    finally:
        _state.capture = previous


@contextlib.contextmanager
def suspended() -> Iterator[None]:
    """Run the body as if no capture were running (host code called from within a model)."""
    running = getattr(_state, "capture", None)
    if running is None:
        yield
        return
    running.suspended += 1
    try:
        yield
    finally:
        running.suspended -= 1


def current_block() -> BlockOfUser | None:
    """``(user_id, ipu_id)`` of the block that captured operations now belong to, or None."""
    running = current_capture()
    return None if running is None else running.current


def begin_block(user_id: str | int | None, ipu_id: int | None, layer: object = None) -> None:
    """Make a block the current one until another begins or :func:`restore` is called.

    A block without a name gets a number, and every time a new one unless a ``layer`` begins it.
    """
    running = current_capture()
    if running is None:
        return
    if user_id is None:
        user_id = running.layer_ids.get(id(layer)) if layer is not None else None
    if user_id is None:
        user_id = str(running.auto_id)
        running.auto_id += 1
        if layer is not None:
            running.layer_ids[id(layer)] = user_id
    name = str(user_id)
    running.current, running.active = (name, ipu_id), True
    if running.strategy is None:
        running.placement = Placement(ipu=ipu_id or 0, stage=ipu_id or 0, block=name)
    else:
        running.placement = running.strategy.place(name, ipu_id)


def saved_block() -> tuple[Any, ...] | None:
    """What :func:`restore` needs to come back to the block that is current now."""
    running = current_capture()
    return None if running is None else (running.current, running.placement)


def restore(saved: tuple[Any, ...] | None) -> None:
    """Leave a ``Block`` scope: the outer block is current again, or none is when there was no outer one."""
    running = current_capture()
    if running is None or saved is None:
        return
    running.current, running.placement = saved
    running.active = running.current is not None


def restart_auto_ids() -> None:
    """Number the blocks without a ``user_id`` from "0" again."""
    running = current_capture()
    if running is not None:
        running.auto_id = 0


def on_operation(target: str) -> OperationContext:
    """The annotations that apply to an operation; the importer calls this for each one it captures.

    Args:
        target: the qualified name of the operation, for example ``aten.convolution.default``.

    Raises:
        Error: when the operation comes after the end of a ``Block`` scope and outside any other.
    """
    running = current_capture()
    if running is None:
        return OperationContext(Placement(), "", {})
    if not running.active:
        raise Error(
            f"No active Block: {target} runs after a poptorch.Block scope has ended and outside any other. "
            "Put it into a Block, or use poptorch.BeginBlock or poptorch.Block.start, which last until the "
            "next block."
        )
    if running.multi_conv is not None and "conv" in target:
        running.convolutions += 1
    return OperationContext(running.placement, "/".join(running.names), dict(running.attributes), running.multi_conv)
