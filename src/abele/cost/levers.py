"""What would make a program fit: each lever is pulled, compiled and charged, and shown with what it gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from abele.compile.executable import compile_graph
from abele.compile.passes.sharding import USUAL
from abele.compile.pipelines import CompileOptions
from abele.cost.profile import Profile, cost
from abele.errors import AbeleError
from abele.ir.graph import Graph


@dataclass(frozen=True, slots=True)
class Lever:
    """One change that was tried.

    Attributes:
        change: in words.
        settings: what changes, by the names that ``abele profile`` has for it.
        max: bytes on the fullest tile with it; ``throughput`` in samples a second; ``fits`` the verdict.
        error: why it could not be compiled, or empty.
    """

    change: str
    settings: Mapping[str, Any]
    max: int = 0
    fits: bool = False
    throughput: float = 0.0
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        """Its figures, or the error in their place."""
        shared = {"change": self.change, "settings": dict(self.settings), "fits": self.fits}
        return shared | ({"error": self.error} if self.error else {"max": self.max, "throughput": self.throughput})


Candidate = tuple[str, Mapping[str, Any], Callable[[], Profile]]
"""A change in words and as settings, and what compiles and charges the changed program."""


def pull(candidates: Iterable[Candidate], tell: Callable[[str], None] = lambda step: None) -> list[Lever]:
    """Try each change; ``tell`` is called with its place among them, in words, before each."""
    found, tried = [], list(candidates)
    for place, (change, settings, attempt) in enumerate(tried, start=1):
        tell(f"remedy {place} of {len(tried)}: {change}")
        try:
            profile = attempt()
        except AbeleError as error:
            found.append(Lever(change, settings, error=str(error)))
        else:
            memory = profile.memory
            found.append(Lever(change, settings, memory.max, memory.fits, profile.throughput))
    return found


def candidates(
    graph: Graph, options: CompileOptions, batch: int, compile: Callable[..., Any] = compile_graph
) -> Iterator[Candidate]:
    """Other options for the same graph that take less tile memory; ``batch`` samples are in a micro-batch."""
    placed = not options.split and any(op.origin.ipu for op in graph.operations)
    for change, settings in _changes(options, placed):
        other = replace(options, **{_OPTIONS.get(name, name): value for name, value in settings.items()})
        if "stages" in settings:
            other = replace(other, split=True)

        def attempt(other: CompileOptions = other) -> Profile:
            samples = batch * other.accumulation * other.replicas
            return cost(compile(graph, other).schedule, other.system, samples=samples)

        yield change, settings, attempt


_OPTIONS = {"accumulate": "accumulation"}


def _changes(options: CompileOptions, placed: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    recompute, offload = {"recompute": "standard"}, {"offload": True}
    if options.optimiser is not None:
        whole = options.recompute in ("standard", "recompute_all")
        if not whole:
            yield "recompute layers and blocks in the backward pass", recompute
        if not options.offload:
            yield "optimizer state in streaming memory", offload
        if not whole and not options.offload:
            yield "both of them", recompute | offload
        if options.replicas > 1 and not options.shard:
            yield "optimizer state sharded over the replicas", {"shard": USUAL}
        if not options.offload_activations and not options.phased:
            everything = {"offload_activations": True, "offload_weights": True}
            yield "weights and activations in streaming memory too", recompute | offload | everything
    stages = options.stages * 2
    while not placed and stages * options.replicas <= options.system.ipus and stages <= 8 * options.stages:
        yield f"{stages} pipeline stages", {"stages": stages, "accumulate": max(options.accumulation, 2 * stages)}
        stages *= 2
