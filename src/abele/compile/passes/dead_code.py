"""Operations whose results nobody reads, and functions that nobody calls, are removed."""

from __future__ import annotations

from dataclasses import dataclass

from abele.compile.passes.hoist import LOAD
from abele.ir.graph import Graph, Operation, Value
from abele.ir.operation import lookup
from abele.ir.rules import CONTROL


@dataclass(frozen=True)
class DeadCode:
    """Keep what leads to an output or has an effect."""

    name: str = "dead-code"

    def run(self, graph: Graph) -> Graph:
        effects: dict[str, bool] = {}

        def has_effect(op: Operation) -> bool:
            if op.name not in CONTROL:
                return lookup(op.name).effect
            callee = str(op.attributes["function"])
            if callee not in effects:
                effects[callee] = any(map(has_effect, graph.functions[callee].operations))
            return effects[callee]

        def swept(g: Graph) -> Graph:
            live: set[Value] = set(g.outputs)
            kept = []
            for op in reversed(g.operations):
                if has_effect(op) or any(v in live for v in op.results):
                    kept.append(op)
                    live.update(op.operands)
            return g if len(kept) == len(g.operations) else g.replace(operations=tuple(reversed(kept)))

        main = swept(graph)
        reached: dict[str, Graph] = {}

        def reach(g: Graph) -> None:
            for op in g.operations:
                if op.name in CONTROL and (name := str(op.attributes["function"])) not in reached:
                    reached[name] = swept(graph.functions[name])
                    reach(reached[name])

        reach(main)
        if LOAD in graph.functions:
            reached[LOAD] = swept(graph.functions[LOAD])
        return main.replace(functions={name: reached[name] for name in graph.functions if name in reached})
