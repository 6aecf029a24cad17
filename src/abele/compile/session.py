"""A session: the machine that programs are compiled for, their cache, and what has been compiled and run so far.

``abele run`` opens a session around a user's script; the faces compile through the session that is open, so that
the command can charge and draw afterwards what the script ran. Without a command a default session stands.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from abele import events
from abele.charge.figures import figures
from abele.charge.total import charged
from abele.compile.cache import Cache
from abele.compile.executable import Executable, compile_graph
from abele.compile.pipelines import CompileOptions
from abele.errors import InvalidOption
from abele.ir.graph import Graph
from abele.machine.system import System, find_system
from abele.ops.plans.planning import PlanOptions

DEFAULT_SYSTEM = "bow-2000"


@dataclass
class CompiledProgram:
    """One program that a session compiled, and how it has been run.

    Attributes:
        name: what the user calls the model.
        graph, options: what it was compiled from, so that it can be compiled for another machine.
        samples: samples in one run of the program, all replicas together; ``iterations`` runs make a call.
        runs, wall_seconds: runs so far and the seconds that they took on this computer.
        recorder, number: what its runs are told to as they come, and its number there; ``None`` where nothing is.
    """

    name: str
    graph: Graph
    options: CompileOptions
    executable: Executable
    samples: int = 1
    iterations: int = 1
    runs: int = 0
    wall_seconds: float = 0.0
    recorder: events.Recorder | None = None
    number: int = 0

    def ran(self, started: float, ended: float, loss: Any = None) -> None:
        """Count a run between two readings of ``time.perf_counter``; ``loss`` is what it gave of it, where it did."""
        if self.recorder is not None:
            self.recorder.step(self.number, self.runs, started, ended, loss)
        self.runs += 1
        self.wall_seconds += ended - started


@dataclass(eq=False)
class Session:
    """See the module.

    Attributes:
        system: the machine that faces compile for when their program names none.
        cache: where executables are kept, or ``None``.
        plan: what is asked of all plans, where a program does not say it.
        progress: told the name of each pass as it ends.
        programs: everything compiled so far.
        options_file: options of the faces that have the last word over the program's own, or ``None``;
            ``option_lines``: lines as of such a file, after it.
    """

    system: System
    cache: Cache | None = None
    progress: Callable[[str, str], None] | None = None
    plan: PlanOptions = field(default_factory=PlanOptions)
    programs: list[CompiledProgram] = field(default_factory=list)
    options_file: Path | None = None
    option_lines: tuple[str, ...] = ()

    def compile(
        self,
        name: str,
        graph: Graph,
        options: CompileOptions,
        *,
        samples: int = 1,
        cache: Cache | None = None,
        iterations: int = 1,
    ) -> CompiledProgram:
        """Compile a program for ``options.system`` and remember it; ``samples`` and ``iterations`` as there."""
        ipus = options.replicas * (1 + max((op.origin.ipu for op in graph.operations), default=0))
        if options.split:
            ipus = options.replicas * options.ipus
        if ipus > options.system.ipus:
            raise InvalidOption(
                f"The program needs {ipus} IPUs and the system {options.system.name!r} has {options.system.ipus}",
                remedy="Choose a larger system (--system of the command, ABELE_SYSTEM without it; `abele systems` "
                "lists them), or fewer replicas or stages.",
            )
        tell = self.progress
        watch = None if tell is None else (lambda step, _: tell(name, step))
        recorder = events.current()
        if recorder is not None:
            recorder.message(f"compiling {name} for {options.system.name}")
        executable = compile_graph(graph, options, cache=cache or self.cache, watch=watch)
        program = CompiledProgram(name, graph, options, executable, samples, iterations)
        if recorder is not None:
            about = {
                "name": name,
                "system": options.system.name,
                "samples": samples,
                "train": options.optimiser is not None,
            }
            program.recorder = recorder
            program.number = recorder.program(about | _figures(executable, cache or self.cache))
        self.programs.append(program)
        return program


def _figures(executable: Executable, cache: Cache | None) -> dict[str, Any]:
    """What is recorded of a program as it is modelled. It is kept beside the program, so that one from the cache need
    not be charged again before it runs."""
    key = f"{executable.key}-figures"
    kept = cache.profiles.get(key) if cache is not None and executable.cached else None
    if kept is not None:
        return json.loads(kept)
    found = figures(charged(executable.schedule, executable.system))
    if cache is not None:
        cache.profiles.put(key, json.dumps(found))
    return found


_OPEN: ContextVar[Session | None] = ContextVar("session", default=None)


@lru_cache(maxsize=1)
def _default() -> Session:
    plan = PlanOptions(planner=os.environ.get("ABELE_PLANNER", PlanOptions().planner))
    return Session(find_system(os.environ.get("ABELE_SYSTEM", DEFAULT_SYSTEM)), plan=plan)


def current() -> Session:
    """The session that is open; a default one, for ``$ABELE_SYSTEM`` or a Bow-2000 and ``$ABELE_PLANNER``, when
    none is."""
    return _OPEN.get() or _default()


@contextmanager
def opened(session: Session) -> Iterator[Session]:
    """Make ``session`` the current one."""
    token = _OPEN.set(session)
    try:
        yield session
    finally:
        _OPEN.reset(token)
