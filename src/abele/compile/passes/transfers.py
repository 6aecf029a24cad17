"""Transfers: what several operations of another IPU read is sent there once.

Before: every reader on another IPU has the value come over the links for itself, and it stays where it was made. After:
a ``transfer`` stands before the first of those readers, and they read its result: the value crosses once, and waits for
a backward pass on the IPU that needs it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from abele.ir.graph import Graph, Operation, Value
from abele.ir.operation import has


@dataclass(frozen=True)
class Transfers:
    """Send values over the links once for each IPU on which at least ``least`` operations read them."""

    least: int = 2
    name: str = "transfers"

    def run(self, graph: Graph) -> Graph:
        if len({op.origin.ipu for g in graph.all_graphs() for op in g.operations}) == 1:
            return graph
        functions = {name: self.rewritten(f) for name, f in graph.functions.items()}
        return self.rewritten(graph).replace(functions=functions)

    def rewritten(self, graph: Graph) -> Graph:
        homes: dict[Value, int] = {}
        readers: Counter[tuple[Value, int]] = Counter()
        for op in graph.operations:
            if has(op, "view"):  # lies where its operand lies
                if op.operands[0] in homes:
                    homes[op.result] = homes[op.operands[0]]
                continue
            if op.name != "repeat":  # what a loop makes lies where its body has it
                homes.update(dict.fromkeys(op.results, op.origin.ipu))
            readers.update((v, op.origin.ipu) for v in set(op.operands))
        sent: dict[tuple[Value, int], Value] = {}
        operations: list[Operation] = []
        for op in graph.operations:
            ipu, operands = op.origin.ipu, []
            for value in op.operands:
                key = value, ipu
                far = homes.get(value, ipu) != ipu and readers[key] >= self.least and not has(op, "view")
                if far and key not in sent:
                    sent[key] = Value(value.type)
                    origin = replace(op.origin, file="", line=0)
                    operations.append(Operation("transfer", (value,), (sent[key],), {}, origin))
                operands.append(sent[key] if far else value)
            operations.append(op if tuple(operands) == op.operands else replace(op, operands=tuple(operands)))
        return graph.replace(operations=tuple(operations)) if sent else graph
