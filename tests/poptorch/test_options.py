"""The options: setters, freezing, defaults from the environment, files, and what happens to mistakes."""

from __future__ import annotations

import copy
import json
import logging
import pickle

import pytest
import torch

import poptorch
from abele.compile.session import Session, opened
from abele.machine.system import find_system
from poptorch import _logging, _options_effects


def test_setters_chain_and_values_read_as_attributes():
    options = poptorch.Options().deviceIterations(4).replicationFactor(2).modelName("m")
    assert (options.device_iterations, options.replication_factor, options.model_name) == (4, 2, "m")
    assert options.toDict()["device_iterations"] == 4
    assert "device_iterations=4" in repr(options)


def test_defaults():
    options = poptorch.Options()
    assert options.defaultOutputMode()
    assert options.device_iterations == options.replication_factor == 1
    assert options.Training.gradient_accumulation == 1
    assert options.Training.accumulation_and_replication_reduction_type is poptorch.ReductionType.Mean
    assert isinstance(options._execution_strategy, poptorch.PipelinedExecution)


@pytest.mark.parametrize(
    "change",
    [
        lambda o: o.deviceIterations(2),
        lambda o: o.randomSeed(1),
        lambda o: o.Training.gradientAccumulation(2),
        lambda o: o.Precision.enableStochasticRounding(True),
        lambda o: o.TensorLocations.numIOTiles(32),
        lambda o: o.Distributed.disable(),
        lambda o: o._Popart.set("enableOutlining", True),
        lambda o: o.setExecutionStrategy(poptorch.ShardedExecution()),
        lambda o: o.set(random_seed=3),
        lambda o: o.anchorTensor("a", "b"),
    ],
)
def test_frozen_options_refuse_every_change_and_a_clone_allows_it(change):
    options = poptorch.Options()
    options._freeze()
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        change(options)
    change(options.clone())
    change(copy.deepcopy(options))


def test_a_data_loader_freezes_its_options():
    options = poptorch.Options()
    poptorch.DataLoader(options, torch.utils.data.TensorDataset(torch.ones(4)))
    with pytest.raises(AttributeError, match="frozen"):
        options.deviceIterations(2)


def test_a_clone_shares_nothing():
    options = poptorch.Options().anchorTensor("a", "x")
    options._Popart.set("engineOptions", {"a": "1"})
    clone = options.clone()
    clone.anchorTensor("b", "y")
    clone.Precision.setPartialsType(torch.half)
    clone._Popart.options["engineOptions"]["a"] = "2"
    assert set(options.anchored_tensors) == {"a"}
    assert options._Popart.options == {"engineOptions": {"a": "1"}}
    assert clone._Popart.options["partialsTypeMatMuls"] == "half"


@pytest.mark.parametrize(
    "mistake, suggestion",
    [
        (lambda o: o.deviceIteration(2), "deviceIterations"),
        (lambda o: o.device_iteration, "device_iterations"),
        (lambda o: o.Training.gradientAcumulation(2), "gradientAccumulation"),
        (lambda o: o.set(replication_facto=2), "replication_factor"),
    ],
)
def test_an_unknown_option_suggests_the_known_one(mistake, suggestion):
    with pytest.raises(AttributeError, match=f"Did you mean .*{suggestion}"):
        mistake(poptorch.Options())


@pytest.mark.parametrize(
    "wrong",
    [
        lambda o: o.deviceIterations(0),
        lambda o: o.deviceIterations(1.5),
        lambda o: o.outputMode("All"),
        lambda o: o.outputMode(poptorch.OutputMode.EveryN),
        lambda o: o.setExecutionStrategy("pipelined"),
        lambda o: o.updatableNamedBuffers("scale"),
        lambda o: o.sourceLocationExcludes("models.py"),
        lambda o: o.appendToLocationExcludes(["models.py"]),
        lambda o: o.enableProfiling(True),
        lambda o: o.logDir(None),
        lambda o: o.setAvailableMemoryProportion({"IPU": 0.1}),
        lambda o: o.setAvailableMemoryProportion({"IPU0": 1.1}),
        lambda o: o.useIpuModel(1),
        lambda o: o.Precision.setPartialsType(torch.float64),
        lambda o: o.TensorLocations.numIOTiles(33),
        lambda o: o.TensorLocations.setWeightLocation({"onChip": 0}),
        lambda o: o.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.NoReduction),
    ],
)
def test_wrong_types_and_values_are_refused(wrong):
    with pytest.raises(AssertionError):
        wrong(poptorch.Options())


def test_tracing_is_refused():
    with pytest.raises(ValueError, match="no longer supported"):
        poptorch.Options().Jit.traceModel(True)


def test_options_from_the_environment(monkeypatch):
    values = {
        "deviceIterations": 3,
        "Precision.enableStochasticRounding": True,
        "connectionType": "ConnectionType.OnDemand",
        "_Popart.set": ["autoRecomputation", 3],
        "outputMode": ["OutputMode.EveryN", 2],
    }
    monkeypatch.setenv("POPTORCH_DEFAULT_OPTIONS", json.dumps(values))
    monkeypatch.setenv("POPTORCH_CACHE_DIR", "cache")
    options = poptorch.Options()
    assert options.device_iterations == 3
    assert options.Precision.stochastic_rounding
    assert options.connection_type is poptorch.ConnectionType.OnDemand
    assert options._Popart.options["autoRecomputation"] == 3
    assert (options.output_mode, options.output_return_period) == (poptorch.OutputMode.EveryN, 2)
    assert options.executable_cache_path == "cache"


def test_processes_from_the_environment(monkeypatch):
    monkeypatch.setenv("SIZE", "8")
    monkeypatch.setenv("RANK", "5")
    distributed = poptorch.Options().Distributed.setEnvVarNames("SIZE", "RANK")
    assert (distributed.numProcesses, distributed.processId) == (8, 5)


def test_options_from_a_file(tmp_path):
    file = tmp_path / "a.conf"
    file.write_text(
        "# a comment\n\n  deviceIterations(4)  # another\n"
        "setExecutionStrategy(poptorch.ShardedExecution(poptorch.Stage('a', 'b').ipu(1)))\n"
        "Precision.setPartialsType(torch.half)\n"
        "TensorLocations.setWeightLocation(poptorch.TensorLocationSettings().useOnChipStorage(False))\n"
        "outputMode(poptorch.OutputMode.All)\n"
    )
    options = poptorch.Options().loadFromFile(str(file))
    assert options.device_iterations == 4
    assert options._execution_strategy.stage("b")._ipu == 1
    assert options.TensorLocations.location_weight == {"onChip": 0}
    assert options.output_mode is poptorch.OutputMode.All


@pytest.mark.parametrize(
    "line, kind",
    [
        ("deviceIterations(", "SyntaxError"),
        ("deviceIterations(0)", "AssertionError"),
        ("deviceIteration(1)", "AttributeError"),
        ("modelName(__import__('os').getcwd())", "SyntaxError"),
        ("modelName(poptorch.__name__)", "SyntaxError"),
        ("deviceIterations(1 if True else 2)", "SyntaxError"),
    ],
)
def test_a_bad_line_of_a_file_is_named(tmp_path, line, kind):
    file = tmp_path / "b.conf"
    file.write_text(f"replicationFactor(2)\n{line}\n")
    with pytest.raises(poptorch.options.ConfigFileError, match=f"{kind} at line 2 of b.conf"):
        poptorch.Options().loadFromFile(str(file))


def test_options_of_the_lower_layer_are_checked_by_name_and_type():
    options = poptorch.Options()
    options._Popart.set("enableOutlinin", True)
    with pytest.raises(poptorch.Error, match=r"Unknown bool option enableOutlinin.*enableOutlining"):
        poptorch.poptorch_core._validateOptions(options.toDict())
    options = poptorch.Options()
    options._Popart.set("dotChecks", torch.zeros(1))
    with pytest.raises(poptorch.Error, match="Unknown value type Tensor for option dotChecks"):
        poptorch.poptorch_core._validateOptions(options.toDict())
    options = poptorch.Options().enableProfiling("here").enableSyntheticData(True).logCycleCount(True)
    options.Precision.setPartialsType(torch.half).enableFloatingPointExceptions(True)
    options._Popart.setPatterns({"PadSum": True}, 0)
    poptorch.poptorch_core._validateOptions(options.toDict())


def test_an_option_without_effect_says_so_once(caplog, monkeypatch):
    monkeypatch.setattr(_logging, "_seen", set())
    with caplog.at_level(logging.WARNING):
        poptorch.Options().useIpuId(1)
        poptorch.Options().useIpuId(2)
        poptorch.Options().deviceIterations(2)
    assert [r.getMessage() for r in caplog.records] == [
        "The option ipu_id is accepted but has no effect: there is no physical device to attach to."
    ]


def test_the_table_of_options_without_effect_names_existing_options():
    options = poptorch.Options()
    groups = {"": options, "Training": options.Training, "Precision": options.Precision}
    groups["TensorLocation"] = options.TensorLocations
    for group, rows in _options_effects.NO_EFFECT.items():
        assert groups[group]._group() == group
        for name, reason in rows.items():
            assert groups[group].exists(name), name
            assert reason


def test_pickled_options_keep_their_values():
    options = poptorch.Options().deviceIterations(7)
    options.Training.gradientAccumulation(3)
    again = pickle.loads(pickle.dumps(options))
    assert repr(again) == repr(options)


def test_log_levels():
    before = poptorch.logger.level
    try:
        poptorch.setLogLevel("DEBUG")
        assert poptorch.logger.isEnabledFor(logging.DEBUG)
        poptorch.setLogLevel(3)
        assert not poptorch.logger.isEnabledFor(logging.INFO)
        with pytest.raises(ValueError, match="Valid values are DEBUG, ERR, INFO, OFF, TRACE and WARN"):
            poptorch.setLogLevel("LOUD")
        with pytest.raises(ValueError, match="Invalid log level integer"):
            poptorch.setLogLevel(5)
    finally:
        poptorch.logger.setLevel(before)


def test_hardware_is_what_the_environment_says(monkeypatch):
    monkeypatch.delenv("ABELE_IPU_HARDWARE", raising=False)
    assert not poptorch.ipuHardwareIsAvailable()
    with pytest.raises(poptorch.Error, match="There are no IPUs"):
        poptorch.ipuHardwareVersion()
    monkeypatch.setenv("ABELE_IPU_HARDWARE", "4@bow")
    assert poptorch.ipuHardwareIsAvailable(4) and not poptorch.ipuHardwareIsAvailable(5)
    assert poptorch.ipuHardwareVersion() == 21
    monkeypatch.setenv("ABELE_IPU_HARDWARE", "many")
    with pytest.raises(poptorch.Error, match="not understood"):
        poptorch.ipuHardwareIsAvailable()


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        ("setAvailableMemoryProportion", (0.5,), "takes a dictionary"),
        ("randomSeed", (2**70,), "64 bits"),
        ("anchorTensor", (3, "name"), "takes names, not 3"),
        ("enableExecutableCaching", (5,), "path of a folder, not 5"),
    ],
)
def test_values_of_another_kind_are_named(method: str, given: tuple, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        getattr(poptorch.Options(), method)(*given)


def test_an_accumulation_that_is_commanded_is_not_for_inference():
    """``abele run --option`` reaches all models of a program: those that train, and those that are tried between."""
    module, system = torch.nn.Linear(3, 2), find_system("m2000")
    x, data = torch.ones(8, 3), torch.utils.data.TensorDataset(torch.arange(24.0).reshape(8, 3))
    with opened(Session(system, option_lines=("Training.gradientAccumulation(4)", "replicationFactor(2)"))):
        own = poptorch.inferenceModel(module, poptorch.Options())
        torch.testing.assert_close(own(x), module(x))
        assert own.options.Training.gradient_accumulation == own.options.device_iterations == 1
        options = poptorch.Options()
        loader = poptorch.DataLoader(options, data)
        fed = poptorch.inferenceModel(module, options)
        (batch,) = next(iter(loader))
        torch.testing.assert_close(fed(batch), module(batch))
        assert (len(batch), fed.options.device_iterations, options.Training.gradient_accumulation) == (8, 4, 4)
        options = poptorch.Options()
        options.Training.gradientAccumulation(2)
        assert poptorch.trainingModel(torch.nn.Linear(3, 2), options).options.Training.gradient_accumulation == 4
    options = poptorch.Options()
    options.Training.gradientAccumulation(2)
    with pytest.raises(poptorch.Error, match="gradientAccumulation to 1"):
        poptorch.inferenceModel(module, options)


def test_stages_that_are_commanded_leave_the_other_models_whole() -> None:
    """Advice on a program that trains cuts it, and asks for the accumulation that fills it: one that is tried beside it
    has one micro-batch in a call. The other way around it asks for device iterations."""

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 3))

        def forward(self, x, y=None):
            x = self.body(x)
            return x if y is None else (x, torch.nn.functional.mse_loss(x, y))

    x = torch.ones(8, 3)
    for line, cut in (("Training.gradientAccumulation(4)", "training"), ("deviceIterations(4)", "inference")):
        session = Session(find_system("m2000"), option_lines=(line, "# abele: stages(2)"))
        with opened(session):
            module = Net()
            poptorch.trainingModel(module, poptorch.Options(), poptorch.optim.SGD(module.parameters(), 0.1))(x, x)
            module.eval()
            own = poptorch.inferenceModel(module, poptorch.Options())
            torch.testing.assert_close(own(x), module(x))
        stages = {program.name: program.options.stages for program in session.programs}
        assert stages == {f"Net ({kind})": 2 if kind == cut else 1 for kind in ("training", "inference")}
    with opened(Session(find_system("m2000"), option_lines=("# abele: stages(2)",))):
        alone = poptorch.inferenceModel(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)))
        with pytest.raises(poptorch.Error, match="deviceIterations must be greater"):
            alone(x)  # it was asked for whatever runs
