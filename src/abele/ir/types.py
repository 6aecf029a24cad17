"""Element and tensor types: what a value is, before anything is said of where it lies."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

import numpy as np


class DType(enum.StrEnum):
    """Element types of the machine. ``bool`` takes one byte; 64-bit types do not exist there."""

    F32 = "f32"
    F16 = "f16"
    I32 = "i32"
    U32 = "u32"
    I16 = "i16"
    I8 = "i8"
    U8 = "u8"
    BOOL = "bool"

    @property
    def bytes(self) -> int:
        """Bytes of one element in tile memory."""
        return _BYTES[self]

    @property
    def numpy(self) -> np.dtype:
        """The NumPy type with the same values (half is ``float16``)."""
        return _NUMPY[self]

    @property
    def is_float(self) -> bool:
        return self in (DType.F32, DType.F16)

    @property
    def is_integer(self) -> bool:
        return not self.is_float and self is not DType.BOOL

    @classmethod
    def of(cls, dtype: np.dtype | type) -> DType:
        """The machine type of a NumPy type; 64-bit types become their 32-bit forms."""
        return _OF_NUMPY[np.dtype(dtype).name]


_BYTES = {
    DType.F32: 4,
    DType.F16: 2,
    DType.I32: 4,
    DType.U32: 4,
    DType.I16: 2,
    DType.I8: 1,
    DType.U8: 1,
    DType.BOOL: 1,
}
_NUMPY = {
    DType.F32: np.dtype(np.float32),
    DType.F16: np.dtype(np.float16),
    DType.I32: np.dtype(np.int32),
    DType.U32: np.dtype(np.uint32),
    DType.I16: np.dtype(np.int16),
    DType.I8: np.dtype(np.int8),
    DType.U8: np.dtype(np.uint8),
    DType.BOOL: np.dtype(np.bool_),
}
_OF_NUMPY = {dtype.name: key for key, dtype in _NUMPY.items()} | {
    "float64": DType.F32,
    "int64": DType.I32,
    "uint64": DType.U32,
    "uint16": DType.I32,
}


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape and element type. ``str`` gives ``f32[2,3]``; a scalar is ``f32[]``."""

    shape: tuple[int, ...]
    dtype: DType

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes in tile memory, all tiles together."""
        return self.size * self.dtype.bytes

    def with_shape(self, shape: tuple[int, ...]) -> TensorType:
        return TensorType(tuple(shape), self.dtype)

    def with_dtype(self, dtype: DType) -> TensorType:
        return TensorType(self.shape, dtype)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


def f32(*shape: int) -> TensorType:
    """Shorthand: ``f32(2, 3)`` is ``f32[2,3]``."""
    return TensorType(shape, DType.F32)


def f16(*shape: int) -> TensorType:
    """Shorthand: ``f16(2, 3)`` is ``f16[2,3]``."""
    return TensorType(shape, DType.F16)


def i32(*shape: int) -> TensorType:
    """Shorthand: ``i32(2, 3)`` is ``i32[2,3]``."""
    return TensorType(shape, DType.I32)


def boolean(*shape: int) -> TensorType:
    """Shorthand: ``boolean(2, 3)`` is ``bool[2,3]``."""
    return TensorType(shape, DType.BOOL)
