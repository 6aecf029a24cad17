"""Every operation is whole: no empty slot, and samples that its own type rule accepts."""

from __future__ import annotations

import pytest

from abele.ir import (
    OPERATIONS,
    Builder,
    Composite,
    NotDifferentiable,
    Primitive,
    check,
    flops,
    parse_graph,
    print_graph,
)
from abele.ops import VIEWS
from abele.ops.planning import PLANS
from tests.ops.harness import TWINS, cases


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_is_whole(name):
    operation = OPERATIONS[name]
    samples = list(operation.samples())
    assert samples, f"{name} has no samples"
    assert operation.effect or any(c.operands or c.results for c in cases([name]))
    if isinstance(operation, Primitive):
        assert name in PLANS or name in VIEWS, f"{name} has no plan"
        assert callable(operation.gradient) or operation.gradient.reason
        assert operation.reference.__doc__ is not None or callable(operation.reference)
    if isinstance(operation.gradient, NotDifferentiable):
        assert operation.gradient.reason


@pytest.mark.parametrize("name", OPERATIONS)
def test_samples_make_graphs_that_obey_the_rules(name):
    for case in cases([name]):
        b = Builder("main")
        results = b.emit(name, [b.input(t) for t in case.operands], case.attributes)
        graph = check(b.finish(results))
        assert print_graph(parse_graph(print_graph(graph))) == print_graph(graph)
        count = flops(graph.operations[0])
        assert count >= 0
        assert count == 0 or any(t.size for t in (*case.operands, *case.results))


def test_nothing_is_planned_or_compared_that_does_not_exist():
    assert not set(PLANS) - set(OPERATIONS)
    assert not set(TWINS) - set(OPERATIONS)


def test_composites_come_down_to_primitives():
    from abele.ir import expansion

    for name, operation in OPERATIONS.items():
        if not isinstance(operation, Composite):
            continue
        for case in cases([name]):
            for op in expansion(name, case.operands, case.attributes).operations:
                assert op.name in OPERATIONS and op.name != name
