"""What would make a program fit: each lever is pulled, compiled and charged, and shown with what it gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from abele.errors import AbeleError

Try = Callable[..., Mapping[str, Any]]
"""Compiles and charges the program with some settings changed; returns the profile's JSON."""


def levers(settings: Mapping[str, Any], attempt: Try, ipus: int) -> list[dict[str, Any]]:
    """Pull each lever that applies.

    Args:
        settings: the program's own: ``batch``, ``train``, ``half``, ``recompute``, ``offload``, ``stages`` …
        attempt: called with the changed settings.
        ipus: IPUs of the system.

    Returns:
        For each lever: the change in words, bytes on the fullest tile, whether it fits, and the throughput.
    """
    found = []
    for change, changed in _candidates(settings, ipus):
        try:
            profile = attempt(**changed)
        except AbeleError as error:
            found.append({"change": change, "error": str(error), "fits": False})
            continue
        memory = profile["tile_memory"]
        row = {"change": change, "max": memory["max"], "fits": memory["fits"], "throughput": profile["throughput"]}
        found.append(row | {"settings": changed})
    return found


def _candidates(s: Mapping[str, Any], ipus: int) -> Iterator[tuple[str, dict[str, Any]]]:
    for divisor in (2, 4, 8):
        if s["batch"] >= divisor:
            smaller = s["batch"] // divisor
            yield f"micro-batch {smaller} instead of {s['batch']}", {"batch": smaller}
    if s["train"] and s["recompute"] != "layers":
        yield "recompute the layers in the backward pass", {"recompute": "layers"}
    if s["train"] and not s["offload"]:
        yield "optimiser state in streaming memory", {"offload": True}
    if not s["half"]:
        yield "half precision", {"half": True}
    stages = s["stages"] * 2
    while stages * s["replicas"] <= ipus and stages <= 8 * s["stages"]:
        yield f"{stages} pipeline stages", {"stages": stages, "accumulate": max(s["accumulate"], 2 * stages)}
        stages *= 2
