"""Batches of graphs of fixed size: their numbers, their padding, what is left out, and the loaders."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("torch_geometric")

import numpy as np
import torch
from torch_geometric.data import Data, HeteroData

import poptorch
from poptorch_geometric import FixedSizeDataLoader, FixedSizeOptions, FixedSizeStrategy, OverSizeStrategy
from poptorch_geometric.collate import CombinedBatchingCollater, FixedSizeCollater
from poptorch_geometric.dataloader import DataLoader
from poptorch_geometric.pyg_collate import Collater
from poptorch_geometric.stream_packing_sampler import StreamPackingSampler
from poptorch_geometric.types import PyGArgsParser


def graph(nodes: int, edges: int, **more: object) -> Data:
    generator = torch.Generator().manual_seed(nodes * 100 + edges)
    return Data(
        x=torch.rand(nodes, 3, generator=generator),
        edge_index=torch.randint(nodes, (2, edges), generator=generator),
        edge_attr=torch.rand(edges, 2, generator=generator),
        y=torch.tensor([float(nodes)]),
        train_mask=torch.ones(nodes, dtype=torch.bool),
        **more,
    )


def hetero(a: int, b: int, edges: int) -> HeteroData:
    data = HeteroData()
    data["a"].x = torch.rand(a, 2)
    data["b"].x = torch.rand(b, 4)
    data["a", "to", "b"].edge_index = torch.stack([torch.arange(edges) % a, torch.arange(edges) % b])
    data.y = torch.tensor([1])
    return data


GRAPHS = [graph(4, 6), graph(5, 9), graph(3, 2), graph(7, 12), graph(2, 1), graph(6, 8)]


def test_padding_reaches_no_real_node() -> None:
    options = FixedSizeOptions(num_nodes=16, num_edges=24, num_graphs=5, node_pad_value=2.0, graph_pad_value=-1.0)
    batch = FixedSizeCollater(options, add_masks_to_batch=True)(GRAPHS[:2])
    assert batch.num_nodes == 16 and batch.num_edges == 24 and batch.num_graphs == 5
    assert torch.equal(batch.x[:9], torch.cat([g.x for g in GRAPHS[:2]])) and (batch.x[9:] == 2).all()
    assert batch.y.tolist() == [4, 5, -1, -1, -1]
    assert batch.nodes_mask.tolist() == [True] * 9 + [False] * 7
    assert batch.edges_mask.sum() == 15 and batch.graphs_mask.tolist() == [True, True, False, False, False]
    assert not batch.train_mask[9:].any(), "no node of padding is trained on"
    ends = batch.edge_index[:, 15:]
    assert (ends >= 9).all() and (ends < 16).all()
    assert torch.bincount(batch.batch, minlength=5).tolist() == [4, 5, 3, 2, 2]


def test_attributes_that_are_no_tensors_have_defaults() -> None:
    options = FixedSizeOptions(num_nodes=9, num_edges=12, pad_graph_defaults={"name": "none"})
    batch = FixedSizeCollater(options)([graph(4, 6, name="one", scale=3)])
    assert batch.name == ["one", "none"] and batch.scale.tolist() == [3, 3]


def test_an_attribute_that_cannot_be_padded_is_named() -> None:
    one, two = graph(4, 6), graph(5, 9)
    one.odd, two.odd = torch.zeros(2), torch.zeros(3)
    with pytest.raises(ValueError, match="'odd' has different shapes"):
        FixedSizeCollater(FixedSizeOptions(num_nodes=20, num_edges=30, num_graphs=3))([one, two])


@pytest.mark.parametrize(("nodes", "edges", "what"), [(8, 40, "nodes"), (40, 14, "edges")], ids=["nodes", "edges"])
def test_too_large_says_what_to_enlarge(nodes: int, edges: int, what: str) -> None:
    collater = FixedSizeCollater(FixedSizeOptions(num_nodes=nodes, num_edges=edges, num_graphs=3))
    with pytest.raises(RuntimeError, match=rf"number of {what}.*Make num_{what} larger"):
        collater(GRAPHS[:2])


def test_edges_of_padding_need_a_node_of_padding() -> None:
    with pytest.raises(RuntimeError, match="no node of padding"):
        FixedSizeCollater(FixedSizeOptions(num_nodes=4, num_edges=12))([GRAPHS[0]])


def test_trimming_keeps_a_node_of_each_graph_and_one_for_padding() -> None:
    options = FixedSizeOptions(num_nodes=8, num_edges=10, num_graphs=4)
    batch = FixedSizeCollater(options, add_masks_to_batch=True, trim_nodes=True, trim_edges=True)(GRAPHS[:3])
    assert batch.num_nodes == 8 and batch.num_edges == 10
    assert batch.nodes_mask.sum() == 7
    assert set(batch.batch[batch.nodes_mask].tolist()) == {0, 1, 2}
    with pytest.raises(RuntimeError, match="cannot be trimmed to 2 nodes"):
        FixedSizeCollater(FixedSizeOptions(num_nodes=2, num_graphs=4), trim_nodes=True)(GRAPHS[:3])


def test_graphs_with_types() -> None:
    options = FixedSizeOptions(num_nodes={"a": 9, "b": 8}, num_edges=20, num_graphs=3)
    batch = FixedSizeCollater(options, add_masks_to_batch=True)([hetero(3, 2, 5), hetero(4, 4, 6)])
    assert batch["a"].x.shape == (9, 2) and batch["b"].x.shape == (8, 4)
    assert batch["a"].nodes_mask.sum() == 7 and batch["b"].nodes_mask.sum() == 6
    edges = batch["a", "to", "b"]
    assert edges.edge_index.shape == (2, 20) and edges.edges_mask.sum() == 11
    assert (edges.edge_index[0, 11:] == 7).all() and (edges.edge_index[1, 11:] == 6).all()
    with pytest.raises(AssertionError, match="no num_nodes for the node type b"):
        FixedSizeCollater(FixedSizeOptions(num_nodes={"a": 9}, num_edges=20))([hetero(3, 2, 5)])


def test_sizes_from_data() -> None:
    found = FixedSizeOptions.from_dataset(GRAPHS, 3)
    assert (found.num_nodes, found.num_edges, found.num_graphs) == (2 * 7 + 1, 2 * 12 + 1, 3)
    loader = torch.utils.data.DataLoader(GRAPHS, batch_size=2, collate_fn=Collater())  # type: ignore[arg-type]
    found = FixedSizeOptions.from_loader(loader)
    assert (found.num_nodes, found.num_edges, found.num_graphs) == (11, 16, 3)
    with pytest.raises(ValueError, match="at least 2"):
        FixedSizeOptions(num_nodes=10, num_graphs=1)


def test_packing_fills_batches_in_order() -> None:
    sampler = StreamPackingSampler(GRAPHS, 3, max_num_nodes=13, max_num_edges=22)
    assert list(sampler) == [[0, 1, 2], [3, 4], [5]] and len(sampler) == 3
    with pytest.raises(RuntimeError, match="Sample 3 with 7 nodes and 12 edges is too large"):
        list(StreamPackingSampler(GRAPHS, 2, max_num_nodes=6, max_num_edges=30))
    skipping = StreamPackingSampler(GRAPHS, 2, max_num_nodes=6, max_num_edges=30, allow_skip_data=True)
    assert not any(3 in batch for batch in skipping)


@pytest.mark.parametrize("strategy", list(FixedSizeStrategy))
def test_loaders_give_the_batches_of_calls(strategy: FixedSizeStrategy) -> None:
    loader = FixedSizeDataLoader(
        GRAPHS,
        batch_size=3,
        fixed_size_options=FixedSizeOptions(num_nodes=16, num_edges=30, num_graphs=3),
        fixed_size_strategy=strategy,
        options=poptorch.Options().deviceIterations(3),
    )
    (batch,) = list(loader)
    assert batch.x.shape == (48, 3) and batch.edge_index.shape == (6, 30) and batch.y.shape == (9,)
    assert batch.graphs_mask.sum() == 6
    assert batch.num_nodes == 16 and batch.num_edges == 30, "as the model sees one micro-batch"


def test_loaders_refuse_what_does_not_go_together() -> None:
    with pytest.raises(AssertionError, match="batch_size of 3 and num_graphs=2"):
        FixedSizeDataLoader(GRAPHS, 3, fixed_size_options=FixedSizeOptions(num_nodes=10))
    with pytest.raises(ValueError, match="batch_sampler"):
        FixedSizeDataLoader(GRAPHS, 3, batch_sampler=[[0]], fixed_size_strategy=FixedSizeStrategy.StreamPack)
    with pytest.raises(AssertionError, match="its own collate_fn"):
        FixedSizeDataLoader(GRAPHS, 3, collate_fn=list)


def test_trimming_loader() -> None:
    loader = FixedSizeDataLoader(
        GRAPHS,
        batch_size=4,
        fixed_size_options=FixedSizeOptions(num_nodes=8, num_edges=9, num_graphs=4),
        over_size_strategy=OverSizeStrategy.TrimNodesAndEdges,
    )
    assert [(b.num_nodes, b.num_edges) for b in loader] == [(8, 9), (8, 9)]


def test_plain_loader_joins_micro_batches() -> None:
    same = [graph(4, 6)] * 4
    (batch,) = list(DataLoader(same, 2, options=poptorch.Options().replicationFactor(2)))
    assert batch.x.shape == (16, 3) and batch.edge_index.shape == (4, 12)
    with pytest.raises(AssertionError, match="Invalid batch size"):
        CombinedBatchingCollater(Collater(), 2)(same[:3])


def test_graphs_are_taken_apart_and_put_together() -> None:
    parser = PyGArgsParser()
    for data in (graph(4, 6, name="one"), hetero(3, 2, 5)):
        tensors = list(parser.yieldTensors(data))
        made = parser.reconstruct(data, iter([t + 1 for t in tensors]))
        assert type(made) is type(data)
        assert all(torch.equal(a, b + 1) for a, b in zip(parser.yieldTensors(made), tensors, strict=True))
        assert [t is u for t, u in zip(parser.yieldTensors(data), tensors, strict=True)] == [True] * len(tensors)


def test_a_hundred_thousand_graphs_are_packed_each_once() -> None:
    sizes = np.random.default_rng(0).integers(2, 40, (100_000, 2))
    graphs = [SimpleNamespace(num_nodes=int(nodes), num_edges=int(edges)) for nodes, edges in sizes]
    batches = list(StreamPackingSampler(graphs, max_num_graphs=16, max_num_nodes=256, max_num_edges=256))
    assert [index for batch in batches for index in batch] == list(range(len(graphs)))
    assert max(len(batch) for batch in batches) <= 16
    assert max(sizes[batch].sum(0).max() for batch in batches) <= 256
    starts = [batch[0] for batch in batches[1:]]
    full = [sizes[batch].sum(0) + sizes[start] for batch, start in zip(batches, starts, strict=False)]
    free = [16 - len(batch) - 1 for batch in batches[:-1]]  # each place without a graph keeps a node and an edge
    assert all((both + left > 256).any() or left < 0 for both, left in zip(full, free, strict=True))
