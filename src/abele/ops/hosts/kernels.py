"""Host kernels: the question that the engine asks a family, and the registry of answers.

The counterpart of ``planning`` for the computer at hand: a function of the request alone says which native kernels do
an operation and which memory each of them is given. The engine allocates that memory, compiles and runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from abele.codegen import Kernel
from abele.ir.graph import Attributes
from abele.ir.types import DType, TensorType


@dataclass(frozen=True, slots=True)
class Spec:
    """One operand or result as it lies in host memory.

    Attributes:
        type: shape and element type. Half and 8-bit floats lie as float32 on their grid.
        strides: elements between neighbours, one per dimension.
        constant: True for state that the program never writes: what is made from it alone may be made once.
    """

    type: TensorType
    strides: tuple[int, ...]
    constant: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> str:
        """The dtype as ``codegen`` names it; 8-bit floats are halves that lie on their grid."""
        return "f16" if self.type.dtype.is_float8 else str(self.type.dtype)

    @property
    def is_float(self) -> bool:
        """Whether it lies as floats."""
        return self.dtype in ("f32", "f16")

    @property
    def plain(self) -> bool:
        """Whether it lies row-major without gaps."""
        return self.strides == row_major(self.type.shape)


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides, in elements, of an array without gaps."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


HOST_BYTES = {DType.F16: 4, DType.F143: 4, DType.F152: 4}
"""Bytes of an element in host memory where they differ from the machine's."""


def host_bytes(dtype: DType) -> int:
    """Bytes of one element in host memory."""
    return HOST_BYTES.get(dtype, dtype.bytes)


@dataclass(frozen=True, slots=True)
class Request:
    """One operation to be run on the host."""

    operation: str
    attributes: Attributes
    operands: tuple[Spec, ...]
    results: tuple[Spec, ...]


@dataclass(frozen=True, slots=True)
class Ref:
    """Memory that a kernel is given: ``kind`` is ``in``, ``out``, ``scratch`` or ``packed``; ``offset`` in bytes."""

    kind: str
    index: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel, all of its units, with its pointers. Kernels that need a workspace get it as the last pointer."""

    kernel: Kernel
    pointers: tuple[Ref, ...]


@dataclass(frozen=True, slots=True)
class HostPlan:
    """Kernels that do one operation, in order.

    Attributes:
        launches: run every time.
        scratch: bytes of memory that is free again afterwards, by index.
        packed: bytes of memory that ``packing`` fills from the operands ``packs``. Where all of these are constant
            it is filled once; else the engine runs ``packing`` every time.
    """

    launches: tuple[Launch, ...]
    scratch: tuple[int, ...] = ()
    packed: tuple[int, ...] = ()
    packing: tuple[Launch, ...] = ()
    packs: tuple[int, ...] = ()


HostPlanner = Callable[[Request], HostPlan | None]
P = TypeVar("P", bound=HostPlanner)
KERNELS: dict[str, HostPlanner] = {}
NO_KERNEL: Mapping[str, str] = {
    **dict.fromkeys(
        ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "replica_shard"),
        "the engine does it over all replicas",
    ),
    **dict.fromkeys(
        ("cholesky", "solve", "triangular_solve", "slogdet", "qr", "eigh", "svd"), "LAPACK does it, through NumPy"
    ),
    "ctc_beam_search": "its beams are Python's dictionaries",
    "ctc_loss": "NumPy walks the lattice, all samples and places at once",
    "ctc_loss_gradient": "as ctc_loss",
    "host_call": "it is the user's own Python",
    "host_load": "the engine fills it from a stream",
    "host_store": "the engine hands it to a stream",
    "remote_load": "the host has one memory: the engine sees the operand as the result",
    "transfer": "the host has one memory: the engine sees the operand as the result",
    "remote_store": "the host has one memory: the engine sees the operand as the result",
    "print_tensor": "it is printed from Python",
    "sort": "NumPy's sort is native already",
    "top_k": "NumPy's sort is native already",
}
"""Operations that have a plan, so that they reach the engine whole, and no host kernel: who runs them instead."""


def kernel_for(*names: str) -> Callable[[P], P]:
    """Register how the host runs these operations; the function gives ``None`` for what it does not do."""

    def add(planner: P) -> P:
        for name in names:
            if name in KERNELS:
                raise ValueError(f"operation {name!r} has two host kernels")
            KERNELS[name] = planner
        return planner

    return add


def ins(count: int) -> tuple[Ref, ...]:
    """The first ``count`` operands."""
    return tuple(Ref("in", i) for i in range(count))


def outs(count: int) -> tuple[Ref, ...]:
    """The first ``count`` results."""
    return tuple(Ref("out", i) for i in range(count))


def in_order(kernels: tuple[Kernel, ...] | Kernel, pointers: tuple[Ref, ...]) -> HostPlan:
    """One or several kernels with the same pointers, and the workspace that they ask for."""
    several = (kernels,) if isinstance(kernels, Kernel) else kernels
    space = max(k.workspace for k in several)
    scratch = (space,) if space else ()
    return HostPlan(
        tuple(Launch(k, (*pointers, Ref("scratch", 0)) if k.workspace else pointers) for k in several), scratch
    )
