"""Element and tensor types."""

import numpy as np
import pytest

from abele.ir import DType, TensorType, boolean, f16, f32, i32


@pytest.mark.parametrize("dtype", [dtype for dtype in DType if not dtype.is_float8])
def test_numpy_type_has_the_machines_size(dtype):
    assert dtype.numpy.itemsize == dtype.bytes
    assert DType.of(dtype.numpy) is dtype
    assert dtype.is_float + dtype.is_integer + (dtype is DType.BOOL) == 1


@pytest.mark.parametrize("dtype", [DType.F143, DType.F152])
def test_8_bit_floats_are_kept_as_half_and_no_numbers_to_compute_with(dtype):
    assert (dtype.bytes, dtype.numpy) == (1, np.float16)
    assert dtype.is_float8 and not dtype.is_number and not dtype.is_float and not dtype.is_integer
    assert DType.of(dtype.numpy) is DType.F16


def test_64_bit_types_become_32():
    assert DType.of(np.float64) is DType.F32
    assert DType.of(np.int64) is DType.I32


def test_tensor_type():
    t = f16(2, 3)
    assert (t.rank, t.size, t.bytes, str(t)) == (2, 6, 12, "f16[2,3]")
    assert str(f32()) == "f32[]" and f32().size == 1
    assert f32(0, 3).size == 0
    assert t.with_dtype(DType.BOOL) == boolean(2, 3)
    assert t.with_shape((6,)) == f16(6)
    assert i32(4) == TensorType((4,), DType.I32)
