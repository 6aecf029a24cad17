"""A profile as an SQLite file, for those who want to ask it questions: ``sqlite3 profile.pop 'select * from steps'``.

A table for each list of the profile's JSON document (``steps``, ``by_operation``, ``by_line``, ``by_module``), with its
nested fields by dotted names; ``timeline`` with a row for each moment; all else by dotted names in ``about``.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any


def write_database(document: Mapping[str, Any], path: str | Path) -> None:
    """Write a profile's document to a new file, in the place of one that is there."""
    target = Path(path)
    target.unlink(missing_ok=True)
    about: dict[str, Any] = {}
    with closing(sqlite3.connect(target)) as file:
        for name, value in document.items():
            if isinstance(value, list) and value and all(isinstance(row, Mapping) for row in value):
                _table(file, name, [_flat(row) for row in value])
            elif isinstance(value, Mapping) and name == "timeline":
                columns = {k: v for k, v in value.items() if k != "folds"}
                moments = zip(*columns.values(), strict=True)
                _table(file, name, [dict(zip(columns, row, strict=True)) for row in moments])
                about[f"{name}.folds"] = json.dumps(value.get("folds", []))
            else:
                about |= _flat({name: value})
        _table(file, "about", [{"key": key, "value": value} for key, value in about.items()])
        file.commit()


def _flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = json.dumps(value) if isinstance(value, list | tuple) else value
    return found


def _table(file: sqlite3.Connection, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    columns = list(dict.fromkeys(key for row in rows for key in row)) or ["key"]
    file.execute(f"create table {_quoted(name)} ({', '.join(map(_quoted, columns))})")
    places = ", ".join("?" * len(columns))
    file.executemany(f"insert into {_quoted(name)} values ({places})", [[row.get(c) for c in columns] for row in rows])


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
