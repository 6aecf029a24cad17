"""Every engine maps the same function to the same results, and can be stopped."""

from __future__ import annotations

import sys
import types

import pytest

from abele.errors import InvalidOption, Unsupported
from abele.sweep.engines import each


def square(x: int) -> int:
    return x * x


def die(x: int) -> int:
    import os

    os._exit(1)


WANTED = {i: i * i for i in range(7)}


@pytest.mark.parametrize("jobs", [1, 2])
def test_local(jobs: int) -> None:
    assert dict(each("local", square, range(7), jobs)) == WANTED
    assert dict(each("local", square, [], jobs)) == {}


def test_a_process_that_dies_is_an_error_and_no_hang() -> None:
    with pytest.raises(Unsupported, match="--jobs"):
        list(each("local", die, range(3), 2))


def test_dask_on_a_scheduler_that_runs() -> None:
    import dask
    import distributed

    with (
        distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster,
        dask.config.set({"scheduler-address": cluster.scheduler_address}),
    ):
        assert dict(each("dask", square, range(7), 2)) == WANTED
        started = each("dask", square, range(100), 2)
        next(started)
        started.close()


class FakeRay(types.ModuleType):
    """The part of Ray that is used, in this process: tasks run when they are waited for, the last first."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.calls: list[str] = []
        self.tasks: dict[int, object] = {}
        self.open = False

    def is_initialized(self) -> bool:
        return self.open

    def init(self, **options: object) -> None:
        self.open = True
        self.calls.append("num_cpus" if "num_cpus" in options else "address")

    def shutdown(self) -> None:
        self.open = False

    def put(self, value):
        return value

    def remote(self, function):
        def submit(*arguments):
            self.tasks[len(self.tasks)] = lambda: function(*arguments)
            return len(self.tasks) - 1

        return types.SimpleNamespace(remote=submit)

    def wait(self, references, num_returns):
        return references[-num_returns:], references[:-num_returns]

    def get(self, reference):
        return self.tasks[reference]()  # type: ignore[operator]

    def cancel(self, reference, force):
        self.calls.append("cancel")


def test_ray_by_its_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert dict(each("ray", square, range(7), 2)) == WANTED
    assert fake.calls == ["num_cpus"] and not fake.open
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    started = each("ray", square, range(3), 2)
    assert next(started) == (2, 4)
    started.close()
    assert fake.calls == ["num_cpus", "address", "cancel", "cancel"] and not fake.open


@pytest.mark.parametrize("name", ["ray", "dask"])
def test_an_engine_that_is_not_installed_names_its_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, {"ray": "ray", "dask": "distributed"}[name], None)
    with pytest.raises(Unsupported, match=f"abele\\[{name}\\]"):
        list(each(name, square, [1], 1))


def test_an_unknown_engine() -> None:
    with pytest.raises(InvalidOption, match="'dask'"):
        each("dusk", square, [1], 1)
