"""Compiling, calling, and the cache of object code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from abele.codegen import Expr, Library, Operand, Output, Steps, map_kernel
from abele.codegen.store import Store
from abele.errors import Unsupported


def doubled():
    return map_kernel((8,), [Operand("f32", (1,))], [Expr("add", (0, 0), "f32")], [Output(1, "f32", (1,))])


def check(library: Library) -> None:
    x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    library.call(doubled(), [x, y])
    assert np.array_equal(y, 2 * x)


def test_equal_kernels_are_one() -> None:
    longer = map_kernel((99,), [Operand("f32", (1,))], [Expr("add", (0, 0), "f32")], [Output(1, "f32", (1,))])
    assert longer.name == doubled().name and longer == replace(doubled(), units=99)
    check(Library([doubled(), [longer, doubled()]]))


def test_steps_run_in_order_in_one_call() -> None:
    kernel = doubled()
    library = Library([kernel])
    x = np.ones(8, np.float32)
    steps = Steps(library, [(kernel, [x, x], 0, 8), (kernel, [x, x], 0, 4), (kernel, [x, x], 2, 8)])
    steps.run()
    assert x.tolist() == [4, 4, 8, 8, 4, 4, 4, 4]
    steps.run(1, 2)
    assert x.tolist() == [8, 8, 16, 16, 4, 4, 4, 4]


def test_object_code_is_read_back(tmp_path: Path) -> None:
    first = Library([doubled()], cache=tmp_path)
    second = Library([doubled()], cache=tmp_path)
    assert not first.from_cache and second.from_cache
    check(second)


@pytest.mark.parametrize("damage", [lambda d: b"", lambda d: d[:-7], lambda d: d[:90] + b"?" + d[91:]])
def test_a_damaged_entry_is_moved_aside_and_made_again(tmp_path: Path, caplog, damage) -> None:
    entry = Store(tmp_path, ".o").path(Library([doubled()], cache=tmp_path).key)
    entry.write_bytes(damage(entry.read_bytes()))
    library = Library([doubled()], cache=tmp_path)
    assert "damaged" in caplog.text and "compiled again" in caplog.text
    assert not library.from_cache and entry.with_suffix(".bad").exists()
    check(library)
    assert Library([doubled()], cache=tmp_path).from_cache


def test_without_a_disk_it_still_works(tmp_path: Path, caplog, monkeypatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    check(Library([doubled()], cache=blocked))
    assert "cannot be read" in caplog.text

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("abele.codegen.store.os.replace", full)
    check(Library([doubled()], cache=tmp_path / "cache"))
    assert "No space left" in caplog.text
    assert not [f for f in (tmp_path / "cache").rglob("*") if f.is_file()]


def test_what_is_not_known_is_named() -> None:
    with pytest.raises(Unsupported, match=r"'expp'.*Did you mean 'exp"):
        map_kernel((8,), [Operand("f32", (1,))], [Expr("expp", (0,), "f32")], [Output(1, "f32", (1,))])
    with pytest.raises(ValueError, match="takes 2 pointers"):
        Library([doubled()]).call(doubled(), [np.ones(8, np.float32)])
