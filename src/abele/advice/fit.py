"""Changes that take less tile memory: one by one, and several together for what none of them is enough for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from abele.advice.records import Change, Program
from abele.compile.passes.sharding import USUAL

WHOLE = ("standard", "recompute_all")
"""Recomputations that keep little already."""

SPREAD = 16
"""Micro-batches for each stage in a step that loads and stores its optimizer's state."""


def single(program: Program) -> Iterator[Change]:
    """Changes of one kind each, the cheapest to try first."""
    s, free = program.settings, program.free
    recompute, offload = {"recompute": "standard"}, {"offload": True}
    if program.train and {*recompute, *offload} <= free:
        whole = s["recompute"] in WHOLE
        if not whole:
            yield Change("recompute layers and blocks in the backward pass", (recompute,))
        if not s["offload"]:
            yield Change("optimizer state in streaming memory", (offload,))
        if not whole and not s["offload"]:
            text = "recompute layers and blocks in the backward pass, optimizer state in streaming memory"
            yield Change(text, (recompute | offload,))
        if s["replicas"] > 1 and not s["shard"] and "shard" in free:
            yield Change("optimizer state sharded over the replicas", ({"shard": USUAL},))
        if not s["offload_activations"] and not s["phased"]:
            moved = {"offload_activations": True, "offload_weights": True}
            yield Change(
                "optimizer state, weights and activations in streaming memory, and recomputation",
                (recompute | offload | moved,),
            )
    for stages in _stages(program, 2 * s["stages"], 8 * s["stages"]):
        turns = max(s["accumulate"], 2 * stages)
        yield Change(f"{stages} pipeline stages", ({"stages": stages, "accumulate": turns},))
    batch = s["batch"]
    if "batch" in free:
        for fewer in (batch // divisor for divisor in (2, 4, 8) if batch >= divisor):
            yield Change(f"micro-batch {fewer} instead of {batch}", ({"batch": fewer},))
    if "half" in free and not s["half"]:
        yield Change("half precision", ({"half": True},))


def together(program: Program) -> Iterator[Change]:
    """Several changes at once, those first that cost the least time: half precision and a pipeline, training with its
    optimizer's state sharded over the replicas left; then with recomputation; then with that state in streaming memory
    and many micro-batches to a step, which spread what its transfers take."""
    s, free = program.settings, program.free
    half = {"half": True} if "half" in free and not s["half"] else {}
    further: list[tuple[str, dict[str, Any]]] = [("", {})]
    if program.train:
        recompute = {"recompute": s["recompute"] if s["recompute"] in WHOLE else "standard"}
        further.append((", recomputation", recompute))
        further.append((", recomputation, optimizer state in streaming memory", recompute | {"offload": True}))
    for words, added in further:
        for stages in _stages(program, s["stages"], program.ipus):
            changed: dict[str, Any] = half | added
            texts = ["half precision"] * bool(half)
            if stages > s["stages"]:
                replicas = program.ipus // stages if program.train and "replicas" in free else s["replicas"]
                changed |= {"stages": stages, "accumulate": max(s["accumulate"], 2 * stages), "replicas": replicas}
                texts.append(f"{stages} pipeline stages")
                if program.train and replicas > 1:
                    changed["shard"] = USUAL
                    texts.append(f"optimizer state sharded over {replicas} replicas")
            if added.get("offload"):
                changed["accumulate"] = max(s["accumulate"], SPREAD * stages)
            changed = {name: value for name, value in changed.items() if value != s[name]}
            if len(changed) > 1:
                yield Change((", ".join(texts) + words).lstrip(", "), (changed,))


def _stages(program: Program, first: int, most: int) -> Iterator[int]:
    """Numbers of stages, each twice the one before, that the IPUs allow; none where the program has its own."""
    s = program.settings
    if program.placed or s["phased"] or "stages" not in program.free:
        return
    stages = first
    while stages <= most and stages * s["replicas"] <= program.ipus:
        yield stages
        stages *= 2
