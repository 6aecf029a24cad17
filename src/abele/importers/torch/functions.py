"""The function mode: calls of torch's API that are handled before torch takes them apart.

Some lose their meaning on the way to ATen (a loss, attention, an LSTM), some read values without telling the
dispatcher (``tolist``), and some would show that tensors are on the meta device.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from abele.errors import Unsupported
from abele.importers.torch import dependent
from abele.importers.torch.calls import tensors_in
from abele.importers.torch.emitter import Emitter
from abele.importers.torch.rules.indexing import from_start
from abele.importers.torch.table import FUNCTIONS, function
from abele.importers.torch.tracer import Tracer
from abele.ir import DType, Value

_TENSOR: Any = torch.Tensor
_wrapped = torch._C._functorch.is_functorch_wrapped_tensor  # type: ignore[attr-defined]


class Functions(TorchFunctionMode):
    """Looks every call up in the table ``FUNCTIONS`` when a tensor of the graph takes part in it."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self.tracer = tracer

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if any(torch.is_autocast_enabled(kind) for kind in ("cpu", "ipu")):
            raise Unsupported(
                "torch.autocast is active in a captured model",
                where=self.tracer.where(),
                remedy="Cast the module or some of its layers with half(), and the tensors between them.",
            )
        host = self.tracer.host
        args, kwargs = tuple(self._here(a) for a in args), {k: self._here(v) for k, v in kwargs.items()}
        if host is None:
            return self._call(func, args, kwargs)
        if func is torch.device and args[:1] == (torch.device("cpu"),):
            return _APART
        if func == _TENSOR.device.__get__ and (host.has(args[0]) or self.tracer.involved(args[:1])):
            return _APART
        with host.function():
            result = self._call(func, args, kwargs)
        if func is _TENSOR.ipu or (
            func in (_TENSOR.to, _TENSOR.type_as) and self._names_device((*args[1:], *kwargs.values()))
        ):
            constant = self.tracer.grasp(result)
            if constant.device.type != "meta" and not self.tracer.involved([constant]):
                return host.moved(constant)
        return result

    def _names_device(self, places: Sequence[Any]) -> bool:
        """Whether one of these arguments is the device, or a tensor there."""
        return any(isinstance(p, torch.device) for p in places) or self.tracer.involved(tensors_in(places, {}))

    def _call(self, func: Any, args: tuple, kwargs: dict) -> Any:
        rule = FUNCTIONS.get(func)
        if rule is not None:
            tensors = tensors_in(args, kwargs)
            if any(_wrapped(t) for t in tensors):  # inside torch.func: its gradients go through here
                known = func is torch.autograd.grad
            else:
                known = func is _TENSOR.ipu or self.tracer.involved(tensors)
            if known:
                return rule(self.tracer, func, args, kwargs)
        return func(*args, **kwargs)

    def _here(self, value: Any) -> Any:
        """The machine is where a model being captured is already: its names become the device that values are made on.

        Other accelerators are refused, whatever torch would say.
        """
        named = isinstance(value, str) and _DEVICE.fullmatch(value) is not None
        if not named and not isinstance(value, torch.device):
            return value
        kind = torch.device(value).type
        if kind == "meta":
            return value
        if kind not in ("cpu", "ipu", "xla"):
            raise Unsupported(
                f"The device {str(value)!r} is asked for in a captured model",
                where=self.tracer.where(),
                remedy="Leave it away, or use the device of a tensor that is there (x.device).",
            )
        return torch.device("cpu")


_DEVICE = re.compile(r"(ipu|xla|cuda|mps|xpu|hpu)(:\d+)?")
_APART = torch.device("cpu:0")
"""What tensors show as theirs where the device is apart from the host, whose own show ``cpu``: what a model keeps by
device is not taken for the host's. It is of the type on which torch, and models, go ways that can be captured."""


@function(_TENSOR.ipu)
def _to_machine(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    return args[0]


@function(_TENSOR.cuda, _TENSOR.xpu)
def _to_accelerator(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    raise Unsupported(
        f"A tensor is moved to another accelerator ({func.__name__}) in a captured model",
        where=tracer.where(),
        remedy="Leave it away: tensors of the model are where it runs.",
    )


@function(torch.autograd.grad, torch.autograd.backward, _TENSOR.backward, _TENSOR.register_hook, _TENSOR.retain_grad)
def _gradient(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    raise Unsupported(
        f"A gradient is asked for ({func.__name__}) in a captured model",
        where=tracer.where(),
        remedy="The whole model is differentiated when it is trained; within it, write the derivative with operations, "
        "or the backward of a torch.autograd.Function.",
    )


@function(_TENSOR.device.__get__)
def _device(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    return torch.device("cpu")


@function(_TENSOR.is_cpu.__get__)
def _is_cpu(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    return True


@function(_TENSOR.is_meta.__get__)
def _is_meta(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    return False


@function(_TENSOR.tolist, _TENSOR.numpy, _TENSOR.__array__)
def _to_host(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    dependent.refuse(func.__name__, tracer.where())


@function(_TENSOR.__format__)
def _format(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    if args[1]:
        dependent.refuse("__format__", tracer.where())
    return func(*args, **kwargs)


@function(_TENSOR.detach, torch.detach, _TENSOR.data.__get__)
def _detach(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    """A view of the same elements that stops gradients."""
    source = args[0]
    if not tracer.training:
        return func(*args, **kwargs)
    with tracer.located():
        return tracer.view_apart(source, source, lambda e, x: x, lambda e, x, new: new)


@function(_TENSOR.data.__set__)
def _set_data(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    """``x.data = y`` writes the elements of ``y`` into ``x``, which keeps its place."""
    target, source = args
    with tracer.located(), torch.no_grad():
        tracer.write(target, tracer.read(source))


@function(_TENSOR.__getitem__)
def _subscript(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    """Lists of numbers in an index become tensors here, and a tensor of one number stays one: torch would read it."""
    target: torch.Tensor = args[0]
    index: list[Any] = list(_index_tuple(args[1]))
    for place, dim in _single(tracer, tuple(index), target.dim()):
        target = _selected(tracer, target, dim, index[place])
        index[place] = 0
    return func(target, tuple(index))


def _selected(tracer: Tracer, target: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    """``target`` cut down along ``dim`` to the place that the index has when the program runs: a view, as in torch."""
    if not tracer.involved([target]):
        return target[(*[slice(None)] * dim, index.reshape(1).to(torch.int64))]
    rank, length = target.dim(), target.shape[dim]

    def starts(e: Emitter) -> Value:
        at = from_start(e, e.reshape(tracer.read(index), (1,)), length)
        return e.concat([e.number(0, DType.I32, (dim,)), at, e.number(0, DType.I32, (rank - dim - 1,))], 0)

    with tracer.located():
        place = starts(tracer.e)  # read now: a later write to the index does not move the view
    sizes = tuple(1 if d == dim else n for d, n in enumerate(target.shape))
    shown = tracer.plainly(torch.empty, sizes, dtype=target.dtype, device="meta")
    shown = tracer.view_of(
        shown,
        target,
        lambda e, x: e.emit("dynamic_slice", x, place, sizes=sizes),
        lambda e, x, new: e.emit("dynamic_update", x, new, place),
    )
    with tracer.located():
        tracer.places.read(shown)
    return shown


@function(_TENSOR.__setitem__)
def _set_subscript(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    """As for reading; a value is given the dimension that a tensor of one number takes away."""
    target, index, value = args
    index = _index_tuple(index)
    mask = index[0] if len(index) == 1 else None
    if isinstance(mask, torch.Tensor) and mask.dtype is torch.bool and not mask.dim() and tracer.involved([mask]):
        target.copy_(torch.where(mask, value, target))  # all of it or nothing
        return None
    singles = _single(tracer, index, target.dim())
    if not singles:
        return func(target, index, value)
    plain = tuple(0 if any(i == place for place, _ in singles) else item for i, item in enumerate(index))
    if any(isinstance(item, torch.Tensor) for item in plain):
        raise Unsupported(
            "A tensor of one number and another tensor are used as one index to write to",
            where=tracer.where(),
            remedy="Give both as tensors of one dimension.",
        )
    places = [place for place, _ in singles]
    if places != list(range(places[0], places[0] + len(places))):
        dependent.refuse("mask_index", tracer.where())
    if isinstance(value, torch.Tensor):
        shape = tracer.described(_TENSOR.__getitem__, (target, plain)).shape
        value = value.expand(shape).unsqueeze(_dimension(index, places[0], target.dim(), of_result=True))
    whole = tuple(item.reshape(1) if i in places else item for i, item in enumerate(index))
    return func(target, whole, value)


def _index_tuple(index: Any) -> tuple:
    if isinstance(index, list) and any(isinstance(i, list | tuple | slice | None) for i in index):
        index = tuple(index)  # as torch takes it, which warns
    return tuple(_as_tensor(item) for item in (index if isinstance(index, tuple) else (index,)))


def _single(tracer: Tracer, index: tuple, rank: int) -> list[tuple[int, int]]:
    """Where in an index a tensor of one whole number of the graph stands, and the dimension that it indexes."""
    found = []
    for place, item in enumerate(index):
        one = isinstance(item, torch.Tensor) and not item.dim() and item.dtype not in (torch.bool, torch.uint8)
        if one and not item.is_floating_point() and tracer.involved([item]):
            found.append((place, _dimension(index, place, rank)))
    return found


def _taken(item: Any) -> int:
    """How many dimensions of the operand an item of an index stands for."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    return item.dim() if isinstance(item, torch.Tensor) and item.dtype in (torch.bool, torch.uint8) else 1


def _dimension(index: tuple, place: int, rank: int, of_result: bool = False) -> int:
    """Which dimension of the operand, or of the result, an item of an index stands for."""
    before = index[:place]
    skipped = rank - sum(_taken(i) for i in index) if any(i is Ellipsis for i in before) else 0
    if of_result:
        return skipped + sum(i is None or isinstance(i, slice) for i in before)
    return skipped + sum(_taken(i) for i in before)


def _as_tensor(item: Any) -> Any:
    if isinstance(item, list | np.ndarray) and not any(isinstance(i, torch.Tensor | slice) for i in item):
        return torch.tensor(item) if len(item) else torch.empty(0, dtype=torch.int64)
    return item


@function(_TENSOR.type)
def _type(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    """Without a type to change to: the name of the tensor's, as on the host."""
    return args[0].new_empty(0, device="cpu").type() if len(args) == 1 and not kwargs else func(*args, **kwargs)


@function(_TENSOR.new)
def _new(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    """Of a size, or of numbers given in Python."""
    data = args[1] if len(args) == 2 else None
    if isinstance(data, torch.Size) or not isinstance(data, list | tuple | np.ndarray | torch.Tensor):
        return func(*args, **kwargs)
    return torch.as_tensor(data, dtype=args[0].dtype)


@function(_TENSOR.new_tensor)
def _new_tensor(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    """Numbers given in Python, in the type of the tensor."""
    like, data, *_ = (*args, kwargs.get("data"))
    return torch.tensor(data, dtype=kwargs.get("dtype") or like.dtype)
