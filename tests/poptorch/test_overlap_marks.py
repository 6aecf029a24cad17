"""Marks of transfers that overlap with compute: where they may stand, and what they need."""

import pytest
import torch

import poptorch

LOOP = poptorch.OverlapMode.OverlapAccumulationLoop


def on_input(x):
    return poptorch.set_overlap_for_input(x, LOOP) + 1


def on_output(x):
    return poptorch.set_overlap_for_output(x + 1, LOOP)


def on_a_value(x):
    return poptorch.set_overlap_for_input(x + 1, LOOP) * 2


def on_a_used_input(x):
    y = x + 1
    return y, poptorch.set_overlap_for_input(x, LOOP)


def before_the_output(x):
    return poptorch.set_overlap_for_output(x + 1, LOOP) * 2


def returned_twice(x):
    y = x + 1
    return y, poptorch.set_overlap_for_output(y, LOOP)


def wrapped(forward, sharded=True, io_tiles=32):
    class Model(torch.nn.Module):
        def forward(self, x):
            return forward(x)

    options = poptorch.Options()
    if sharded:
        options.setExecutionStrategy(poptorch.ShardedExecution())
    if io_tiles:
        options.TensorLocations.numIOTiles(io_tiles)
    return poptorch.inferenceModel(Model(), options)


@pytest.mark.parametrize("forward", [on_input, on_output])
def test_marks_change_no_number(forward):
    assert wrapped(forward)(torch.ones(3)).tolist() == [2.0] * 3


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (on_a_value, "not a tensor input"),
        (on_a_used_input, "must be the only op applied to an input"),
        (before_the_output, "not a tensor output"),
        (returned_twice, "returned twice"),
    ],
)
def test_a_mark_elsewhere_is_an_error(forward, message):
    with pytest.raises(poptorch.Error, match=message):
        wrapped(forward)(torch.ones(3))


@pytest.mark.parametrize("forward", [on_input, on_output])
def test_marks_need_tiles_set_aside_and_no_pipeline(forward):
    with pytest.raises(poptorch.Error, match="No IO tiles allocated"):
        wrapped(forward, io_tiles=0)(torch.ones(3))
    with pytest.raises(poptorch.Error, match="PipelinedExecution"):
        wrapped(forward, sharded=False)(torch.ones(3))


def test_a_mark_that_asks_for_no_overlap_needs_nothing():
    def forward(x):
        return poptorch.set_overlap_for_input(x, poptorch.OverlapMode.NoOverlap) + 1

    assert wrapped(forward, sharded=False, io_tiles=0)(torch.ones(3)).tolist() == [2.0] * 3
