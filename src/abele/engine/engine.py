"""The engine: runs a schedule, for real, on the computer at hand.

Everything is decided when the engine is made: instructions, who runs each of them, where every tensor lies, native
code, and addresses. ``run`` then only walks a list. Replicas run side by side, instruction by instruction, each in an
arena of its own; collectives reduce over them in order. Native calls that follow one another are gathered into tables
that run without Python.

What the provider ``llvm`` runs has the same bits at any number of threads; oneDNN does not promise that.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from abele.codegen import Library, Steps, pointer_table
from abele.engine.fusion import fuse
from abele.engine.layouts import orders
from abele.engine.memory import Arena, Life, plan_arena
from abele.engine.program import Collective, Copy, Instruction, Load, Loop, Program, Run, Store, View, flatten, numbered
from abele.engine.providers import Bound, Call, Offer, Providers
from abele.engine.streams import Stream, check_names, find_streams, from_host, to_host
from abele.engine.threads import WORTH, Pool, available
from abele.errors import InvalidOperand, InvalidOption, suggest
from abele.ir.types import DType, TensorType
from abele.ops.elementwise import ELEMENTWISE
from abele.ops.kernels import Request, Spec, host_bytes
from abele.schedule.records import Schedule

_NATIVE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
SEED = "seed"
"""The state that holds the random seed, ``u32[2]``; each replica gets its own."""


@dataclass(frozen=True)
class Timing:
    """Wall seconds of one instruction over all runs since ``timings`` was last cleared, all replicas together."""

    operation: str
    provider: str
    seconds: float
    times: int


@dataclass
class _Timer:
    operation: str
    provider: str
    seconds: float = 0.0
    times: int = 0


class Engine:
    """Runs a schedule.

    Args:
        schedule: the program; it says how many replicas run side by side.
        threads: processors to use; ``None`` takes ``ABELE_THREADS`` or ``OMP_NUM_THREADS``, else all there are.
        seed: a number for the state ``seed`` (programs that draw random numbers have one).
        providers: names of the providers that may be used, ``None`` for all (see ``engine.providers``).
        cache: a directory for native code, or ``None`` to compile afresh.
        timed: measure every instruction; read them from ``timings``. Slower.

    State and hyper values start at zero; ``write`` sets them. ``consistent`` is False after a run that was interrupted
    or failed: state may then be partly updated.
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
    ) -> None:
        self.schedule = schedule
        self.replicas = schedule.replicas
        self.threads = _threads(threads)
        self.consistent = True
        self._providers = Providers(providers)
        self._timed = timed
        self._timers: list[_Timer] = []
        self._program = fuse(flatten(schedule, frozenset(ELEMENTWISE)))
        self._loads, self._stores = find_streams(self._program.instructions)
        self._orders = orders(self._program) if "onednn" in self._providers.names else {}
        self._offers = {id(i): self._offer(i) for _, i, _ in numbered(self._program.instructions) if isinstance(i, Run)}
        plan, self._spaces = _arena(self._program, self._offers)
        self.arena_bytes = plan.size
        self._arenas = [Arena(plan) for _ in range(self.replicas)]
        kernels = [k for _, offer in self._offers.values() for k in offer.kernels]
        self._library = Library(kernels, cache=cache)
        self._pool = Pool(self.threads)
        self._torch = "onednn" in {name for name, _ in self._offers.values()}
        self._stale: set[int] = set()
        self._prepares: list[tuple[frozenset[int], Callable[[], None]]] = []
        self._nodes = self._bind(self._program.instructions)
        self._stale = set(range(len(self._prepares)))
        self._load = None
        if schedule.load is not None:
            options = {"threads": threads, "providers": providers, "cache": cache}
            self._load = Engine(schedule.load, **options)  # type: ignore[arg-type]
        self._load_stale = self._load is not None
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
        """State and hyper values by name, those that are read when weights are loaded included."""
        states = {name: view.type for name, view in self._program.states.items()}
        return states if self._load is None else self._load.states | states

    def write(self, name: str, array: np.ndarray) -> None:
        """Set a state or hyper value in all replicas; the first word of ``seed`` is xor'ed with the replica number."""
        if self._load is not None and name in self._load.states:
            self._load.write(name, array)
            self._load_stale = True
            if name not in self._program.states:
                return
        view = self._state(name)
        value = to_host(array, view.type, name)
        for replica in range(self.replicas):
            target = self._array(replica, view)
            target[...] = value
            if name == SEED and view.type == TensorType((2,), DType.U32):
                target[0] ^= np.uint32(replica)
        self._stale |= {i for i, (buffers, _) in enumerate(self._prepares) if view.buffer in buffers}

    def read(self, name: str, replica: int = 0) -> np.ndarray:
        """A copy of a state or hyper value of one replica, half as ``float16``."""
        if self._load is not None and name not in self._program.states:
            return self._load.read(name, replica)
        view = self._state(name)
        return from_host(self._array(replica, view), view.type)

    def run(self, streams: Mapping[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
        """One device iteration.

        Args:
            streams: for every input stream an array ``[turns, replicas, *shape]``, see ``inputs``.

        Returns:
            For every output stream an array ``[turns, replicas, *shape]``, half as ``float16``.

        Raises:
            InvalidOperand: a stream is missing, unknown, or has another shape or kind of dtype.
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
        if self._torch:
            from abele.engine.onednn import use_threads

            use_threads(self.threads)
        if self._load is not None and self._load_stale:
            for name, made in self._load.run().items():
                self.write(name, made[0, 0])
            self._load_stale = False
        for index in sorted(self._stale):
            self._prepares[index][1]()
        self._stale.clear()
        try:
            _walk(self._nodes)
        except BaseException:
            self.consistent = False
            raise
        return results

    def report(self) -> dict[str, dict[str, int]]:
        """Which provider runs which operations, and how many of each: ``{provider: {operation: count}}``."""
        counts: dict[str, Counter[str]] = {}
        for _, instruction, _ in numbered(self._program.instructions):
            if isinstance(instruction, Run):
                name, _ = self._offers[id(instruction)]
                counts.setdefault(name, Counter())[_label(instruction)] += 1
        return {name: dict(counter) for name, counter in sorted(counts.items())}

    @property
    def timings(self) -> list[Timing]:
        """With ``timed``: wall seconds by instruction, in program order."""
        return [Timing(t.operation, t.provider, t.seconds, t.times) for t in self._timers]

    def clear_timings(self) -> None:
        """Set all timings to zero."""
        for timer in self._timers:
            timer.seconds, timer.times = 0.0, 0

    def close(self) -> None:
        """End the threads. The engine cannot run after that."""
        self._pool.close()

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

        def flush() -> None:
            if waiting:
                steps = Steps(self._library, [(k, list(p), 0, k.units) for k, p in waiting])
                nodes.append(steps.run)
                waiting.clear()

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
                flush()
                nodes.append(self._collective(instruction))
            else:
                for replica in range(self.replicas):
                    bound = self._bound(instruction, replica)
                    if bound.run is not None:
                        flush()
                        nodes.append(bound.run)
                    for call in bound.calls:
                        if self._split(call):
                            flush()
                            nodes.append(self._parallel(call))
                        else:
                            waiting.append(call)
            if timer is not None:
                flush()
                inner = nodes[first:]
                del nodes[first:]
                nodes.append(_timed(inner, timer))
        flush()
        return nodes

    def _timer(self, instruction: Instruction) -> _Timer:
        provider = self._offers[id(instruction)][0] if isinstance(instruction, Run) else "engine"
        self._timers.append(_Timer(_label(instruction), provider))
        return self._timers[-1]

    def _split(self, call: Call) -> bool:
        kernel = call[0]
        return self.threads > 1 and kernel.units > kernel.grain and kernel.units * kernel.cost >= WORTH

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
                return Bound(run=_load(self._loads[name], replica, self._array(replica, view)))
            case Store(name, view):
                return Bound(run=_store(self._stores[name], replica, self._array(replica, view)))
            case Copy(source, target):
                return Bound(run=_copy(self._array(replica, source), self._array(replica, target)))
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

    def _collective(self, instruction: Collective) -> Callable[[], None]:
        sources = [self._array(r, instruction.operand) for r in range(self.replicas)]
        targets = [self._array(r, instruction.result) for r in range(self.replicas)]
        return _all_reduce(sources, targets, instruction)


def _threads(given: int | None) -> int:
    for name in ("ABELE_THREADS", "OMP_NUM_THREADS"):
        text = os.environ.get(name, "")
        if given is None and text:
            if not text.isdigit():
                raise InvalidOption(f"{name} is {text!r}", remedy="It is a number of threads.")
            given = int(text)
    threads = available() if given is None else given
    if threads < 1:
        raise InvalidOption(f"{threads} threads", remedy="Give at least 1.")
    return threads


def _label(instruction: Instruction) -> str:
    if isinstance(instruction, Run):
        root = instruction.attributes.get("root")
        return f"{instruction.operation}({root})" if root else instruction.operation
    return type(instruction).__name__.lower()


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


def _walk(nodes: Sequence) -> None:
    for node in nodes:
        if type(node) is tuple:
            count, body = node
            for _ in range(count):
                _walk(body)
        else:
            node()


def _timed(nodes: Sequence[Callable[[], None]], timer: _Timer) -> Callable[[], None]:
    def run() -> None:
        begin = time.perf_counter()
        for node in nodes:
            node()
        timer.seconds += time.perf_counter() - begin
        timer.times += 1

    return run


def _load(stream: Stream, replica: int, target: np.ndarray) -> Callable[[], None]:
    def run() -> None:
        turn = stream.turn[replica]
        target[...] = stream.data[turn, replica]
        stream.turn[replica] = turn + 1

    return run


def _store(stream: Stream, replica: int, source: np.ndarray) -> Callable[[], None]:
    def run() -> None:
        turn = stream.turn[replica]
        stream.data[turn, replica] = source
        stream.turn[replica] = turn + 1

    return run


def _copy(source: np.ndarray, target: np.ndarray) -> Callable[[], None]:
    def run() -> None:
        np.copyto(target, source)

    return run


def _all_reduce(
    sources: Sequence[np.ndarray], targets: Sequence[np.ndarray], instruction: Collective
) -> Callable[[], None]:
    """Sum or mean over the replicas, in order, in float64 where there are more than two floats to add."""
    mean, count, half = instruction.reduction == "mean", len(sources), instruction.operand.type.dtype is DType.F16
    wide = np.float64 if sources[0].dtype.kind == "f" and count > 2 else sources[0].dtype

    def run() -> None:
        total = sources[0].astype(wide)
        for other in sources[1:]:
            total += other
        if mean and count > 1:
            total = total / count if total.dtype.kind == "f" else total // count
        if half:
            with np.errstate(over="ignore"):
                total = total.astype(np.float16)
        for target in targets:
            target[...] = total

    if count == 1:
        return _copy(sources[0], targets[0])
    return run
