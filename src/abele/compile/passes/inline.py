"""Putting the body of a graph in the place of one operation; shared by the passes that expand composites."""

from __future__ import annotations

from abele.ir.graph import Graph, Operation, Value


def inline_results(inner: Graph, op: Operation) -> list[Operation]:
    """The operations of ``inner``, a function of ``op``'s operands, such that they make ``op``'s own results."""
    mapping = dict(zip(inner.inputs, op.operands, strict=True))
    targets: dict[Value, Value] = {}
    passed = []
    for inner_value, result in zip(inner.outputs, op.results, strict=True):
        if inner_value in mapping or inner_value in targets:
            passed.append((inner_value, result))
        else:
            targets[inner_value] = result
    done = []
    for old in inner.operations:
        results = tuple(targets.get(v) or Value(v.type) for v in old.results)
        mapping.update(zip(old.results, results, strict=True))
        done.append(Operation(old.name, tuple(mapping[v] for v in old.operands), results, old.attributes, op.origin))
    for inner_value, result in passed:
        # An output that is an input, or stands twice, is copied by a reshape to its own shape (a view).
        done.append(Operation("reshape", (mapping[inner_value],), (result,), {"shape": result.shape}, op.origin))
    return done
