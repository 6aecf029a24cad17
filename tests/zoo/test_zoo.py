"""Every model of the zoo, small: captured and held against torch; full: built without weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from abele.errors import InvalidOption
from abele.importers.torch import capture, flatten
from abele.ir import check, evaluate
from abele.zoo import ZOO, find

# Parameters of the full models, in millions, as their papers or reference implementations give them.
MILLIONS = {
    "resnet18": 11.69,
    "resnet50": 25.56,
    "efficientnet-b4": 19.34,
    "unet": 31.0,
    "bert-base": 109.5,
    "bert-large": 335.2,
    "gpt2": 124.4,
    "vit-base": 86.6,
}


def without_dropout(module: nn.Module) -> nn.Module:
    for one in module.modules():
        if isinstance(one, nn.Dropout):
            one.p = 0.0
        if hasattr(one, "p") and type(one).__name__ == "StochasticDepth":
            one.p = 0.0
    return module


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", ZOO)
def test_small_model_matches_torch(name, training):
    model = ZOO[name]
    module = without_dropout(model.build(small=True, training=training))
    inputs = model.inputs(2, small=True, training=training)
    captured = capture(module, (), inputs)
    check(captured.graph)
    data, state = iter(captured.arguments((), inputs)), captured.state()
    values = [next(data) if p.kind == "data" else state[p.name] for p in captured.graph.input_ports]
    found = captured.result(evaluate(captured.graph, values)[: len(captured.outputs)])
    with torch.no_grad():
        expected = module(**inputs)
    for ours, theirs in zip(flatten(found)[0], flatten(expected)[0], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert len(captured.losses) == len(captured.independent_losses()) == (1 if training else 0)


@pytest.mark.parametrize("name", [n for n in ZOO if n != "bert-large"])
def test_training_with_dropout_captures(name):
    model = ZOO[name]
    check(capture(model.build(small=True, training=True), (), model.inputs(2, small=True, training=True)).graph)


@pytest.mark.parametrize("name", MILLIONS)
def test_full_model_has_the_published_size(name):
    module = ZOO[name].build(device="meta")
    assert all(p.device.type == "meta" for p in module.parameters())
    millions = sum(p.numel() for p in module.parameters()) / 1e6
    assert millions == pytest.approx(MILLIONS[name], rel=0.01)


@pytest.mark.parametrize("name", ["resnet50", "gpt2"])
def test_full_model_is_captured_without_weights(name):
    captured = capture(ZOO[name].build(device="meta"), (), ZOO[name].inputs(1))
    check(captured.graph)
    assert captured.parameters and not captured.losses


def test_same_seed_same_weights_and_inputs():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    a, b = (ZOO["mlp"].build(small=True, seed=5) for _ in range(2))
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    assert torch.equal(ZOO["mlp"].inputs(2)["x"], ZOO["mlp"].inputs(2)["x"])
    assert torch.equal(torch.get_rng_state(), before)


def test_a_mistyped_name_gets_a_suggestion():
    with pytest.raises(InvalidOption, match="resnet50"):
        find(ZOO, "resnet51")
