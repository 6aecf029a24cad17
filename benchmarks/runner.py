"""Finds the benchmarks and runs each module in a process of its own.

So none inherits the memory, the threads or the memo tables of another.
"""

from __future__ import annotations

import fnmatch
import importlib
import multiprocessing
import pkgutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import benchmarks
from benchmarks.base import Benchmark, Row, Settings

ENGINE = "The engine against torch eager (CPU time of one step, one thread)"
_HERE = Path(__file__).parent


def modules() -> list[str]:
    """The modules of this folder that have ``benchmarks()`` or ``main()``."""
    found = sorted(m.name for m in pkgutil.iter_modules(benchmarks.__path__) if not m.name.startswith("_"))
    texts = {name: (_HERE / f"{name}.py").read_text() for name in found}
    return [n for n in found if any(f"\ndef {function}() ->" in texts[n] for function in ("benchmarks", "main"))]


def chosen(module: str, names: Sequence[str], settings: Settings) -> list[Benchmark]:
    """The benchmarks of a module that the names choose; ``*`` stands for anything."""
    loaded = importlib.import_module(f"benchmarks.{module}")
    if hasattr(loaded, "benchmarks"):
        found: list[Benchmark] = loaded.benchmarks()
    else:
        found = [Benchmark(ENGINE, "all", lambda _: compared(loaded.main()))] if hasattr(loaded, "main") else []
    if names:
        found = [b for b in found if any(fnmatch.fnmatch(f"{module}.{b.name}", f"*{n}*") for n in names)]
    return [b for b in found if b.quick or not settings.quick]


def compared(results: Sequence[Any]) -> list[Row]:
    """Rows of the results of `benchmarks.rounds.compare`: our engine and torch eager."""
    return [
        {
            "workload": r.name,
            "abele, CPU ms": r.ours * 1e3,
            "torch eager, CPU ms": r.theirs * 1e3,
            "abele without torch, CPU ms": "" if r.native is None else r.native * 1e3,
            "ratio": r.ratio,
            "limit": 1.0,
            "holds": r.ratio <= 1.0,
            "rounds": r.rounds,
        }
        for r in results
    ]


def run_module(
    module: str, names: Sequence[str], settings: Settings, tell: Callable[[str], None]
) -> Iterator[tuple[str, str, list[Row]]]:
    """The results of one module, ``(group, name, rows)`` each. A process that dies costs one benchmark."""
    context = multiprocessing.get_context("spawn")
    skip = 0
    while True:
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=_serve, args=(there, module, names, settings, skip))
        process.start()
        there.close()
        current = None
        try:
            while True:
                message = here.recv()
                if message is None:
                    break
                kind, *content = message
                if kind == "begin":
                    current = content
                    tell(f"{module}.{content[1]} ...")
                    continue
                skip, current = skip + 1, None
                for row in content[2]:
                    tell(f"  {row}")
                yield content[0], content[1], content[2]
        except EOFError:
            process.join()
            error = f"the process died with status {process.exitcode}"
            group, name = current or (f"Module {module}", "import")
            yield group, name, [{"error": error}]
            if current is None:
                return
            skip += 1
            continue
        finally:
            here.close()
        process.join()
        return


def _serve(there: Any, module: str, names: Sequence[str], settings: Settings, skip: int) -> None:
    sys.stdout = sys.stderr  # the runner prints the tables alone
    for benchmark in chosen(module, names, settings)[skip:]:
        there.send(("begin", benchmark.group, benchmark.name))
        try:
            rows = [dict(row) for row in benchmark.run(settings)]
        except Exception as error:
            rows = [{"error": f"{type(error).__name__}: {error}"}]
        there.send(("done", benchmark.group, benchmark.name, rows))
    there.send(None)
