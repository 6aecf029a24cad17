"""Running wrapped models: batches, outputs, arguments, errors, stages."""

from __future__ import annotations

import io
import pickle
from collections import namedtuple

import pytest
import torch
from torch import nn

import poptorch
from abele.compile.session import Session, opened
from abele.machine.system import find_system

Pair = namedtuple("Pair", "left right")


class Doubler(nn.Module):
    """Returns ``2 x`` and its sum."""

    def forward(self, x):
        return x * 2, x.sum()


class Regression(nn.Module):
    """A linear layer; with a target, its squared error too."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.loss = nn.MSELoss()

    def forward(self, x, target=None):
        out = self.fc(x)
        return out if target is None else (out, self.loss(out, target))


def options(iterations=1, accumulation=1, replicas=1, mode=None, period=None):
    made = poptorch.Options().deviceIterations(iterations).replicationFactor(replicas)
    made.Training.gradientAccumulation(accumulation)
    return made if mode is None else made.outputMode(mode, period)


def test_a_model_runs_and_later_calls_do_not_compile_again():
    with opened(Session(find_system("bow-2000"))) as session:
        model = poptorch.inferenceModel(Doubler())
        for value in (1.0, 2.0):
            doubled, total = model(torch.full((3, 2), value))
            assert torch.equal(doubled, torch.full((3, 2), 2 * value)) and total == 6 * value and total.dim() == 0
        (program,) = session.programs
        assert program.runs == 2 and program.wall_seconds > 0 and program.samples == 3


def test_types_come_back_as_the_device_has_them():
    class Types(nn.Module):
        def forward(self, i, d, h, b):
            return i + 1, d * 2, h * 2, ~b

    given = torch.tensor([1, 2]), torch.tensor([0.5], dtype=torch.float64), torch.ones(2).half(), torch.tensor([True])
    results = poptorch.inferenceModel(Types())(*given)
    assert [r.dtype for r in results] == [torch.int32, torch.float32, torch.float16, torch.bool]
    assert results[0].tolist() == [2, 3] and results[1].item() == 1.0 and results[3].tolist() == [False]


def test_the_structure_of_the_result_is_kept():
    class Nested(nn.Module):
        def forward(self, x):
            return {"b": x + 1, "a": [x, (None, "text")], "pair": Pair(x, -x)}

    x = torch.tensor([1.0, 2.0])
    result = poptorch.inferenceModel(Nested())(x)
    assert list(result) == ["b", "a", "pair"] and result["a"][1] == (None, "text") and isinstance(result["pair"], Pair)
    assert torch.equal(result["b"], x + 1) and torch.equal(result["pair"].right, -x)


@pytest.mark.parametrize(
    ("mode", "period", "kept"),
    [
        (poptorch.OutputMode.Default, None, [0, 1, 2, 3, 4, 5, 6, 7]),
        (poptorch.OutputMode.All, None, [0, 1, 2, 3, 4, 5, 6, 7]),
        (poptorch.OutputMode.EveryN, 2, [2, 3, 6, 7]),
        (poptorch.OutputMode.Final, None, [6, 7]),
    ],
)
def test_output_modes_keep_micro_batches_in_order(mode, period, kept):
    model = poptorch.inferenceModel(Doubler(), options(4, replicas=2, mode=mode, period=period))
    x = torch.arange(16.0).reshape(16, 1)
    doubled, total = model(x)
    parts = x.reshape(8, 2, 1)
    assert torch.equal(doubled, torch.cat([2 * parts[k] for k in kept]))
    assert torch.equal(total, torch.stack([parts[k].sum() for k in kept]))


def test_a_period_longer_than_a_call_is_named():
    model = poptorch.inferenceModel(Doubler(), options(3, mode=poptorch.OutputMode.EveryN, period=4))
    with pytest.raises(poptorch.Error, match="period of 4 keeps nothing of a call, which has 3 steps"):
        model(torch.ones(3, 1))
    for period in (None, 0, 2.0, "2", True):
        with pytest.raises(AssertionError, match="whole number of 1 or more"):
            poptorch.Options().outputMode(poptorch.OutputMode.EveryN, period)


def test_the_sum_of_outputs_adds_the_steps_of_each_replica():
    model = poptorch.inferenceModel(Doubler(), options(3, mode=poptorch.OutputMode.Sum))
    x = torch.arange(6.0)
    doubled, total = model(x)
    assert torch.equal(doubled, 2 * x.reshape(3, 2).sum(0)) and total.shape == () and total == 15


def test_training_returns_the_last_micro_batch_by_default():
    model = poptorch.trainingModel(Regression(), options(2, accumulation=2))
    out, loss = model(torch.randn(8, 3), torch.randn(8, 2))
    assert out.shape == (2, 2) and loss.shape == ()


def test_a_batch_that_does_not_divide_is_refused():
    model = poptorch.inferenceModel(Doubler(), options(4))
    with pytest.raises(AssertionError, match="Invalid batch dimension: in the input x, dimension 0 is 6"):
        model(torch.ones(6, 2))


@pytest.mark.parametrize("kind", [poptorch.CommGroupType.Consecutive, poptorch.CommGroupType.Orthogonal])
def test_replicas_of_a_group_share_their_input(kind):
    chosen = options(replicas=4).inputReplicaGrouping(2, kind)
    doubled, _ = poptorch.inferenceModel(Doubler(), chosen)(torch.tensor([1.0, 2.0]))
    assert doubled.tolist() == ([2, 2, 4, 4] if kind is poptorch.CommGroupType.Consecutive else [2, 4, 2, 4])


def test_replicas_that_do_not_divide_into_groups_are_refused():
    chosen = options(replicas=4).inputReplicaGrouping(3, poptorch.CommGroupType.Consecutive)
    for use in (
        lambda: poptorch.inferenceModel(Doubler(), chosen)(torch.ones(4)),
        lambda: poptorch.DataLoader(chosen, torch.ones(8)),
    ):
        with pytest.raises(AssertionError, match="replication factor 4 is not a multiple of the input group size 3"):
            use()


def test_accumulation_and_replicas_give_the_update_of_the_whole_batch():
    torch.manual_seed(1)
    x, target = torch.randn(12, 3), torch.randn(12, 2)
    whole, cut = Regression(), Regression()
    cut.load_state_dict(whole.state_dict())
    optimizer = torch.optim.SGD(whole.parameters(), lr=0.1)
    whole(x, target)[1].backward()
    optimizer.step()
    model = poptorch.trainingModel(cut, options(accumulation=3, replicas=2), torch.optim.SGD(cut.parameters(), lr=0.1))
    model(x, target)
    assert torch.allclose(cut.fc.weight, whole.fc.weight, atol=1e-6)


def test_a_later_call_must_be_like_the_first():
    class Scaled(nn.Module):
        def forward(self, x, *rest, factor=2, **more):
            return x * factor + sum(rest) + more["b"]

    x = torch.ones(2)
    model = poptorch.inferenceModel(Scaled())
    assert model(x, x, factor=3, b=x).tolist() == [5, 5]
    for args, kwargs, message in (
        ((x, x), {"factor": 4, "b": x}, "Value mismatch for factor: expected 3 but got 4"),
        ((torch.ones(3), x), {"factor": 3, "b": x}, r"for x: expected torch.Size\(\[2\]\) but got torch.Size\(\[3\]\)"),
        ((x.int(), x), {"factor": 3, "b": x}, "for x: expected torch.float32 but got torch.int32"),
        ((x,), {"factor": 3, "b": x}, "positional arguments mismatch: expected 2 arguments but got 1"),
        ((x, x), {"factor": 3}, "Missing arguments: b."),
        ((x, x), {"factor": 3, "b": x, "c": x}, "Unexpected arguments: c."),
        ((x, x), {"factor": 3, "b": 1}, "Type mismatch for b"),
        ((), {"factor": 3, "b": x}, "Mandatory parameter x missing"),
    ):
        with pytest.raises(poptorch.Error, match=message):
            model(*args, **kwargs)
    model.destroy()
    assert model(torch.ones(3), torch.ones(3), factor=4, b=torch.ones(3)).tolist() == [6, 6, 6]


def test_keywords_and_positions_are_the_same_call_and_dictionaries_have_no_order():
    class Sum(nn.Module):
        def forward(self, d, y):
            return d["a"] - d["b"] + y

    one, two = torch.tensor([1.0]), torch.tensor([2.0])
    model = poptorch.inferenceModel(Sum())
    assert model({"a": one, "b": two}, one) == 0
    assert model(y=one, d={"b": one, "a": two}) == 2


def test_a_registered_type_is_taken_apart():
    class Box:
        def __init__(self, x):
            self.x = x

    class Parser(poptorch.ICustomArgParser):
        def yieldTensors(self, struct):
            yield struct.x

        def reconstruct(self, original_structure, tensor_iterator):
            return Box(next(tensor_iterator))

    class Model(nn.Module):
        def forward(self, box):
            return box.x * 3

    poptorch.registerCustomArgParser(Box, Parser())
    try:
        model = poptorch.inferenceModel(Model())
        assert model(Box(torch.tensor([1.0]))) == 3 and model(Box(torch.tensor([2.0]))) == 6
    finally:
        poptorch.registerCustomArgParser(Box, None)


def test_inputs_changed_in_place_change_for_the_caller():
    class Add(nn.Module):
        def forward(self, x, y):
            x += y

    x = torch.tensor([1.0, 2.0])
    model = poptorch.inferenceModel(Add(), options(2))
    assert model(x, torch.tensor([10.0, 20.0])) is None and x.tolist() == [11, 22]


def test_an_input_that_requires_grad_is_detached(caplog):
    poptorch.logger.propagate = True
    try:
        doubled, _ = poptorch.inferenceModel(Doubler())(torch.ones(2, requires_grad=True))
    finally:
        poptorch.logger.propagate = False
    assert not doubled.requires_grad and "will be detached" in caplog.text


def test_backward_on_a_result_is_refused_and_results_can_be_saved():
    _, loss = poptorch.trainingModel(Regression())(torch.ones(2, 3), torch.ones(2, 2))
    with pytest.raises(poptorch.Error, match="cannot be called explicitly"):
        loss.backward()
    file = io.BytesIO()
    torch.save({"loss": loss}, file)
    file.seek(0)
    assert torch.load(file, weights_only=True)["loss"] == loss


def test_a_wrapper_is_pickled_with_its_module():
    model = poptorch.inferenceModel(Doubler())
    doubled, _ = pickle.loads(pickle.dumps(model))(torch.ones(2))
    assert doubled.tolist() == [2, 2] and repr(model) == "Doubler()"


def test_training_needs_exactly_one_loss():
    class Losses(nn.Module):
        def __init__(self, count):
            super().__init__()
            self.fc, self.count = nn.Linear(2, 2), count

        def forward(self, x):
            out = self.fc(x)
            return [nn.functional.l1_loss(out, x) for _ in range(self.count)] + [out * 2]

    for count, message in ((0, "Couldn't find a loss in graph"), (2, "Multiple independent losses found in graph")):
        with pytest.raises(poptorch.Error, match=message):
            poptorch.trainingModel(Losses(count))(torch.ones(2, 2))


def test_errors_of_abele_are_errors_of_poptorch():
    class Branch(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(poptorch.Error, match=r"test_executor.py:\d+") as caught:
        poptorch.inferenceModel(Branch())(torch.ones(2))
    assert str(caught.value) == str(caught.value.__cause__)
    assert not poptorch.poptorch_core.isCompilingWithDispatcher()


def test_an_error_of_the_users_model_is_its_own():
    class Raises(nn.Module):
        def forward(self, x):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        poptorch.inferenceModel(Raises())(torch.ones(2))


def test_compiling_does_not_run_and_is_visible_to_the_model():
    seen = []

    class Asks(nn.Module):
        def forward(self, x):
            seen.append(poptorch.isRunningOnIpu())
            return x + 1

    order = []
    before = poptorch.registerPreCompileHook(lambda: order.append("before"))
    after = poptorch.registerPostCompileHook(lambda: order.append("after"))
    try:
        model = poptorch.inferenceModel(Asks())
        assert not model.isCompiled()
        model.compile(torch.ones(1))
    finally:
        before.remove()
        after.remove()
    assert seen == [True] and model.isCompiled() and order == ["before", "after"] and not poptorch.isRunningOnIpu()
    assert model.compilationTime().total_seconds() > 0


class Staged(nn.Module):
    """Three layers on as many IPUs."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(4, 4) for _ in range(2)])
        self.loss = nn.MSELoss()
        poptorch.BeginBlock(self.layers[0], ipu_id=0)
        poptorch.BeginBlock(self.layers[1], ipu_id=1)

    def forward(self, x, target=None):
        out = self.layers(x)
        return out if target is None else (out, self.loss(out, target))


def test_a_pipeline_computes_what_one_ipu_computes():
    torch.manual_seed(2)
    model, x, target = Staged(), torch.randn(6, 4), torch.randn(6, 4)
    assert torch.allclose(poptorch.inferenceModel(model, options(3))(x), model(x), atol=1e-6)
    plain = Staged()
    plain.load_state_dict(model.state_dict())
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    plain(x, target)[1].backward()
    optimizer.step()
    training = poptorch.trainingModel(model, options(accumulation=3), torch.optim.SGD(model.parameters(), lr=0.1))
    training(x, target)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(model.parameters(), plain.parameters(), strict=True))


def test_a_pipeline_needs_enough_micro_batches():
    with pytest.raises(poptorch.Error, match="deviceIterations must be greater"):
        poptorch.inferenceModel(Staged())(torch.ones(2, 4))
    with pytest.raises(poptorch.Error, match=r"number of pipeline stages \(3\)"):
        poptorch.trainingModel(Staged(), options(accumulation=2))(torch.ones(2, 4), torch.ones(2, 4))
    sharded = options().setExecutionStrategy(poptorch.ShardedExecution())
    assert poptorch.inferenceModel(Staged(), sharded)(torch.ones(2, 4)).shape == (2, 4)


def test_operations_outside_a_block_are_refused_but_results_may_leave_it():
    class Blocks(nn.Module):
        def __init__(self, outside):
            super().__init__()
            self.outside = outside

        def forward(self, x):
            with poptorch.Block("a", ipu_id=0):
                x = x * 2
            return x + 1 if self.outside else [x]

    assert poptorch.inferenceModel(Blocks(False))(torch.ones(1))[0] == 2
    with pytest.raises(poptorch.Error, match="No active Block"):
        poptorch.inferenceModel(Blocks(True))(torch.ones(1))


def test_accumulation_is_for_training():
    with pytest.raises(poptorch.Error, match="gradientAccumulation to 1"):
        poptorch.inferenceModel(Doubler(), options(accumulation=2))


def test_an_offline_target_only_compiles():
    model = poptorch.inferenceModel(Doubler(), poptorch.Options().useOfflineIpuTarget())
    model.compile(torch.ones(2))
    with pytest.raises(AssertionError, match="offline device"):
        model(torch.ones(2))


def test_executables_are_cached_in_the_folder_of_the_options(tmp_path):
    for cached in (False, True):
        with opened(Session(find_system("bow-2000"))) as session:
            poptorch.inferenceModel(Doubler(), poptorch.Options().enableExecutableCaching(str(tmp_path)))(torch.ones(2))
            assert session.programs[0].executable.cached is cached


def test_a_saved_program_is_loaded_with_its_model(tmp_path):
    model = poptorch.inferenceModel(Regression())
    x = torch.randn(2, 3)
    expected = model(x)
    model.save(str(tmp_path / "model.poptorch"))
    loaded = poptorch.load(str(tmp_path / "model.poptorch"))
    assert loaded.isCompiled() and torch.equal(loaded(x), expected)


def test_what_was_compiled_offline_runs_once_it_is_loaded(tmp_path):
    offline = poptorch.inferenceModel(Doubler(), poptorch.Options().useOfflineIpuTarget())
    offline.compileAndExport(str(tmp_path / "model.poptorch"), torch.ones(2))
    assert poptorch.load(str(tmp_path / "model.poptorch"))(torch.ones(2))[0].tolist() == [2, 2]


def test_an_executable_is_loaded_in_the_mode_in_which_it_was_compiled(tmp_path):
    model = nn.Dropout(0.5).eval()
    poptorch.inferenceModel(model).compileAndExport(str(tmp_path / "model.poptorch"), torch.ones(9))
    loaded = poptorch.inferenceModel(model.train())
    loaded.loadExecutable(str(tmp_path / "model.poptorch"))
    assert loaded(torch.ones(9)).tolist() == [1] * 9 and model.training


def test_a_tensor_that_is_no_buffer_keeps_what_the_compilation_wrote():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.count = torch.zeros(1)

        def forward(self):
            self.count += 1
            return self.count

    module = Counter()
    model = poptorch.inferenceModel(module)
    assert [model().item(), model().item(), module.count.item()] == [1, 1, 1]


def test_modelled_cycles_need_their_option_and_a_run():
    with pytest.raises(poptorch.Error, match="Cycle count logging is disabled"):
        poptorch.inferenceModel(Doubler()).cycleCount()
    model = poptorch.inferenceModel(Doubler(), poptorch.Options().logCycleCount(True))
    with pytest.raises(poptorch.Error, match="run the model at least once"):
        model.cycleCount()
    model(torch.ones(2))
    assert model.cycleCount() > 0


@pytest.mark.parametrize(
    "mode, kept",
    [(poptorch.OutputMode.All, [0, 1, 2, 3]), (poptorch.OutputMode.EveryN, [1, 3]), (poptorch.OutputMode.Final, [3])],
)
def test_times_are_those_of_the_schedule(mode, kept):
    options = poptorch.Options().deviceIterations(4).replicationFactor(2).outputMode(mode, 2).logCycleCount(True)
    model = poptorch.inferenceModel(Doubler(), options)
    model(torch.ones(8, 3))
    least, most, mean = model.getLatency()
    clock = model._program.compiled.options.system.chip.clock_hz
    assert least == most == mean == pytest.approx(model.cycleCount() / clock, rel=1e-4)
    parts = [model.getHostIpuLatency(), model.getComputeLatency(), model.getIpuHostLatency()]
    assert all(part[0] > 0 for part in parts) and sum(part[0] for part in parts) == pytest.approx(mean)
    times = model.getPerfCounters()
    assert [len(times[name]) for name in ("input", "input_complete", "output", "output_complete")] == [1, 1, 2, 2]
    assert times["input"][0] == pytest.approx([turn * mean / 4 for turn in range(4) for _ in range(2)])
    assert times["output_complete"][1] == pytest.approx([(turn + 1) * mean / 4 for turn in kept for _ in range(2)])
    for name in ("input", "output"):
        assert all(a < b for a, b in zip(times[name][0], times[f"{name}_complete"][0], strict=True))
    model(torch.ones(8, 3))
    assert model.getLatency()[0] == least  # of the machine, not of this computer


def test_nothing_comes_and_goes_with_synthetic_data_or_before_a_run():
    model = poptorch.inferenceModel(Doubler(), poptorch.Options().enableSyntheticData(True))
    names = ("input", "input_complete", "output", "output_complete")
    assert model.getPerfCounters() == {name: [] for name in names}
    model(torch.ones(2))
    assert model.getLatency() == model.getComputeLatency() == (0, 0, 0)
    assert model.getPerfCounters() == dict(zip(names, ([[]], [[]], [[], []], [[], []]), strict=True))


def test_random_numbers_follow_the_seed():
    def masks(seed):
        model = poptorch.inferenceModel(nn.Dropout(0.5), poptorch.Options().randomSeed(seed))
        return [model(torch.ones(1000)) for _ in range(2)], model.rng_state

    (first, second), state = masks(1)
    (again, _), same = masks(1)
    (other, _), _ = masks(2)
    assert torch.equal(first, again) and not torch.equal(first, second) and not torch.equal(first, other)
    assert state == same and 400 < int((first == 0).sum()) < 600


@pytest.mark.parametrize("off_chip", [False, True])
def test_sharded_optimizer_state_is_whole_to_the_user(off_chip):
    """With replicated tensor sharding the numbers stay, and the state is saved and loaded as that of the weights."""

    def trained(least=None, state=None):
        torch.manual_seed(0)
        model = Regression()
        wished = options(replicas=2)
        if least is not None:
            place = poptorch.TensorLocationSettings().useReplicatedTensorSharding(True).useOnChipStorage(not off_chip)
            wished.TensorLocations.setOptimizerLocation(place.minElementsForReplicatedTensorSharding(least))
        optimizer = poptorch.optim.LAMB(model.parameters(), lr=0.1, weight_decay=0.1)
        if state is not None:
            optimizer.load_state_dict(state)
        with opened(Session(find_system("bow-2000"))) as session:
            training = poptorch.trainingModel(model, wished, optimizer)
            x, target = torch.randn(8, 3), torch.randn(8, 2)
            for _ in range(3):
                training(x, target)
            saved = optimizer.state_dict()
            (program,) = session.programs
        parts = program.executable.schedule.main.parameters
        kept = {program.executable.schedule.tensors[name].type.shape for name in parts}
        return saved, {n: v.clone() for n, v in model.state_dict().items()}, kept

    saved, weights, kept = trained()
    sharded, same, parts = trained(least=4)  # the bias has 2 elements: it stays whole
    assert (3,) in parts and (3,) not in kept
    for name, value in weights.items():
        torch.testing.assert_close(same[name], value)
    for name, value in saved["ipu_state"].items():
        torch.testing.assert_close(sharded["ipu_state"][name], value)
    _, further, _ = trained(state=saved)
    _, the_same, _ = trained(least=4, state=sharded)
    for name, value in further.items():
        torch.testing.assert_close(the_same[name], value)
