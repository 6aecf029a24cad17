"""Every option does something, or says once that it does not.

``SETTERS`` has a row for every setter of :class:`poptorch.Options` and its groups, which the first test checks against
the classes. A row says how the effect shows: in what is compiled, in what a call returns or refuses, in a file, in what
another part of the package answers, or in one notice.
"""

from __future__ import annotations

import inspect
import json

import pytest
import torch
from tests.poptorch.effects import answers, compiles, notes, program_of, refuses, returns, warns

import poptorch
from abele.report.store import Report
from poptorch import _logging
from poptorch.enums import CommGroupType, ConnectionType, MeanReductionStrategy, OutputMode, ReductionType, SyncPattern


class Noise(torch.nn.Module):
    """Random numbers."""

    def forward(self, x):
        return torch.rand_like(x)


@pytest.fixture(scope="module")
def usual():
    """What the defaults compile to and return."""
    return program_of(lambda o: None)


def stops_at_a_nan(set_it=lambda o, stops: o.Precision.enableFloatingPointExceptions(stops), **_):
    """A NaN is an error that names the operation and the line, where it is made; without the option it goes on."""

    class Log(torch.nn.Module):
        def forward(self, x):
            return x.log()

    for stops in (False, True):
        options = poptorch.Options()
        set_it(options, stops)
        model = poptorch.inferenceModel(Log(), options)
        assert model(torch.ones(2)).tolist() == [0, 0]
        if stops:
            with pytest.raises(poptorch.Error, match=r"log.* makes a NaN .*test_options_effects.py:\d+"):
                model(torch.tensor([1.0, -1.0]))
        else:
            assert model(torch.tensor([1.0, -1.0])).isnan().any()
        assert model(torch.ones(2)).tolist() == [0, 0]  # the model goes on after the error


def stops_below(**_):
    stops_at_a_nan(lambda o, stops: o._Popart.set("enableFloatingPointChecks", stops))


def _inference(options, module=None):
    return poptorch.inferenceModel(module or torch.nn.Identity(), options)


def _output_modes():
    options = poptorch.Options().deviceIterations(4).outputMode(OutputMode.EveryN, 2)
    assert _inference(options)(torch.arange(4.0)).tolist() == [1.0, 3.0]


def _groups():
    options = poptorch.Options().replicationFactor(2).inputReplicaGrouping(2, CommGroupType.Consecutive)
    assert _inference(options)(torch.ones(1, 2)).shape == (2, 2)


def _anchors():
    model = _inference(poptorch.Options().anchorTensor("w", "weight"), torch.nn.Linear(2, 2))
    model(torch.ones(1, 2))
    assert torch.equal(model.getAnchoredTensor("w"), model.weight)


def _seeds():
    draws = [_inference(poptorch.Options().randomSeed(seed), Noise())(torch.ones(4)) for seed in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])


def _buffers():
    with pytest.raises(poptorch.Error, match="no buffer 'missing'"):
        _inference(poptorch.Options().updatableNamedBuffers(["missing"]))(torch.ones(1))


def _rounding(monkeypatch):
    class Three(torch.nn.Module):
        def forward(self, x):
            for ipu in range(3):
                with poptorch.Block(str(ipu), ipu_id=ipu):
                    x = x + 1
            return x

    monkeypatch.setenv("ABELE_IPU_HARDWARE", "4@bow")
    with pytest.raises(poptorch.Error, match="minimum of 4"):
        _inference(poptorch.Options().deviceIterations(3), Three())(torch.ones(3))
    options = poptorch.Options().deviceIterations(3).autoRoundNumIPUs(True)
    assert _inference(options, Three())(torch.ones(3)).tolist() == [4.0] * 3


def _strategy():
    class Two(torch.nn.Module):
        def forward(self, x):
            for ipu in range(2):
                with poptorch.Block(str(ipu), ipu_id=ipu):
                    x = x + 1
            return x

    with pytest.raises(poptorch.Error, match="must be greater"):
        _inference(poptorch.Options(), Two())(torch.ones(1))
    assert _inference(poptorch.Options().setExecutionStrategy(poptorch.ShardedExecution()), Two())(torch.ones(1)) == 3


def _executables(tmp_path):
    _inference(poptorch.Options().enableExecutableCaching(str(tmp_path)))(torch.ones(1))
    assert any(tmp_path.iterdir())


def _executables_below(tmp_path):
    options = poptorch.Options()
    options._Popart.set("enableEngineCaching", True).set("cachePath", str(tmp_path))
    _inference(options)(torch.ones(1))
    assert any(tmp_path.iterdir())


def _profiles(tmp_path):
    options = poptorch.Options().enableProfiling(str(tmp_path / "new")).modelName("mine")
    _inference(options)(torch.ones(1))
    assert {p.name for p in (tmp_path / "new" / "mine").iterdir()} == {"profile.json", "profile.html", "profile.pop"}


def test_a_folder_for_profiles_that_cannot_be_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    options = poptorch.Options().enableProfiling(str(tmp_path / "file"))
    with pytest.raises(poptorch.Error, match="enableProfiling"):
        _inference(options)(torch.ones(1))


def _profiles_below(tmp_path, monkeypatch):
    options = poptorch.Options()
    options._Popart.setEngineOptions({"autoReport.all": "true", "autoReport.directory": str(tmp_path / "a")})
    _inference(options)(torch.ones(1))
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps({"autoReport.directory": str(tmp_path / "b")}))
    _inference(options)(torch.ones(1))
    for folder in "ab":
        with Report(tmp_path / folder / "inference" / "profile.pop") as report:
            assert (report.table("operations").numbers("cycles") > 0).any()
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", "{")
    with pytest.raises(poptorch.Error, match="POPLAR_ENGINE_OPTIONS"):
        _inference(options)(torch.ones(1))


def _synthetic():
    assert _inference(poptorch.Options().enableSyntheticData(True))(torch.full((1,), 99.0)) != 99


def _synthetic_below():
    options = poptorch.Options()
    options._Popart.set("syntheticDataMode", 2)
    assert _inference(options)(torch.full((1,), 99.0)) != 99


def _cycles():
    model = _inference(poptorch.Options().logCycleCount(True))
    model(torch.ones(1))
    assert model.cycleCount() > 0


def _relaxed(caplog):
    for relax in (True, False):
        layer = torch.nn.Linear(1, 1)
        optimizer = poptorch.optim.SGD(layer.parameters(), lr=0.1)
        model = poptorch.trainingModel(layer, poptorch.Options().relaxOptimizerAttributesChecks(relax), optimizer)
        optimizer.param_groups[0]["added"] = 1
        model.setOptimizer(optimizer)
        assert ("unexpected group" in caplog.text) is not relax
        model.destroy()


def _processes():
    data = torch.utils.data.TensorDataset(torch.arange(4.0))
    options = poptorch.Options()
    options.Distributed.configureProcessId(1, 2)
    assert [float(batch[0]) for batch in poptorch.DataLoader(options, data)] == [2.0, 3.0]
    options = options.clone()
    options.Distributed.disable()
    assert len(poptorch.DataLoader(options, data)) == 4


def _processes_by_environment(monkeypatch):
    monkeypatch.setenv("MANY", "2")
    monkeypatch.setenv("MINE", "1")
    options = poptorch.Options()
    options.Distributed.setEnvVarNames("MANY", "MINE")
    assert len(poptorch.DataLoader(options, torch.utils.data.TensorDataset(torch.arange(4.0)))) == 2


#: From here on the gradient of the product's result is large and that of the weight is not.
_SOME = {"binEdgeLocation": 1e-4}
_UP = [1, 2, 4, 8]


def _scales(settings, expected):
    return answers(lambda: _loss_scales(settings, expected))


def _other_location():
    return poptorch.TensorLocationSettings().useIOTilesToLoad(True)


def _off_chip():
    return poptorch.TensorLocationSettings().useOnChipStorage(False)


def _read_elsewhere(**_):
    """Covered by tests of its own: a way to read, copy or fill the options, not an option."""


_GROUPS = ("", "Training", "Precision", "TensorLocations", "Distributed", "Jit", "_Popart")
SETTERS = {
    "deviceIterations": returns(lambda o: o.deviceIterations(2)),
    "replicationFactor": compiles(lambda o: o.replicationFactor(2)),
    "inputReplicaGrouping": answers(_groups),
    "outputMode": answers(_output_modes),
    "defaultOutputMode": _read_elsewhere,
    "anchorTensor": answers(_anchors),
    "randomSeed": answers(_seeds),
    "broadcastBuffers": refuses(lambda o: o.replicationFactor(2).broadcastBuffers(True), "broadcasting buffers"),
    "updatableNamedBuffers": answers(_buffers),
    "setExecutionStrategy": answers(_strategy),
    "autoRoundNumIPUs": answers(_rounding),
    "useIpuModel": notes(lambda o: o.useIpuModel(False), "useIpuModel(False)"),
    "useIpuId": notes(lambda o: o.useIpuId(1), "ipu_id"),
    "useOfflineIpuTarget": answers(lambda: _offline_machines()),
    "connectionType": refuses(lambda o: o.connectionType(ConnectionType.Never), "offline device"),
    "syncPattern": notes(lambda o: o.syncPattern(SyncPattern.SinglePipeline), "sync_pattern"),
    "setAvailableMemoryProportion": answers(lambda: _plans_by_the_least_share()),
    "enableExecutableCaching": answers(_executables),
    "enableProfiling": answers(_profiles),
    "enableSyntheticData": answers(_synthetic),
    "enableStableNorm": notes(lambda o: o.enableStableNorm(True), "stable_norm"),
    "logCycleCount": answers(_cycles),
    "logDir": notes(lambda o: o.logDir("there"), "log_dir"),
    "modelName": answers(_profiles),
    "maxRepeatLogs": notes(lambda o: o.maxRepeatLogs(3), "max_repeat_logs"),
    "showCompilationProgressBar": notes(lambda o: o.showCompilationProgressBar(False), "show_compilation_progress_bar"),
    "sourceLocationExcludes": notes(lambda o: o.sourceLocationExcludes(["a"]), "source_location_excludes"),
    "appendToLocationExcludes": notes(lambda o: o.appendToLocationExcludes("a"), "source_location_excludes"),
    "disableModuleNamescope": notes(lambda o: o.disableModuleNamescope(), "module_namescope_enabled"),
    "relaxOptimizerAttributesChecks": answers(_relaxed),
    "loadFromFile": _read_elsewhere,
    "from_json": _read_elsewhere,
    "clone": _read_elsewhere,
    "toDict": _read_elsewhere,
    "Training.gradientAccumulation": compiles(lambda o: o.Training.gradientAccumulation(2)),
    "Training.accumulationAndReplicationReductionType": compiles(
        lambda o: o.replicationFactor(2).Training.accumulationAndReplicationReductionType(ReductionType.Sum)
    ),
    "Training.setMeanAccumulationAndReplicationReductionStrategy": answers(lambda: _means()),
    "Training.setAutomaticLossScaling": _scales({}, _UP),
    "Training.setConvolutionDithering": notes(
        lambda o: o.Training.setConvolutionDithering(True), "Training.convolution_dithering"
    ),
    "Precision.halfFloatCasting": warns(
        lambda o: o.Precision.halfFloatCasting(poptorch.HalfFloatCastingBehavior.FloatDowncastToHalf), "deprecated"
    ),
    "Precision.runningStatisticsAlwaysFloat": warns(
        lambda o: o.Precision.runningStatisticsAlwaysFloat(True), "deprecated"
    ),
    "Precision.enableFloatingPointExceptions": stops_at_a_nan,
    "Precision.enableStochasticRounding": compiles(lambda o: o.Precision.enableStochasticRounding(True)),
    "Precision.setPartialsType": compiles(lambda o: o.Precision.setPartialsType(torch.half)),
    "TensorLocations.numIOTiles": compiles(lambda o: o.TensorLocations.numIOTiles(32)),
    "TensorLocations.setActivationLocation": compiles(lambda o: o.TensorLocations.setActivationLocation(_off_chip())),
    "TensorLocations.setWeightLocation": compiles(lambda o: o.TensorLocations.setWeightLocation(_off_chip())),
    "TensorLocations.setAccumulatorLocation": notes(
        lambda o: o.TensorLocations.setAccumulatorLocation(_off_chip()), "location_accumulator"
    ),
    "TensorLocations.setOptimizerLocation": compiles(lambda o: o.TensorLocations.setOptimizerLocation(_off_chip())),
    "Distributed.disable": answers(_processes),
    "Distributed.setEnvVarNames": answers(_processes_by_environment),
    "Distributed.configureProcessId": answers(_processes),
    "Jit.traceModel": warns(lambda o: o.Jit.traceModel(False), "does nothing"),
    "_Popart.checkIsFrozen": _read_elsewhere,
    "_Popart.set": notes(lambda o: o._Popart.set("decomposeGradSum", True), "decomposeGradSum"),
    "_Popart.setEngineOptions": notes(
        lambda o: o._Popart.setEngineOptions({"debug.trace": "true"}), "_Popart.engineOptions"
    ),
    "_Popart.setPatterns": notes(lambda o: o._Popart.set("patterns", {"PadSum": True}), "_Popart.patterns"),
}
#: Options of the lower layer with an effect, and settings that are only partly without.
BELOW = {
    "automaticLossScalingSettings.binEdgeLocation": _scales({"binEdgeLocation": 1e-7}, [1, 0.5, 0.25, 0.125]),
    "automaticLossScalingSettings.enabled": _scales({"enabled": False}, None),
    "automaticLossScalingSettings.gradientTensorTrackingMethod": _scales(
        _SOME | {"gradientTensorTrackingMethod": 1}, _UP
    ),
    "automaticLossScalingSettings.thresholdUpperCountProportion": _scales(
        {"binEdgeLocation": 1e-7, "thresholdUpperCountProportion": 1.0}, _UP
    ),
    "automaticLossScalingSettings.toTrackTensors": _scales(
        _SOME | {"gradientTensorTrackingMethod": 2, "toTrackTensors": ["weight"]}, _UP
    ),
    "automaticLossScalingSettings.updatePeriod": _scales({"updatePeriod": 2}, [1, 1, 2, 2]),
    "autoRecomputation": answers(lambda: _recomputes()),
    "cachePath": answers(_executables_below),
    "convolutionOptions": compiles(lambda o: o._Popart.set("convolutionOptions", {"partialsType": "half"})),
    "enableEngineCaching": answers(_executables_below),
    "engineOptions": answers(_profiles_below),
    "groupNormStridedChannelGrouping": answers(lambda: _strided_groups()),
    "instrumentWithHardwareCycleCounter": answers(lambda: _cycles_below()),
    "enableFloatingPointChecks": stops_below,
    "enableOutlining": answers(lambda: _outlines()),
    "enableStochasticRounding": compiles(lambda o: o._Popart.set("enableStochasticRounding", True)),
    "partialsTypeMatMuls": compiles(lambda o: o._Popart.set("partialsTypeMatMuls", "half")),
    "syntheticDataMode": answers(_synthetic_below),
}
PARTLY = {
    "other convolution options": notes(lambda o: o._Popart.set("convolutionOptions", {"a": "b"}), "[a]"),
    "optimizer tiles": notes(lambda o: o.TensorLocations.setOptimizerLocation(_other_location()), "useIOTilesToLoad"),
    "anchor mode": answers(lambda: _anchors_of_every_step()),
}


def _offline_machines():
    for version, chip in ((2, "gc200"), (21, "bow")):
        model = _inference(poptorch.Options().useOfflineIpuTarget(version))
        model.compile(torch.ones(1))
        assert model._program.compiled.options.system.chip.name == chip


def _outlines():
    """Equal layers become one function, or stay each by itself; the results are the same."""
    made = ((torch.nn.Linear(16, 16), torch.nn.LayerNorm(16), torch.nn.Tanh(), torch.nn.Softmax(-1)) for _ in range(4))
    layers = torch.nn.Sequential(*(torch.nn.Sequential(*each) for each in made))
    found = {}
    for outlined in (True, False):
        options = poptorch.Options()
        options._Popart.set("enableOutlining", outlined)
        model = poptorch.inferenceModel(layers, options)
        result = model(torch.linspace(-1, 1, 64).reshape(4, 16))
        found[outlined] = result.tolist(), len(model._program.compiled.executable.schedule.functions)
        model.destroy()
    (results, functions), (apart, one) = found[True], found[False]
    assert results == apart and functions > one


def _means():
    """Every strategy compiles another program, and all train alike."""
    found = {}
    for strategy in MeanReductionStrategy:

        def change(options, strategy=strategy):
            options.replicationFactor(2).Training.gradientAccumulation(2)
            options.Training.setMeanAccumulationAndReplicationReductionStrategy(strategy)

        schedule, losses = program_of(change)
        found[schedule] = losses
    assert len(found) == 3
    for losses in found.values():
        assert losses == pytest.approx(next(iter(found.values())), rel=2e-3)


class Scaled(torch.nn.Module):
    """A product and a loss in half. The gradients of the product's result are larger than those of its weight."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((4, 4), 0.5))
        self.half()

    def forward(self, x):
        return poptorch.identity_loss((x @ self.weight) ** 2, reduction="sum")


def _loss_scales(settings, expected):
    """The factors of four steps; None: the option switches them off."""
    options = poptorch.Options().anchorTensor("scale", "finalLossScale" if expected else "loss")
    options.Training.setAutomaticLossScaling(True)
    for name, value in settings.items():
        options._Popart.set(f"automaticLossScalingSettings.{name}", value)
    net = Scaled()
    optimizer = poptorch.optim.SGD(net.parameters(), lr=0.0, loss_scaling=2.0)
    model = poptorch.trainingModel(net, options, optimizer)
    found = []
    for _ in range(4):
        model(torch.full((1, 4), 2.0**-10).half())
        found.append(float(model.getAnchoredTensor("scale")) / 2)
    state = optimizer.state_dict()["ipu_state"]
    model.destroy()
    if expected is None:
        assert "lossScaleUpdateFactor" not in state
    else:
        assert found == expected


def _strided_groups():
    norm, x = torch.nn.GroupNorm(2, 6), torch.arange(24.0).reshape(1, 6, 4).cos()
    order = [0, 2, 4, 1, 3, 5]
    options = poptorch.Options()
    options._Popart.set("groupNormStridedChannelGrouping", True)
    expected = torch.empty_like(x)
    expected[:, order] = norm(x[:, order])
    torch.testing.assert_close(_inference(options, norm)(x), expected.detach())


def _anchors_of_every_step():
    for mode, period, expected in (
        (OutputMode.All, 1, [1.0, 2.0, 3.0, 4.0]),
        (OutputMode.EveryN, 2, [2.0, 4.0]),
        (OutputMode.Final, 1, [4.0]),
        (OutputMode.Sum, 1, [10.0]),
    ):
        options = poptorch.Options().deviceIterations(4).anchorTensor("x", "input/input", mode, period)
        model = _inference(options)
        model(torch.arange(1.0, 5.0))
        assert model.getAnchoredTensor("x").tolist() == expected


def _plans_by_the_least_share():
    options = poptorch.Options().setAvailableMemoryProportion({"IPU0": 0.5, "IPU1": 0.25})
    model = _inference(options)
    model.compile(torch.ones(1))
    assert model._program.compiled.options.plan.memory_proportion == 0.25


def _recomputes():
    options = poptorch.Options()
    options._Popart.set("autoRecomputation", 3)
    model = _inference(options)
    model.compile(torch.ones(1))
    assert model._program.compiled.options.recompute == "pipeline"


def _cycles_below():
    options = poptorch.Options()
    options._Popart.set("instrumentWithHardwareCycleCounter", True)
    model = _inference(options)
    model(torch.ones(1))
    assert model.cycleCount() > 0


def test_every_setter_has_a_row():
    options, found = poptorch.Options(), set()
    for group in _GROUPS:
        kind = type(getattr(options, group) if group else options)
        methods = [n for n, f in vars(kind).items() if inspect.isfunction(f) and not n.startswith("_")]
        found |= {f"{group}.{name}" if group else name for name in methods}
    assert found == set(SETTERS)
    assert set(BELOW) == poptorch._options_effects.POPART_WITH_EFFECT


@pytest.mark.parametrize("check", [pytest.param(c, id=n) for n, c in {**SETTERS, **BELOW, **PARTLY}.items()])
def test_an_option_has_an_effect_or_says_once_that_it_has_none(check, usual, caplog, monkeypatch, tmp_path):
    check(usual=usual, caplog=caplog, monkeypatch=monkeypatch, tmp_path=tmp_path)


@pytest.mark.parametrize("mark", ["set_available_memory", "MultiConv", "Attribute"])
def test_a_mark_without_effect_says_so_once(mark, caplog, monkeypatch):
    monkeypatch.setattr(_logging, "_seen", set())

    class Marked(torch.nn.Module):
        def forward(self, x, w):
            if mark == "set_available_memory":
                return poptorch.set_available_memory(x @ x, 0.2)
            with poptorch.MultiConv().cycleBackOff(0.1) if mark == "MultiConv" else poptorch.Attribute(a=1):
                return torch.nn.functional.conv1d(x[None], w)

    for _ in range(2):
        _inference(poptorch.Options(), Marked())(torch.ones(2, 2), torch.ones(2, 2, 1))
    assert sum("has no effect" in r.getMessage() for r in caplog.records) == 1
