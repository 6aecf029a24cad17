"""Streams and values between the host and the arena: checks of names, shapes and types, and conversion of dtypes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from abele.engine.memory import host_dtype
from abele.engine.program import Instruction, Load, Loop, Store
from abele.errors import Bug, InvalidOperand, suggest
from abele.ir.float8 import to_float8
from abele.ir.types import DType, TensorType


def to_host(array: np.ndarray, type: TensorType, name: str, lead: tuple[int, ...] = ()) -> np.ndarray:
    """``array`` as the arena holds it, of shape ``lead + type.shape``, half and 8-bit floats on their grid.

    Raises ``InvalidOperand``, which names ``name``, on another shape, or floats where integers are wanted.
    """
    given = np.asarray(array)
    if given.shape != (*lead, *type.shape):
        turns = " with [turns, replicas] in front" if lead else ""
        raise InvalidOperand(
            f"{name!r} has shape {list(given.shape)}, but the program takes {list((*lead, *type.shape))}{turns}"
        )
    target = host_dtype(type.dtype)
    kinds = {"f": "fiub", "b": "b"}.get(target.kind, "iub")
    if given.dtype.kind not in kinds:
        raise InvalidOperand(f"{name!r} has dtype {given.dtype}, but the program takes {type.dtype}")
    if type.dtype.is_float8:
        given = to_float8(given, type.dtype)
    elif type.dtype is DType.F16 and given.dtype != np.float16:
        with np.errstate(over="ignore"):
            given = given.astype(np.float16)
    return np.ascontiguousarray(given, target).reshape(given.shape)


def from_host(array: np.ndarray, type: TensorType) -> np.ndarray:
    """A copy of an array of the arena in the NumPy type of its dtype (half is ``float16``)."""
    return np.array(array, type.dtype.numpy, order="C")


class Stream:
    """One stream of a run: its type, how many turns one run has, and the data ``[turns, replicas, *shape]``."""

    def __init__(self, name: str, type: TensorType) -> None:
        self.name, self.type, self.turns = name, type, 0
        self.data = np.empty(0)
        self.turn: list[int] = []

    def begin(self, data: np.ndarray, replicas: int) -> None:
        """Start a run on these data."""
        self.data, self.turn = data, [0] * replicas


def find_streams(instructions: tuple[Instruction, ...]) -> tuple[dict[str, Stream], dict[str, Stream]]:
    """The streams that a program loads and stores, by name, with their turns in one run."""
    loads: dict[str, Stream] = {}
    stores: dict[str, Stream] = {}

    def visit(body: tuple[Instruction, ...], times: int) -> None:
        for instruction in body:
            match instruction:
                case Loop(count, inner):
                    visit(inner, times * count)
                case Load(name, view):
                    _found(loads, name, view.type).turns += times
                case Store(name, view):
                    _found(stores, name, view.type).turns += times

    visit(instructions, 1)
    return loads, stores


def _found(streams: dict[str, Stream], name: str, type: TensorType) -> Stream:
    stream = streams.setdefault(name, Stream(name, type))
    if stream.type != type:
        raise Bug(f"The stream {name!r} carries {stream.type} and {type}")
    return stream


def check_names(given: Mapping[str, np.ndarray], streams: Mapping[str, Stream]) -> None:
    """Raise ``InvalidOperand`` on a stream that is missing or not known."""
    for name in given:
        if name not in streams:
            raise InvalidOperand(f"The program has no input stream {name!r}", remedy=suggest(name, streams))
    missing = [name for name in streams if name not in given]
    if missing:
        wanted = ", ".join(f"{n!r} ({streams[n].type}, {streams[n].turns} turns)" for n in missing)
        raise InvalidOperand(f"The program needs the input streams {wanted}")
