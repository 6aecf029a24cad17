"""What stands in for parts of PyTorch Geometric while a model is captured.

Some of its layers pick elements by their values, so that sizes depend on them, or exchange a buffer for another. A
compiled program can do neither: these compute the same with masks, and update buffers in place.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch_geometric.experimental
import torch_geometric.nn
from torch_geometric.utils import add_self_loops, degree, remove_self_loops, scatter

from poptorch_geometric import ops


def no_check(self: Any, index: torch.Tensor | None) -> None:
    """In the place of a check whose answer depends on values."""


def hetero_linear(self: Any, x: torch.Tensor, type_vec: torch.Tensor) -> torch.Tensor:
    """Each row times the weight of its type: the row among zeros for the other types, times all weights."""
    types = torch.arange(self.num_types).unsqueeze(0)
    own = (type_vec.unsqueeze(1) == types).unsqueeze(2)
    spread = torch.where(own, x.unsqueeze(1), 0.0).flatten(1)
    result = spread @ self.weight.reshape(-1, self.out_channels)
    return result if self.bias is None else result + self.bias.index_select(0, type_vec)


def mf_conv(self: Any, x: Any, edge_index: torch.Tensor, size: Any = None) -> torch.Tensor:
    """Each node by the weights for its degree, chosen from the results of all of them."""
    sources, targets = (x, x) if isinstance(x, torch.Tensor) else x
    nodes = (sources if targets is None else targets).size(self.node_dim) if size is None else size[1]
    ends = edge_index[1 if self.flow == "source_to_target" else 0]
    degrees = degree(ends, nodes, dtype=torch.int32).clamp(max=self.max_degree).unsqueeze(-1)
    gathered = self.propagate(edge_index, x=(sources, targets), size=size)
    result: Any = 0.0
    for count, (left, right) in enumerate(zip(self.lins_l, self.lins_r, strict=True)):
        one = left(gathered) if targets is None else left(gathered) + right(targets)
        result = torch.where(degrees == count, one, result)
    return result


def cluster_gcn_conv(self: Any, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
    """Edges weigh one over the degree of their end; self-loops weigh ``diag_lambda`` of that more."""
    nodes = x.size(self.node_dim)
    if self.add_self_loops:
        edge_index, _ = remove_self_loops(edge_index)
        edge_index, _ = add_self_loops(edge_index, num_nodes=nodes)
    source, target = edge_index[0], edge_index[1]
    weight = (1 / degree(target, nodes).clamp(min=1)).index_select(0, target)
    weight = weight + torch.where(source == target, self.diag_lambda * weight, 0.0)
    result = self.propagate(edge_index, x=x, edge_weight=weight)
    return self.lin_out(result) + self.lin_root(x)


def instance_norm(
    self: Any, x: torch.Tensor, batch: torch.Tensor | None = None, batch_size: int | None = None
) -> torch.Tensor:
    """Normalisation over the nodes of each graph, running statistics updated in place."""
    own = self.training or not self.track_running_stats
    index = x.new_zeros(x.size(0), dtype=torch.int32) if batch is None else batch
    graphs = 1 if batch is None else batch_size
    if own:
        nodes = degree(index, graphs, dtype=x.dtype).clamp(min=1).unsqueeze(1)
        mean = scatter(x, index, 0, graphs, reduce="sum") / nodes
        x = x - mean.index_select(0, index)
        squares = scatter(x * x, index, 0, graphs, reduce="sum")
        variance = squares / nodes
        if self.running_mean is not None:
            with torch.no_grad():
                unbiased = squares / (nodes - 1).clamp(min=1)
                self.running_mean.lerp_(mean.detach().mean(0), self.momentum)
                self.running_var.lerp_(unbiased.detach().mean(0), self.momentum)
        scale = (variance + self.eps).sqrt().index_select(0, index)
    else:
        x = x - self.running_mean
        scale = (self.running_var + self.eps).sqrt()
    result = x / scale
    return result if self.weight is None else result * self.weight + self.bias


def _stand_ins() -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """Owner, name and stand-in of everything that is exchanged."""
    nn: Any = torch_geometric.nn
    yield nn.aggr.base.Aggregation, "assert_sorted_index", no_check
    yield nn.ClusterGCNConv, "forward", cluster_gcn_conv
    yield nn.HeteroLinear, "forward", hetero_linear
    yield nn.InstanceNorm, "forward", instance_norm
    yield nn.MFConv, "forward", mf_conv
    by_name: dict[str, Callable[..., Any]] = {name: getattr(ops, name) for name in ops.__all__}
    places = ["torch_geometric.nn", "torch_geometric.nn.pool", "torch_geometric.nn.unpool"]
    places += [f"torch_geometric.nn.conv.{m}" for m in ("edge_conv", "gravnet_conv", "x_conv")]
    places += ["torch_cluster"] if importlib.util.find_spec("torch_cluster") else []
    for place in places:
        module = importlib.import_module(place)
        yield from ((module, name, function) for name, function in by_name.items() if hasattr(module, name))


@contextlib.contextmanager
def fixed_shapes() -> Iterator[None]:
    """Have the stand-ins in place, and PyTorch Geometric ask for the sizes that it would else compute."""
    before = []
    try:
        with torch_geometric.experimental.experimental_mode("disable_dynamic_shapes"):
            for owner, name, stand_in in _stand_ins():
                before.append((owner, name, owner.__dict__.get(name)))
                setattr(owner, name, stand_in)
            yield
    finally:
        for owner, name, original in reversed(before):
            if original is None:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
