"""The provider ``numpy``: the reference of an operation on the engine's arrays, rounded to the result types.

It runs everything, slowly, and allocates as NumPy does. ``Engine.report`` names the operations that it runs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from abele.engine.providers import Bound, Offer
from abele.ir.interpret import evaluate_operation
from abele.ops.kernels import Request


class NumpyProvider:
    """Runs the NumPy reference."""

    name = "numpy"

    def offer(self, request: Request) -> Offer:
        types = [spec.type for spec in request.results]
        wanted = [spec.type.dtype.numpy for spec in request.operands]

        def bind(operands: Sequence[np.ndarray], results: Sequence[np.ndarray], scratch, packed) -> Bound:
            def run() -> None:
                with np.errstate(all="ignore"):
                    given = [np.array(a, d, order="C") for a, d in zip(operands, wanted, strict=True)]
                    made = evaluate_operation(request.operation, given, request.attributes, types)
                    for result, value in zip(results, made, strict=True):
                        result[...] = value

            return Bound(run=run)

        return Offer(bind, note="NumPy reference")
