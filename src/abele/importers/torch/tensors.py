"""Tensors of a program that is captured, and the values of the graph for which they stand.

What the dispatch mode of ``tracer`` is, but for the calls: inputs of the graph, constants, reading and writing tensors,
and where gradients stop.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from abele.errors import Bug, Unsupported
from abele.importers.torch import complexes
from abele.importers.torch.calls import metas, on_meta, twin
from abele.importers.torch.dtypes import machine_type, to_numpy
from abele.importers.torch.emitter import Emitter
from abele.importers.torch.host import Host
from abele.importers.torch.origin import Origins
from abele.importers.torch.storage import Place, Storages, place_of
from abele.ir import DType, Operation, Origin, Port, TensorType, Value


@dataclass(frozen=True)
class Overlapped:
    """A value whose transfer with the host is marked to overlap with compute.

    Attributes:
        function: that marked it: ``set_overlap_for_input`` or ``set_overlap_for_output``.
        value: the value; ``used`` says whether an operation had read it before.
    """

    function: str
    value: Value
    used: bool


class Tensors(TorchDispatchMode):
    """The tensors of one capture.

    Args:
        origins: says where each operation comes from.
        training: gradients will be taken, so that detached tensors must stop them.
        device_apart: tensors of the host cannot be constants of the graph (see :class:`Host`).
    """

    def __init__(self, origins: Origins, *, training: bool, device_apart: bool = False) -> None:
        super().__init__()
        self.origins, self.training = origins, training
        self.host = Host(origins.where) if device_apart else None
        self.e = Emitter(self.lift_array, self.random_key)
        self.places = Storages(self.e)
        self.complexes = complexes.Complexes()
        self.inputs: list[tuple[Port, Value]] = []
        self.constants: dict[str, torch.Tensor] = {}
        self.losses: list[Value] = []
        self.overlapped: list[Overlapped] = []
        self.prologue: list[Operation] = []
        self._seed: Value | None = None
        self._plain = False
        self._generators_told = False
        self._own_gradient = 0
        self._local: dict[int, torch.UntypedStorage] = {}
        self._theirs: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        self._alive: list[torch.UntypedStorage] = []
        self._lifted: dict[tuple, Value] = {}
        self._known: dict[tuple, Value] = {}
        self._input_values: set[Value] = set()
        self._handles: dict[int, tuple[torch.Tensor, torch.UntypedStorage]] = {}
        self._constant_roots: dict[Place, torch.Tensor] = {}

    # Inputs of the graph

    def state(self, tensor: torch.Tensor, name: str) -> None:
        """The tensor is a parameter or buffer: it becomes an input when something reads it."""

        def make() -> Value:
            return self.add_input(Port("state", name), machine_type(tensor))

        self.places.add_root(tensor, make)

    def add_input(self, port: Port, type_: TensorType) -> Value:
        """A new input of the graph."""
        value = Value(type_)
        self.inputs.append((port, value))
        self._input_values.add(value)
        return value

    def random_key(self) -> Value:
        """A key of its own for a random operation. Keys are made at the beginning of the graph, from the seed."""
        if self._seed is None:
            self._seed = self.add_input(Port("state", "seed"), TensorType((2,), DType.U32))
        before, self.e.b.operations = self.e.b.operations, self.prologue
        try:
            with self.e.b.at(Origin()):
                return self.e.emit("random_key", self._seed, index=len(self.prologue))
        finally:
            self.e.b.operations = before

    def lift_array(self, array: np.ndarray) -> Value:
        """A tensor of known values: a fill or an iota where it is one, else a state input ``constant.N``."""
        simple = self._simple(array)
        if simple is not None:
            return simple
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._known:
            name = f"constant.{len(self.constants)}"
            self.constants[name] = torch.from_numpy(np.array(array, order="C")).reshape(array.shape)
            self._known[key] = self.add_input(Port("state", name), TensorType(array.shape, DType.of(array.dtype)))
        return self._known[key]

    def _simple(self, array: np.ndarray) -> Value | None:
        dtype = DType.of(array.dtype)
        if not array.size:
            return self.e.number(0, dtype, array.shape)
        first = array.reshape(-1)[0]
        if np.array_equal(array, np.broadcast_to(first, array.shape), equal_nan=dtype.is_float):
            return self.e.number(first.item(), dtype, array.shape)
        if array.ndim == 1 and dtype is DType.I32:
            step = int(array[1]) - int(array[0])
            if np.array_equal(array, int(array[0]) + step * np.arange(array.size)):
                return self.e.emit("iota", shape=array.shape, axis=0, dtype="i32", start=int(array[0]), step=step)
        return None

    # Reading and writing

    def read(self, tensor: torch.Tensor) -> Value:
        """The value for which a tensor stands; one that the graph does not know becomes a constant."""
        if tensor.is_complex():
            raise Unsupported(
                "A complex tensor is returned, or used where there are no rules for complex numbers",
                where=self.where(),
                remedy="Return torch.view_as_real(x) and make it complex again outside (torch.view_as_complex).",
            )
        if self.places.knows(tensor):
            return self.places.read(tensor)
        return self._lift(tensor)

    def output(self, tensor: torch.Tensor) -> Value:
        """The value of a tensor that the program returns, which may be the host's."""
        host, self.host = self.host, None
        try:
            return self.read(tensor)
        finally:
            self.host = host

    def keep_tables(self) -> None:
        """Tensors that the program made on the device and never wrote with a value of the graph stay there."""
        if self.host is not None:
            self.host.keep(s for place, s in self._local.items() if place not in self.places.main)

    def _lift(self, tensor: torch.Tensor) -> Value:
        if tensor.device.type == "meta":
            constant = self.grasp(tensor)
            if constant is not tensor:
                return self._lift(constant)
            raise Unsupported(
                f"A tensor of shape {list(tensor.shape)} on the meta device is used, which has no values",
                where=self.where(),
                remedy="Register it as a parameter or buffer of the module, or create it on the CPU.",
            )
        if self.host is not None:
            self.host.refuse(tensor)
        # Tensors of inference_mode do not count their changes: they are looked at every time.
        key = (*place_of(tensor), len(self._lifted) if tensor.is_inference() else tensor._version)
        if key not in self._lifted or not tensor.numel():
            value = self.lift_array(to_numpy(tensor))
            if value in self._input_values:
                self._lifted[key] = value
                self._alive.append(tensor.untyped_storage())  # so that no other takes its place
            return value
        return self._lifted[key]

    def write(self, tensor: torch.Tensor, value: Value) -> None:
        """The tensor's elements become ``value``, which is cast and broadcast to the tensor's type."""
        self.adopt(tensor)
        value = self.e.expand(self.e.cast(value, machine_type(tensor).dtype), tensor.shape)
        if not self._gradients_stop():
            self.places.write(tensor, value)
            return
        before = self.places.whole(tensor)
        self.places.write(tensor, value)
        self.places.exchange(tensor, self.straight_through(self.places.whole(tensor), before))

    def straight_through(self, value: Value, before: Value) -> Value:
        """What is written without autograd's knowledge: new values, the gradient of those ``before``."""
        return self.e.emit("straight_through", value, before) if self.training and value.dtype.is_float else value

    def adopt(self, tensor: torch.Tensor) -> None:
        """A constant is about to be written: from now on its storage stands for a value of the graph."""
        if self.places.knows(tensor):
            return
        place = place_of(tensor)
        while place in self.places.views:
            place = self.places.views[place].parent
        root = tensor if place == place_of(tensor) else self._constant_roots[place]
        value = self._lift(root)
        self.places.add_root(root, lambda: value)

    def bind(self, tensor: torch.Tensor, value: Value) -> torch.Tensor:
        """A new tensor that stands for ``value``: ``tensor``, unless it shares its storage with another."""
        if tensor.device.type != "meta" or self.places.knows(tensor):
            tensor = self.plainly(twin, tensor)
        expected = machine_type(tensor)
        if value.type != expected:
            if value.shape != expected.shape:
                raise Bug(f"The rule of {self.e.name} gave {value.type} for {expected}", where=self.where())
            value = self.e.cast(value, expected.dtype)
        if self._gradients_stop():
            value = self.stop_gradient(value)  # never the same value as that of a tensor through which gradients flow
        self.places.set(tensor, value)
        return tensor

    def new(self, value: Value, dtype: torch.dtype) -> torch.Tensor:
        """A tensor with this torch type that stands for ``value``."""
        return self.bind(self.plainly(torch.empty, value.shape, dtype=dtype, device="meta"), value)

    def plainly(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Call torch on meta tensors without translating the call."""
        before, self._plain = self._plain, True
        try:
            return func(*args, **kwargs)
        finally:
            self._plain = before

    def described(self, func: Any, args: tuple, kwargs: dict | None = None) -> Any:
        """What torch would give for these arguments, as meta tensors."""
        return self.plainly(lambda: func(*metas(args), **metas(on_meta(kwargs or {}))))

    # Gradients that stop

    def _gradients_stop(self) -> bool:
        """Whether the program that is to be trained has turned gradients off where it runs now."""
        if not self.training or self._own_gradient or torch.is_grad_enabled():
            return False
        reason = self.origins.who_stops_gradients()
        if reason == "function":
            raise Unsupported(
                "A torch.autograd.Function of torch's own is used in a model that is trained",
                where=self.where(),
                remedy="Write its forward with plain operations, whose gradient is derived, or a Function of your own.",
            )
        return reason != "torch"

    def stop_gradient(self, value: Value) -> Value:
        """The same value, through which no gradient flows when the program is trained."""
        return self.e.emit("stop_gradient", value) if self.training and value.dtype.is_float else value

    @contextlib.contextmanager
    def own_gradient(self) -> Iterator[None]:
        """What is captured inside brings its gradient along: that gradients are off there means nothing."""
        self._own_gradient += 1
        try:
            yield
        finally:
            self._own_gradient -= 1

    @contextlib.contextmanager
    def apart(self, phase: str) -> Iterator[list[Operation]]:
        """Operations emitted inside go into a list of their own, and no tensor from outside stands for their results.

        Raises:
            Unsupported: a tensor from outside is written in place.
        """
        outer, before, roots = self.e.b.operations, self.origins.phase, self.places.versions()
        operations: list[Operation] = []
        self.e.b.operations, self.origins.phase = operations, phase
        try:
            yield operations
        finally:
            self.e.b.operations, self.origins.phase = outer, before
        if not self.places.forget({v for op in operations for v in op.results}, roots):
            raise Unsupported(
                f"The {phase} of an autograd function writes into a tensor that was there before it",
                where=self.where(),
                remedy="Write into a clone of it.",
            )

    # Where the program is

    def where(self) -> str:
        """The user's line, for messages."""
        return self.origins.where()

    @contextlib.contextmanager
    def located(self) -> Iterator[None]:
        """Operations emitted inside carry the user's line that runs now."""
        with self.e.b.at(self.origins.here()):
            yield

    def involved(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether any of the tensors stands for a value of the graph."""
        return any((self.complexes if t.is_complex() else self.places).knows(t) for t in tensors)

    # Constants of which torch wants a tensor on the meta device

    def handle(self, constant: torch.Tensor) -> torch.Tensor:
        """A meta tensor that stands for a constant.

        Where torch itself asks for a tensor beside another (``quantile`` its fractions, indexing its index), it wants
        that on the meta device. Calls are given the constant in its place.
        """
        handle = self.plainly(twin, constant)
        self._handles[handle.untyped_storage()._cdata] = (constant, handle.untyped_storage())
        return handle

    def grasp(self, data: Any) -> Any:
        """Arguments with constants in the place of their handles."""
        if isinstance(data, torch.Tensor):
            if data.device.type != "meta":
                return data
            found = self._handles.get(data.untyped_storage()._cdata)
            if found is None:
                return data
            return found[0].as_strided(data.shape, data.stride(), data.storage_offset())
        if isinstance(data, tuple | list):
            return type(data)(self.grasp(d) for d in data)
        if isinstance(data, dict):
            return {k: self.grasp(v) for k, v in data.items()}
        return data
