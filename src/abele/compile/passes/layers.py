"""Finding layers: runs of operations that one numbered module made, such as ``encoder.layer.3``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from abele.ir.graph import Operation


def layer_of(module: str) -> tuple[str, str, str] | None:
    """Split a module path at its first number: ``a.3.b`` gives ``("a", "3", "b")``; ``None`` without one."""
    parts = module.split(".")
    for i, part in enumerate(parts):
        if part.isdigit():
            return ".".join(parts[:i]), part, ".".join(parts[i + 1 :])
    return None


def runs(operations: Sequence[Operation]) -> Iterator[tuple[tuple[str, str] | None, int, int]]:
    """Consecutive operations of one layer (or of none): ``((prefix, number) or None, start, stop)``."""
    start, current = 0, object()
    for i, op in enumerate(operations):
        found = layer_of(op.origin.module)
        key = found[:2] if found else None
        if key != current:
            if i > start:
                yield current, start, i  # type: ignore[misc]
            start, current = i, key
    if operations:
        yield current, start, len(operations)  # type: ignore[misc]
