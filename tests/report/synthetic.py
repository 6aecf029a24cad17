"""Reports of no program: any number of IPUs, tiles and operations, for tests and measurements of the viewer.

``python -m tests.report.synthetic FILE --ipus 2 --tiles 1472 --operations 5000 --seed 0`` writes one, through the
writer of real reports. Its numbers agree with each other as those of a real one do: parts add up to cycles, bodies to
their calls, moments to the whole, the ``work`` column's largest to what its compute set is charged.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from abele.report.store import ProgramRecord, Words, write

LIMIT, CLOCK, CODE = 638_976, 1.33e9, 21_000
PARTS = ("compute", "exchange", "links", "sync", "host", "bubble", "overhead")
KINDS = ("fused matmul", "softmax", "layer_norm", "reduce", "map", "transfer", "conv", "gather")
VERTICES = ("amp", "softmax", "norm", "reduce", "map", "copy", "amp", "gather")
ALWAYS = ("state", "hyper", "vertex code", "vertex state", "exchange code", "control code", "stack")
SOMETIMES = ("values", "temporaries", "exchange buffers")
SAME = 12
"""Steps of a layer."""

HOSTILE = (
    "<script>document.title='owned'</script>",
    "</script><img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "javascript:alert(1)",
    "=HYPERLINK(1)\t\n\r\0",
    "\u202eevil\u202c \u2028 \U0001f600 \U0001d56c" + "x" * 300,
    "__proto__",
    "${7*7}{{7*7}}",
    "' or 1=1; drop table program; --",
    "",
)


@dataclass(frozen=True)
class Shape:
    """What a synthetic program is made of. ``fill`` is how full the fullest tile is, as a share of its memory."""

    ipus: int = 2
    tiles: int = 1472
    operations: int = 5000
    columns: int = 0
    seed: int = 0
    hostile: bool = False
    fill: float = 0.8
    training: bool = True
    samples: int = 64


def program(shape: Shape, name: str = "synthetic") -> ProgramRecord:
    """A program of that shape. With no operations it is as empty as a program gets: its two ends."""
    return _Synthetic(shape, name).record()


class _Synthetic:
    def __init__(self, shape: Shape, name: str) -> None:
        self.shape, self.name = shape, name
        self.random = np.random.default_rng(shape.seed)
        self.layers = -(-shape.operations // SAME) if shape.operations else 0
        layer = np.arange(self.layers)
        place = self._ipu_of(layer)
        twin = (layer % 2 == 1) & (place == np.roll(place, 1))
        self.base = np.where(twin, layer - 1, layer)  # the layer of which a layer is the twin, or itself
        self.made = np.flatnonzero(~twin)
        inner = np.arange(SAME)
        self.row = (np.searchsorted(self.made, self.base)[:, None] * SAME + inner).ravel()  # the set of each step

    def record(self) -> ProgramRecord:
        shape = self.shape
        sets, columns = self._sets()
        operations = self._operations(sets)
        moments = self._moments(operations)
        tensors, placements = self._tensors(len(moments["start"]), operations)
        self._homes(tensors, columns)
        memory, liveness, tiles = self._memory(moments, tensors)
        tables = {
            "operations": operations,
            "sets": sets,
            "code": self._code(sets),
            "codelets": self._codelets(columns),
            "columns": columns,
            "tensors": tensors,
            "flow": self._flow(),
            "placements": placements,
            "traffic": self._traffic(operations),
            "pipeline": self._pipeline(),
            "moments": moments,
            "liveness": liveness,
            "tiles": tiles,
        }
        mode = "training" if shape.training else "inference"
        summary = self._summary(operations, memory, mode)
        return ProgramRecord(self.name, summary["system"], "mk2", mode, summary, tables, tuple(self._advice(summary)))

    # ids: 0 begin, 1 the repeat, then each layer its call and its steps, the last one is end

    def _sets(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """One compute set a step but those of twins, of columns that steps share."""
        shape, random = self.shape, self.random
        steps = len(self.made) * SAME
        pool = min(shape.columns or max(1, steps // 8), max(steps, 1))
        made = [self._column(i, i % 100 == 7) for i in range(2 * pool)] if steps else []
        work, received = random.integers(0, pool, (2, steps)) * 2 + np.array([[0], [1]])
        most = np.array([values.max() for _, values in made] or [0])
        totals = np.array([int((values * np.diff(stops, prepend=0)).sum()) for stops, values in made] or [0])
        bytes_ = totals[received]
        step = np.arange(steps)
        sets = {
            "id": step,
            "operation": 3 + self.made[step // SAME] * (SAME + 1) + step % SAME,
            "place": np.zeros(steps, np.int32),
            "vertex": Words(VERTICES, (step % len(VERTICES)).astype(np.int32)),
            "vertices": random.integers(1, 6 * shape.tiles, steps),
            "compute": most[work].astype(float),
            "sync": np.full(steps, 150.0),
            "exchange": np.ceil(most[received] / 8.0),
            "links": np.where(step % SAME == 5, 900.0, 0.0),
            "busy": totals[work].astype(float),
            "touched_bytes": bytes_ * 3,
            "scratch_bytes": random.integers(0, 2048, steps),
            "received_bytes": bytes_,
            "sent_bytes": most[received],
            "linked_bytes": np.where(step % SAME == 5, 7200, 0),
            "work": work,
            "received": received,
        }
        columns = {
            "column": np.repeat(np.arange(len(made)), [len(stops) for stops, _ in made]),
            "stop": np.concatenate([stops for stops, _ in made] or [[]]).astype(np.int32),
            "value": np.concatenate([values for _, values in made] or [[]]).astype(np.int32),
        }
        return sets, columns

    def _code(self, sets: Mapping[str, Any]) -> dict[str, Any]:
        """Every set has code of its own, with an exchange as long as what it receives is large."""
        count = len(sets["id"])
        numbers = {"state_bytes": 24, "state_again": 12, "control_bytes": 48, "control_again": 16}
        return {
            "id": np.arange(count),
            "first": np.zeros(count, np.int32),
            "fields": np.full(count, 3),
            "codelets": sets["vertex"],
            **{name: np.full(count, number) for name, number in numbers.items()},
            "exchange": sets["received"],
        }

    def _codelets(self, columns: dict[str, Any]) -> dict[str, Any]:
        """The same code of each kind on all tiles."""
        kinds, ipus = sorted(set(VERTICES)), np.arange(self.shape.ipus)
        known = int(columns["column"].max(initial=-1)) + 1
        for name, value in (("column", known), ("stop", self.shape.tiles), ("value", 1)):
            columns[name] = np.append(columns[name], value).astype(np.int32)
        name = Words(tuple(kinds), np.tile(np.arange(len(kinds)), len(ipus)).astype(np.int32))
        size = np.full(len(name), CODE // len(kinds))
        return {"ipu": np.repeat(ipus, len(kinds)), "name": name, "bytes": size, "tiles": np.full(len(name), known)}

    def _column(self, number: int, irregular: bool) -> tuple[np.ndarray, np.ndarray]:
        tiles = self.shape.tiles
        runs = tiles if irregular else min(tiles, int(self.random.integers(1, 9)))
        stops = np.sort(self.random.choice(tiles - 1, runs - 1, replace=False) + 1) if runs > 1 else np.empty(0, int)
        scale = 4000 if number % 2 == 0 else 2000
        values = self.random.integers(0, scale, runs)
        return np.append(stops, tiles), values

    def _operations(self, sets: Mapping[str, Any]) -> dict[str, Any]:
        shape, layers, random = self.shape, self.layers, self.random
        steps = layers * SAME
        rows = 2 + (1 + (SAME + 1) * layers if layers else 0)
        at = 3 + np.arange(steps) + np.arange(steps) // SAME
        own = {name: np.asarray(column)[self.row] for name, column in sets.items() if name != "vertex"}
        like = np.full(rows, -1)
        like[at] = own["operation"]
        layer_of, inner = np.arange(steps) // SAME, np.arange(steps) % SAME
        calls = 2 + np.arange(layers) * (SAME + 1)
        turns = 16 if shape.training else 4
        numbers = {c: np.zeros(rows) for c in ("cycles", *PARTS, "busy", "balance", "flops")}
        counts = ("vertices", "exchange_bytes", "link_bytes", "replica_bytes", "streamed_bytes")
        whole = {c: np.zeros(rows, np.int64) for c in counts}
        for part in ("compute", "exchange", "links", "sync"):
            numbers[part][at] = own[part]
            if layers:
                numbers[part][calls] = own[part].reshape(layers, SAME).sum(1)
                numbers[part][1] = numbers[part][calls].sum() * turns
        numbers["host"][[0, -1]] = 20_000.0, 5_000.0
        numbers["overhead"][-1] = 1_000.0
        numbers["cycles"][:] = sum(numbers[part] for part in PARTS)
        numbers["busy"][at] = own["busy"]
        numbers["balance"][at] = own["busy"] / np.maximum(own["compute"] * shape.tiles, 1)
        numbers["flops"][at] = np.floor(np.asarray(own["busy"]) * random.integers(1, 90, steps))
        whole["vertices"][at] = own["vertices"]
        whole["exchange_bytes"][at] = own["received_bytes"]
        whole["link_bytes"][at] = own["linked_bytes"]
        whole["streamed_bytes"][[0, -1]] = 1 << 20, 4096
        kinds = ["begin", *(["repeat"] if layers else []), *(["call", *["step"] * SAME] * layers), "end"]
        ipu, stage = np.zeros((2, rows), np.int32)
        place = self._ipu_of(np.arange(layers))
        ipu[calls], ipu[at] = place, place[layer_of] if layers else 0
        stage[:] = ipu
        ipu[[0, -1]] = -1
        parent, times, count = np.full(rows, -1), np.ones(rows, np.int64), np.ones(rows, np.int64)
        if layers:
            parent[calls], parent[at], times[2:-1], count[1] = 1, calls[layer_of], turns, turns
            ipu[1] = -1
        names = ["begin", *(["repeat body"] if layers else [])]
        keys, modules, functions, callees = list(names), [""] * len(names), ["main"] * len(names), ["", "body"]
        callees = callees[: len(names)]
        for i in range(layers):
            module = f"model.encoder.layer.{i}" if not shape.hostile else f"model.{HOSTILE[i % len(HOSTILE)]}.{i}"
            shown = [KINDS[j % len(KINDS)] for j in range(SAME)]
            if shape.hostile:
                shown = [HOSTILE[(i + j) % len(HOSTILE)] for j in range(SAME)]
            names += [f"call layer{i}", *shown]
            keys += [f"{module}/call layer{i}/0", *(f"{module}/{name}/{j}" for j, name in enumerate(shown))]
            modules += [module] * (SAME + 1)
            functions += ["body", *[f"layer{i}"] * SAME]
            callees += [f"layer{i}", *[""] * SAME]
        end = len(names) < rows
        for column, last in ((names, "end"), (keys, "end"), (modules, ""), (functions, "main"), (callees, "")):
            column += [last] * end
        lines = np.zeros(rows, np.int64)
        lines[at] = 10 + inner + layer_of % 40
        files = np.zeros(rows, np.int32)
        files[at] = 1
        backward = np.zeros(rows, np.int32)
        if shape.training:
            backward[at] = layer_of >= layers // 2
        code = np.zeros(rows, np.int64)
        code[at] = random.integers(100, 4000, steps)
        types = Words(("", "f16[512, 768]"), files)
        streams = Words(("", "input", "loss"), np.zeros(rows, np.int32))
        streams.index[0], streams.index[-1] = 1, 2
        return {
            "id": np.arange(rows),
            "parent": parent,
            "key": Words.of(keys),
            "kind": Words.of(kinds),
            "name": Words.of(names),
            "function": Words.of(functions),
            "callee": Words.of(callees),
            "like": like,
            "layer": Words.of(modules),
            "file": Words(("", HOSTILE[0] if shape.hostile else "model.py"), files),
            "line": lines,
            "stage": stage,
            "ipu": ipu,
            "phase": Words(("forward", "backward"), backward),
            "times": times,
            "count": count,
            "cycles": numbers["cycles"],
            "own": np.where(np.isin(np.arange(rows), [1, *calls]) & (rows > 2), 0.0, numbers["cycles"]),
            **{c: numbers[c] for c in PARTS},
            "flops": numbers["flops"],
            **whole,
            "code_bytes": code,
            "busy": numbers["busy"],
            "balance": numbers["balance"],
            "types": types,
            "stream": streams,
        }

    def _ipu_of(self, layer: np.ndarray) -> np.ndarray:
        """Layers over the IPUs, forth and (of training) back."""
        if not self.layers:
            return layer
        share = (layer + 0.5) / self.layers
        share = 1 - np.abs(2 * share - 1) if self.shape.training else share
        return np.minimum((share * self.shape.ipus).astype(np.int32), self.shape.ipus - 1)

    def _moments(self, operations: Mapping[str, Any]) -> dict[str, Any]:
        """begin, into the repeat, each layer entered, run and left, out of the repeat, end."""
        rows = np.arange(len(operations["parent"]))
        if self.layers:
            inside = rows[2:-1].reshape(self.layers, SAME + 1)
            walk = np.concatenate([[0, 1], np.column_stack([inside, inside[:, 0]]).ravel(), [1, rows[-1]]])
            depth = np.concatenate([[0, 0], np.tile([1, *[2] * SAME, 1], self.layers), [0, 0]])
        else:
            walk, depth = rows, np.zeros_like(rows)
        kind = np.asarray(operations["kind"].tolist())[walk]
        own = {part: np.where((kind == "call") | (kind == "repeat"), 0, operations[part][walk]) for part in PARTS}
        length = sum(own.values())
        start = np.cumsum(length) - length
        if self.layers:  # all turns of the repeat but the first pass before it ends
            turns = int(operations["count"][1])
            body = float(operations["cycles"][1]) / turns
            start[-2:] += body * (turns - 1)
        return {
            "operation": walk,
            "start": start,
            "sync": own["sync"],
            "exchange": own["exchange"] + own["links"],
            "compute": own["compute"],
            "host": own["host"] + own["overhead"],
            "ipu": operations["ipu"][walk],
            "depth": depth,
        }

    def _tensors(self, moments: int, operations: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        shape, random = self.shape, self.random
        states, values = 4 * self.layers, self.layers * SAME
        count = states + values
        always = np.arange(count) < states
        operation = np.full(count, -1)
        first, last = np.zeros(count, np.int64), np.full(count, moments - 1)
        if self.layers:
            step = np.arange(values)
            operation[states:] = 3 + step + step // SAME
            first[states:] = 3 + step + 2 * (step // SAME)
            reach = random.integers(1, 4, values)
            stay = (step % SAME == SAME - 1) & (random.random(values) < 0.5)
            last[states:] = np.minimum(first[states:] + np.where(stay, moments // 2, reach), moments - 1)
        layer = np.where(always, np.arange(count) // 4, (np.arange(count) - states) // SAME)
        ipu = self._ipu_of(layer).astype(np.int32) if self.layers else np.zeros(0, np.int32)
        # the fullest tile: state takes half of it, values the rest
        weight = random.integers(1, 100, count).astype(float)
        tile_bytes = np.zeros(count, np.int64)
        budget = LIMIT * shape.fill
        for i in range(shape.ipus):
            here = always & (ipu == i)
            if here.any():
                tile_bytes[here] = np.maximum(weight[here] / weight[here].sum() * budget * 0.5, 8).astype(np.int64)
        for i in range(shape.ipus):
            here = ~always & (ipu == i)
            top = _live(first[here], last[here], weight[here], moments).max(initial=0)
            tile_bytes[here] = (weight[here] / max(top, 1.0) * budget * 0.4).astype(np.int64) + 8
        category = np.where(always, ALWAYS.index("state"), len(ALWAYS))
        names = [f"%{i}" for i in range(count)]
        source = [f"layer.{i // 4}.weight{i % 4}" if i < states else "" for i in range(count)]
        if shape.hostile:
            source = [HOSTILE[i % len(HOSTILE)] for i in range(count)]
        tensors = {
            "id": np.arange(count),
            "name": Words.of(names),
            "source": Words.of(source),
            "type": Words(("f16[512, 768]", "f32[768]"), (np.arange(count) % 2).astype(np.int32)),
            "kind": Words(("state", "value"), (~always).astype(np.int32)),
            "category": Words((*ALWAYS, *SOMETIMES), category.astype(np.int32)),
            "bytes": tile_bytes * shape.tiles,
            "tile_bytes": tile_bytes,
            "copies": np.ones(count, np.int32),
            "first": first,
            "last": last,
            "always": always,
            "ipu": ipu,
            "operation": operation,
            "home": np.zeros(count, np.int32),
        }
        placements = {
            "tensor": np.arange(count),
            "ipu": ipu,
            "tile": np.full(count, 7 % shape.tiles),
            "address": self._addresses(tile_bytes, first, last, ipu),
            "bytes": tile_bytes,
            "first": first,
            "last": last,
        }
        return tensors, placements

    def _addresses(self, size: np.ndarray, first: np.ndarray, last: np.ndarray, ipu: np.ndarray) -> np.ndarray:
        """Always-live ones one after another, then values that stay for long, then the others in a ring: not first fit,
        quick, and nothing over anything else that is live."""
        address = np.zeros(len(size), np.int64)
        for i in range(self.shape.ipus):
            here = np.flatnonzero(ipu == i)
            staying = (first[here] == 0) | (last[here] - first[here] > 3)
            kept, others = here[staying], here[~staying]
            kept = kept[np.argsort(first[kept], kind="stable")]
            address[kept] = np.cumsum(size[kept]) - size[kept]
            base, room = int(size[kept].sum()), max(1, int(LIMIT * 0.1), 8 * int(size[others].max(initial=0)))
            address[others] = base + (np.cumsum(size[others]) - size[others]) % room
        return address

    def _homes(self, tensors: dict[str, Any], columns: dict[str, Any]) -> None:
        """Columns of what tensors take of the tiles: the same of each."""
        sizes, which = np.unique(tensors["tile_bytes"], return_inverse=True)
        known = int(columns["column"].max(initial=-1)) + 1
        tensors["home"] = (known + which).astype(np.int32)
        columns["column"] = np.append(columns["column"], known + np.arange(len(sizes)))
        columns["stop"] = np.append(columns["stop"], np.full(len(sizes), self.shape.tiles)).astype(np.int32)
        columns["value"] = np.append(columns["value"], sizes).astype(np.int32)

    def _flow(self) -> dict[str, Any]:
        """Four steps of a layer read its states; each step reads what the one before it made, and every fifth also what
        the last step of the layer before made."""
        states, step = 4 * self.layers, np.arange(self.layers * SAME)
        row = 3 + step + step // SAME
        state = np.arange(states)
        readers = row[state // 4 * SAME + state % 4 * 3] if self.layers else row
        far = step[(step % SAME == 4) & (step >= SAME)]
        before = far // SAME * SAME - 1
        return {
            "producer": np.concatenate([np.full(states, -1), row[:-1], row[before]]),
            "consumer": np.concatenate([readers, row[1:], row[far]]),
            "tensor": np.concatenate([state, states + step[:-1], states + before]),
        }

    def _memory(
        self, moments: Mapping[str, Any], tensors: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        shape, random = self.shape, self.random
        count = len(moments["start"])
        always, ipu, size = np.asarray(tensors["always"]), tensors["ipu"], tensors["tile_bytes"]
        fixed = {"state": 0, "hyper": 64, "vertex code": CODE, "vertex state": 9_000}
        fixed |= {"exchange code": 14_000, "control code": 6_000, "stack": 1024}
        of_ipu = []
        for i in range(shape.ipus):
            here = ~always & (ipu == i)
            values = _live(tensors["first"][here], tensors["last"][here], size[here], count)
            of_ipu.append((int(size[always & (ipu == i)].sum()), values))
        fullest = max(range(shape.ipus), key=lambda i: of_ipu[i][0] + int(of_ipu[i][1].max(initial=0)))
        state, values = of_ipu[fullest]
        fixed["state"] = state
        busy = (np.asarray(moments["ipu"]) == fullest) & (np.asarray(moments["compute"]) > 0)
        temporaries, buffers = (np.where(busy, random.integers(0, top, count), 0) for top in (9_000, 12_000))
        line = {name: np.full(count, value) for name, value in fixed.items()}
        line |= {"values": values, "temporaries": temporaries, "exchange buffers": buffers}
        top = np.sum(list(line.values()), axis=0)
        peak = int(top.argmax())
        liveness = {"max": top, "mean": np.floor(top * 0.9), **line}
        spread = np.clip(1 - random.random((shape.ipus, shape.tiles)) ** 4 * 0.3, 0, 1)
        spread[fullest, 7 % shape.tiles] = 1.0
        dead = np.array([int(v.max(initial=0)) for _, v in of_ipu])
        base = {name: np.full((shape.ipus, shape.tiles), value) for name, value in fixed.items()}
        base["state"] = (np.array([s for s, _ in of_ipu])[:, None] * spread).astype(np.int64)
        total = sum(base.values()) + (dead[:, None] * spread).astype(np.int64)
        total = np.minimum(total, int(top[peak]))
        total[fullest, 7 % shape.tiles] = top[peak]
        tiles = {
            "ipu": np.repeat(np.arange(shape.ipus), shape.tiles),
            "tile": np.tile(np.arange(shape.tiles), shape.ipus),
            "total": total.ravel(),
            **{name: column.ravel() for name, column in base.items()},
        }
        most = int(top[peak])
        memory = {
            "limit": LIMIT,
            "max": most,
            "mean": float(total.mean()),
            "fits": most <= LIMIT,
            "gap": max(0, most - LIMIT),
            "fullest_tile": 7 % shape.tiles,
            "fullest_ipu": fullest,
            "peak_moment": peak,
            "categories": {name: int(column[peak]) for name, column in line.items()},
        }
        return memory, liveness, tiles

    def _traffic(self, operations: Mapping[str, Any]) -> dict[str, Any]:
        """Four flows an operation, and one over links; their sums are its exchanged and linked bytes."""
        shape = self.shape
        steps = np.flatnonzero((operations["like"] == operations["id"]) & (operations["exchange_bytes"] > 0))
        near, far = operations["exchange_bytes"][steps], operations["link_bytes"][steps]
        parts = np.stack([near // 2, near // 4, near // 8, near - near // 2 - near // 4 - near // 8, far])
        place = np.tile(steps, (5, 1))
        groups = min(32, shape.tiles)
        ipu = np.tile(operations["ipu"][steps], (5, 1))
        links = np.zeros_like(place)
        links[4] = 1
        source = np.where(links == 1, (ipu + 1) % shape.ipus, ipu)
        kept = parts > 0
        pair = self.random.integers(0, groups, (2, *place.shape))
        columns = (place, source, pair[0], ipu, pair[1], parts, links)
        names = ("operation", "source_ipu", "source_group", "target_ipu", "target_group", "bytes", "links")
        order = np.argsort(place[kept], kind="stable")
        return {name: column[kept][order] for name, column in zip(names, columns, strict=True)}

    def _pipeline(self) -> dict[str, Any]:
        stages = self.shape.ipus
        if stages < 2 or not self.layers:
            return {}
        micro, slot = min(256, 4 * stages), 50_000
        b, s = (each.ravel() for each in np.meshgrid(np.arange(micro), np.arange(stages), indexing="ij"))
        both = 2 if self.shape.training else 1
        stage, batch = np.tile(s, both), np.tile(b, both)
        backward = np.repeat(np.arange(both), len(s))
        start = np.where(
            backward == 0, (batch + stage) * slot * both, (batch + 2 * stages - 1 - stage) * slot * 2 + slot
        )
        return {
            "repeat": np.ones(len(stage), np.int32),
            "ipu": stage,
            "stage": stage,
            "backward": backward,
            "micro_batch": batch,
            "start": start.astype(float),
            "length": np.full(len(stage), slot * 0.9),
        }

    def _summary(self, operations: Mapping[str, Any], memory: dict[str, Any], mode: str) -> dict[str, Any]:
        top = operations["parent"] == -1
        by = {part: float(operations[part][top].sum()) for part in PARTS}
        cycles = sum(by.values())
        seconds, samples = cycles / CLOCK, self.shape.samples
        flops = float((operations["flops"] * operations["times"]).sum())
        machine = "m2000" if self.shape.ipus > 1 else "ipu-m"
        return {
            "name": HOSTILE[0] if self.shape.hostile else self.name,
            "system": machine,
            "chip": "mk2",
            "mode": mode,
            "tiles": self.shape.tiles,
            "ipus": self.shape.ipus,
            "replicas": 1,
            "clock_hz": CLOCK,
            "samples": samples,
            "cycles": cycles,
            "cycles_by": by,
            "seconds": seconds,
            "throughput": samples / seconds,
            "flops": flops,
            "peak_fraction": min(1.0, flops / (seconds * 250e12 * self.shape.ipus)),
            "energy_joules": seconds * 150 * self.shape.ipus,
            "energy": {"parts": {"idle": 0.6, "vector": 0.3, "rest": 0.1}, "scale": 1.0, "basis": "synthetic"},
            "tile_memory": memory,
            "notes": ["This report is synthetic: no program was compiled."],
            "explanation": None if memory["fits"] else {"text": "Values take the room."},
            "passes": [{"name": "fuse", "seconds": 0.1, "changed": 12}],
            "planner": "best",
            "wall_seconds": 1.0,
            "runs": [],
            "provenance": {"modelled": ["cycles", "tile memory"], "measured": [], "assumed": ["stack"]},
            "band": {"family": "training", "median": 0.1, "p90": 0.3, "planner": "poplibs", "basis": "synthetic"},
        }

    def _advice(self, summary: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        memory = summary["tile_memory"]
        for i, share in enumerate((0.7, 0.85)):
            yield {
                "text": ("Recompute activations", "Halve the micro-batch")[i],
                "settings": {"recompute": True} if i == 0 else {"micro_batch": 4},
                "command": "abele profile synthetic " + ("--recompute", "--micro-batch 4")[i],
                "kind": "fit" if memory["gap"] else "speed",
                "fits": memory["max"] * share <= memory["limit"],
                "bytes": int(memory["max"] * share),
                "throughput": summary["throughput"] * 0.9,
                "cycles": summary["cycles"] * 1.1,
                "gain_bytes": int(memory["max"] * (1 - share)),
                "gain_cycles": -summary["cycles"] * 0.1 / summary["samples"],
                "error": "",
            }


SOURCE = "\n".join(f"line {i}: x = self.layer{i}(x)  # <b>" for i in range(1, 120))


def _live(first: np.ndarray, last: np.ndarray, size: np.ndarray, moments: int) -> np.ndarray:
    """The sum of the sizes of what is live at each moment."""
    change = np.zeros(moments + 1, size.dtype)
    np.add.at(change, first, size)
    np.add.at(change, last + 1, -size)
    return np.cumsum(change[:-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    for name, default in (
        ("ipus", 2),
        ("tiles", 1472),
        ("operations", 5000),
        ("columns", 0),
        ("seed", 0),
        ("samples", 64),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--hostile", action="store_true", help="names that try to break out of the page")
    parser.add_argument("--empty", action="store_true", help="a program that does nothing")
    parser.add_argument("--out-of-memory", action="store_true", help="a program that does not fit")
    parser.add_argument("--two", action="store_true", help="a second program, a little different, to compare with")
    parser.add_argument("--redact", action="store_true", help="without the text of sources")
    given = parser.parse_args()
    shape = Shape(
        given.ipus,
        given.tiles,
        0 if given.empty else given.operations,
        given.columns,
        given.seed,
        given.hostile,
        1.7 if given.out_of_memory else 0.6,
        samples=given.samples,
    )
    programs = [program(shape)]
    if given.two:
        fewer = max(0, shape.operations - SAME)
        programs.append(program(replace(shape, operations=fewer, seed=shape.seed + 1), "synthetic, changed"))
    sources = {HOSTILE[0] if given.hostile else "model.py": SOURCE}
    write(given.file, programs, title="A synthetic report", sources=None if given.redact else sources)


if __name__ == "__main__":
    main()
