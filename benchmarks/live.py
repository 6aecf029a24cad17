"""What it costs a run to say what it does (``abele run --live``): the digits example with and without a recorder.

Steps of training and of inference, half of them recorded, while another process follows the file as the viewer's
server does. ``step %`` is what counting the median run takes longer when it is recorded, ``thread %`` the CPU time of
the thread that writes, and ``more %`` both, as shares of the step's CPU time. ``whole step %`` is how much more CPU
time a recorded step takes altogether, of the steps a tenth of which are quicker: the same, and this computer's noise.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.base import Benchmark, Row, Settings, apart

TITLE = "abele run --live: CPU time of a step of the digits example"
LIMIT = 1.0
"""Per cent that a run may take more."""


def benchmarks() -> list[Benchmark]:
    """One row for training and one for inference."""
    return [Benchmark(TITLE, "digits", lambda settings: apart(_measure, settings))]


def _measure(settings: Settings) -> Sequence[Row]:
    import torch

    torch.set_num_threads(1)
    steps = 200 if settings.quick else 1000 * settings.rounds
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "live.jsonl")
        with _followed(path):
            return [_row(name, *made, path, steps) for name, made in _programs().items()]


def _programs() -> dict[str, tuple[Any, Callable[[], object]]]:
    """Each program of the example as the session keeps it, and a call of it."""
    import torch

    import poptorch

    sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
    import digits

    torch.manual_seed(0)
    model = digits.Classifier()
    images, labels = digits.digits()[0][: digits.BATCH]
    training = poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    training(images, labels)
    inference = poptorch.inferenceModel(model)
    inference(images)
    return {
        "training": (training._program.compiled, lambda: training(images, labels)),
        "inference": (inference._program.compiled, lambda: inference(images)),
    }


def _row(name: str, compiled: Any, step: Callable[[], object], path: Path, steps: int) -> Row:
    from abele import events
    from abele.charge import charged
    from abele.charge.figures import figures

    about = {"name": name, "system": "bow-2000", "samples": compiled.samples, "train": name == "training"}
    about |= figures(charged(compiled.executable.schedule, compiled.options.system))
    steps_taken: dict[bool, list[float]] = {True: [], False: []}
    counted: dict[bool, list[float]] = {True: [], False: []}
    count = compiled.ran

    def ran(*arguments: Any) -> None:
        start = time.perf_counter()
        count(*arguments)
        counted[compiled.recorder is not None].append(time.perf_counter() - start)

    compiled.ran = ran
    whole = time.thread_time()
    with events.opened(events.Recorder(path)) as recorder:
        clock = time.pthread_getcpuclockid(recorder.thread)
        compiled.number = recorder.program(about)
        for live in _in_any_order(steps):
            compiled.recorder = recorder if live else None
            start = time.thread_time()
            step()
            steps_taken[live].append(time.thread_time() - start)
        whole = time.thread_time() - whole
        written = 100 * time.clock_gettime(clock) / whole
    plain = statistics.median(steps_taken[False])
    quick = {live: statistics.quantiles(taken, n=10)[0] for live, taken in steps_taken.items()}
    added = 100 * (statistics.median(counted[True]) - statistics.median(counted[False])) / plain
    row = {"program": name, "µs a step": 1e6 * plain, "step %": added, "thread %": written, "more %": added + written}
    whole = {"whole step %": 100 * (quick[True] / quick[False] - 1)}
    return row | {"limit %": LIMIT, "holds": added + written <= LIMIT} | whole | {"steps": steps}


def _in_any_order(steps: int) -> list[bool]:
    """Whether each step is recorded: half of them, in no order that something else could keep step with."""
    order = [True, False] * steps
    random.Random(0).shuffle(order)
    return order


@contextlib.contextmanager
def _followed(path: Path) -> Iterator[None]:
    """A reader of the file in a process of its own."""
    process = multiprocessing.get_context("spawn").Process(target=_follow, args=(path,), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def _follow(path: Path) -> None:
    from abele.report.live import FollowedRun

    for _ in FollowedRun(path).events():
        pass
