"""A table as columns in one run of bytes, which a browser reads as typed arrays without copying.

Eight bytes ``ABELPKT1``, an unsigned 32-bit length (little-endian), that many bytes of JSON, zeros to a multiple of
eight, and the columns one after another, each at a multiple of eight. The JSON is ``{"count", "columns": [{"name",
"type", "at", "as"?, "all"?, "words"?}], …}``; ``at`` counts from the first column. A column is stored ``as`` a narrower
type that holds each of its numbers exactly, and as a number alone where ``all`` rows have the same: half of the bytes
of a large report, which a browser would wait for.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from abele.errors import BadReport

MAGIC = b"ABELPKT1"

TYPES = {"f64": np.dtype("<f8"), "f32": np.dtype("<f4"), "i32": np.dtype("<i4"), "word": np.dtype("<i4")}
"""Types of columns; ``word`` is an index into the words of the column."""

NARROW = {"i8": np.dtype("<i1"), "i16": np.dtype("<i2"), "i32": np.dtype("<i4"), "f32": np.dtype("<f4")}
"""Types that columns may be stored as."""


@dataclass(frozen=True, eq=False)
class Words:
    """A column of texts, each distinct text once: ``words[index[i]]`` is what row ``i`` has, ``int32[rows]``."""

    words: tuple[str, ...]
    index: np.ndarray

    @classmethod
    def of(cls, texts: Sequence[str]) -> Words:
        places: dict[str, int] = {}
        index = [places.setdefault(text, len(places)) for text in texts]
        return cls(tuple(places), np.array(index, np.int32))

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, row: int) -> str:
        return self.words[self.index[row]]

    def tolist(self) -> list[str]:
        words = self.words
        return [words[i] for i in self.index.tolist()]


Column = np.ndarray | Words
"""A column: numbers, or words."""


@dataclass(frozen=True, eq=False)
class Packet:
    """A table: columns of one length, and what else its header says."""

    columns: dict[str, Column]
    count: int
    header: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Column:
        return self.columns[name]

    def numbers(self, name: str) -> np.ndarray:
        """A column of numbers."""
        column = self.columns[name]
        return column.index if isinstance(column, Words) else column

    def words(self, name: str) -> list[str]:
        """A column of words, one a row."""
        column = self.columns[name]
        return column.tolist() if isinstance(column, Words) else [str(value) for value in column.tolist()]

    def rows(self) -> list[dict[str, Any]]:
        """The rows, for a person or a script; of a large table this takes its time."""
        names = list(self.columns)
        lists = [column.tolist() for column in self.columns.values()]
        return [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)]


def encode(columns: Mapping[str, Any], **header: Any) -> bytes:
    """A packet of columns: arrays of numbers, ``Words``, or sequences of numbers or of texts, all of one length.

    Whole numbers become ``i32`` where all of them fit and ``f64`` else; ``float32`` arrays become ``f32``, other floats
    ``f64``, whatever they are stored as. ``header`` goes into the JSON as it is.
    """
    described: list[dict[str, Any]] = []
    parts: list[bytes] = []
    at, count = 0, -1
    for name, column in columns.items():
        type_, values, words = _typed(column)
        if count not in (-1, len(values)):
            raise ValueError(f"column {name!r} has {len(values)} rows, the others have {count}")
        count = len(values)
        stored, how = _narrow(np.ascontiguousarray(values, TYPES[type_]))
        data = stored.tobytes()
        described.append({"name": name, "type": type_, "at": at} | how | ({} if words is None else {"words": words}))
        padding = -len(data) % 8
        parts += (data, bytes(padding))
        at += len(data) + padding
    text = json.dumps({**header, "count": max(count, 0), "columns": described}, separators=(",", ":"))
    head = text.encode("utf-8", "replace")
    padding = bytes(-(len(MAGIC) + 4 + len(head)) % 8)
    return b"".join((MAGIC, struct.pack("<I", len(head)), head, padding, *parts))


def decode(data: bytes) -> Packet:
    """The packet in ``data``; its numbers are views of it, not to be written to.

    Raises:
        BadReport: these bytes are no packet, or not all of one.
    """
    try:
        if data[:8] != MAGIC:
            raise ValueError("it does not begin as a packet")
        (size,) = struct.unpack_from("<I", data, 8)
        header: dict[str, Any] = json.loads(data[12 : 12 + size])
        first = -(-(12 + size) // 8) * 8
        count, columns = int(header.pop("count")), dict[str, Column]()
        for each in header.pop("columns"):
            type_ = TYPES[each["type"]]
            if "all" in each or not count:
                values = np.full(count, each.get("all", 0), type_)
            else:
                stored = NARROW[each["as"]] if "as" in each else type_
                values = np.frombuffer(data, stored, count, first + each["at"]).astype(type_, copy=False)
            columns[each["name"]] = Words(tuple(each["words"]), values) if each["type"] == "word" else values
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise BadReport(
            f"A table of the report cannot be read: {error}", remedy="The file is damaged: make the report again."
        ) from error
    return Packet(columns, count, header)


def _narrow(values: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
    """What is stored of a column, and what its description says of it."""
    if not len(values):
        return values, {}
    first = values[0].item()
    if values[-1] == first and np.isfinite(first) and (values == first).all():
        return values[:0], {"all": first}
    least, most = values.min(), values.max()
    if values.dtype.kind == "f":
        if np.isfinite(least) and abs(least) < 2**31 and abs(most) < 2**31 and (values == np.rint(values)).all():
            return _as("i32", values, least, most)
        with np.errstate(over="ignore"):
            exact = values.dtype.itemsize == 8 and (values.astype(np.float32) == values).all()
        return _as("f32", values) if exact else (values, {})
    return _as("i32", values, least, most)


def _as(name: str, values: np.ndarray, least: Any = -np.inf, most: Any = np.inf) -> tuple[np.ndarray, dict[str, Any]]:
    """A column as that type, or as a narrower one of whole numbers that holds the least and the most of it."""
    for narrower in ("i8", "i16"):
        held = np.iinfo(NARROW[narrower])
        if held.min <= least and most <= held.max:
            name = narrower
            break
    return (values, {}) if NARROW[name] == values.dtype else (values.astype(NARROW[name]), {"as": name})


def _typed(column: Any) -> tuple[str, np.ndarray, tuple[str, ...] | None]:
    """Type, values and words of a column."""
    if isinstance(column, Words):
        return "word", column.index, column.words
    if not isinstance(column, np.ndarray) and len(column) and isinstance(column[0], str):
        return _typed(Words.of(column))
    values = np.asarray(column, None if len(column) else np.int32)
    if values.dtype == np.float32:
        return "f32", values, None
    if values.dtype.kind == "f":
        return "f64", values, None
    if values.dtype.kind not in "iub":
        return _typed(Words.of([str(value) for value in values.tolist()]))
    fits = not values.size or (values.min() >= -(2**31) and values.max() < 2**31)
    return ("i32" if fits else "f64"), values, None
