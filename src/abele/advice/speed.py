"""Changes that may make a program faster, by what its profile says the time goes to.

Each comes with the share of a sample's time that it could save at the most, by simple reasoning over the parts of the
cycles: enough to tell what is worth a compile. What it does save, the compile says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from abele.advice.records import MOVED, Change, Program
from abele.charge.records import PARTS
from abele.charge.spent import DATA
from abele.compile.passes.sharding import USUAL

FACTOR = 8
"""Times more micro-batches in a step: what a step takes but once is then an eighth of what it was."""

LARGEST_FACTOR = 64
"""Times larger micro-batches, at most."""

IO_TILES = 32
"""Tiles to set aside for transfers, PopTorch's least."""

GROWING = ("values", "temporaries", "exchange buffers")
"""Categories of tile memory that grow with the micro-batch."""


def changes(program: Program) -> list[Change]:
    """The changes that may help, the most promising first."""
    found = [change for change in _all(program) if set(change.rungs[0]) <= program.free]
    return sorted(found, key=lambda change: -change.promise)


def _all(program: Program) -> Iterator[Change]:
    s, p = program.settings, program.profile
    total = p.cycles.total
    share = {part: getattr(p.cycles, part) / total for part in PARTS}
    work, once = share["compute"] + share["exchange"], p.spent.once / total
    waits = {kind: wait.cycles / total for kind, wait in p.spent.waits.items()}
    yield from _more_at_a_time(program, share)
    turns = {"accumulate": FACTOR * s["accumulate"]}
    yield Change(
        f"{{}} micro-batches in a step instead of {s['accumulate']}",
        (turns,),
        counted="accumulate",
        promise=(once + share["bubble"]) * (1 - 1 / FACTOR),
    )
    replicas = program.ipus // p.ipus
    if replicas > s["replicas"]:
        text, more = f"{replicas} replicas instead of {s['replicas']}", {"replicas": replicas}
        promise = 1 - s["replicas"] / replicas
        yield Change(text, (more,), promise=promise)
        if program.train and s["accumulate"] < FACTOR:  # the gradients of replicas are summed but once in a step
            yield Change(
                f"{text} and {FACTOR} micro-batches in a step", (more | {"accumulate": FACTOR},), promise=promise
            )
    if not s["half"]:
        yield Change("half precision", ({"half": True},), promise=0.5 * (work + share["host"] + share["links"]))
    elif not s["partials"]:
        yield Change("products summed in half (rounds more)", ({"partials": "f16"},), promise=0.3 * work)
    if s["planner"] != "best":
        yield Change("planner best", ({"planner": "best"},), promise=0.25 * (1 - share["overhead"]))
    if s["stages"] > 1 and not program.placed and not s["phased"]:
        stages = s["stages"] // 2
        wider = {"stages": stages, "replicas": s["replicas"] * (s["stages"] // stages)}
        text = f"{stages} pipeline stage{'s' * (stages > 1)} and {wider['replicas']} replicas"
        yield Change(text, (wider,), promise=share["bubble"] / 2 + share["links"] + share["sync"] / 2)
    yield from _from_streaming_memory(program, waits)
    if not s["io_tiles"] and not s["phased"]:
        text = f"{IO_TILES} tiles of each IPU set aside for transfers, beside compute"
        yield Change(text, ({"io_tiles": IO_TILES},), promise=min(share["host"], work))
    if not program.train:
        return
    if s["recompute"] not in ("none", "checkpoints"):
        yield Change("keep activations: no recomputation", ({"recompute": "checkpoints"},), promise=0.25 * work)
    if s["output"] == "all":
        yield Change("return the loss alone to the host", ({"output": "loss"},), promise=waits[DATA])
    if s["replicas"] > 1 and not s["shard"]:
        saved = max(0.0, once - share["overhead"]) * (1 - 1 / s["replicas"])
        yield Change("optimizer state sharded over the replicas", ({"shard": USUAL},), promise=saved)


def _more_at_a_time(program: Program, share: dict[str, float]) -> Iterator[Change]:
    """Larger micro-batches, in a training step with as many samples where it has micro-batches to put together.

    Begins with the largest of which tile memory holds the parts that grow with it, were they to grow in proportion.
    """
    s, m = program.settings, program.profile.memory
    grows = sum(m.categories.get(name, 0) for name in GROWING)
    room = (m.limit - m.max) / grows + 1 if grows else LARGEST_FACTOR
    factors = [2**i for i in range(1, LARGEST_FACTOR.bit_length())]
    rungs = []
    for factor in factors:
        changed = {"batch": factor * s["batch"]}
        if program.train and s["stages"] == 1 and s["accumulate"] % factor == 0 and s["accumulate"] >= factor:
            changed["accumulate"] = s["accumulate"] // factor
        rungs.append(changed)
    start = max(0, sum(factor <= room for factor in factors) - 1)
    fixed = share["sync"] + share["overhead"] + share["links"] / 2 + share["exchange"] / 2
    idle = share["compute"] * max(0.0, 0.5 - program.profile.peak_fraction)
    yield Change(
        f"micro-batch {{}} instead of {s['batch']}",
        tuple(rungs),
        start,
        "batch",
        (fixed + idle) * (1 - 0.5 ** (start + 1)),
    )


def _from_streaming_memory(program: Program, waits: Mapping[str, float]) -> Iterator[Change]:
    """Back to the tiles what was moved off them."""
    s = program.settings
    there = {name: words for name, words in MOVED.items() if s[name]}
    if there and not s["phased"]:
        promise = sum(waits.get(words, 0.0) for words in there.values())
        settings = dict.fromkeys(there, False)
        yield Change(f"{' and '.join(there.values())} on the tiles", (settings,), promise=promise)
