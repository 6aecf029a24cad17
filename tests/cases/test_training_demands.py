"""What users of such machines ran into with data, training loops and numbers: a right result or a helpful answer."""

from __future__ import annotations

import logging
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DistributedSampler, TensorDataset

import poptorch
from abele.compile import session

SAMPLES = 60_000


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = self.linear(x)
        return z, self.loss(z, y)


class Apply(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.function(*args)


def numbers(count: int) -> TensorDataset:
    return TensorDataset(torch.arange(count))


def options(**settings: int) -> poptorch.Options:
    made = poptorch.Options()
    for name, value in settings.items():
        getattr(made, name)(value)
    return made


# data ------------------------------------------------------------------------------------------------------------


def test_drop_last_loses_what_does_not_fill_a_batch_and_keeps_it_when_told(caplog) -> None:
    data = numbers(SAMPLES)
    with caplog.at_level(logging.DEBUG, logger="poptorch::python"):
        kept = poptorch.DataLoader(poptorch.Options(), data, batch_size=128)
    assert sum(len(batch) for (batch,) in kept) == SAMPLES - 96
    assert "drops 96 of the 60000 elements" in caplog.text
    everything = poptorch.DataLoader(poptorch.Options(), data, batch_size=128, drop_last=False)
    assert torch.cat([batch for (batch,) in everything]).tolist() == list(range(SAMPLES))


def test_each_sample_goes_to_one_of_four_replicas_once(caplog) -> None:
    model = poptorch.inferenceModel(Apply(lambda x: x + 0), options(replicationFactor=4, deviceIterations=2))
    loader = poptorch.DataLoader(model.options, numbers(96), batch_size=3, shuffle=True)
    assert sorted(torch.cat([model(batch) for (batch,) in loader]).tolist()) == list(range(96))
    with caplog.at_level(logging.WARNING):
        sampler = DistributedSampler(numbers(96), num_replicas=4, rank=0)
        poptorch.DataLoader(model.options, numbers(96), batch_size=3, sampler=sampler)
    assert "only every 4th sample is seen" in caplog.text and "leave the sampler out" in caplog.text


def test_a_small_task_with_a_large_combined_batch_says_what_it_is_made_of(caplog) -> None:
    made = options(deviceIterations=4)
    made.Training.gradientAccumulation(4)
    with caplog.at_level(logging.WARNING):
        assert len(poptorch.DataLoader(made, numbers(20), batch_size=4)) == 0
    assert "20 samples do not fill one batch of 64 = micro-batch 4 × accumulation 4" in caplog.text
    with pytest.raises(poptorch.Error, match="take a smaller one, or pass drop_last=False"):
        poptorch.DataLoader(made, numbers(20), batch_size=4, mode=poptorch.DataLoaderMode.Async)
    last = poptorch.DataLoader(made, numbers(20), batch_size=4, drop_last=False)
    assert [len(batch) for (batch,) in last] == [20]


# the training loop -----------------------------------------------------------------------------------------------


def test_leftovers_of_a_torch_loop_run_nothing_twice() -> None:
    """``zero_grad`` and ``step`` do nothing more than torch's own; ``backward`` says that it is not needed."""
    torch.manual_seed(0)
    module = Classifier()
    optimizer = poptorch.optim.SGD(module.parameters(), lr=0.1)
    model = poptorch.trainingModel(module, poptorch.Options(), optimizer)
    x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))
    twin = nn.Linear(4, 3)
    twin.load_state_dict(module.linear.state_dict())
    for _ in range(3):
        optimizer.zero_grad()
        _, loss = model(x, y)
        optimizer.step()
        expected = nn.functional.cross_entropy(twin(x), y)
        torch.testing.assert_close(loss, expected)
        twin.zero_grad()
        expected.backward()
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter -= 0.1 * parameter.grad
    torch.testing.assert_close(module.linear.weight, twin.weight)
    with pytest.raises(poptorch.Error, match="the backwards pass is performed automatically"):
        loss.backward()


def test_switching_between_training_and_inference_compiles_nothing() -> None:
    torch.manual_seed(0)
    module = Classifier()
    training = poptorch.trainingModel(module, poptorch.Options(), poptorch.optim.SGD(module.parameters(), lr=0.1))
    inference = poptorch.inferenceModel(module.linear)
    x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))
    compiled = []
    for _ in range(4):
        training(x, y)
        torch.testing.assert_close(inference(x), nn.functional.linear(x, module.linear.weight, module.linear.bias))
        compiled.append(len(session.current().programs))
    assert len(set(compiled)) == 1


class Layers(nn.Module):
    """Layers of a width, on the IPUs given for them."""

    def __init__(self, ipus: list[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in ipus)
        for i, ipu in enumerate(ipus):
            if i == 0 or ipu != ipus[i - 1]:
                self.layers[i] = poptorch.BeginBlock(self.layers[i], ipu_id=ipu)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return poptorch.identity_loss((x - y).square(), "mean")


def trained(ipus: list[int], accumulation: int) -> torch.Tensor:
    torch.manual_seed(0)
    module = Layers(ipus)
    made = poptorch.Options()
    made.Training.gradientAccumulation(accumulation)
    model = poptorch.trainingModel(module, made, poptorch.optim.SGD(module.parameters(), lr=0.1))
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(8, 4, generator=generator) for _ in range(2))
    return torch.stack([model(x, y).mean() for _ in range(3)])


def test_too_little_accumulation_for_a_pipeline_is_explained() -> None:
    with pytest.raises(poptorch.Error, match=r"gradientAccumulation must be .* the number of pipeline stages \(7\)"):
        trained([0, 1, 2, 3], 1)


def test_stages_without_a_layer_give_the_numbers_of_all_others() -> None:
    """Six layers on IPU 1, six on IPU 3, none on 0 and 2."""
    uneven = trained([1] * 6 + [3] * 6, 8)
    torch.testing.assert_close(uneven, trained([0] * 6 + [1] * 6, 8))
    assert len(set(uneven.tolist())) == 3  # it trains


# numbers ---------------------------------------------------------------------------------------------------------


def test_a_nan_at_step_3_stops_the_run_and_a_flag_of_the_wrong_type_is_refused() -> None:
    made = poptorch.Options()
    with pytest.raises(AssertionError, match="must be True or False, not 'False'"):
        made.Precision.enableFloatingPointExceptions("False")  # type: ignore[arg-type]
    made.Precision.enableFloatingPointExceptions(True)
    module = Layers([0])
    model = poptorch.trainingModel(module, made, poptorch.optim.SGD(module.parameters(), lr=0.1))
    x, y = torch.ones(2, 4), torch.zeros(2, 4)
    for _ in range(2):
        assert model(x, y).isfinite().all()
    with pytest.raises(poptorch.Error, match=r"makes an infinity of finite operands .*test_training_demands.py:\d+"):
        model(x * 1e30, y)  # its square is beyond float


def test_a_sum_of_a_million_terms_is_no_worse_than_torch() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(1_000_000, generator=generator) + 0.1
    segment = torch.randint(0, 3, x.shape, generator=generator)
    exact = torch.zeros(3, dtype=torch.float64).index_add(0, segment, x.double())
    plain = torch.zeros(3).index_add(0, segment, x)
    found = poptorch.inferenceModel(Apply(lambda x, i: torch.zeros(3).index_add(0, i, x)))(x, segment)
    assert (found - exact).abs().max() <= 1.01 * (plain - exact).abs().max()
    whole = poptorch.inferenceModel(Apply(torch.sum))(x)
    assert abs(float(whole) - float(x.double().sum())) < 1e-6 * float(whole)


def test_dropout_masks_differ_between_tiles_steps_and_replicas() -> None:
    tiles, each = 1472, 64
    made = options(randomSeed=3, replicationFactor=2)
    model = poptorch.inferenceModel(Apply(lambda x: nn.functional.dropout(x, 0.5, training=True)), made)
    masks = np.stack([(model(torch.ones(2, tiles * each)) > 0).numpy() for _ in range(2)]).reshape(4, tiles, each)
    assert len({mask.tobytes() for mask in masks.reshape(-1, each)}) == 4 * tiles  # 2⁻⁴⁰ that two agree by chance
    assert abs(masks.mean() - 0.5) < 5 * 0.5 / masks.size**0.5
    for i in range(4):
        for j in range(i):
            assert abs(np.corrcoef(masks[i].ravel(), masks[j].ravel())[0, 1]) < 5 / (tiles * each) ** 0.5


# operations of one's own -------------------------------------------------------------------------------------------

NEURON = '''
import torch
import poptorch
from abele.ir import Arg, Composite, Sample, f32, register

THRESHOLD, LEAK, SLOPE = 1.0, 0.9, 10.0


def spike(b, operands, attributes):
    (v,) = operands
    return [b.cast_to(b.ge(v, b.constant(attributes["threshold"], v.dtype)), v.dtype)]


def surrogate(b, op, given):
    (dy,), (v,) = given, op.operands
    away = b.abs(b.sub(v, b.constant(op.attributes["threshold"], v.dtype)))
    flat = b.add(b.mul(away, b.constant(SLOPE, v.dtype)), b.constant(1.0, v.dtype))
    return [b.div(dy, b.mul(flat, flat))]


def samples():
    yield Sample((Arg(f32(4)),), {"threshold": THRESHOLD})


register(Composite("spiking.Spike", {"threshold": THRESHOLD}, spike, samples, surrogate))


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(context, v):
        context.save_for_backward(v)
        return (v >= THRESHOLD).to(v.dtype)

    @staticmethod
    def backward(context, dy):
        (v,) = context.saved_tensors
        return dy / (1 + SLOPE * (v - THRESHOLD).abs()) ** 2


class Neurons(torch.nn.Module):
    """Leaky integrate and fire, five steps: a neuron that fires begins again from nothing."""

    def __init__(self, own):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.own = torch.nn.Linear(3, 8), own

    def fires(self, v):
        if not self.own:
            return Spike.apply(v)
        return poptorch.custom_op([v], "Spike", "spiking", 1, [v], {"threshold": THRESHOLD})[0]

    def forward(self, x):
        v = s = torch.zeros(x.shape[1], 8)
        count = 0
        for now in x:
            v = LEAK * v * (1 - s) + self.linear(now)
            s = self.fires(v)
            count = count + s
        return count, poptorch.identity_loss((count - 2).square(), "mean")


x = 2 * torch.rand(5, 4, 3, generator=torch.Generator().manual_seed(1))
mine, theirs = Neurons(True), Neurons(False)
wrapped = poptorch.trainingModel(mine, optimizer=torch.optim.SGD(mine.parameters(), lr=0.1))
plain = torch.optim.SGD(theirs.parameters(), lr=0.1)
for _ in range(3):
    count, loss = wrapped(x)
    plain.zero_grad()
    expected, wanted = theirs(x)
    wanted.backward()
    plain.step()
    assert expected.sum() > 0 and torch.equal(count, expected), (count, expected)
    torch.testing.assert_close(loss, wanted.detach())
torch.testing.assert_close(mine.linear.weight, theirs.linear.weight, rtol=1e-5, atol=1e-6)
print("equal")
'''


def test_a_spiking_neuron_is_an_operation_written_in_python(tmp_path) -> None:
    """In a process of its own: what it registers is of no other test."""
    program = tmp_path / "neurons.py"
    program.write_text(NEURON, encoding="utf-8")
    ran = subprocess.run([sys.executable, program], capture_output=True, text=True)
    assert ran.stdout.split() == ["equal"], ran.stderr[-2000:]
