"""BERT of the ONNX zoo, small: the patterns change operations and their types, not what is computed."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from abele.errors import InvalidOption
from abele.importers.torch import capture
from abele.ir import evaluate
from abele.ir.graph import Graph
from abele.ir.types import DType
from abele.zoo.bertsquad import BertSquad
from abele.zoo.configured import build

PASSES = [(), ("norm",), ("gelu", "norm")]


def small(patterns: tuple[str, ...]) -> tuple[BertSquad, dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    net = BertSquad(2, 32, 4, 50, 16, patterns).eval()
    for weight in net.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    words, types = (torch.randint(0, limit, (3, 16)) for limit in (50, 2))
    mask = (torch.arange(16) < torch.tensor([[16], [9], [1]])).long()
    return net, {"input_ids": words, "input_mask": mask, "segment_ids": types}


def graph(patterns: tuple[str, ...], half: bool) -> Graph:
    net, inputs = small(patterns)
    return capture(net.half() if half else net, (), inputs, training=False).graph


def test_patterns_compute_the_same_and_so_does_the_graph() -> None:
    results = []
    for patterns in PASSES:
        net, inputs = small(patterns)
        with torch.no_grad():
            results.append(torch.stack(net(**inputs)))
        captured = capture(net, (), inputs, training=False)
        data, state = iter(captured.arguments((), inputs)), captured.state()
        values = [next(data) if p.kind == "data" else state[p.name] for p in captured.graph.input_ports]
        found = torch.stack([torch.as_tensor(v) for v in evaluate(captured.graph, values)[:2]])
        torch.testing.assert_close(found, results[-1], rtol=1e-4, atol=1e-4)
    assert results[0].shape == (2, 3, 16)
    for result in results[1:]:
        torch.testing.assert_close(result, results[0], rtol=1e-4, atol=1e-4)


def test_masked_words_change_nothing() -> None:
    net, inputs = small(("gelu", "norm"))
    other = inputs | {"input_ids": torch.where(inputs["input_mask"] == 1, inputs["input_ids"], 7)}
    assert not torch.equal(other["input_ids"], inputs["input_ids"])
    with torch.no_grad():
        before, after = torch.stack(net(**inputs)), torch.stack(net(**other))
    kept = inputs["input_mask"].bool().expand_as(before)
    torch.testing.assert_close(after[kept], before[kept])


@pytest.mark.parametrize("patterns", PASSES, ids=lambda p: "+".join(p) or "none")
def test_what_stays_separate_and_what_is_in_float(patterns) -> None:
    operations = graph(patterns, half=True).operations
    count = Counter(op.name for op in operations)
    assert (count["matmul"], count["softmax"], count["transpose"] > 0) == (1 + 2 * 8 + 1, 2, True)
    assert (count["pow"], count["tanh"], count["gelu"]) == ((0, 0, 2) if "gelu" in patterns else (2, 2, 0))
    assert (count["layer_norm"], count["mean"]) == ((5, 0) if "norm" in patterns else (0, 10))
    types = {op.operands[0].dtype for op in operations if op.name in ("gelu", "layer_norm")}
    assert types == ({DType.F32} if patterns else set())
    assert {op.operands[0].dtype for op in operations if op.name in ("pow", "softmax", "matmul")} == {DType.F16}


def test_the_full_model_has_the_published_size_and_unknown_patterns_raise() -> None:
    module, inputs = build("bertsquad", batch=3, train=False, half=True, sizes={"patterns": "gelu/norm"})
    assert sum(p.numel() for p in module.parameters()) / 1e6 == pytest.approx(108.9, abs=0.05)  # 109.5 less the pooler
    assert [tuple(v.shape) for v in inputs.values()] == [(3, 256)] * 3
    with pytest.raises(InvalidOption, match="relu"):
        build("bertsquad", batch=1, train=False, sizes={"patterns": "relu"})
