"""Torch element types and those of the machine: 64-bit types become their 32-bit forms, bfloat16 becomes f32."""

from __future__ import annotations

import numpy as np
import torch

from abele.errors import InvalidOperand, Unsupported
from abele.ir import DType, TensorType

_TO_MACHINE = {
    torch.float32: DType.F32,
    torch.float64: DType.F32,
    torch.bfloat16: DType.F32,
    torch.float16: DType.F16,
    torch.int64: DType.I32,
    torch.int32: DType.I32,
    torch.int16: DType.I16,
    torch.int8: DType.I8,
    torch.uint8: DType.U8,
    torch.uint16: DType.I32,
    torch.uint32: DType.U32,
    torch.bool: DType.BOOL,
}


def machine_dtype(dtype: torch.dtype) -> DType:
    """The machine's form of a torch type; ``Unsupported`` for complex, quantised and 8-bit float types."""
    try:
        return _TO_MACHINE[dtype]
    except KeyError:
        raise Unsupported(
            f"Tensors of type {dtype} do not exist on the machine",
            remedy="Use a real, integer or bool type; a complex tensor goes in and out by torch.view_as_real.",
        ) from None


def machine_type(tensor: torch.Tensor) -> TensorType:
    """Shape and machine type of a tensor."""
    return TensorType(tuple(tensor.shape), machine_dtype(tensor.dtype))


def to_numpy(tensor: torch.Tensor, name: str = "") -> np.ndarray:
    """A tensor's values in the machine's form of its type (a copy only where the type changes).

    Raises:
        InvalidOperand: an integer does not fit the machine's 32 bits; ``name`` says whose it is.
    """
    plain = tensor.detach().resolve_neg()
    if plain.dtype is torch.bfloat16:
        plain = plain.float()
    given, target = plain.cpu().numpy(), machine_dtype(tensor.dtype).numpy
    if given.dtype.kind in "iu" and given.dtype.itemsize >= target.itemsize and given.size:
        low, high, limits = int(given.min()), int(given.max()), np.iinfo(target)
        if low < limits.min or high > limits.max:
            raise InvalidOperand(
                f"{name or 'A tensor'} of type {tensor.dtype} holds {high if high > limits.max else low}, and the "
                f"machine's integers have {8 * target.itemsize} bits",
                remedy="Keep its values within those of a 32-bit integer.",
            )
    return given.astype(target, copy=False)


def to_torch(array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    """An array of the machine as a torch tensor of the type that the user's program would have given."""
    if not array.flags.writeable or not array.flags.c_contiguous:
        array = np.array(array, order="C")
    return torch.from_numpy(array).reshape(array.shape).to(dtype)
