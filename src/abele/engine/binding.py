"""Instructions bound to memory: who runs each of them, where its tensors lie, and the nodes that an engine walks.

Native calls that follow one another are gathered into tables that run without Python, and all-reduces that go on to
other processes into messages.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from abele.codegen import Library, Steps, pointer_table
from abele.engine import collectives
from abele.engine.collectives import Arrays, Part
from abele.engine.exceptions import checked, checked_load
from abele.engine.layouts import orders
from abele.engine.memory import Arena, Life, plan_arena
from abele.engine.nodes import Timer, copy, load, store, timed, walk
from abele.engine.offers import Bound, Call, Offer
from abele.engine.processes import Processes
from abele.engine.program import Collective, Copy, Instruction, Load, Loop, Program, Run, Store, View, label, numbered
from abele.engine.providers import Providers
from abele.engine.streams import find_streams
from abele.engine.threads import KERNEL_WORTH, Pool, library_worth
from abele.ops.hosts.kernels import Request, Spec, host_bytes

_NATIVE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class Binding:
    """The instructions of a program, bound for the replicas of this process.

    Args:
        program: what is bound.
        providers: who may run its operations.
        part: which replicas this process has.
        processes: those that have the others, or ``None`` where nothing is sent to them.
        threads: processors to use at most.
        cache: a directory for native code, or ``None``.
        timed: measure every instruction.
        exceptions: stop at what is not finite.

    Attributes:
        loads, stores: streams from and to the host, by name.
        offers: for each ``Run``, by identity, the provider's name and how it runs it.
        arenas: the memory of each replica.
        pool: the threads of native kernels.
        timers: with ``timed``, one for each instruction, in order.
    """

    def __init__(
        self,
        program: Program,
        providers: Providers,
        *,
        part: Part,
        processes: Processes | None,
        threads: int,
        cache: str | os.PathLike[str] | None,
        timed: bool,
        exceptions: bool,
    ) -> None:
        self._part, self._processes, self._threads = part, processes, threads
        self._providers, self._timed, self._exceptions = providers, timed, exceptions
        self._program = program
        self.loads, self.stores = find_streams(program.instructions)
        self._orders = orders(program) if "onednn" in providers.names else {}
        self.offers = {id(i): self._offer(i) for _, i, _ in numbered(program.instructions) if isinstance(i, Run)}
        plan, self._spaces = _arena(program, self.offers)
        self.arenas = [Arena(plan) for _ in range(part.count)]
        self._library = Library([k for _, offer in self.offers.values() for k in offer.kernels], cache=cache)
        self.pool = Pool(threads)
        setters = [offer.use_threads for _, offer in self.offers.values() if offer.use_threads is not None]
        self._use_threads = setters[0] if setters else None
        self.timers: list[Timer] = []
        self._prepares: list[tuple[frozenset[int], Callable[[], None]]] = []
        self._nodes = self._bind(program.instructions)
        self._stale = set(range(len(self._prepares)))

    def array(self, replica: int, view: View) -> np.ndarray:
        """The memory of a view on one replica."""
        return self.arenas[replica].array(view.buffer, view.type.shape, view.type.dtype, self._orders.get(view.buffer))

    def changed(self, view: View) -> None:
        """The host has written a state: what was prepared from it is prepared anew before the next run."""
        self._stale |= {i for i, (buffers, _) in enumerate(self._prepares) if view.buffer in buffers}

    def run(self) -> None:
        """Run all instructions once; torch's own number of threads is left as it was."""
        before = self._use_threads(1) if self._use_threads is not None else 1
        try:
            for index in sorted(self._stale):
                self._prepares[index][1]()
            self._stale.clear()
            walk(self._nodes)
        finally:
            if self._use_threads is not None:
                self._use_threads(before)

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
                for replica in range(self._part.count):
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
        operands, results = ([self.array(replica, v) for v in views] for views in (run.operands, run.results))
        return checked(nodes, run, self._part.first + replica, operands, results)

    def _timer(self, instruction: Instruction) -> Timer:
        provider = self.offers[id(instruction)][0] if isinstance(instruction, Run) else "engine"
        self.timers.append(Timer(label(instruction), provider))
        return self.timers[-1]

    def _split(self, call: Call) -> bool:
        kernel = call[0]
        return self._threads > 1 and kernel.units > kernel.grain and kernel.units * kernel.cost >= KERNEL_WORTH

    def _with_threads(self, instruction: Instruction, run: Callable[[], None]) -> Callable[[], None]:
        """``run`` with as many of its provider's own threads as its work is worth; one is what all have otherwise."""
        offer = self.offers[id(instruction)][1] if isinstance(instruction, Run) else None
        if offer is None or offer.use_threads is None or self._threads == 1 or offer.work < library_worth():
            return run
        use_threads, threads = offer.use_threads, self._threads

        def divided() -> None:
            use_threads(threads)
            run()
            use_threads(1)

        return divided

    def _parallel(self, call: Call) -> Callable[[], None]:
        kernel, pointers = call
        table = pointer_table(pointers)
        function, address, pool = _NATIVE(self._library.address(kernel)), table.ctypes.data, self.pool

        def run(_keep=table) -> None:
            pool.run(function, address, kernel.units, kernel.grain)

        return run

    def _bound(self, instruction: Instruction, replica: int) -> Bound:
        match instruction:
            case Load(name, view):
                array = self.array(replica, view)
                taken = load(self.loads[name], replica, array)
                if self._exceptions:
                    taken = checked_load(taken, name, self._part.first + replica, array)
                return Bound(run=taken)
            case Store(name, view):
                return Bound(run=store(self.stores[name], replica, self.array(replica, view)))
            case Copy(source, target):
                return Bound(run=copy(self.array(replica, source), self.array(replica, target)))
            case Run():
                return self._bound_run(instruction, replica)
        raise TypeError(instruction)

    def _bound_run(self, run: Run, replica: int) -> Bound:
        _, offer = self.offers[id(run)]
        arena = self.arenas[replica]
        scratch_keys, packed_keys = self._spaces[id(run)]
        bound = offer.bind(
            [self.array(replica, v) for v in run.operands],
            [self.array(replica, v) for v in run.results],
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
        every = range(self._part.count)
        sources = [self.array(replica, instruction.operand) for replica in every]
        return Arrays(instruction, sources, [self.array(replica, instruction.result) for replica in every])

    def _collective(self, arrays: Arrays) -> Callable[[], None]:
        if self._processes is None or collectives.stays(arrays.instruction, self._part):
            return collectives.local(arrays)
        return collectives.across(arrays, self._part, self._processes)


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
