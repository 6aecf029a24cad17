"""Mapping a function over points: on the cores of this computer, or over several machines with Ray or Dask.

An engine is one generator function; it yields the place and the result of each point as they come. All engines give the
same results, since the function decides them. To stop, close the generator: what runs is cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from abele.errors import InvalidOption, Unsupported, suggest
from abele.workers import Workers

Function = Callable[[Any], Any]
Engine = Callable[[Function, Sequence[Any], int], Iterator[tuple[int, Any]]]
"""``engine(function, points, jobs)``; the function and its results can be pickled, and it does not raise."""


def each(engine: str, function: Function, points: Sequence[Any], jobs: int) -> Iterator[tuple[int, Any]]:
    """``function`` of every point, as ``(place, result)`` in the order in which they are ready.

    Args:
        engine: a name of ``ENGINES``.
        jobs: processes on this computer; a cluster of Ray or Dask that runs already has its own workers.

    Raises:
        InvalidOption: no such engine. Unsupported: its package is not installed, or a process died.
    """
    if engine not in ENGINES:
        raise InvalidOption(f"There is no engine {engine!r}", remedy=suggest(engine, ENGINES))
    return ENGINES[engine](function, points, jobs)


# this computer ----------------------------------------------------------------------------------------------


def local(function: Function, points: Sequence[Any], jobs: int) -> Iterator[tuple[int, Any]]:
    """``jobs`` processes; with one job, or one point, this process."""
    with Workers(function, min(jobs, len(points)), _died) as workers:
        yield from workers.run(points)


def _died(point: Any, status: int | None) -> Any:
    raise Unsupported(
        f"A process of the sweep ended by itself with {status}, perhaps for want of memory", remedy="Use fewer --jobs."
    )


# several machines -------------------------------------------------------------------------------------------


def _call(function: Function, point: Any) -> Any:
    return function(point)


def ray(function: Function, points: Sequence[Any], jobs: int) -> Iterator[tuple[int, Any]]:
    """Tasks of Ray: on the cluster at ``$RAY_ADDRESS`` where that is set, else ``jobs`` workers here."""
    try:
        import ray as library  # type: ignore[import-not-found]
    except ImportError as error:
        raise _missing("ray") from error
    started = not library.is_initialized()
    if started:
        _on_ray(library, jobs)
    waiting: dict[Any, int] = {}
    try:
        shared, task = library.put(function), library.remote(_call)
        waiting = {task.remote(shared, point): i for i, point in enumerate(points)}
        while waiting:
            ready, _ = library.wait(list(waiting), num_returns=1)
            for reference in ready:
                yield waiting.pop(reference), library.get(reference)
    finally:
        for reference in waiting:
            library.cancel(reference, force=True)
        if started:
            library.shutdown()


def _on_ray(library: Any, jobs: int) -> None:
    import os

    if os.environ.get("RAY_ADDRESS"):
        library.init(log_to_driver=False)
    else:
        library.init(num_cpus=jobs, log_to_driver=False, include_dashboard=False)


def dask(function: Function, points: Sequence[Any], jobs: int) -> Iterator[tuple[int, Any]]:
    """Tasks of Dask: on the scheduler at ``$DASK_SCHEDULER_ADDRESS`` where that is set, else ``jobs`` workers here."""
    try:
        import distributed  # type: ignore[import-not-found]
        from dask import config  # type: ignore[import-not-found]
    except ImportError as error:
        raise _missing("dask") from error
    address = config.get("scheduler-address", None)
    here = {} if address else {"n_workers": jobs, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.Client(address, **here) as client:
        shared = client.scatter(function, broadcast=True)
        place = {client.submit(_call, shared, point, pure=False): i for i, point in enumerate(points)}
        try:
            for future in distributed.as_completed(place):
                yield place[future], future.result()
        finally:
            client.cancel(list(place))


def _missing(name: str) -> Unsupported:
    return Unsupported(
        f"The engine {name!r} needs a package that is not installed", remedy=f"pip install 'abele[{name}]'"
    )


ENGINES: Mapping[str, Engine] = {"local": local, "ray": ray, "dask": dask}
"""Engines by name."""
