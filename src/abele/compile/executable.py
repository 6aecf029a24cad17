"""Compiling as a function: graph and options in, executable out; the same in gives the same out.

An executable is the checked schedule and the key of what it was made from. Compiled programs are cached on disk by
that key.
"""

from __future__ import annotations

import gc
import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import abele
from abele.charge import Charged, cheapest
from abele.charge.cycles import streamed_bytes
from abele.compile.abreast import side_by_side
from abele.compile.cache import Cache
from abele.compile.lower import lower
from abele.compile.passes.base import PassRecord, run_passes
from abele.compile.pipelines import POPLIBS, CompileOptions, Way, io_tiles_for, passes_for, ways_of
from abele.errors import AbeleError
from abele.ir.graph import Graph
from abele.ir.operation import OPERATIONS, Composite, expansion
from abele.ir.text import print_graph
from abele.machine.system import System
from abele.schedule.records import Schedule
from abele.schedule.rules import check
from abele.schedule.text import parse_schedule, print_schedule


@dataclass(frozen=True)
class Executable:
    """A compiled program.

    Attributes:
        schedule: what runs, is charged and is drawn.
        system: the machine that it was compiled for.
        key: digest of the graph, the options, the machine and the compiler.
        passes: what each pass did (empty when the program came from the cache).
        cached: whether it came from the cache.
        compile_seconds: CPU seconds spent.
    """

    schedule: Schedule
    system: System
    key: str
    passes: tuple[PassRecord, ...] = ()
    cached: bool = False
    compile_seconds: float = 0.0


@lru_cache
def source_digest(*rooms: str) -> str:
    """Digest of Abele's version and of the source of some of its rooms: what is cached goes stale when they change."""
    digest = hashlib.sha256(abele.__version__.encode())
    root = Path(abele.__file__).parent
    for room in rooms:
        for file in sorted((root / room).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()


def key_of(graph: Graph, options: CompileOptions) -> str:
    """The key of what a graph compiles to with these options: equal keys, equal executables."""
    compiler = source_digest("machine", "ir", "schedule", "charge", "ops", "compile")
    text = f"{compiler}\n{options.describe()}\n{print_graph(graph)}\n{_user_operations(graph)}"
    return hashlib.sha256(text.encode()).hexdigest()


def _user_operations(graph: Graph) -> str:
    """What the composites from outside Abele expand to, since their names alone do not say it."""
    asked = {
        (op.name, tuple(v.type for v in op.operands), tuple(op.attributes.items()))
        for g in graph.all_graphs()
        for op in g.operations
        if isinstance(found := OPERATIONS.get(op.name), Composite) and not found.expand.__module__.startswith("abele.")
    }
    return "\n".join(sorted(print_graph(expansion(name, types, dict(attributes))) for name, types, attributes in asked))


@contextmanager
def _collection_paused() -> Iterator[None]:
    """No collection of cyclic garbage meanwhile: compiling leaves hardly any, and one visits all objects of torch.

    What was made meanwhile counts as old at once (frozen and thawed), for the collector would visit all of it twice
    before it believed that.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def compile_graph(
    graph: Graph,
    options: CompileOptions,
    *,
    cache: Cache | None = None,
    watch: Callable[[str, Graph], None] | None = None,
) -> Executable:
    """Compile a forward graph (see the importers) to an executable.

    Args:
        cache: where compiled programs are kept; ``None`` compiles afresh.
        watch: called with the name of each pass and the graph that it made, for progress and for looking in between.
    """
    with _collection_paused():
        return _compiled(graph, options, cache, watch)


Lowered = tuple[Schedule, list[PassRecord], list[tuple[str, Graph]]]
"""A schedule, and what the passes on the way to it did and made."""


def _best_of(graph: Graph, options: CompileOptions) -> Lowered:
    """The cheapest of the ways to compile a program: what does not fit comes last, and ``best`` wins a tie.

    So the planner ``best`` never loses to ``poplibs``, whose way is among its own. That one is first, and says what
    the host's transfers take.
    """
    vendor = _lowered(graph, options, POPLIBS)
    schedule, system = vendor[0], options.system
    if schedule.ipus * schedule.replicas > system.ipus:
        return next((_lowered(graph, options, way) for way in ways_of(graph, options)), vendor)
    if options.plan.planner == "poplibs":
        return vendor
    charged = Charged(schedule, system)
    io_tiles = io_tiles_for(options, charged.cycles, _streams(schedule))
    found = [_lowered(graph, options, way) for way in ways_of(graph, options, io_tiles)]
    return [*found, vendor][cheapest([*(Charged(lowered[0], system, charged) for lowered in found), charged])]


def _streams(schedule: Schedule) -> int:
    """Bytes that the host loads, or stores, in one turn: the larger of the two."""
    sizes = {"host_load": 0, "host_store": 0}
    for _, step in schedule.steps():
        if step.operation in sizes:
            sizes[step.operation] += streamed_bytes(step)
    return max(sizes.values())


def _lowered(graph: Graph, options: CompileOptions, way: Way) -> Lowered:
    seen: list[tuple[str, Graph]] = []
    lowered, records = run_passes(graph, passes_for(options, way), lambda name, after: seen.append((name, after)))
    begun = time.process_time()
    plan = replace(options.plan, planner=way.planner)
    io_tiles = way.io_tiles or options.io_tiles
    schedule = lower(lowered, options.system, replicas=options.replicas, options=plan, io_tiles=io_tiles)
    seen.append(("lower", lowered))
    if way.planner == "best":
        schedule = side_by_side(schedule, options.system.chip.tile_memory)
    check(schedule)
    records.append(PassRecord("lower", len(lowered.operations), len(lowered.operations), time.process_time() - begun))
    return schedule, records, seen


def _compiled(
    graph: Graph, options: CompileOptions, cache: Cache | None, watch: Callable[[str, Graph], None] | None
) -> Executable:
    start = time.process_time()
    key = key_of(graph, options)
    if cache is None:
        return _made(graph, options, key, watch, start)
    if (found := _kept(cache, key, options, start)) is not None:
        return found
    with cache.alone(key):
        if (found := _kept(cache, key, options, start)) is not None:  # another process has made it meanwhile
            return found
        made = _made(graph, options, key, watch, start)
        cache.put(key, print_schedule(made.schedule))
    return replace(made, compile_seconds=time.process_time() - start)


def _kept(cache: Cache, key: str, options: CompileOptions, start: float) -> Executable | None:
    """The program as the cache has it, or ``None``."""
    if (found := cache.get(key)) is None:
        return None
    try:
        schedule = parse_schedule(found)
    except AbeleError:
        cache.set_aside(key)
        return None
    return Executable(schedule, options.system, key, (), True, time.process_time() - start)


def _made(
    graph: Graph, options: CompileOptions, key: str, watch: Callable[[str, Graph], None] | None, start: float
) -> Executable:
    schedule, records, seen = _best_of(graph, options)
    if watch is not None:
        for name, after in seen:
            watch(name, after)
    return Executable(schedule, options.system, key, tuple(records), False, time.process_time() - start)
