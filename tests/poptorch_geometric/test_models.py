"""Models of PyTorch Geometric, wrapped: graphs as arguments, layers whose shapes depend on values otherwise."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch_geometric")

import torch
from torch_geometric.data import Data
from torch_geometric.nn import (
    ClusterGCNConv,
    GATConv,
    GCNConv,
    HeteroLinear,
    InstanceNorm,
    MFConv,
    SAGEConv,
    SoftmaxAggregation,
    global_mean_pool,
)

import poptorch
from poptorch_geometric import FixedSizeDataLoader, FixedSizeOptions, TrainingStepper, ops, set_aggregation_dim_size

EDGES = torch.tensor([[0, 1, 2, 3, 4, 0, 2, 4, 5, *range(6)], [1, 2, 3, 4, 0, 2, 5, 1, 3, *range(6)]])
X = torch.rand(6, 4, generator=torch.Generator().manual_seed(3))


class WithLoss(torch.nn.Module):
    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, *args: Any) -> tuple[torch.Tensor, torch.Tensor]:
        result = self.layer(*args)
        return result, torch.nn.functional.mse_loss(result, torch.ones_like(result))


@pytest.mark.parametrize(
    "layer",
    [
        lambda: GCNConv(4, 3, add_self_loops=False),
        lambda: GATConv(4, 3, heads=2, add_self_loops=False),
        lambda: SAGEConv(4, 3, aggr="max"),
        lambda: SAGEConv(4, 3, aggr=SoftmaxAggregation(learn=True)),
        lambda: ClusterGCNConv(4, 3, diag_lambda=0.5, add_self_loops=False),
        lambda: MFConv(4, 3, max_degree=3),
    ],
    ids=["gcn", "gat", "max", "softmax", "cluster", "mf"],
)
def test_layers_train_as_in_plain_pytorch(layer: Any) -> None:
    torch.manual_seed(0)
    stepper = TrainingStepper(WithLoss(layer()), 0.1, poptorch.optim.SGD, rtol=1e-4, atol=1e-5)
    stepper.run(3, (X, EDGES))


def test_linear_by_type() -> None:
    torch.manual_seed(0)
    types = torch.tensor([2, 0, 1, 0, 2, 2])
    TrainingStepper(WithLoss(HeteroLinear(4, 3, num_types=3)), rtol=1e-4, atol=1e-5).run(2, (X, types))


def test_instance_norm_updates_its_statistics() -> None:
    torch.manual_seed(0)
    layer = InstanceNorm(4, affine=True, track_running_stats=True)
    stepper = TrainingStepper(WithLoss(layer), rtol=1e-4, atol=1e-5)
    stepper.run(2, (X, torch.tensor([0, 0, 0, 1, 1, 1]), 2))
    ours, theirs = stepper.ipu_model.layer, stepper.cpu_model.layer
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)  # type: ignore[union-attr]
    torch.testing.assert_close(ours.running_var, theirs.running_var)  # type: ignore[union-attr]


def test_a_graph_is_argument_and_result() -> None:
    class Model(torch.nn.Module):
        def forward(self, data: Data) -> Data:
            data.h = data.x * 2
            return data

    data = Data(x=X, edge_index=EDGES, name="one")
    result = poptorch.inferenceModel(Model())(data)
    assert isinstance(result, Data) and result.name == "one"
    assert torch.equal(result.h, X * 2) and "h" not in data


def test_batches_of_fixed_size_train_a_graph_classifier() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = GCNConv(3, 8, add_self_loops=False), torch.nn.Linear(8, 2)

        def forward(self, x: Any, edge_index: Any, batch: Any, graphs_mask: Any, y: Any) -> Any:
            pooled = global_mean_pool(self.conv(x, edge_index).relu(), batch, size=4)
            logits = self.head(pooled)
            losses = torch.nn.functional.cross_entropy(logits, y, reduction="none")
            return logits, poptorch.identity_loss((losses * graphs_mask).sum() / graphs_mask.sum(), "none")

    generator = torch.Generator().manual_seed(0)
    graphs = []
    for i in range(24):
        nodes = 3 + i % 4
        x = torch.rand(nodes, 3, generator=generator) + (i % 2)
        graphs.append(Data(x=x, edge_index=torch.randint(nodes, (2, 8), generator=generator), y=torch.tensor([i % 2])))
    options = poptorch.Options().deviceIterations(2)
    sizes = FixedSizeOptions(num_nodes=20, num_edges=30, num_graphs=4)
    loader = FixedSizeDataLoader(graphs, 4, fixed_size_options=sizes, options=options)
    torch.manual_seed(0)
    model = Model()
    training = poptorch.trainingModel(model, options, poptorch.optim.Adam(model.parameters(), lr=0.05))
    losses = []
    for _ in range(12):
        for batch in loader:
            _, loss = training(batch.x, batch.edge_index, batch.batch, batch.graphs_mask, batch.y)
            losses.append(loss.mean().item())
    assert losses[-1] < 0.3 * losses[0]


def test_aggregation_into_a_given_number_of_nodes() -> None:
    model = GCNConv(4, 3, add_self_loops=False, normalize=False)
    set_aggregation_dim_size(model, 8)
    assert poptorch.inferenceModel(model)(X, EDGES).shape == (8, 3)


POINTS = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [5.0, 5.0], [6.0, 5.0]])
BATCH = torch.tensor([0, 0, 0, 1, 1])


@pytest.mark.parametrize(
    ("find", "expected"),
    [
        (lambda p, b: ops.knn(p, p[:2], 2), {(0, 0), (0, 1), (1, 1), (1, 0)}),
        (lambda p, b: ops.knn_graph(p, 1, b), {(1, 0), (0, 1), (0, 2), (4, 3), (3, 4)}),
        (lambda p, b: ops.knn(p, p[3:], 3, b, b[3:]), {(0, 3), (0, 4), (1, 4), (1, 3), (-1, -1)}),
        (lambda p, b: ops.radius(p, p[:1], 1.0), {(0, 0), (0, 1), (-1, -1)}),
        (lambda p, b: ops.radius_graph(p, 1.5), {(1, 0), (0, 1), (4, 3), (3, 4), (-1, -1)}),
    ],
    ids=["knn", "graph", "examples", "radius", "radius_graph"],
)
def test_neighbours(find: Any, expected: set[tuple[int, int]]) -> None:
    class Model(torch.nn.Module):
        def forward(self, points: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
            return find(points, batch)

    for pairs in (find(POINTS, BATCH), poptorch.inferenceModel(Model())(POINTS, BATCH)):
        assert {tuple(p) for p in pairs.t().tolist()} == expected


def test_interpolation() -> None:
    features = torch.tensor([[1.0], [3.0], [9.0], [20.0], [30.0]])
    found = ops.knn_interpolate(features, POINTS, torch.tensor([[0.5, 0.0], [5.5, 5.0]]), k=2)
    torch.testing.assert_close(found, torch.tensor([[2.0], [25.0]]))


def test_plain_pytorch_is_left_as_it_is() -> None:
    before = MFConv.forward
    poptorch.inferenceModel(MFConv(4, 3, max_degree=3))(X, EDGES)
    assert MFConv.forward is before


def test_an_error_inside_a_layer_names_the_programs_line_too() -> None:
    model = poptorch.inferenceModel(GCNConv(4, 3))
    with pytest.raises(
        poptorch.Error, match=r"At torch_geometric/utils/loop\.py:\d+.*, called from .*test_models\.py:\d+\."
    ):
        model(X, EDGES)
