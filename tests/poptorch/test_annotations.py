"""Blocks, strategies, name scopes and attributes: what an importer is told about each operation."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

import poptorch
from poptorch import _placement
from poptorch._placement import capture, on_operation


def places(strategy, forward, training=False):
    """Run ``forward(op)`` as a capture and list the placement of each ``op()`` call."""
    seen = []

    def op():
        seen.append(on_operation("aten.add.Tensor").placement)

    with capture(strategy, training=training):
        forward(op)
    return [(p.ipu, p.stage) for p in seen]


def test_without_a_capture_annotations_do_nothing():
    with poptorch.Block(ipu_id=3), poptorch.NameScope("n"), poptorch.Attribute(a=1), poptorch.MultiConv():
        assert _placement.current_block() is None
        assert not poptorch.isRunningOnIpu()
        context = on_operation("aten.add.Tensor")
    assert (context.placement.ipu, context.name_scope, context.attributes) == (0, "", {})


def test_blocks_by_ipu():
    def forward(op):
        op()
        poptorch.Block.start(ipu_id=1)
        op()
        with poptorch.Block("b", ipu_id=2):
            assert _placement.current_block() == ("b", 2)
            op()
        op()  # the outer block is current again

    assert places(poptorch.PipelinedExecution(), forward) == [(0, 0), (1, 1), (2, 2), (1, 1)]


def test_a_block_begun_again_keeps_its_place():
    def forward(op):
        for name, ipu in (("a", 0), ("b", 1), ("a", None), ("b", None)):
            with poptorch.Block(name, ipu_id=ipu):
                op()

    assert places(poptorch.PipelinedExecution(), forward) == [(0, 0), (1, 1), (0, 0), (1, 1)]

    def elsewhere(op):
        with poptorch.Block("c"):
            op()

    with pytest.raises(poptorch.Error, match="'c' has no IPU"):
        places(poptorch.PipelinedExecution(), elsewhere)


def test_stages_that_increment():
    def forward(op):
        poptorch.Block.useAutoId()
        for ipu in (0, 1, 2, 1):
            with poptorch.Block(ipu_id=ipu):
                op()

    strategy = poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement)
    expected = [(0, 1), (1, 2), (2, 3), (1, 4)]
    assert places(strategy, forward) == expected
    assert places(strategy, forward) == expected  # a second capture starts over


def test_a_layer_called_again_begins_the_same_block():
    layers = [poptorch.BeginBlock(torch.nn.Identity(), ipu_id=ipu) for ipu in (0, 1, 0)]

    def forward(op):
        for layer in (*layers, layers[2]):
            layer(torch.zeros(1))
            op()

    strategy = poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement)
    assert places(strategy, forward) == [(0, 1), (1, 2), (0, 3), (0, 3)]


def test_an_operation_after_the_last_block_is_refused():
    def forward(op):
        with poptorch.Block(ipu_id=0):
            op()
        op()

    with pytest.raises(poptorch.Error, match="No active Block"):
        places(poptorch.PipelinedExecution(), forward)
    assert not poptorch.poptorch_core.isCompilingWithDispatcher()


def test_explicit_stages():
    strategy = poptorch.ShardedExecution(poptorch.Stage("a", "b"), poptorch.Stage("c").ipu(3), "d")

    def forward(op):
        for name, ipu in (("a", 1), ("b", 1), ("c", None), ("d", None)):
            with poptorch.Block(name, ipu_id=ipu):
                op()

    assert places(strategy, forward) == [(1, 0), (1, 0), (3, 1), (2, 2)]
    with pytest.raises(poptorch.Error, match=r"no block 'aa'.*'a'"):
        strategy.stage("aa")


def test_phases_alternate_between_two_groups_of_ipus():
    strategy = poptorch.ParallelPhasedExecution(
        [poptorch.Stage("0"), poptorch.Stage("1")], poptorch.Phase(poptorch.Stage("2"), poptorch.Stage("3"))
    )
    assert [strategy.place(str(b), None).ipu for b in range(4)] == [0, 2, 1, 3]
    assert strategy.place("3", None).phase == 1
    strategy.phase(1).ipus(5, 7)
    assert strategy.place("3", None).ipu == 7
    with pytest.raises(AssertionError, match="2 stages but 1 IPUs"):
        strategy.phase(1).ipus(1)


def test_begin_block_marks_the_layer_itself():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    names = list(model.state_dict())
    assert poptorch.BeginBlock(model[1], "second", ipu_id=1) is model[1]
    assert list(model.state_dict()) == names
    assert "(1): BeginBlock(user_id=second, ipu_id=1) ReLU()" in poptorch.module_repr(model)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert poptorch.module_repr(other) == poptorch.module_repr(model)
    with capture(poptorch.PipelinedExecution()):
        model(torch.ones(1, 2))
        assert _placement.current_block() == ("second", 1)
    with pytest.raises(poptorch.Error, match="already been assigned to a block"):
        poptorch.BeginBlock(model[1], ipu_id=0)
    poptorch.removeBlocks(model)
    assert poptorch.module_repr(model) == repr(model)


def test_begin_block_of_a_function():
    block = poptorch.BeginBlock(torch.relu, "r", 2)
    with capture():
        block(torch.ones(1))
        assert _placement.current_block() == ("r", 2)


def test_block_function():
    @poptorch.BlockFunction("f", ipu_id=1)
    def function(x):
        """Doubles."""
        seen.append(_placement.current_block())
        return 2 * x

    seen = []
    assert function.__doc__ == "Doubles."
    with capture():
        assert function(3) == 6
    assert seen == [("f", 1)]


def test_names_and_attributes_nest():
    with capture():
        with poptorch.NameScope("a"), poptorch.Attribute(x=1, y=1):
            with poptorch.NameScope("b"), poptorch.Attribute(y=2):
                inner = on_operation("aten.add.Tensor")
            outer = on_operation("aten.add.Tensor")
        after = on_operation("aten.add.Tensor")
    assert (inner.name_scope, dict(inner.attributes)) == ("a/b", {"x": 1, "y": 2})
    assert (outer.name_scope, dict(outer.attributes)) == ("a", {"x": 1, "y": 1})
    assert (after.name_scope, dict(after.attributes)) == ("", {})


def test_multi_conv():
    group = poptorch.MultiConv().planType(poptorch.MultiConvPlanType.Serial).partialsTypes(torch.half)
    with capture():
        with group:
            assert on_operation("aten.convolution.default").multi_conv is group
        with pytest.raises(poptorch.Error, match="Unexpected end_multi_conv"), group:
            on_operation("aten.add.Tensor")
        with pytest.raises(poptorch.Error, match="Nested"), group, poptorch.MultiConv():
            pass
    with pytest.raises(ValueError, match="Invalid partials types"):
        group.partialsTypes("half")
    with pytest.raises(AssertionError, match="Invalid plan type"):
        group.planType("serial")


def test_host_code_inside_a_capture_is_not_captured():
    with capture():
        assert poptorch.isRunningOnIpu()
        with _placement.suspended():
            assert not poptorch.isRunningOnIpu()
        assert poptorch.isRunningOnIpu()
