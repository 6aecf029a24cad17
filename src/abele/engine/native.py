"""The provider ``llvm``: native kernels that the families register in ``ops/*/kernel.py``."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Sequence
from functools import cache

import numpy as np

import abele.ops
from abele.engine.offers import Bound, Call, Offer
from abele.ops.hosts.kernels import KERNELS, HostPlan, Launch, Request


class NativeProvider:
    """Runs the host plans of the families."""

    name = "llvm"

    def __init__(self) -> None:
        load_kernels()
        self._known: dict[tuple, HostPlan | None] = {}

    def offer(self, request: Request) -> Offer | None:
        planner = KERNELS.get(request.operation)
        if planner is None:
            return None
        key = (request.operation, tuple(request.attributes.items()), request.operands, request.results)
        if key not in self._known:
            self._known[key] = planner(request)
        plan = self._known[key]
        return None if plan is None else _offer(plan, request)


@cache
def load_kernels() -> None:
    """Import ``kernel`` of every family, which fills ``KERNELS``."""
    for path in abele.ops.__path__:
        for module in pkgutil.iter_modules([path]):
            name = f"abele.ops.{module.name}.kernel"
            if module.ispkg and importlib.util.find_spec(name) is not None:
                importlib.import_module(name)


def _offer(plan: HostPlan, request: Request) -> Offer:
    once = bool(plan.packing) and all(request.operands[i].constant for i in plan.packs)
    scratch = plan.scratch if once else (*plan.scratch, *plan.packed)

    def bind(
        operands: Sequence[np.ndarray],
        results: Sequence[np.ndarray],
        spaces: Sequence[np.ndarray],
        packed: Sequence[np.ndarray],
    ) -> Bound:
        groups = {
            "in": operands,
            "out": results,
            "scratch": spaces[: len(plan.scratch)],
            "packed": packed if once else spaces[len(plan.scratch) :],
        }

        def call(launch: Launch) -> Call:
            return launch.kernel, tuple(groups[r.kind][r.index].ctypes.data + r.offset for r in launch.pointers)

        packing = tuple(map(call, plan.packing))
        launches = tuple(map(call, plan.launches))
        return Bound(launches, prepare_calls=packing) if once else Bound((*packing, *launches))

    kernels = tuple(launch.kernel for launch in (*plan.packing, *plan.launches))
    return Offer(bind, scratch, plan.packed if once else (), kernels)
