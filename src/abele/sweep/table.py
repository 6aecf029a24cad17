"""The rows of a sweep as a Parquet file, and back, to go on from."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from abele.errors import InvalidOption, Unsupported
from abele.sweep.charge import RESULTS, Row


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise Unsupported(
            "A Parquet file needs pyarrow, which is not installed",
            remedy="pip install 'abele[sweep]', or leave out --out.",
        ) from error
    return pyarrow, pyarrow.parquet


def read_rows(path: Path) -> list[Row]:
    """The rows of a sweep's file; none when there is no file yet.

    Raises:
        InvalidOption: the file is no sweep's. Unsupported: pyarrow is not installed.
    """
    arrow, parquet = _arrow()
    if not path.exists():
        return []
    try:
        rows = parquet.read_table(path).to_pylist()
    except (OSError, arrow.ArrowException) as error:
        raise InvalidOption(
            f"{str(path)!r} cannot be read: {error}", remedy="Move it away, or choose another --out."
        ) from error
    try:
        contents(rows)  # what cannot be written again is found before the work, not after it
    except arrow.ArrowException:
        rows = [{}]
    if any("key" not in row for row in rows):
        raise InvalidOption(f"{str(path)!r} is no file of a sweep", remedy="Choose another --out.")
    return rows


def contents(rows: Sequence[Row]) -> bytes:
    """The file of these rows; a field that only some have is null in the others."""
    arrow, parquet = _arrow()
    names = dict.fromkeys(name for row in rows for name in row if name not in RESULTS)
    columns = {name: arrow.array([row.get(name) for row in rows]) for name in names}
    for name, kind in RESULTS.items():
        columns[name] = arrow.array(
            [row.get(name) for row in rows], getattr(arrow, "bool_" if kind == "bool" else kind)()
        )
    file = io.BytesIO()
    parquet.write_table(arrow.table(columns), file)
    return file.getvalue()
