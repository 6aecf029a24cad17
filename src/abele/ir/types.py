"""Element and tensor types: what a value is, before anything is said of where it lies."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

import numpy as np


class DType(enum.StrEnum):
    """Element types of the machine. ``bool`` takes one byte; 64-bit types do not exist there.

    ``f143`` and ``f152`` are 8-bit floats (4 or 5 bits of exponent, 3 or 2 of mantissa): operands of products, made and
    undone by casts. No arithmetic is done in them, and ``is_float`` does not mean them.
    """

    F32 = "f32"
    F16 = "f16"
    F143 = "f143"
    F152 = "f152"
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
        """The NumPy type with the same values (half is ``float16``, as are 8-bit floats, on their grid)."""
        return _NUMPY[self]

    @property
    def is_float(self) -> bool:
        return self in (DType.F32, DType.F16)

    @property
    def is_float8(self) -> bool:
        return self in (DType.F143, DType.F152)

    @property
    def is_integer(self) -> bool:
        return not self.is_float and not self.is_float8 and self is not DType.BOOL

    @property
    def is_number(self) -> bool:
        """Whether arithmetic is done in it."""
        return self.is_float or self.is_integer

    @classmethod
    def of(cls, dtype: np.dtype | type) -> DType:
        """The machine type of a NumPy type; 64-bit types become their 32-bit forms."""
        return _OF_NUMPY[np.dtype(dtype).name]


_BYTES = {
    DType.F32: 4,
    DType.F16: 2,
    DType.F143: 1,
    DType.F152: 1,
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
    DType.F143: np.dtype(np.float16),
    DType.F152: np.dtype(np.float16),
    DType.I32: np.dtype(np.int32),
    DType.U32: np.dtype(np.uint32),
    DType.I16: np.dtype(np.int16),
    DType.I8: np.dtype(np.int8),
    DType.U8: np.dtype(np.uint8),
    DType.BOOL: np.dtype(np.bool_),
}
_OF_NUMPY = {dtype.name: key for key, dtype in _NUMPY.items() if not key.is_float8} | {
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


def float8(*shape: int, dtype: DType = DType.F143) -> TensorType:
    """Shorthand: ``float8(2, 3)`` is ``f143[2,3]``."""
    return TensorType(shape, dtype)


def i32(*shape: int) -> TensorType:
    """Shorthand: ``i32(2, 3)`` is ``i32[2,3]``."""
    return TensorType(shape, DType.I32)


def boolean(*shape: int) -> TensorType:
    """Shorthand: ``boolean(2, 3)`` is ``bool[2,3]``."""
    return TensorType(shape, DType.BOOL)
