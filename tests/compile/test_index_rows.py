"""Indices expanded over features: whole slices are gathered and summed, in training too."""

from __future__ import annotations

import numpy as np
import pytest

from abele.compile.passes.index_rows import IndexRows
from abele.ir import Builder, DType, Graph, Port, evaluate, f32, i32


def messages(reduction: str = "add", *, expanded: bool = True) -> Graph:
    """Messages of 6 edges gathered from 4 nodes by one index and brought into 5 by another."""
    b = Builder("messages")
    x, total = b.input(f32(4, 3), "data", "x"), b.input(f32(5, 3), "data", "total")
    index = b.input(i32(6) if expanded else i32(6, 3), "data", "index")
    every = b.expand(b.reshape(index, shape=(6, 1)), shape=(6, 3)) if expanded else index
    taken = b.gather_elements(x, every, axis=0)
    made = b.scatter_elements(total, every, taken, axis=0, reduction=reduction)
    return b.finish([made], [Port("anchor", "made")])


def names(graph: Graph) -> list[str]:
    return [op.name for op in graph.operations]


def test_expanded_indices_move_slices() -> None:
    before = messages()
    after = IndexRows().run(before)
    assert {"gather", "scatter_add"} <= set(names(after))
    assert not {"gather_elements", "scatter_elements"} & set(names(after))
    x, total = np.arange(12, dtype=np.float32).reshape(4, 3), np.ones((5, 3), np.float32)
    index = np.array([0, 3, 3, 1, 0, 2], np.int32)
    for one, other in zip(evaluate(before, [x, total, index]), evaluate(after, [x, total, index]), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("reduction", ["none", "max", "min", "mul"])
def test_other_reductions_stay(reduction: str) -> None:
    assert "scatter_elements" in names(IndexRows().run(messages(reduction)))


def test_an_index_of_its_own_for_each_element_stays() -> None:
    graph = messages(expanded=False)
    assert names(IndexRows().run(graph)) == names(graph)


def test_an_index_along_the_last_axis_is_no_slice_of_the_first() -> None:
    b = Builder("last")
    x, index = b.input(f32(6, 3), "data", "x"), b.input(i32(3), "data", "index")
    made = b.gather_elements(x, b.expand(index, shape=(6, 3)), axis=0)
    graph = b.finish([made], [Port("anchor", "made")])
    assert names(IndexRows().run(graph)) == names(graph)
    assert index.dtype is DType.I32
