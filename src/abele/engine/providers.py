"""Providers: who runs an operation on the host, and the static rule that chooses between them.

A provider is asked with a :class:`~abele.ops.hosts.kernels.Request` (operation, attributes, operands and results with
types and strides, which operands are constant) and answers with an :class:`~abele.engine.offers.Offer`, or ``None``
when it does not do this one. An offer says how much memory it wants, and ``bind`` turns it, once, into something that
runs on given arrays.

``llvm``: kernels of ``abele.codegen``, registered by the families in ``ops/*/kernel.py``.
``onednn``: torch's oneDNN operations on the engine's own memory; there only when torch is installed.
``numpy``: the reference of the operation. Slow and right; takes everything. ``Engine.report`` lists what runs there.

The order is the same for every request of an operation: :data:`PREFERENCE` for what oneDNN does,
:data:`WITHOUT_TORCH` otherwise. ``ABELE_PROVIDERS=llvm,numpy`` (or the engine's option) restricts which ones are asked.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence

from abele.engine.offers import Offer, Provider
from abele.engine.threads import sleep_at_barriers
from abele.errors import InvalidOption, Unsupported, suggest
from abele.ops.hosts.kernels import Request

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
"""Operations that oneDNN does, and faster than the others on the whole: ``benchmarks/engine_*.py`` measures both."""
WITHOUT_TORCH = ("llvm", "numpy")
"""The order for all other operations."""


class Providers:
    """The providers that may be asked, made when they first are: torch is imported for a convolution, not for a map.

    Args:
        names: in any order, or ``None`` for those of ``ABELE_PROVIDERS``, else all that are installed.

    Raises:
        InvalidOption: a name that is not known, or ``onednn`` without torch.
    """

    def __init__(self, names: Sequence[str] | None = None) -> None:
        given = list(names) if names is not None else _from_environment()
        self.names = tuple(given) if given is not None else tuple(n for n in ORDER if n != "onednn" or has_torch())
        self._made: dict[str, Provider] = {}
        for name in self.names:
            if name not in _MAKERS:
                raise InvalidOption(f"There is no provider {name!r}", remedy=suggest(name, _MAKERS))
        if "onednn" in self.names and not has_torch():
            raise InvalidOption("The provider 'onednn' needs torch", remedy="pip install 'abele[torch]'")

    def order(self, operation: str) -> tuple[str, ...]:
        """Who is asked for an operation, first to last."""
        known = PREFERENCE.get(operation, WITHOUT_TORCH)
        return tuple(n for n in known if n in self.names)

    def offer(self, request: Request, where: str = "") -> tuple[str, Offer]:
        """The name and offer of the first provider that takes the request; ``Unsupported`` when none does."""
        for name in self.order(str(request.attributes.get("root", request.operation))):
            if name not in self._made:
                self._made[name] = _MAKERS[name]()
            offer = self._made[name].offer(request)
            if offer is not None:
                return name, offer
        raise Unsupported(
            f"None of the providers {', '.join(self.names)} runs {request.operation}",
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
    sleep_at_barriers()  # before torch is imported
    from abele.engine.onednn import OneDnnProvider

    return OneDnnProvider()


def _numpy() -> Provider:
    from abele.engine.plain import NumpyProvider

    return NumpyProvider()


_MAKERS: dict[str, Callable[[], Provider]] = {"llvm": _llvm, "onednn": _onednn, "numpy": _numpy}
