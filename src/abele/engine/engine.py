"""The engine: runs a schedule, for real, on the computer at hand.

Everything is decided when the engine is made: instructions, who runs each of them, where every tensor lies, native
code, and addresses. ``run`` then only walks a list. Replicas run side by side, instruction by instruction, each in an
arena of its own; collectives reduce over them in order. Native calls that follow one another are gathered into tables
that run without Python.

How many threads an instruction gets is decided then too, see ``engine.threads``. What the provider ``llvm`` runs has
the same bits at any number of threads; oneDNN does not promise that.

A schedule may have a program of its own for loading (``Schedule.load``), which makes states from other states. It has
an engine of its own here, whose streams become states of this one; it runs before a run that follows a change.

Replicas may be spread over several processes (``process``): each has an engine with its part of them, and collectives
go on from process to process (``engine.collectives``, ``engine.processes``).
"""

from __future__ import annotations

import ctypes
import os
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from abele.codegen import Library, Steps, pointer_table
from abele.engine import collectives
from abele.engine.collectives import Arrays, Part
from abele.engine.exceptions import checked, checked_load
from abele.engine.layouts import orders
from abele.engine.memory import Arena, Life, plan_arena
from abele.engine.nodes import Timer, Timing, copy, load, store, timed, walk
from abele.engine.offers import Bound, Call, Offer
from abele.engine.processes import join
from abele.engine.program import (
    Collective,
    Copy,
    Instruction,
    Load,
    Loop,
    Program,
    Run,
    Store,
    View,
    digest,
    flatten,
    label,
    numbered,
)
from abele.engine.providers import Providers
from abele.engine.streams import check_names, find_streams, from_host, to_host
from abele.engine.threads import KERNEL_WORTH, Pool, library_worth, threads_to_use
from abele.errors import InvalidOperand, InvalidOption, suggest
from abele.ir.types import DType, TensorType
from abele.ops.hosts.kernels import Request, Spec, host_bytes
from abele.schedule.records import Schedule

_NATIVE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
SEED = "seed"
"""The state that holds the random seed, ``u32[2]``; each replica gets its own."""


class Engine:
    """Runs a schedule.

    Args:
        schedule: the program; it says how many replicas run side by side.
        threads: processors to use at most; ``None`` takes ``ABELE_THREADS`` or ``OMP_NUM_THREADS``, else all there are.
            Small operations run on one whatever this says. torch's own number of threads is left as it was.
        seed: a number for the state ``seed`` (programs that draw random numbers have one).
        providers: names of the providers that may be used, ``None`` for all (see ``engine.providers``).
        cache: a directory for native code, or ``None`` to compile afresh.
        timed: measure every instruction; read them from ``timings``. Slower.
        process: number of this process, and how many share the replicas: each has as many, in the order of its number.
        exceptions: stop at the first operation that makes a NaN or an infinity (see ``engine.exceptions``). Slower.

    Attributes:
        replicas: how many this engine runs; in ``write``, ``read`` and streams they are counted from 0.
        first_replica: the number of the first of them among all.

    State and hyper values start at zero; ``write`` sets them. After a run that was interrupted or failed, state may be
    partly updated.
    """

    def __init__(
        self,
        schedule: Schedule,
        *,
        threads: int | None = None,
        seed: int | None = None,
        providers: Sequence[str] | None = None,
        cache: str | os.PathLike[str] | None = None,
        timed: bool = False,
        process: tuple[int, int] = (0, 1),
        exceptions: bool = False,
    ) -> None:
        self.schedule = schedule
        rank, size = process
        if schedule.replicas % size:
            raise InvalidOption(f"{size} processes cannot share {schedule.replicas} replicas equally")
        self.replicas = schedule.replicas // size
        self.first_replica = rank * self.replicas
        self._part = Part(self.first_replica, self.replicas, schedule.replicas)
        self.threads = threads_to_use(threads)
        self._providers = Providers(providers)
        self._timed, self._exceptions = timed, exceptions
        self._timers: list[Timer] = []
        self._program = flatten(schedule)
        self._processes = join(rank, size) if self._sends() else None
        self._digest, self._written, self._runs = digest(self._program), 0, 0
        self._loads, self._stores = find_streams(self._program.instructions)
        self._orders = orders(self._program) if "onednn" in self._providers.names else {}
        self._offers = {id(i): self._offer(i) for _, i, _ in numbered(self._program.instructions) if isinstance(i, Run)}
        plan, self._spaces = _arena(self._program, self._offers)
        self.arena_bytes = plan.size
        self._arenas = [Arena(plan) for _ in range(self.replicas)]
        kernels = [k for _, offer in self._offers.values() for k in offer.kernels]
        self._library = Library(kernels, cache=cache)
        self._pool = Pool(self.threads)
        setters = [offer.use_threads for _, offer in self._offers.values() if offer.use_threads is not None]
        self._use_threads = setters[0] if setters else None
        self._stale: set[int] = set()
        self._prepares: list[tuple[frozenset[int], Callable[[], None]]] = []
        self._nodes = self._bind(self._program.instructions)
        self._stale = set(range(len(self._prepares)))
        self._loader = None
        if schedule.load is not None:
            names = self._providers.names
            # What loading reads is alike in all replicas: one of them makes the values of all.
            load = replace(schedule.load, replicas=1)
            self._loader = Engine(
                load, threads=self.threads, providers=names, cache=cache, timed=timed, exceptions=exceptions
            )
        self._to_load = self._loader is not None
        if seed is not None and SEED in self._program.states:
            self.write(SEED, np.array([seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF], np.uint32))

    # what the host sees -----------------------------------------------------------------------------------------

    @property
    def inputs(self) -> dict[str, tuple[TensorType, int]]:
        """The input streams: type of one micro-batch, and turns in one run."""
        return {name: (s.type, s.turns) for name, s in self._loads.items()}

    @property
    def outputs(self) -> dict[str, tuple[TensorType, int]]:
        """The output streams: type of one micro-batch, and turns in one run."""
        return {name: (s.type, s.turns) for name, s in self._stores.items()}

    @property
    def states(self) -> dict[str, TensorType]:
        """State and hyper values by name, with those that are read when weights are loaded; not those made then."""
        read = {} if self._loader is None else self._loader.states
        return read | {name: view.type for name, view in self._program.states.items() if name not in self._made}

    @property
    def _made(self) -> Mapping[str, object]:
        """The states that are made when weights are loaded."""
        return {} if self._loader is None else self._loader.outputs

    def write(self, name: str, array: np.ndarray, replica: int | None = None) -> None:
        """Set a state or hyper value in all replicas, or in one; the first word of ``seed`` is xor'ed with its number.

        States that weights are made of when they are loaded are those of all replicas.
        """
        if name in self._made:
            raise InvalidOperand(f"The state {name!r} is made from others when weights are loaded; write those")
        if self._loader is not None and name in self._loader.states:
            self._loader.write(name, array)
            self._to_load = True
            if name not in self._program.states:
                return
        self._write(name, array, replica)
        if replica is None and self._processes is not None:
            self._written = zlib.crc32(np.ascontiguousarray(array).tobytes(), zlib.crc32(name.encode(), self._written))

    def _write(self, name: str, array: np.ndarray, replica: int | None = None) -> None:
        view = self._state(name)
        value = to_host(array, view.type, name)
        for each in range(self.replicas) if replica is None else (replica,):
            target = self._array(each, view)
            target[...] = value
            if name == SEED and view.type == TensorType((2,), DType.U32):
                target[0] ^= np.uint32(self.first_replica + each)
        self._stale |= {i for i, (buffers, _) in enumerate(self._prepares) if view.buffer in buffers}

    def read(self, name: str, replica: int = 0) -> np.ndarray:
        """A copy of a state or hyper value of one replica, half as ``float16``."""
        if self._loader is not None and name not in self._program.states:
            return self._loader.read(name, replica)
        if name in self._made:
            self._load()
        view = self._state(name)
        return from_host(self._array(replica, view), view.type)

    def read_all(self, name: str) -> np.ndarray:
        """A state of every replica, those of other processes too, ``[replicas, *shape]``.

        Where collectives go over several processes all of them must call it.
        """
        own = np.stack([self.read(name, replica) for replica in range(self.replicas)])
        if self._processes is None:
            return own
        self._processes.agree(f"reading the state {name[-200:]}")
        return self._processes.gather(own, name).reshape(-1, *own.shape[1:])

    def share(self, names: Sequence[str]) -> None:
        """Give these states, on all replicas, the values that the first of all has; all processes must call it.

        It does nothing where no collective goes from process to process.
        """
        if self._processes is None:
            return
        self._processes.agree(f"copying weights to the device, program {self._digest:08x}")
        for name in names:
            value = self.read(name)
            self._processes.share(value, f"the weight {name}")
            self._write(name, value)
        self._written = 0

    def share_object(self, value: Any, doing: str) -> Any:
        """What the first process gives here; all must call it. ``value`` where no collective goes between them."""
        if self._processes is None:
            return value
        self._processes.agree(doing)
        return self._processes.share_object(value, doing)

    def _load(self) -> None:
        """Make the states that are made from others, if any of those was written."""
        if self._loader is not None and self._to_load:
            for name, made in self._loader.run().items():
                self._write(name, made[0, 0])  # no seed is among what loading reads
            self._to_load = False

    def run(self, streams: Mapping[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
        """One device iteration.

        Args:
            streams: for every input stream an array ``[turns, replicas, *shape]``, see ``inputs``.

        Returns:
            For every output stream an array ``[turns, replicas, *shape]``, half as ``float16``.

        Raises:
            InvalidOperand: a stream is missing, unknown, or has another shape or kind of dtype.
        FloatingPointFault: with ``exceptions``, an operation made a NaN or an infinity.
        """
        given = streams or {}
        check_names(given, self._loads)
        for name, stream in self._loads.items():
            data = to_host(given[name], stream.type, name, (stream.turns, self.replicas))
            stream.begin(data, self.replicas)
        results = {}
        for name, stream in self._stores.items():
            shape = (stream.turns, self.replicas, *stream.type.shape)
            results[name] = np.empty(shape, stream.type.dtype.numpy)
            stream.begin(results[name], self.replicas)
        self._load()
        if self._processes is not None:
            self._runs += 1
            self._processes.agree(
                f"run {self._runs} of the program {self._digest:08x}, given numbers {self._written:08x}"
            )
        before = self._use_threads(1) if self._use_threads is not None else 1
        try:
            for index in sorted(self._stale):
                self._prepares[index][1]()
            self._stale.clear()
            walk(self._nodes)
        finally:
            if self._use_threads is not None:
                self._use_threads(before)
        return results

    def report(self) -> dict[str, dict[str, int]]:
        """Which provider runs which operations, and how many of each: ``{provider: {operation: count}}``.

        Operations that run when weights are loaded are counted too.
        """
        loading = {} if self._loader is None else self._loader.report()
        counts: dict[str, Counter[str]] = {name: Counter(counter) for name, counter in loading.items()}
        for _, instruction, _ in numbered(self._program.instructions):
            if isinstance(instruction, Run):
                name, _ = self._offers[id(instruction)]
                counts.setdefault(name, Counter())[label(instruction)] += 1
        return {name: dict(counter) for name, counter in sorted(counts.items())}

    @property
    def timings(self) -> list[Timing]:
        """With ``timed``: wall seconds by instruction, in program order, those of loading first."""
        loading = [] if self._loader is None else [replace(t, loading=True) for t in self._loader.timings]
        return loading + [Timing(t.operation, t.provider, t.seconds, t.times) for t in self._timers]

    def close(self) -> None:
        """End the threads; a later run starts them again."""
        self._pool.close()
        if self._loader is not None:
            self._loader.close()

    # choosing ---------------------------------------------------------------------------------------------------

    def _state(self, name: str) -> View:
        try:
            return self._program.states[name]
        except KeyError:
            known = suggest(name, self._program.states)
            raise InvalidOperand(f"The program has no state or hyper value {name!r}", remedy=known) from None

    def _spec(self, view: View) -> Spec:
        buffer = self._program.buffers[view.buffer]
        array_order = self._orders.get(view.buffer)
        shape = view.type.shape
        order = array_order or tuple(range(len(shape)))
        strides, step = [0] * len(shape), 1
        for dim in reversed(order):
            strides[dim] = step
            step *= shape[dim]
        return Spec(view.type, tuple(strides), buffer.state is not None and not buffer.written)

    def _offer(self, run: Run) -> tuple[str, Offer]:
        operands = tuple(map(self._spec, run.operands))
        results = tuple(map(self._spec, run.results))
        return self._providers.offer(Request(run.operation, run.attributes, operands, results), run.origin.where)

    def _array(self, replica: int, view: View) -> np.ndarray:
        return self._arenas[replica].array(view.buffer, view.type.shape, view.type.dtype, self._orders.get(view.buffer))

    # binding ----------------------------------------------------------------------------------------------------

    def _bind(self, instructions: Sequence[Instruction]) -> list:
        nodes: list = []
        waiting: list[Call] = []
        batch: list[Arrays] = []

        def flush() -> None:
            if waiting:
                steps = Steps(self._library, [(k, list(p), 0, k.units) for k, p in waiting])
                nodes.append(steps.run)
                waiting.clear()
            if batch:
                assert self._processes is not None
                nodes.append(collectives.together(tuple(batch), self._part, self._processes))
                batch.clear()

        for instruction in instructions:
            if isinstance(instruction, Loop):
                flush()
                nodes.append((instruction.count, self._bind(instruction.body)))
                continue
            timer = self._timer(instruction) if self._timed else None
            if timer is not None:
                flush()
            first = len(nodes)
            if isinstance(instruction, Collective):
                arrays = self._arrays(instruction)
                if waiting or not collectives.apart(arrays, batch):
                    flush()
                if collectives.travels(instruction, self._part):
                    batch.append(arrays)
                else:
                    flush()
                    nodes.append(self._collective(arrays))
            else:
                if batch:
                    flush()
                for replica in range(self.replicas):
                    looked_at = instruction if self._exceptions and isinstance(instruction, Run) else None
                    if looked_at is not None:
                        flush()
                    begin = len(nodes)
                    bound = self._bound(instruction, replica)
                    if bound.run is not None:
                        flush()
                        nodes.append(self._with_threads(instruction, bound.run))
                    for call in bound.calls:
                        if self._split(call):
                            flush()
                            nodes.append(self._parallel(call))
                        else:
                            waiting.append(call)
                    if looked_at is not None:
                        flush()
                        nodes[begin:] = [self._checked(nodes[begin:], looked_at, replica)]
            if timer is not None:
                flush()
                inner = nodes[first:]
                del nodes[first:]
                nodes.append(timed(inner, timer))
        flush()
        return nodes

    def _checked(self, nodes: Sequence[Callable[[], None]], run: Run, replica: int) -> Callable[[], None]:
        operands, results = ([self._array(replica, v) for v in views] for views in (run.operands, run.results))
        return checked(nodes, run, self.first_replica + replica, operands, results)

    def _timer(self, instruction: Instruction) -> Timer:
        provider = self._offers[id(instruction)][0] if isinstance(instruction, Run) else "engine"
        self._timers.append(Timer(label(instruction), provider))
        return self._timers[-1]

    def _split(self, call: Call) -> bool:
        kernel = call[0]
        return self.threads > 1 and kernel.units > kernel.grain and kernel.units * kernel.cost >= KERNEL_WORTH

    def _with_threads(self, instruction: Instruction, run: Callable[[], None]) -> Callable[[], None]:
        """``run`` with as many of its provider's own threads as its work is worth; one is what all have otherwise."""
        offer = self._offers[id(instruction)][1] if isinstance(instruction, Run) else None
        if offer is None or offer.use_threads is None or self.threads == 1 or offer.work < library_worth():
            return run
        use_threads, threads = offer.use_threads, self.threads

        def divided() -> None:
            use_threads(threads)
            run()
            use_threads(1)

        return divided

    def _parallel(self, call: Call) -> Callable[[], None]:
        kernel, pointers = call
        table = pointer_table(pointers)
        function, address, pool = _NATIVE(self._library.address(kernel)), table.ctypes.data, self._pool

        def run(_keep=table) -> None:
            pool.run(function, address, kernel.units, kernel.grain)

        return run

    def _bound(self, instruction: Instruction, replica: int) -> Bound:
        match instruction:
            case Load(name, view):
                array = self._array(replica, view)
                taken = load(self._loads[name], replica, array)
                if self._exceptions:
                    taken = checked_load(taken, name, self.first_replica + replica, array)
                return Bound(run=taken)
            case Store(name, view):
                return Bound(run=store(self._stores[name], replica, self._array(replica, view)))
            case Copy(source, target):
                return Bound(run=copy(self._array(replica, source), self._array(replica, target)))
            case Run():
                return self._bound_run(instruction, replica)
        raise TypeError(instruction)

    def _bound_run(self, run: Run, replica: int) -> Bound:
        _, offer = self._offers[id(run)]
        arena = self._arenas[replica]
        scratch_keys, packed_keys = self._spaces[id(run)]
        bound = offer.bind(
            [self._array(replica, v) for v in run.operands],
            [self._array(replica, v) for v in run.results],
            [arena.raw(k, size) for k, size in zip(scratch_keys, offer.scratch, strict=True)],
            [arena.raw(k, size) for k, size in zip(packed_keys, offer.packed, strict=True)],
        )
        if bound.prepare_calls or bound.prepare is not None:
            calls = [(k, list(p), 0, k.units) for k, p in bound.prepare_calls]
            steps = Steps(self._library, calls) if calls else None

            def prepare() -> None:
                if steps is not None:
                    steps.run()
                if bound.prepare is not None:
                    bound.prepare()

            self._prepares.append((frozenset(v.buffer for v in run.operands), prepare))
        return bound

    def _arrays(self, instruction: Collective) -> Arrays:
        every = range(self.replicas)
        sources = [self._array(replica, instruction.operand) for replica in every]
        return Arrays(instruction, sources, [self._array(replica, instruction.result) for replica in every])

    def _collective(self, arrays: Arrays) -> Callable[[], None]:
        if self._processes is None or collectives.stays(arrays.instruction, self._part):
            return collectives.local(arrays)
        return collectives.across(arrays, self._part, self._processes)

    def _sends(self) -> bool:
        """Whether some collective goes from this process to others."""
        return any(
            isinstance(i, Collective) and not collectives.stays(i, self._part)
            for _, i, _ in numbered(self._program.instructions)
        )


def _arena(program: Program, offers: Mapping[int, tuple[str, Offer]]):
    """The arena plan, and for each ``Run`` the keys of its scratch and packed memory."""
    lives = {
        key: Life(b.type.size * host_bytes(b.type.dtype), b.first, b.last, b.state is not None)
        for key, b in program.buffers.items()
    }
    spaces: dict[int, tuple[list[int], list[int]]] = {}
    fresh = max(lives, default=0) + 1
    for at, instruction, _ in numbered(program.instructions):
        if not isinstance(instruction, Run):
            continue
        offer = offers[id(instruction)][1]
        spaces[id(instruction)] = ([], [])
        for sizes, keys, kept in ((offer.scratch, spaces[id(instruction)][0], False),
                                  (offer.packed, spaces[id(instruction)][1], True)):  # fmt: skip
            for size in sizes:
                lives[fresh] = Life(size, at, at, kept)
                keys.append(fresh)
                fresh += 1
    return plan_arena(lives), spaces
