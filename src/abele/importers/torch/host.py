"""Tensors of the host, in a program that is captured for a device apart from it.

Such a program may compute with them and return them, but not use them beside tensors of the device: what they hold
would be frozen at the first call, without a word, and so would a weight that no module registers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from abele.errors import Unsupported

_kept: dict[int, StorageWeakRef] = {}
"""Storages that captures before made on the device: a program may keep a table of its own for the next one. (While a
weak reference is there, no other storage takes the place.)"""

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
        for place in [p for p, reference in _kept.items() if reference.expired()]:
            del _kept[place]

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

    def moved(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor on the device: itself, or a copy."""
        if not self.has(tensor):
            tensor = tensor.clone()
            self.move([tensor])
        return tensor

    def keep(self, storages: Iterable[torch.UntypedStorage]) -> None:
        """These storages, where they are on the device, are so in the captures to come too."""
        for storage in storages:
            if storage._cdata in self._on_device:
                _kept[storage._cdata] = StorageWeakRef(storage)

    def made(self, results: Iterable[torch.Tensor], operands: Iterable[torch.Tensor], *, lifted: bool) -> None:
        """A call gave ``results``. ``lifted``: it turned Python's data into a tensor."""
        if lifted:
            self.move(results if self._calls else ())
        elif all(not t.dim() or self.has(t) for t in operands):
            # A number may be an element of a tensor of the host, which it does not take along.
            theirs = {t.untyped_storage()._cdata for t in operands if t.untyped_storage().nbytes() > t.element_size()}
            self.move(r for r in results if self.has(r) or r.untyped_storage()._cdata not in theirs)

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
        place = tensor.untyped_storage()._cdata
        return place in self._on_device or place in _kept
