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

import os
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from abele.engine import collectives
from abele.engine.binding import Binding
from abele.engine.collectives import Part
from abele.engine.nodes import Timing
from abele.engine.processes import join
from abele.engine.program import Collective, Program, Run, View, digest, flatten, label, numbered
from abele.engine.providers import Providers
from abele.engine.streams import check_names, from_host, to_host
from abele.engine.threads import threads_to_use
from abele.errors import InvalidOperand, InvalidOption, suggest
from abele.ir.types import DType, TensorType
from abele.schedule.records import Schedule
from abele.user import said

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
        part = Part(self.first_replica, self.replicas, schedule.replicas)
        self.threads, offering = threads_to_use(threads), Providers(providers)
        self._program = flatten(schedule)
        self._processes = join(rank, size) if _sends(self._program, part) else None
        self._digest, self._written, self._runs = digest(self._program), 0, 0
        self._bound = Binding(
            self._program,
            offering,
            part=part,
            processes=self._processes,
            threads=self.threads,
            cache=cache,
            timed=timed,
            exceptions=exceptions,
        )
        self._loader = None
        if schedule.load is not None:
            # What loading reads is alike in all replicas: one of them makes the values of all.
            load = replace(schedule.load, replicas=1)
            self._loader = Engine(
                load, threads=self.threads, providers=providers, cache=cache, timed=timed, exceptions=exceptions
            )
        self._to_load = self._loader is not None
        if seed is not None and SEED in self._program.states:
            self.write(SEED, np.array([seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF], np.uint32))

    # what the host sees -----------------------------------------------------------------------------------------

    @property
    def inputs(self) -> dict[str, tuple[TensorType, int]]:
        """The input streams: type of one micro-batch, and turns in one run."""
        return {name: (s.type, s.turns) for name, s in self._bound.loads.items()}

    @property
    def outputs(self) -> dict[str, tuple[TensorType, int]]:
        """The output streams: type of one micro-batch, and turns in one run."""
        return {name: (s.type, s.turns) for name, s in self._bound.stores.items()}

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
            target = self._bound.array(each, view)
            target[...] = value
            if name == SEED and view.type == TensorType((2,), DType.U32):
                target[0] ^= np.uint32(self.first_replica + each)
        self._bound.changed(view)

    def read(self, name: str, replica: int = 0) -> np.ndarray:
        """A copy of a state or hyper value of one replica, half as ``float16``."""
        if self._loader is not None and name not in self._program.states:
            return self._loader.read(name, replica)
        if name in self._made:
            self._load()
        view = self._state(name)
        return from_host(self._bound.array(replica, view), view.type)

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
        check_names(given, self._bound.loads)
        for name, stream in self._bound.loads.items():
            data = to_host(given[name], stream.type, name, (stream.turns, self.replicas))
            stream.begin(data, self.replicas)
        results = {}
        for name, stream in self._bound.stores.items():
            shape = (stream.turns, self.replicas, *stream.type.shape)
            results[name] = np.empty(shape, stream.type.dtype.numpy)
            stream.begin(results[name], self.replicas)
        self._load()
        if self._processes is not None:
            self._runs += 1
            self._processes.agree(
                f"run {self._runs} of the program {self._digest:08x}, given numbers {self._written:08x}"
            )
        try:
            self._bound.run()
        except BaseException as error:
            if self._processes is not None:
                self._processes.stop(f"has stopped in run {self._runs} with {said(error)[:500]}")
            raise
        return results

    def report(self) -> dict[str, dict[str, int]]:
        """Which provider runs which operations, and how many of each: ``{provider: {operation: count}}``.

        Operations that run when weights are loaded are counted too.
        """
        loading = {} if self._loader is None else self._loader.report()
        counts: dict[str, Counter[str]] = {name: Counter(counter) for name, counter in loading.items()}
        for _, instruction, _ in numbered(self._program.instructions):
            if isinstance(instruction, Run):
                name, _ = self._bound.offers[id(instruction)]
                counts.setdefault(name, Counter())[label(instruction)] += 1
        return {name: dict(counter) for name, counter in sorted(counts.items())}

    @property
    def timings(self) -> list[Timing]:
        """With ``timed``: wall seconds by instruction, in program order, those of loading first."""
        loading = [] if self._loader is None else [replace(t, loading=True) for t in self._loader.timings]
        return loading + [Timing(t.operation, t.provider, t.seconds, t.times) for t in self._bound.timers]

    def close(self) -> None:
        """End the threads; a later run starts them again."""
        self._bound.pool.close()
        if self._loader is not None:
            self._loader.close()

    # choosing ---------------------------------------------------------------------------------------------------

    def _state(self, name: str) -> View:
        try:
            return self._program.states[name]
        except KeyError:
            known = suggest(name, self._program.states)
            raise InvalidOperand(f"The program has no state or hyper value {name!r}", remedy=known) from None


def _sends(program: Program, part: Part) -> bool:
    """Whether some collective goes from this process to others."""
    return any(
        isinstance(i, Collective) and not collectives.stays(i, part) for _, i, _ in numbered(program.instructions)
    )
