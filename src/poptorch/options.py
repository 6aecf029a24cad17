"""``poptorch.Options``: everything that can be chosen about a wrapped model."""

from __future__ import annotations

import copy
import dataclasses
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from abele.compile import session

from . import _config_file, enums
from ._blocks import Attribute
from ._config_file import ConfigFileError
from ._errors import boolean, folder, member, require, texts, whole_number
from ._logging import logger
from ._options_base import OptionsDict, plain
from ._options_effects import note
from ._options_groups import (
    TensorLocationSettings,
    _DistributedOptions,
    _JitOptions,
    _PopartOptions,
    _PrecisionOptions,
    _TensorLocationOptions,
    _TrainingOptions,
)
from ._strategies import (
    BlockId,
    ParallelPhasedExecution,
    Phase,
    PipelinedExecution,
    SerialPhasedExecution,
    ShardedExecution,
    Stage,
    _IExecutionStrategy,
    _IPhasedExecution,
)

__all__ = [
    "AnchoredTensor",
    "Attribute",
    "BlockId",
    "ConfigFileError",
    "Options",
    "ParallelPhasedExecution",
    "Phase",
    "PipelinedExecution",
    "SerialPhasedExecution",
    "ShardedExecution",
    "Stage",
    "TensorLocationSettings",
    "_DistributedOptions",
    "_IExecutionStrategy",
    "_IPhasedExecution",
    "_JitOptions",
    "_PopartOptions",
    "_PrecisionOptions",
    "_TensorLocationOptions",
    "_TrainingOptions",
]

DEFAULT_OPTIONS_VARIABLE = "POPTORCH_DEFAULT_OPTIONS"
CACHE_VARIABLE = "POPTORCH_CACHE_DIR"


@dataclasses.dataclass(frozen=True)
class AnchoredTensor:
    """A tensor inside the program that the user wants to read: its name there, and which values to keep."""

    long_name: str
    output_mode: enums.OutputMode = enums.OutputMode.Default
    output_return_period: int = 1


class Options(OptionsDict):
    """Everything that can be chosen about a wrapped model.

    Every method that sets something returns the options, so that calls chain; every value reads as an
    attribute (``options.device_iterations``). The options freeze when a model or a data loader takes them;
    :meth:`clone` gives a copy that can be changed.

    A new object starts from the defaults, then from the JSON object in the environment variable
    ``POPTORCH_DEFAULT_OPTIONS``, and caches executables in ``POPTORCH_CACHE_DIR`` where that is set. The file of
    ``abele run --options FILE`` is applied last, and again when the options freeze: it has the last word.
    """

    _accumulation_commanded = _iterations_commanded = False

    def __init__(self) -> None:
        self._jit = _JitOptions()
        self._popart = _PopartOptions()
        self._training = _TrainingOptions(self._popart)
        self._precision = _PrecisionOptions(self._popart)
        self._distributed = _DistributedOptions()
        self._tensor_locations = _TensorLocationOptions()
        self._execution_strategy: _IExecutionStrategy = PipelinedExecution()
        self._own: dict[str, Any] = {}
        super().__init__(
            replication_factor=1,
            input_group_size=1,
            input_group_type=enums.CommGroupType.Consecutive,
            broadcast_buffers=True,
            device_iterations=1,
            output_mode=enums.OutputMode.Default,
            output_return_period=1,
            anchored_tensors={},
            random_seed=None,
            use_model=None,
            ipu_id=None,
            ipu_version=None,
            connection_type=enums.ConnectionType.Always,
            sync_pattern=enums.SyncPattern.Full,
            auto_round_num_ipus=False,
            available_memory_proportion={},
            updatable_named_buffers=[],
            relax_optimizer_checks=False,
            module_namescope_enabled=True,
            executable_cache_path=None,
            log_dir=".",
            log_cycle_count=False,
            max_repeat_logs=None,
            model_name=None,
            profile_dir=None,
            show_compilation_progress_bar=True,
            source_location_excludes=["install/poptorch", "site-packages/torch", "site-packages/poptorch"],
            stable_norm=False,
            synthetic_data=False,
        )
        cache = os.environ.get(CACHE_VARIABLE)
        if cache:
            self.enableExecutableCaching(cache)
        defaults = os.environ.get(DEFAULT_OPTIONS_VARIABLE)
        if defaults:
            self.from_json(defaults)
        self._load_commanded()

    # -- groups -------------------------------------------------------------------------------------------

    @property
    def TensorLocations(self) -> _TensorLocationOptions:
        """Where tensors are kept."""
        return self._tensor_locations

    @property
    def Distributed(self) -> _DistributedOptions:
        """Which of several processes this one is."""
        return self._distributed

    @property
    def Jit(self) -> _JitOptions:
        """Choices about tracing."""
        return self._jit

    @property
    def Precision(self) -> _PrecisionOptions:
        """Choices about half precision."""
        return self._precision

    @property
    def Training(self) -> _TrainingOptions:
        """Choices about training."""
        return self._training

    @property
    def _Popart(self) -> _PopartOptions:
        """Options of the layer below, by that layer's names."""
        return self._popart

    # -- what runs ----------------------------------------------------------------------------------------

    def deviceIterations(self, device_iterations: int) -> Options:
        """How many times one call repeats the loop on the device (default 1)."""
        self.set(device_iterations=whole_number("deviceIterations", device_iterations))
        return self

    def replicationFactor(self, replication_factor: int) -> Options:
        """How many copies of the model work on different data (default 1)."""
        self.set(replication_factor=whole_number("replicationFactor", replication_factor))
        return self

    def inputReplicaGrouping(self, input_group_size: int, input_group_type: enums.CommGroupType) -> Options:
        """Give all replicas of a group the same input.

        Args:
            input_group_size: how many replicas are in a group; it divides the replication factor.
            input_group_type: how the groups are formed.
        """
        member("inputReplicaGrouping", input_group_type, enums.CommGroupType)
        self.set(
            input_group_size=whole_number("inputReplicaGrouping", input_group_size), input_group_type=input_group_type
        )
        return self

    def outputMode(self, output_mode: enums.OutputMode, output_return_period: int | None = None) -> Options:
        """Which outputs of one call come back (default: all for inference, the last for training).

        Args:
            output_mode: which ones.
            output_return_period: with ``EveryN``, the N; it divides the device iterations.
        """
        member("outputMode", output_mode, enums.OutputMode)
        if output_mode is enums.OutputMode.EveryN:
            whole_number("OutputMode.EveryN with output_return_period", output_return_period)
        elif output_return_period is not None:
            logger.warning("The output_return_period is only used with OutputMode.EveryN; it is ignored.")
        every_n = output_mode is enums.OutputMode.EveryN and output_return_period is not None
        self.set(output_mode=output_mode, output_return_period=output_return_period if every_n else 1)
        return self

    def defaultOutputMode(self) -> bool:
        """Whether no output mode has been chosen, so that it depends on training or inference."""
        return self._values["output_mode"] is enums.OutputMode.Default

    def anchorTensor(
        self,
        short_name: str,
        long_name: str,
        output_mode: enums.OutputMode | None = None,
        output_return_period: int | None = 1,
    ) -> Options:
        """Keep the values of a tensor inside the program, to read with ``getAnchoredTensor(short_name)``.

        Weights and buffers have one value for each weight update, all else one for each micro-batch.

        Args:
            short_name: the name to read it by.
            long_name: its name in the program, as ``getTensorNames()`` lists it.
            output_mode: which of its values in a call are kept; None for those that outputs are.
            output_return_period: with ``EveryN``, the N.
        """
        self.checkIsFrozen("anchored_tensors")
        for name in (short_name, long_name):
            require(isinstance(name, str), f"anchorTensor takes names, not {name!r}.")
        mode = enums.OutputMode.Default if output_mode is None else output_mode
        member("anchorTensor", mode, enums.OutputMode)
        anchor = AnchoredTensor(long_name, mode, whole_number("output_return_period", output_return_period))
        self.set(anchored_tensors={**self._values["anchored_tensors"], short_name: anchor})
        return self

    def randomSeed(self, random_seed: int) -> Options:
        """Seed the random numbers on the device, and PyTorch's on the host."""
        require(
            isinstance(random_seed, int) and -(2**63) <= random_seed < 2**64,
            f"randomSeed takes a whole number of 64 bits, not {random_seed!r}.",
        )
        self.set(random_seed=random_seed)
        torch.manual_seed(random_seed)
        return self

    def broadcastBuffers(self, broadcast_buffers: bool = True) -> Options:
        """Keep one value of each buffer for all replicas (True), or one for each replica (False)."""
        self.set(broadcast_buffers=boolean("broadcastBuffers", broadcast_buffers))
        return self

    def updatableNamedBuffers(self, buffers: Iterable[str]) -> Options:
        """Name the buffers that ``copyNamedBuffersToDevice`` sends again after compiling."""
        names = texts("updatableNamedBuffers", buffers)
        self.set(updatable_named_buffers=names)
        self._popart.options["updatableNamedBuffers"] = names
        return self

    def setExecutionStrategy(self, strategy: _IExecutionStrategy) -> Options:
        """How a model that spans several IPUs runs (default: :class:`poptorch.PipelinedExecution`)."""
        self.checkIsFrozen("execution_strategy")
        require(
            isinstance(strategy, _IExecutionStrategy),
            f"setExecutionStrategy takes a strategy such as poptorch.PipelinedExecution(), not {strategy!r}.",
        )
        self._execution_strategy = strategy
        return self

    # -- the device ---------------------------------------------------------------------------------------

    def autoRoundNumIPUs(self, auto_round_num_ipus: bool = True) -> Options:
        """Reserve the next power of two of IPUs where the model uses another number."""
        self.set(auto_round_num_ipus=boolean("autoRoundNumIPUs", auto_round_num_ipus))
        return self

    def useIpuModel(self, use_model: bool) -> Options:
        """Run on the modelled machine (True). Abele has no other, so False changes nothing."""
        if use_model is False:
            note("useIpuModel(False)", "there is no other machine than the modelled one")
        self.set(use_model=boolean("useIpuModel", use_model))
        return self

    def useIpuId(self, ipu_id: int) -> Options:
        """Attach to the device of that number."""
        self.set(ipu_id=whole_number("useIpuId", ipu_id, least=0))
        return self

    def useOfflineIpuTarget(self, ipu_version: int = 2) -> Options:
        """Only compile, for that version of the chip (2: Mk2, 21: Bow); running the model is an error."""
        require(ipu_version in (1, 2, 21), f"The IPU versions are 1, 2 and 21 (Bow), not {ipu_version!r}.")
        self.connectionType(enums.ConnectionType.Never)
        self.set(ipu_version=ipu_version)
        return self

    def connectionType(self, connection_type: enums.ConnectionType) -> Options:
        """When a model attaches to its device."""
        self.set(connection_type=member("connectionType", connection_type, enums.ConnectionType))
        return self

    def syncPattern(self, sync_pattern: enums.SyncPattern) -> Options:
        """Which IPUs synchronise with which."""
        self.set(sync_pattern=member("syncPattern", sync_pattern, enums.SyncPattern))
        return self

    def setAvailableMemoryProportion(self, available_memory_proportion: Mapping[str, float]) -> Options:
        """How much of each tile's memory an operation may use temporarily, by IPU: ``{"IPU0": 0.5}``.

        All IPUs are planned alike, by the least of the numbers.
        """
        self.checkIsFrozen("available_memory_proportion")
        require(
            isinstance(available_memory_proportion, Mapping),
            f'setAvailableMemoryProportion takes a dictionary such as {{"IPU0": 0.5}}, not '
            f"{available_memory_proportion!r}.",
        )
        proportions: dict[int, float] = {}
        for key, value in available_memory_proportion.items():
            match = re.fullmatch(r"IPU(\d+)", str(key))
            if match is None:
                raise AssertionError(f"An IPU is named IPU followed by its number, not {key!r}.")
            require(0.0 <= value <= 1.0, f"The proportion for {key} is between 0 and 1, not {value!r}.")
            proportions[int(match[1])] = float(value)
        self.set(available_memory_proportion=proportions)
        return self

    # -- tools --------------------------------------------------------------------------------------------

    def enableExecutableCaching(self, path: str | None) -> Options:
        """Keep compiled programs in the folder ``path`` and take them from there; None or "" stops that."""
        path = None if path is None else folder("enableExecutableCaching", path)
        self.set(executable_cache_path=path or None)
        self._popart.options["enableEngineCaching"] = bool(path)
        self._popart.options["cachePath"] = path or ""
        return self

    def enableProfiling(self, profile_dir: str | None = None) -> Options:
        """Write what a program costs on the modelled machine to ``profile_dir`` (default: here) when it is compiled.

        They are ``profile.json``, a page ``profile.html`` and an SQLite file ``profile.pop``, in a folder named after
        the model (:meth:`modelName`), or else ``training`` or ``inference``.
        """
        place = "." if profile_dir is None else folder("enableProfiling", profile_dir)
        self.set(profile_dir=place)
        engine = dict(self._popart.options.get("engineOptions", {}))
        engine |= {"autoReport.all": "true", "autoReport.directory": place}
        self._popart.options["engineOptions"] = engine
        return self

    def enableSyntheticData(self, enabled: bool) -> Options:
        """Make up the inputs on the device instead of sending them."""
        self.set(synthetic_data=boolean("enableSyntheticData", enabled))
        # The layer below numbers its modes: 0 off, 2 random normal values.
        self._popart.options["syntheticDataMode"] = 2 if enabled else 0
        return self

    def enableStableNorm(self, enabled: bool) -> Options:
        """Ask for normalisations whose variance suffers less cancellation, which is always so here."""
        self.set(stable_norm=boolean("enableStableNorm", enabled))
        self._popart.options["enableStableNorm"] = enabled
        return self

    def logCycleCount(self, log_cycle_count: bool) -> Options:
        """Log the cycles of each run and make ``cycleCount()`` available."""
        self.set(log_cycle_count=boolean("logCycleCount", log_cycle_count))
        self._popart.options["instrumentWithHardwareCycleCounter"] = log_cycle_count
        return self

    def logDir(self, log_dir: str) -> Options:
        """The folder for log files."""
        self.set(log_dir=folder("logDir", log_dir))
        return self

    def modelName(self, name: str) -> Options:
        """The name under which reports are kept."""
        require(isinstance(name, str), f"modelName takes a string, not {name!r}.")
        self.set(model_name=name)
        return self

    def maxRepeatLogs(self, max_lines: int | None) -> Options:
        """How often the same line may be logged; None for always."""
        self.set(max_repeat_logs=None if max_lines is None else whole_number("maxRepeatLogs", max_lines, least=0))
        return self

    def showCompilationProgressBar(self, show: bool = True) -> Options:
        """Show how far the compilation is."""
        self.set(show_compilation_progress_bar=boolean("showCompilationProgressBar", show))
        return self

    def sourceLocationExcludes(self, excludes: Iterable[str]) -> Options:
        """Pass over source files whose path holds one of these when naming the user's line."""
        self.set(source_location_excludes=texts("sourceLocationExcludes", excludes))
        return self

    def appendToLocationExcludes(self, *excludes: str) -> Options:
        """Add to the parts of paths that are passed over when naming the user's line."""
        self.set(
            source_location_excludes=[
                *self._values["source_location_excludes"],
                *texts("appendToLocationExcludes", excludes),
            ]
        )
        return self

    def disableModuleNamescope(self) -> Options:
        """Do not put the names of modules into the names of operations."""
        self.set(module_namescope_enabled=False)
        return self

    def relaxOptimizerAttributesChecks(self, relax: bool = True) -> Options:
        """Do not warn about optimizer attributes that are not used."""
        self.set(relax_optimizer_checks=boolean("relaxOptimizerAttributesChecks", relax))
        return self

    # -- the object itself --------------------------------------------------------------------------------

    def loadFromFile(self, filepath: str) -> Options:
        """Apply the commands of a text file, one a line, written as after ``options.`` in a program."""
        self.checkIsFrozen("a file of options")
        _config_file.load_file(self, filepath)
        return self

    def from_json(self, string: str) -> Options:
        """Apply a JSON object: method names as keys, the argument or list of arguments as values."""
        self.checkIsFrozen("options from JSON")
        _config_file.load_json(self, string)
        return self

    def clone(self) -> Options:
        """A copy that can be changed, also when these options are frozen."""
        return copy.deepcopy(self)

    def toDict(self) -> dict[str, Any]:
        """All options that are set, those of the groups included, as plain values."""
        result: dict[str, Any] = {}
        for part in (super().toDict(), *(p.toDict() for p in self._parts())):
            result.update(part)
        result["execution_strategy"] = self._execution_strategy.kind
        result["popart_options"] = {k: plain(v) for k, v in self._popart.options.items()}
        return result

    def _load_commanded(self) -> None:
        commanded, own, iterations = session.current(), self._training.gradient_accumulation, self.device_iterations
        self._training.set(gradient_accumulation=None)
        self.set(device_iterations=None)
        if commanded.options_file is not None:
            self.loadFromFile(str(commanded.options_file))
        _config_file.load_lines(self, commanded.option_lines, "the command line")
        self._accumulation_commanded = self._training.gradient_accumulation is not None
        if not self._accumulation_commanded:
            self._training.set(gradient_accumulation=own)
        self._iterations_commanded = self.device_iterations is not None
        if not self._iterations_commanded:
            self.set(device_iterations=iterations)

    def _commanded_for_the_other(self, training: bool) -> bool:
        """Whether the command line is about the programs that train where this one does not, or the other way around:
        it asks for accumulation alone, or for device iterations alone."""
        asked = self._accumulation_commanded, self._iterations_commanded
        return asked == ((False, True) if training else (True, False))

    def _for_inference(self, fed: bool) -> None:
        """Leave out an accumulation that the command line asked for: it is about the programs that train.

        Args:
            fed: a data loader, or another model, has these options too. A call then brings so many micro-batches, which
                become device iterations.
        """
        if self._accumulation_commanded:
            if fed:
                self.set(device_iterations=self.device_iterations * self._training.gradient_accumulation)
            self._training.set(gradient_accumulation=1)

    def _freeze(self) -> None:
        if not self._is_frozen:
            self._load_commanded()
        super()._freeze()

    def _parts(self) -> Iterable[OptionsDict]:
        return (self._training, self._precision, self._distributed, self._tensor_locations, self._jit)

    def _set_frozen(self, frozen: bool) -> None:
        super()._set_frozen(frozen)
        self._popart._set_frozen(frozen)

    def _group(self) -> str:
        return ""

    def _shown(self) -> list[str]:
        return [
            *super()._shown(),
            f"execution_strategy={self._execution_strategy!r}",
            *(f"{p}" for p in self._parts()),
            repr(self._popart),
        ]
