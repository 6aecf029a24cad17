"""Large programs in brief: what a page shows first, summed up, so that it need not wait for tables of every operation.

A page that is opened before its tables are there draws these packets, some hundred kilobytes of them, and takes up the
tables when they have come. What is summed here is what the page would sum itself: the same totals, the same groups;
what is drawn over time is in as many bins as a screen has pixels, each with the most of its moments where the page
draws the most. ``docs/report_store.md`` has the columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from abele.charge.records import PARTS
from abele.report.store.packet import Words
from abele.report.store.schema import PHASES

FEWEST = 16_384
"""A program of fewer operations has none: its tables come as soon."""

LAYERS = 65_536
"""A program of more layers has no brief tree."""

BINS = 2560
"""Stretches of a program over time; a screen has fewer pixels."""

SEEN = 60
"""Rows of the tree that are open at first (``viewer/src/pages/operations.js``)."""

LISTED = 100
"""Operations that exchange most."""

MOST = 10
"""Operations that take most, alike ones of one line together."""

ROWS = 400
"""Rows of tiles, at most: the raster is less tall."""

Columns = dict[str, Any]
Brief = Iterator[tuple[str, Columns, dict[str, Any]]]


def briefs(
    tables: Mapping[str, Mapping[str, Any]], summary: Mapping[str, Any], raster: Mapping[str, Any] | None
) -> Brief:
    """Name, columns and further header of each brief table of a program.

    Args:
        tables: of the program, as ``ProgramRecord`` has them.
        summary: of the program.
        raster: bins of IPU 0 (``pyramid.rasters``) with ``level``; ``None`` where there are none.
    """
    operations = _Table(tables.get("operations", {}))
    if operations.count < FEWEST:
        return
    costs = _Costs(operations)
    sets = _Table(tables.get("sets", {}))
    yield from _tree(operations, costs, sets)
    yield from _exchange(operations, costs, _Table(tables.get("traffic", {})))
    moments = _Table(tables.get("moments", {}))
    if moments.count:
        pipelined = _Table(tables.get("pipeline", {})).count > 0
        yield from _over_time(operations, moments, summary["cycles"], raster, pipelined)
        peak = summary["tile_memory"].get("peak_moment", 0)
        yield from _liveness(tables.get("liveness", {}), peak, summary["tile_memory"]["limit"])


class _Table:
    """Columns as they are asked for: numbers, or words and the index of each row."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self._columns = columns
        self.count = len(next(iter(columns.values()))) if columns else 0

    def numbers(self, name: str) -> np.ndarray:
        return np.asarray(self._columns[name])

    def words(self, name: str) -> Words:
        column = self._columns[name]
        return column if isinstance(column, Words) else Words.of([str(text) for text in column])

    def floats(self, name: str) -> np.ndarray:
        return np.asarray(self._columns[name], float)


def _which(words: Words, *wanted: str) -> np.ndarray:
    """Whether each row has one of these words, ``bool[rows]``."""
    return np.array([word in wanted for word in words.words] or [False])[words.index]


class _Costs:
    """What each operation takes in one device iteration, as ``viewer/src/optree.js`` counts it."""

    def __init__(self, table: _Table) -> None:
        n = table.count
        self.times, turns = table.floats("times"), table.floats("count")
        self.nested = _which(table.words("kind"), "call", "repeat")
        functions, callees = table.words("function"), table.words("callee")
        place = {name: i for i, name in enumerate(functions.words) if name}
        callee = np.array([place.get(name, -1) for name in callees.words] or [-1])[callees.index]
        calls = np.flatnonzero(self.nested & (callee >= 0))
        runs = np.bincount(callee[calls], (self.times * turns)[calls], len(functions.words))
        runs[runs == 0] = 1.0
        self.parts: dict[str, np.ndarray] = {}
        for part in PARTS:
            own = table.floats(part) * self.times
            body = np.bincount(functions.index, own, len(functions.words))
            own[calls] -= (body / runs)[callee[calls]] * (self.times * turns)[calls]
            own[self.nested & (own < 0.5)] = 0.0
            self.parts[part] = own
        self.cycles = np.sum(list(self.parts.values()), axis=0)
        leaf = ~self.nested
        moved = table.floats("exchange_bytes") + table.floats("link_bytes") + table.floats("streamed_bytes")
        self.bytes = np.where(leaf, moved * self.times, 0.0)
        self.flops = np.where(leaf, table.floats("flops") * self.times, 0.0)
        self.weighed = np.where(leaf, self.parts["compute"] * table.floats("balance"), 0.0)
        self.members = np.flatnonzero(leaf | (self.cycles > 0))
        like = table.numbers("like")
        self.own = (like < 0) | (like == np.arange(n))
        """Whether the operation is not one like another before it."""


# the tree of layers ------------------------------------------------------------------------------------------


def _tree(table: _Table, costs: _Costs, sets: _Table) -> Brief:
    """The operations that the tree and the flame show at first; the others of each layer are one row of their sums."""
    members, layers = costs.members, table.words("layer")
    if len(layers.words) > LAYERS or not len(members):
        return
    layer = layers.index[members]
    used, first, group = np.unique(layer, return_index=True, return_inverse=True)
    cycles = costs.cycles[members]
    opened = _opened(
        [layers.words[each] for each in used], first, np.bincount(group), np.bincount(group, cycles, len(used))
    )
    single = opened[group] | (cycles * 1000 >= cycles.sum())
    # The rows in the order of the program; those of a layer that are one stand where its first one does.
    rest = np.flatnonzero(~single)
    kept, head, merged = np.unique(group[rest], return_index=True, return_inverse=True)
    place = np.concatenate([np.flatnonzero(single), rest[head]])
    order = np.argsort(place, kind="stable")
    rows = members[place][order]
    alone = int(single.sum())

    def summed(values: np.ndarray) -> np.ndarray:
        of = values[members]
        return np.concatenate([of[single], np.bincount(merged, of[rest], len(kept))])[order]

    lone = order < alone
    counts = np.bincount(sets.numbers("operation"), minlength=table.count) if sets.count else np.zeros(table.count, int)
    like = table.numbers("like")
    columns: Columns = {name: _some(table.words(name), rows, lone) for name in ("key", "kind", "name", "file", "types")}
    columns["layer"] = _some(layers, rows, np.ones(len(rows), bool))
    columns |= {name: np.where(lone, table.numbers(name)[rows], -1) for name in ("line", "ipu")}
    columns["times"] = np.where(lone, table.numbers("times")[rows], 1)
    columns["each"] = summed(np.ones(table.count)).astype(np.int64)
    columns["sets"] = np.where(lone & (like[rows] >= 0), counts[np.maximum(like[rows], 0)], 0)
    columns["balance"] = np.where(lone, table.floats("balance")[rows], 0.0)
    columns |= {part: summed(costs.parts[part]) for part in PARTS}
    columns |= {name: summed(getattr(costs, name)) for name in ("cycles", "bytes", "flops", "weighed")}
    columns["vertices"] = summed(table.floats("vertices"))
    columns["code_bytes"] = summed(np.where(costs.own, table.floats("code_bytes"), 0.0))
    yield "operations", columns, {"most": _most(table, costs)}


def _some(words: Words, rows: np.ndarray, told: np.ndarray) -> Words:
    """The words of some rows, "" of those that are not told."""
    used, index = np.unique(np.where(told, words.index[rows], -1), return_inverse=True)
    return Words(tuple("" if each < 0 else words.words[each] for each in used.tolist()), index.astype(np.int32))


def _opened(names: list[str], first: np.ndarray, direct: np.ndarray, cycles: np.ndarray) -> np.ndarray:
    """Of each layer whether the tree shows its own operations at first: the largest groups are open, as long as no more
    than ``SEEN`` rows are in sight."""
    parent, label, held, sums, own = [-1], [""], [0], [0.0], [-1]  # 0: the top
    children: list[list[int]] = [[]]
    place: dict[tuple[int, str], int] = {}
    for which in np.argsort(first, kind="stable").tolist():
        at = 0
        for word in names[which].split(".") if names[which] else ["(no layer)"]:
            node = place.setdefault((at, word), len(label))
            if node == len(label):
                parent.append(at)
                label.append(word)
                held.append(0)
                sums.append(0.0)
                own.append(-1)
                children.append([])
                children[at].append(node)
            at = node
        held[at] += int(direct[which])
        own[at] = which
        while at:
            sums[at] += float(cycles[which])
            at = parent[at]

    def inner(node: int) -> int:
        """The group whose name a group that holds nothing else gets."""
        while held[node] == 0 and len(children[node]) == 1:
            node = children[node][0]
        return node

    below = {0: children[0]}
    open_, seen, more = set[int](), len(children[0]), True

    def in_sight(node: int) -> Iterator[int]:
        if node not in below:
            below[node] = children[inner(node)]
        for child in sorted(below[node], key=lambda each: -sums[each]):
            yield child
            if child in open_:
                yield from in_sight(child)

    while more and seen < SEEN:
        more = False
        for node in in_sight(0):
            inside = len(children[inner(node)]) + held[inner(node)]
            if node not in open_ and seen + inside <= SEEN:
                open_.add(node)
                seen += inside
                more = True
                break
    found = np.zeros(len(names), bool)
    for node in open_:
        if own[inner(node)] >= 0:
            found[own[inner(node)]] = True
    return found


def _most(table: _Table, costs: _Costs) -> list[dict[str, Any]]:
    """The operations that take most, those of one name and line together; ``named`` is what all of the name take."""
    members = costs.members
    words = {name: table.words(name) for name in ("name", "file", "layer", "key", "kind")}
    line = table.numbers("line")
    by = np.zeros(len(members), np.int64)
    for each in (words["name"].index, words["file"].index, line):
        by = by * (int(each.max()) + 2) + each[members] + 1
    _, first, group = np.unique(by, return_index=True, return_inverse=True)
    cycles = np.bincount(group, costs.cycles[members], len(first))
    compute, weighed = (np.bincount(group, of[members], len(first)) for of in (costs.parts["compute"], costs.weighed))
    count = np.bincount(group, minlength=len(first))
    named = np.bincount(words["name"].index[members], costs.cycles[members])
    largest = sorted(range(len(first)), key=lambda i: (-cycles[i], first[i]))[:MOST]
    return [
        {name: words[name][int(members[first[i]])] for name in words}
        | {"line": int(line[members[first[i]]]), "count": int(count[i])}
        | {"named": float(named[words["name"].index[members[first[i]]]]), "cycles": float(cycles[i])}
        | {"compute": float(compute[i]), "weighed": float(weighed[i])}
        for i in largest
        if cycles[i] > 0
    ]


# who sends to whom -------------------------------------------------------------------------------------------

ENDS = ("source_ipu", "source_group", "target_ipu", "target_group")


def _exchange(table: _Table, costs: _Costs, traffic: _Table) -> Brief:
    """Bytes between groups of the whole program, and the operations that exchange most; row 0 is all others."""
    weights = np.where(costs.nested, 0.0, costs.times)
    spent = (table.floats("exchange") + table.floats("links")) * weights
    any_ = spent + (table.floats("exchange_bytes") + table.floats("link_bytes")) * weights > 0
    rows = np.flatnonzero(any_)
    rows = rows[np.argsort(-spent[rows], kind="stable")][:LISTED]
    columns: Columns = {
        name: Words(("", *_some(words, rows, np.ones(len(rows), bool)).words), _after(words, rows))
        for name in ("key", "kind", "name", "layer", "file", "function", "callee")
        for words in (table.words(name),)
    }
    columns["line"] = np.append(-1, table.numbers("line")[rows])
    columns["times"] = np.append(1, table.numbers("times")[rows])
    columns["count"] = np.ones(len(rows) + 1, np.int32)
    columns["like"] = np.append(0, np.full(len(rows), -1))
    for name in ("exchange", "links", "exchange_bytes", "link_bytes", "replica_bytes", "cycles"):
        values = table.floats(name)
        others = float((values * weights).sum() - (values * weights)[rows].sum())
        columns[name] = np.append(others, values[rows])
    yield "exchanges", columns, {"listed": int(any_.sum())}
    if not traffic.count:
        return
    like, n = table.numbers("like"), table.count
    counts = np.bincount(like[like >= 0], weights[like >= 0], n)
    moved = traffic.floats("bytes") * counts[traffic.numbers("operation")]
    ends = [traffic.numbers(name).astype(np.int64) for name in (*ENDS, "links")]
    key, sizes = np.zeros(traffic.count, np.int64), [int(each.max()) + 1 for each in ends]
    for each, size in zip(ends, sizes, strict=True):
        key = key * size + each
    pairs, index = np.unique(key, return_inverse=True)
    sums: Columns = {"operation": np.zeros(len(pairs), np.int32)}
    for name, size in zip(reversed((*ENDS, "links")), reversed(sizes), strict=True):
        sums[name] = (pairs % size).astype(np.int32)
        pairs //= size
    yield "traffic", {**sums, "bytes": np.bincount(index, moved)}, {}


def _after(words: Words, rows: np.ndarray) -> np.ndarray:
    """The index of these rows among their own words, behind a row that has the word before them."""
    return np.append(0, 1 + np.unique(words.index[rows], return_inverse=True)[1]).astype(np.int32)


# over time ---------------------------------------------------------------------------------------------------


def _over_time(
    table: _Table, moments: _Table, cycles: float, raster: Mapping[str, Any] | None, pipelined: bool
) -> Brief:
    """Moments of a stretch and an IPU as one, the calls and loops around them, and what the tiles of IPU 0 do."""
    count, operation, start = moments.count, moments.numbers("operation"), moments.floats("start")
    ran = np.maximum(operation, 0)
    parts = {name: moments.floats(name) for name in PHASES}
    for first, second in (("exchange", "links"), ("host", "overhead")):
        one, two = (np.where(operation >= 0, table.floats(name)[ran], 0.0) for name in (first, second))
        share = np.divide(two, one + two, out=np.zeros(count), where=two > 0)
        parts[second] = parts[first] * share
        parts[first] = parts[first] - parts[second]
    length = np.sum(list(parts.values()), axis=0)
    drawn = max(float(length.sum()), 1e-9)
    edges = np.append(np.maximum.accumulate(start), 0.0)
    edges[-1] = max(edges[-2] + length[-1], cycles)
    gap = edges[1:] - edges[:-1] - length > 1e-5 * drawn  # turns of a loop that are not drawn
    place = ((np.cumsum(length) - length) / drawn * BINS).astype(np.int64)
    stretch = np.cumsum(np.append(0, (place[1:] != place[:-1]) | gap[:-1]))
    ipu = moments.numbers("ipu").astype(np.int64)
    key = stretch * (int(ipu.max()) + 2) + ipu + 1
    order = np.argsort(key, kind="stable")
    at = np.flatnonzero(np.append(True, np.diff(key[order]) > 0))
    if len(at) > 8 * BINS:
        return
    sums = {name: np.add.reduceat(values[order], at) for name, values in parts.items()}
    # Within a stretch one IPU comes after another.
    long, of = np.add.reduceat(length[order], at), stretch[order][at]
    head = np.searchsorted(stretch, np.arange(stretch[-1] + 1))
    top = np.searchsorted(of, np.arange(stretch[-1] + 1))
    before = np.cumsum(long) - long
    columns: Columns = {"start": edges[:-1][head][of] + before - before[top][of], "ipu": ipu[order][at]}
    columns |= sums
    has_sets = np.where(operation >= 0, table.numbers("like")[ran] >= 0, False)
    for name in ("sync", "links", "host", "overhead", "exchange"):
        values = np.where(has_sets, 0.0, parts[name]) if name == "exchange" else parts[name]
        most = np.divide(values, length, out=np.zeros(count), where=length > 0)
        columns[f"most.{name}"] = np.maximum.reduceat(most[order], at).astype(np.float32)
    yield "moments", columns, {"of": count, "pipelined": pipelined}
    yield "folds", _folds(table, moments, top[stretch]), {}
    if raster is not None:
        tiles = _tile_rows(order, at, ipu, long, raster)
        yield "raster", tiles[0], tiles[1]


def _folds(table: _Table, moments: _Table, place: np.ndarray) -> Columns:
    """Calls and loops, from the brief moment at which each enters to that at which it ends; those that begin and end on
    the same are told once."""
    operation, depth = moments.numbers("operation"), moments.numbers("depth")
    nested = _which(table.words("kind"), "call", "repeat")
    enters = (operation >= 0) & nested[np.maximum(operation, 0)] & np.append(depth[1:] > depth[:-1], False)
    ends = np.append(False, depth[1:] < depth[:-1])
    found, open_, told = [], [], set()

    def told_once(enter: int, stop: int, level: int) -> None:
        mark = int(place[enter]), int(place[stop]), level
        if mark not in told:
            told.add(mark)
            found.append((enter, *mark))

    for i in np.flatnonzero(enters | ends).tolist():
        if open_ and depth[i] <= depth[open_[-1]]:
            enter = open_.pop()
            told_once(enter, i, len(open_))
        elif enters[i]:
            open_.append(i)
    while open_:
        enter = open_.pop()
        told_once(enter, moments.count - 1, len(open_))
    found.sort()
    rows = [int(operation[enter]) for enter, *_ in found]
    callee, name, turns = table.words("callee"), table.words("name"), table.numbers("count")
    columns: Columns = {what: np.array([fold[k + 1] for fold in found], np.int32) for k, what in enumerate(_FOLD)}
    names = [(callee[row] or name[row]) + (f" × {int(turns[row]):,}" if turns[row] > 1 else "") for row in rows]
    return columns | {"name": Words.of(names)}


_FOLD = ("enter", "exit", "level")

SHADES = 63
"""Steps in which a share is drawn."""


def _tile_rows(
    order: np.ndarray, at: np.ndarray, ipu: np.ndarray, long: np.ndarray, raster: Mapping[str, Any]
) -> tuple[Columns, dict[str, Any]]:
    """The most that tiles of IPU 0 work and exchange in each of its brief moments that take time, in ``SHADES``."""
    group, wide = 16 ** int(raster["level"]), 4 ** (int(raster["level"]) - 1)
    across = int(raster["tile_bins"])
    number = np.cumsum(ipu == 0) - 1  # of a moment among those of IPU 0
    mine = np.flatnonzero((ipu[order][at] == 0) & (long > 0))
    stop = np.append(at[1:], len(order))
    first = number[order][at[mine]] // group
    last = number[order][stop[mine] - 1] // group
    columns: Columns = {}
    together = -(-across // ROWS)
    for what in ("work", "exchange"):
        bins = np.asarray(raster[f"{what}.max"]).reshape(-1, across)
        bins = np.maximum.reduceat(bins, np.arange(0, across, together), axis=1)
        most = np.stack([bins[a : b + 1].max(axis=0) for a, b in zip(first.tolist(), last.tolist(), strict=True)])
        columns[what] = np.ceil(np.clip(most, 0.0, 1.0) * SHADES).astype(np.int32).ravel()
    return columns, {"tile_bins": -(-across // together), "wide": wide * together, "shades": SHADES}


def _liveness(table: Mapping[str, Any], peak: int, limit: float) -> Brief:
    """Runs of moments: the most and the mean of each, and what its fullest one holds by kind; the peak is alone."""
    values = {name: np.asarray(column, float) for name, column in table.items()}
    most = values.get("max", np.zeros(0))
    count = len(most)
    if not count:
        return
    total = np.sum([column for name, column in values.items() if name not in ("max", "mean")] or [most], axis=0)
    peak = min(peak, count - 1)
    edges = np.unique(np.concatenate([np.arange(BINS) * count // BINS, [peak, min(peak + 1, count - 1)]]))
    sizes = np.diff(np.append(edges, count))
    run = np.repeat(np.arange(len(edges)), sizes)
    # The fullest moment of each run: the last of its moments in the order of their sums, the first of equals.
    order = np.lexsort((-np.arange(count), total, run))
    fullest = order[np.cumsum(sizes) - 1]
    columns: Columns = {"stop": edges + sizes, "max": np.maximum.reduceat(most, edges)}
    columns["mean"] = np.add.reduceat(values["mean"], edges) / sizes
    columns |= {name: of[fullest] for name, of in values.items() if name not in ("max", "mean")}
    yield "liveness", columns, {"of": count, "over": int((most > limit).sum())}
