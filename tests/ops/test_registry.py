"""Every operation is whole: no empty slot, and samples that its own type rule accepts."""

from __future__ import annotations

import pytest

from abele.engine.native import load_kernels
from abele.ir import (
    OPERATIONS,
    TRAITS,
    Builder,
    Composite,
    NotDifferentiable,
    Primitive,
    check,
    expansion,
    flops,
    has,
    parse_graph,
    print_graph,
    register,
)
from abele.ops.hosts.epilogues import ROOTS
from abele.ops.hosts.kernels import KERNELS, NO_KERNEL
from abele.ops.plans.planning import PLANS
from tests.ops.harness import TWINS, cases

# Tests of the schedule register a few operations of their own.
OURS = [name for name in OPERATIONS if not name.startswith("hand_")]


@pytest.mark.parametrize("name", OURS)
def test_operation_is_whole(name):
    operation = OPERATIONS[name]
    assert list(operation.samples()), f"{name} has no samples"
    assert operation.name == name
    if isinstance(operation, Primitive):
        for slot in (operation.infer, operation.reference, operation.flops):
            assert callable(slot)
        assert name in PLANS or has(name, "view"), f"{name} has no plan"
        assert callable(operation.gradient) or isinstance(operation.gradient, NotDifferentiable)
    else:
        assert callable(operation.expand)
    if isinstance(operation.gradient, NotDifferentiable):
        assert operation.gradient.reason


@pytest.mark.parametrize("name", OURS)
def test_samples_make_graphs_that_obey_the_rules(name):
    for case in cases([name]):
        b = Builder("main")
        results = b.emit(name, [b.input(t) for t in case.operands], case.attributes)
        graph = check(b.finish(results))
        assert print_graph(parse_graph(print_graph(graph))) == print_graph(graph)
        count = flops(graph.operations[0])
        assert count >= 0
        assert count == 0 or any(t.size for t in (*case.operands, *case.results))


def test_what_reaches_the_engine_has_a_kernel_or_a_reason_for_none():
    load_kernels()
    assert set(PLANS) - set(KERNELS) == set(NO_KERNEL)
    assert {name for name in OPERATIONS if has(name, "root")} == set(ROOTS)


def test_a_trait_is_one_of_those_that_are_explained():
    with pytest.raises(ValueError, match="unknown trait 'shiny'"):
        register(Composite("polished", {}, lambda b, operands, attributes: operands, list, traits=frozenset({"shiny"})))
    used = {trait for operation in OPERATIONS.values() for trait in operation.traits}
    assert used == set(TRAITS)


def test_nothing_is_planned_or_compared_that_does_not_exist():
    assert not set(PLANS) - set(OPERATIONS)
    assert not set(KERNELS) - set(OPERATIONS)
    assert not set(TWINS) - set(OPERATIONS)


def test_composites_come_down_to_primitives():
    """No composite expands, through others, to itself."""
    inner = {
        name: {op.name for case in cases([name]) for op in expansion(name, case.operands, case.attributes).operations}
        for name, operation in OPERATIONS.items()
        if isinstance(operation, Composite)
    }

    def reached(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, f"{' > '.join((*above, name))}"
        for other in inner.get(name, ()):
            reached(other, (*above, name))

    for name in inner:
        reached(name, ())


def test_there_are_families_for_everything():
    """The operations that the importers may count on."""
    for name in [
        "add",
        "gelu",
        "matmul",
        "conv",
        "max_pool",
        "reduce_sum",
        "softmax",
        "layer_norm",
        "gather",
        "top_k",
        "dropout",
        "attention",
        "lstm",
    ]:
        assert name in OPERATIONS
