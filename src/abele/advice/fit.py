"""Changes that take less tile memory, alone and together, with what each should need, so that few are compiled.

What it should need is worked out from the profile: state, values and the rest of the fullest tile, each times what the
change leaves of it. That is no bound and decides only what is tried first. The bound is of state alone, spread evenly
over all tiles of the stages, and of the largest weight: what exceeds a tile by it is not tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from abele.advice.records import MOVED, Change, Program
from abele.charge.memory import ALWAYS
from abele.compile.passes.sharding import USUAL

WHOLE = ("standard", "recompute_all")
"""Recomputations that keep little already."""

SPREAD = 16
"""Micro-batches for each stage in a pipelined step that loads and stores its optimizer's state."""

KEPT, KEPT_HERE = 0.5, 0.3
"""Share of the values that recomputation leaves, and that activations in streaming memory leave (assumed)."""

DEARNESS = {"stages": 1.0, "half": 1.0, "shard": 0.5, "recompute": 2.0, "batch": 2.0, "offload": 3.0}
"""How much sooner a change is tried than another: by what it costs in time, or in numbers that differ. What is not
here is dear: it comes from streaming memory in every step."""

DEAR = 6.0


@dataclass(frozen=True, slots=True)
class Fitting:
    """A change and what it should come to.

    Attributes:
        need: bytes that it should take of the fullest tile; ``floor`` that it takes at least.
        dear: what it costs, see ``DEARNESS``.
    """

    change: Change
    need: int
    floor: int
    dear: float


def candidates(program: Program) -> list[Fitting]:
    """Changes that may make a program fit, the best to try first: what should fit, the cheapest first, then what comes
    nearest. Those that cannot fit are not among them."""
    limit = program.profile.memory.limit
    held = _Held(program)
    found: list[Fitting] = []
    for change in _changes(program):
        changed = change.rungs[0]
        names = changed.keys() - {"accumulate", "replicas"}
        fitting = Fitting(
            change, held.need(changed), held.floor(changed), sum(DEARNESS.get(name, DEAR) for name in names)
        )
        if fitting.floor <= limit:
            found.append(fitting)
    return sorted(found, key=lambda f: (0, f.dear, f.need) if f.need <= limit else (1, f.need, f.dear))


def least(program: Program) -> int:
    """Bytes of every tile that the state takes at least, with all that may change."""
    held = _Held(program)
    return min((held.floor(change.rungs[0]) for change in _changes(program)), default=held.floor({}))


class _Held:
    """What the fullest tile of a program holds, and what changes leave of it."""

    def __init__(self, program: Program) -> None:
        self.program, self.memory = program, program.profile.memory
        state = [t for t in self.memory.by_tensor if t.kind == "state"]
        self.weights = [t for t in state if not t.source.startswith("optimiser.")]
        self.optimizer = [t for t in state if t.source.startswith("optimiser.")]

    def need(self, changed: Mapping[str, Any]) -> int:
        """Bytes on the fullest tile, about.

        What one operation takes for its time (exchange buffers, temporaries) is not spread by stages. A grouped
        pipeline keeps the values of up to ``2 * stages - 1`` micro-batches on its first stage. State that waits in
        streaming memory comes to the tiles a tensor at a time, beside its next value: the largest decides.
        """
        s, now, shares = self.program.settings, {**self.program.settings, **changed}, self.program.shares
        part = shares.get(now["stages"], 1 / now["stages"]) / shares.get(s["stages"], 1 / s["stages"])
        half = 0.5 if now["half"] and not s["half"] else 1.0
        more = half * now["batch"] / s["batch"]
        held = self.memory.categories
        weights, optimizer = (sum(t.bytes for t in each) for each in (self.weights, self.optimizer))
        largest, values = max((t.bytes for t in self.weights), default=0), held.get("values", 0)
        gradients = min(values, weights) if self.program.train else 0
        values = more * (values - gradients) * s["stages"] / now["stages"]
        if self.program.train and now["stages"] > s["stages"]:
            values *= min(now["accumulate"], 2 * now["stages"] - 1)
        if now["recompute"] in WHOLE and s["recompute"] not in WHOLE:
            values *= KEPT
        if now["offload_activations"] and not s["offload_activations"]:
            values *= KEPT_HERE
        gradients, weights = half * part * gradients, half * part * weights
        if now["offload_weights"]:
            gradients, weights = min(gradients, half * largest), min(weights, half * largest)
        sharded = now["replicas"] if now["shard"] and not s["shard"] else 1
        optimizer *= part / sharded
        if now["offload"] and self.optimizer:
            kinds = max(1, round(len(self.optimizer) / max(1, len(self.weights))))
            optimizer, update = 0.0, 2 * kinds * max(t.bytes for t in self.optimizer) / sharded
            values = max(values, update)
        spent = more * sum(held.get(kind, 0) for kind in ("temporaries", "exchange buffers"))
        fixed = sum(size for kind, size in held.items() if kind in ALWAYS and kind != "state")
        return int(weights + gradients + optimizer + values + spent + fixed)

    def floor(self, changed: Mapping[str, Any]) -> int:
        """Bytes on the fullest tile, at least: state that stays there, or the largest weight, spread evenly."""
        now = {**self.program.settings, **changed}
        half = 0.5 if now["half"] and not self.program.settings["half"] else 1.0
        weights = [half * t.total_bytes for t in self.weights]
        kept = 0.0 if now["offload_weights"] else sum(weights)
        if not now["offload"]:
            parts = now["replicas"] if now["shard"] else 1
            kept += sum(t.total_bytes for t in self.optimizer) / parts
        return int(max(kept / now["stages"], *weights, 0.0) / self.program.tiles)


def _changes(program: Program) -> Iterator[Change]:
    """All combinations."""
    s, free = program.settings, program.free
    halves = [False, True] if "half" in free and not s["half"] else [False]
    batches = [s["batch"], *(s["batch"] // n for n in (2, 4, 8) if s["batch"] >= n and "batch" in free)]
    for stages, half, moved, batch in product(_stages(program), halves, _moved(program), batches):
        changed: dict[str, Any] = {"half": True} if half else {}
        changed |= moved
        texts = ["half precision"] * half
        if stages > s["stages"]:
            replicas = min(s["replicas"], program.ipus // stages) or 1
            if program.train and "replicas" in free and moved.get("shard"):
                replicas = program.ipus // stages
            changed |= {"stages": stages, "accumulate": max(s["accumulate"], 2 * stages), "replicas": replicas}
            texts.append(f"{stages} pipeline stages")
            if moved.get("offload"):
                changed["accumulate"] = max(s["accumulate"], SPREAD * stages)
        replicas = changed.get("replicas", s["replicas"])
        if moved.get("shard"):
            if replicas == 1:
                continue
            texts.append(f"optimizer state sharded over {replicas} replicas")
        if batch != s["batch"]:
            changed["batch"] = batch
            texts.append(f"micro-batch {batch} instead of {s['batch']}")
        if "recompute" in moved:
            texts.append("recompute layers and blocks in the backward pass")
        there = [words for name, words in MOVED.items() if moved.get(name)]
        if there:
            words = there[0] if len(there) == 1 else f"{', '.join(there[:-1])} and {there[-1]}"
            texts.append(f"{words} in streaming memory")
        changed = {name: value for name, value in changed.items() if value != s[name]}
        if changed:
            yield Change(", ".join(texts), (changed,))


def _moved(program: Program) -> Iterator[dict[str, Any]]:
    """What keeps less on the tiles, and each with the one before."""
    s, free = program.settings, program.free
    yield {}
    off = [name for name in MOVED if name in free and not s[name] and not s["phased"]]
    if not program.train:
        if "offload_weights" in off:
            yield {"offload_weights": True}
        return
    again = {"recompute": "standard"} if "recompute" in free and s["recompute"] not in WHOLE else {}
    sharded = {"shard": USUAL} if "shard" in free and not s["shard"] else {}
    ways = [again, sharded, again | sharded]
    if "offload" in off:
        ways += [{"offload": True}, again | {"offload": True}, again | sharded | {"offload": True}]
    ways.append(again | dict.fromkeys(off, True))
    seen: list[dict[str, Any]] = [{}]
    for way in ways:
        if way not in seen:
            seen.append(way)
            yield way


def _stages(program: Program) -> list[int]:
    """Numbers of stages from the present one on that the model can be cut into and the IPUs allow."""
    s = program.settings
    first = s["stages"]
    if program.placed or s["phased"] or "stages" not in program.free:
        return [first]
    replicas = 1 if program.train and "replicas" in program.free else s["replicas"]
    return [first, *(n for n in sorted(program.shares) if n > first and n * replicas <= program.ipus)]
