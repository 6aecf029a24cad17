"""Tensors of the host, in a program that is captured for a device apart from it.

Such a program may compute with them and return them, but not use them beside tensors of the device: what they hold
would be frozen at the first call, without a word, and so would a weight that no module registers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator

import torch

from abele.errors import Unsupported

_NAMES = {
    torch.bool: "Bool",
    torch.uint8: "Byte",
    torch.int8: "Char",
    torch.int16: "Short",
    torch.int32: "Int",
    torch.int64: "Long",
    torch.float16: "Half",
    torch.float32: "Float",
    torch.float64: "Double",
    torch.bfloat16: "BFloat16",
}
"""Types as the vendor's message names them."""


class Host:
    """Tells tensors of known values that a program made on the device from those of the host.

    On the device are the results of torch's functions (``torch.tensor``, ``torch.arange``) whose operands are, and what
    is moved there. On the host are the others: tensors of before, and those from ``torch.LongTensor([1, 0])`` or
    ``torch.from_numpy(a)``, which are made without a function of torch's. A number (no dimensions) may come from
    anywhere.

    Args:
        where: the user's line, for messages.
    """

    def __init__(self, where: Callable[[], str]) -> None:
        self._where = where
        self._calls = 0
        self._on_device: dict[int, torch.UntypedStorage] = {}

    @contextlib.contextmanager
    def function(self) -> Iterator[None]:
        """A function of torch's runs inside."""
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1

    def move(self, tensors: Iterable[torch.Tensor]) -> None:
        """The tensors are on the device from now on."""
        for one in tensors:
            storage = one.untyped_storage()
            self._on_device[storage._cdata] = storage  # kept, so that no other takes its place

    def made(self, results: Iterable[torch.Tensor], operands: Iterable[torch.Tensor], *, lifted: bool) -> None:
        """A call gave ``results``. ``lifted``: it turned Python's data into a tensor."""
        if bool(self._calls) if lifted else all(not t.dim() or self.has(t) for t in operands):
            self.move(results)

    def refuse(self, tensor: torch.Tensor) -> None:
        """Refuse a tensor of the host beside one of the device.

        Raises:
            Unsupported: it is one.
        """
        if not tensor.dim() or self.has(tensor):
            return
        dtype = _NAMES.get(tensor.dtype, str(tensor.dtype).removeprefix("torch."))
        raise Unsupported(
            f"Expected an IPU tensor but got tensor(device=cpu, shape={list(tensor.shape)}, dtype={dtype}): this model "
            "did not make it on the device, so that it would be frozen as it is now",
            where=self._where(),
            remedy="Register it as a buffer or parameter, give it as an argument, move it with .to(x.device), or make "
            "it in forward with torch.tensor (torch.LongTensor, torch.from_numpy and the like make it on the host).",
        )

    def has(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor is one of known values on the device."""
        return tensor.untyped_storage()._cdata in self._on_device
