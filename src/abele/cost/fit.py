"""Why a program does not fit: the fullest tile, what lies on it at its peak, and by how much it is over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from abele.charge.memory import LiveTensor
from abele.cost.profile import Profile


@dataclass(frozen=True, slots=True)
class Explanation:
    """The memory verdict of a profile.

    Attributes:
        fits: whether the fullest tile holds it all.
        tile, ipu: the fullest tile.
        demand, bound, gap: bytes on it at its peak, bytes that it has, and the difference (0 when it fits).
        step: what runs at the peak, with ``where`` in the user's program, and ``at`` the share of the program's
            moments that lie before it.
        categories: bytes by kind on that tile, largest first.
        tensors: the largest tensors live there, with their lifetimes.
        text: all of it as a paragraph.
    """

    fits: bool
    tile: int
    ipu: int
    demand: int
    bound: int
    gap: int
    step: str
    where: str
    at: float
    categories: tuple[tuple[str, int], ...]
    tensors: tuple[LiveTensor, ...]
    text: str

    def to_json(self) -> dict[str, Any]:
        names = ("fits", "tile", "ipu", "demand", "bound", "gap", "step", "where", "at", "text")
        fields = ("tensor", "source", "kind", "type", "bytes", "first", "last", "operation", "file", "line", "module")
        return {name: getattr(self, name) for name in names} | {
            "categories": dict(self.categories),
            "tensors": [{f: getattr(t, f) for f in fields} for t in self.tensors],
        }


def explain(profile: Profile, largest: int = 10) -> Explanation:
    """Say whether a profile fits its tiles, and what takes the room; ``largest`` tensors are listed."""
    m = profile.memory
    row = int(profile.timeline.row[m.peak_step])
    step = profile.steps[row] if row >= 0 else None
    name, where = (step.name, step.origin.where) if step else ("", "")
    categories = tuple(sorted(((k, v) for k, v in m.categories.items() if v), key=lambda kv: -kv[1]))
    tensors = m.by_tensor[:largest]
    at = m.peak_step / max(1, len(profile.timeline.row) - 1)
    text = _text(profile, name, where, categories, tensors)
    return Explanation(
        m.fits, m.fullest_tile, m.fullest_ipu, m.max, m.limit, m.gap, name, where, at, categories, tensors, text
    )


def _text(profile: Profile, step: str, where: str, categories, tensors: tuple[LiveTensor, ...]) -> str:
    m = profile.memory
    on = f"Tile {m.fullest_tile}" + (f" of IPU {m.fullest_ipu}" if profile.ipus > 1 else "")
    when = f" during {step}" if step else ""
    place = f" ({where})" if where else ""
    verdict = f"{size(m.gap)} more than it has" if m.gap else "which fits"
    lines = [f"{on} holds {size(m.max)} of {size(m.limit)}{when}{place}, {verdict}."]
    lines.append(f"By kind: {', '.join(f'{name} {size(held)}' for name, held in categories)}.")
    named = ", ".join(f"{t.source or t.operation or t.tensor} {t.type} {size(t.bytes)}" for t in tensors[:5])
    if named:
        lines.append(f"Largest there: {named}.")
    return " ".join(lines)


def size(bytes: int) -> str:
    """Bytes of a tile in words."""
    return f"{bytes / 1024:.1f} KiB" if bytes >= 1024 else f"{bytes} B"
