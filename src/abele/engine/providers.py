"""Providers: who runs an operation on the host, and the static rule that chooses between them.

A provider is asked with a :class:`~abele.ops.kernels.Request` (operation, attributes, operands and results with
types and strides, which operands are constant) and answers with an :class:`Offer`, or ``None`` when it does not do this
one. An offer says how much memory it wants, and ``bind`` turns it, once, into something that runs on given arrays.

``llvm``: kernels of ``abele.codegen``, registered by the families in ``ops/*/kernel.py``.
``onednn``: torch's oneDNN operations on the engine's own memory; there only when torch is installed.
``numpy``: the reference of the operation. Slow and right; takes everything. ``Engine.report`` lists what runs there.

The order is the same for every request of an operation: :data:`PREFERENCE` where a family is faster elsewhere,
:data:`ORDER` otherwise. ``ABELE_PROVIDERS=llvm,numpy`` (or the engine's option) restricts which ones are asked.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from abele.codegen import Kernel
from abele.errors import InvalidOption, Unsupported, suggest
from abele.ops.kernels import Request

Call = tuple[Kernel, tuple[int, ...]]
"""A native kernel, all of its units, and its addresses."""


@dataclass(frozen=True)
class Bound:
    """An operation bound to arrays: native ``calls``, or the Python function ``run``.

    ``prepare_calls`` and ``prepare`` are run before the first use and again when a constant operand has changed.
    """

    calls: tuple[Call, ...] = ()
    run: Callable[[], None] | None = None
    prepare_calls: tuple[Call, ...] = ()
    prepare: Callable[[], None] | None = None


@dataclass(frozen=True)
class Offer:
    """How a provider would run a request.

    Attributes:
        bind: ``bind(operands, results, scratch, packed)`` with the arrays of one replica; results may be the memory
            of an operand where the operation works element by element.
        scratch: bytes of arrays that it uses while it runs.
        packed: bytes of arrays that it keeps between runs.
        kernels: native kernels to compile.
        note: what is worth knowing in a report.
    """

    bind: Callable[[Sequence[np.ndarray], Sequence[np.ndarray], Sequence[np.ndarray], Sequence[np.ndarray]], Bound]
    scratch: tuple[int, ...] = ()
    packed: tuple[int, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    note: str = ""


class Provider(Protocol):
    """Something that runs operations."""

    name: str

    def offer(self, request: Request) -> Offer | None:
        """How to run this request, or ``None``."""
        ...


ORDER = ("llvm", "onednn", "numpy")
PREFERENCE: dict[str, tuple[str, ...]] = dict.fromkeys(
    (
        "conv",
        "conv_input_grad",
        "conv_weight_grad",
        "max_pool",
        "max_pool_grad",
        "avg_pool",
        "avg_pool_grad",
        "attention",
    ),
    ("onednn", "llvm", "numpy"),
)
"""Operations for which another order is faster (measured in benchmarks/engine_*.py)."""


@dataclass
class Providers:
    """The providers that may be asked, by name.

    :meth:`make` takes names in any order, or ``None`` for those of ``ABELE_PROVIDERS``, else all that are installed.
    """

    by_name: dict[str, Provider] = field(default_factory=dict)

    @classmethod
    def make(cls, names: Sequence[str] | None = None) -> Providers:
        given = list(names) if names is not None else _from_environment()
        chosen = given if given is not None else [n for n in ORDER if n != "onednn" or has_torch()]
        for name in chosen:
            if name not in _MAKERS:
                raise InvalidOption(f"There is no provider {name!r}", remedy=suggest(name, _MAKERS))
        if "onednn" in chosen and not has_torch():
            raise InvalidOption("The provider 'onednn' needs torch", remedy="pip install 'abele[torch]'")
        return cls({name: _MAKERS[name]() for name in chosen})

    def order(self, operation: str) -> tuple[str, ...]:
        """Who is asked for an operation, first to last."""
        return tuple(n for n in PREFERENCE.get(operation, ORDER) if n in self.by_name)

    def offer(self, request: Request, where: str = "") -> tuple[str, Offer]:
        """The name and offer of the first provider that takes the request."""
        root = str(request.attributes.get("root", request.operation))
        for name in self.order(root):
            offer = self.by_name[name].offer(request)
            if offer is not None:
                return name, offer
        raise Unsupported(
            f"None of the providers {', '.join(self.by_name)} runs {request.operation}",
            where=where,
            remedy="Allow the provider 'numpy', which runs every operation.",
        )


def has_torch() -> bool:
    """Whether torch is installed (it is not imported)."""
    return importlib.util.find_spec("torch") is not None


def _from_environment() -> list[str] | None:
    text = os.environ.get("ABELE_PROVIDERS", "")
    return [name.strip() for name in text.split(",") if name.strip()] or None


def _llvm() -> Provider:
    from abele.engine.native import NativeProvider

    return NativeProvider()


def _onednn() -> Provider:
    from abele.engine.onednn import OneDnnProvider

    return OneDnnProvider()


def _numpy() -> Provider:
    from abele.engine.plain import NumpyProvider

    return NumpyProvider()


_MAKERS: dict[str, Callable[[], Provider]] = {"llvm": _llvm, "onednn": _onednn, "numpy": _numpy}
