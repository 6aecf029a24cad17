"""The provider ``numpy``: NumPy on the engine's arrays. It runs everything, slowly; ``Engine.report`` names what.

Operations that only move values are done on the arrays as they lie. All others go through their reference, which
computes in float64, and are rounded to the result types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from abele.engine.offers import Bound, Offer
from abele.ir.interpret import evaluate_operation
from abele.ops.hosts.kernels import Request

Arrays = Sequence[np.ndarray]


class NumpyProvider:
    """Runs the NumPy reference."""

    name = "numpy"

    def offer(self, request: Request) -> Offer:
        direct = _DIRECT.get(request.operation)
        if direct is not None:
            attributes: Any = request.attributes

            def bind_direct(operands: Arrays, results: Arrays, scratch: Arrays, packed: Arrays) -> Bound:
                return Bound(run=direct(operands, results, attributes))

            return Offer(bind_direct)
        types = [spec.type for spec in request.results]
        wanted = [spec.type.dtype.numpy for spec in request.operands]

        def bind(operands: Arrays, results: Arrays, scratch: Arrays, packed: Arrays) -> Bound:
            def run() -> None:
                with np.errstate(all="ignore"):
                    given = [np.array(a, d, order="C") for a, d in zip(operands, wanted, strict=True)]
                    made = evaluate_operation(request.operation, given, request.attributes, types)
                    for result, value in zip(results, made, strict=True):
                        result[...] = value

            return Bound(run=run)

        return Offer(bind)


Direct = Callable[[Arrays, Arrays, Any], Callable[[], None]]


def _window(starts: np.ndarray, whole: Sequence[int], sizes: Sequence[int]) -> tuple[slice, ...]:
    """The slices of a dynamic window, moved inside where it would reach out."""
    first = [min(max(int(s), 0), n - w) for s, n, w in zip(starts, whole, sizes, strict=True)]
    return tuple(slice(f, f + w) for f, w in zip(first, sizes, strict=True))


def _dynamic_slice(operands: Arrays, results: Arrays, attributes: Any) -> Callable[[], None]:
    (x, starts), (y,) = operands, results

    def run() -> None:
        y[...] = x[_window(starts, x.shape, y.shape)]

    return run


def _dynamic_update(operands: Arrays, results: Arrays, attributes: Any) -> Callable[[], None]:
    (x, update, starts), (y,) = operands, results

    def run() -> None:
        if y.ctypes.data != x.ctypes.data:
            y[...] = x
        y[_window(starts, x.shape, update.shape)] = update

    return run


def _sort(operands: Arrays, results: Arrays, attributes: Any) -> Callable[[], None]:
    (x,), (values, indices) = operands, results
    axis, descending = attributes["axis"], attributes["descending"]

    def run() -> None:
        given = np.flip(x, axis) if descending else x
        order = np.argsort(given, axis=axis, kind="stable")
        if descending:
            order = np.flip(x.shape[axis] - 1 - order, axis)
        indices[...] = order
        values[...] = np.take_along_axis(x, order, axis)

    return run


def _print_tensor(operands: Arrays, results: Arrays, attributes: Any) -> Callable[[], None]:
    (x,), (y,) = operands, results

    def run() -> None:
        print(f"{attributes['title']}: {x}")
        y[...] = x

    return run


_DIRECT: dict[str, Direct] = {
    "dynamic_slice": _dynamic_slice,
    "dynamic_update": _dynamic_update,
    "sort": _sort,
    "print_tensor": _print_tensor,
}
