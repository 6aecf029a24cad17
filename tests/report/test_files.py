"""Writing a file whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from abele.report.files import whole, write_file


def test_a_file_stays_as_it_is_until_all_is_written(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("of yesterday")
    with pytest.raises(KeyboardInterrupt), whole(path) as fresh:
        fresh.write_text("hal")
        raise KeyboardInterrupt
    assert path.read_text() == "of yesterday" and list(tmp_path.iterdir()) == [path]
    with whole(path) as fresh:
        fresh.write_text("of today")
    assert path.read_text() == "of today" and list(tmp_path.iterdir()) == [path]


def test_what_a_killed_process_left_is_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "a[1].pop"
    kept = [".a[1].pop.7", ".a1.pop.8", ".a[1].pop.old", "a[1].pop"]  # of one that writes now, and of other files
    for name in (".a[1].pop.9", *kept):
        (tmp_path / name).write_text("half")
        os.utime(tmp_path / name, (1, 1) if name != kept[0] else None)
    write_file(path, "whole")
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(kept) and path.read_text() == "whole"


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_file(path, "through it")
        assert os.read(reader, 99) == b"through it" and path.is_fifo()
    finally:
        os.close(reader)
