"""Element and tensor types."""

import numpy as np
import pytest

from abele.ir import DType, TensorType, boolean, f16, f32, i32


@pytest.mark.parametrize("dtype", list(DType))
def test_numpy_type_has_the_machines_size(dtype):
    assert dtype.numpy.itemsize == dtype.bytes
    assert DType.of(dtype.numpy) is dtype
    assert dtype.is_float + dtype.is_integer + (dtype is DType.BOOL) == 1


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
