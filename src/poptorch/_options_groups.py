"""The groups of options inside :class:`poptorch.Options`: precision, training, processes, locations."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from typing import Any

import torch

from . import enums
from ._engine_options import note_unknown
from ._errors import boolean, member, require, whole_number
from ._logging import logger
from ._options_base import FROZEN, OptionsDict
from ._options_effects import note_optimizer_location, note_popart_no_effect


class _JitOptions(OptionsDict):
    """Choices about tracing, of which none is left."""

    def __init__(self) -> None:
        super().__init__()

    def traceModel(self, trace_model: bool) -> _JitOptions:
        """Kept for old programs: models are captured operation by operation, never traced.

        Raises:
            ValueError: when ``trace_model`` is true.
        """
        self.checkIsFrozen("trace_model")
        if trace_model:
            raise ValueError("Tracing is no longer supported: remove the call to traceModel(True).")
        logger.warning("Jit.traceModel(False) does nothing: models are always captured by the dispatcher.")
        return self


class _PopartOptions:
    """Options of the layer below, by that layer's names. They are recorded and checked when compiling."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}
        self._is_frozen = False

    def checkIsFrozen(self, option: str | None = None) -> None:
        """Raise ``AttributeError`` when the options can no longer change."""
        if self._is_frozen:
            raise AttributeError(f"{FROZEN}{f' (tried to set {option})' if option else ''}.")

    def set(self, key: str, value: Any) -> _PopartOptions:
        """Set one option; its name and the type of ``value`` are checked when a model is compiled."""
        self.checkIsFrozen(key)
        require(isinstance(key, str), f"An option's name is a string, not {key!r}.")
        note_popart_no_effect(key, value)
        if key == "engineOptions" and isinstance(value, Mapping):
            note_unknown(value)
        self.options[key] = value
        return self

    def setEngineOptions(self, engine_options: Mapping[str, str]) -> _PopartOptions:
        """Set the execution options, a mapping of strings to strings."""
        require(isinstance(engine_options, Mapping), "Engine options are a dictionary of strings.")
        return self.set("engineOptions", dict(engine_options))

    def setPatterns(self, patterns: Mapping[str, bool], level: int = 2) -> _PopartOptions:
        """Switch the vendor's graph patterns on or off, starting from a level (0: none, 1: default, 2: all)."""
        require(isinstance(level, int) and 0 <= level <= 2, f"The pattern level is 0, 1 or 2, not {level!r}.")
        self.set("patterns", dict(patterns))
        return self.set("patterns_level", level)

    def _set_frozen(self, frozen: bool) -> None:
        self._is_frozen = frozen

    def __deepcopy__(self, memo: dict[int, Any]) -> _PopartOptions:
        new = _PopartOptions()
        memo[id(self)] = new
        new.options = copy.deepcopy(self.options, memo)
        return new

    def __repr__(self) -> str:
        return f"PopartOptions({', '.join(f'{k}={v!r}' for k, v in self.options.items())})"


class _PrecisionOptions(OptionsDict):
    """Choices about half precision and exceptions."""

    def __init__(self, popart_options: _PopartOptions) -> None:
        self._popart = popart_options
        super().__init__(stochastic_rounding=False, floating_point_exceptions=False, partials_type=None)

    def halfFloatCasting(self, half_float_casting: enums.HalfFloatCastingBehavior) -> _PrecisionOptions:
        """Deprecated, does nothing: mixed operands follow PyTorch's promotion."""
        self.checkIsFrozen("half_float_casting")
        member("halfFloatCasting", half_float_casting, enums.HalfFloatCastingBehavior)
        logger.warning("Precision.halfFloatCasting is deprecated and does nothing.")
        return self

    def runningStatisticsAlwaysFloat(self, value: bool) -> _PrecisionOptions:
        """Deprecated, does nothing: running statistics keep the type they have in the model."""
        self.checkIsFrozen("running_statistics_always_float")
        boolean("runningStatisticsAlwaysFloat", value)
        logger.warning("Precision.runningStatisticsAlwaysFloat is deprecated and does nothing.")
        return self

    def enableFloatingPointExceptions(self, enabled: bool) -> _PrecisionOptions:
        """Stop at a division by zero, an overflow or a NaN."""
        self.set(floating_point_exceptions=boolean("enableFloatingPointExceptions", enabled))
        self._popart.options["enableFloatingPointChecks"] = enabled
        return self

    def enableStochasticRounding(self, enabled: bool) -> _PrecisionOptions:
        """Round half weights stochastically where they are updated: up with the probability of the part that is cut.

        Other half results are rounded to the nearest; on the machine those would be rounded stochastically too.
        """
        self.set(stochastic_rounding=boolean("enableStochasticRounding", enabled))
        self._popart.options["enableStochasticRounding"] = enabled
        return self

    def setPartialsType(self, dtype: torch.dtype) -> _PrecisionOptions:
        """The type in which the partial sums of matrix products and convolutions are kept.

        Args:
            dtype: ``torch.float`` or ``torch.half``.
        """
        names = {torch.float32: "float", torch.float16: "half"}
        require(dtype in names, f"The partials type is torch.float or torch.half, not {dtype!r}.")
        self.set(partials_type=dtype)
        self._popart.options["partialsTypeMatMuls"] = names[dtype]
        convolutions = dict(self._popart.options.get("convolutionOptions", {}))
        self._popart.options["convolutionOptions"] = {**convolutions, "partialsType": names[dtype]}
        return self


class _TrainingOptions(OptionsDict):
    """Choices about training."""

    def __init__(self, popart_options: _PopartOptions) -> None:
        self._popart = popart_options
        super().__init__(
            gradient_accumulation=1,
            accumulation_and_replication_reduction_type=enums.ReductionType.Mean,
            meanAccumulationAndReplicationReductionStrategy=enums.MeanReductionStrategy.Post,
            auto_loss_scaling=False,
            convolution_dithering=False,
        )

    def gradientAccumulation(self, gradient_accumulation: int) -> _TrainingOptions:
        """How many micro-batches contribute to one weight update. A pipeline of S stages needs 2S−1 or more."""
        self.set(gradient_accumulation=whole_number("gradientAccumulation", gradient_accumulation))
        return self

    def accumulationAndReplicationReductionType(self, reduction_type: enums.ReductionType) -> _TrainingOptions:
        """Whether gradients are summed or averaged over accumulation steps and replicas (default: Mean)."""
        require(
            reduction_type in (enums.ReductionType.Sum, enums.ReductionType.Mean)
            and isinstance(reduction_type, enums.ReductionType),
            "accumulationAndReplicationReductionType takes ReductionType.Sum or ReductionType.Mean, "
            f"not {reduction_type!r}.",
        )
        self.set(accumulation_and_replication_reduction_type=reduction_type)
        return self

    def setMeanAccumulationAndReplicationReductionStrategy(
        self, mean_reduction_strategy: enums.MeanReductionStrategy
    ) -> _TrainingOptions:
        """When a mean over accumulation steps and replicas divides (default: Post).

        An optimizer whose ``accum_type`` is half switches it to ``Running``.
        """
        member(
            "setMeanAccumulationAndReplicationReductionStrategy", mean_reduction_strategy, enums.MeanReductionStrategy
        )
        self.set(meanAccumulationAndReplicationReductionStrategy=mean_reduction_strategy)
        return self

    def setAutomaticLossScaling(self, enabled: bool) -> _TrainingOptions:
        """Let the loss scale follow the gradients: halved when half gradients grow near the end of their range, else
        doubled. It begins at the optimizer's ``loss_scaling``; ``finalLossScale`` can be anchored."""
        self.set(auto_loss_scaling=boolean("setAutomaticLossScaling", enabled))
        self._popart.options["automaticLossScalingSettings.enabled"] = enabled
        return self

    def setConvolutionDithering(self, enabled: bool) -> _TrainingOptions:
        """Start the mapping of each convolution at another tile."""
        self.set(convolution_dithering=boolean("setConvolutionDithering", enabled))
        return self


class _DistributedOptions(OptionsDict):
    """Which of several processes this one is."""

    def __init__(self) -> None:
        super().__init__(num_distributed_processes=1, distributed_process_id=0, ipuof_configs={})
        if "OMPI_COMM_WORLD_SIZE" not in os.environ and "TORCHELASTIC_RUN_ID" in os.environ:  # started by torchrun
            self.setEnvVarNames("WORLD_SIZE", "RANK")
        else:
            self.setEnvVarNames("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK")

    def disable(self) -> _DistributedOptions:
        """Ignore the environment: this is the only process."""
        self.set(num_distributed_processes=1, distributed_process_id=0)
        return self

    def setEnvVarNames(self, var_num_processes: str, var_process_id: str) -> _DistributedOptions:
        """Read the number of processes and this one's number from these environment variables, where set."""
        self.checkIsFrozen("environment variable names")
        count, own = os.environ.get(var_num_processes, "1"), os.environ.get(var_process_id, "0")
        require(
            count.isdecimal() and own.isdecimal(),
            f"{var_num_processes}={count!r} and {var_process_id}={own!r} must be whole numbers.",
        )
        return self.configureProcessId(int(own), int(count))

    def configureProcessId(self, process_id: int, num_processes: int) -> _DistributedOptions:
        """Say which process this is, from 0, and how many there are."""
        for name, value in (("process_id", process_id), ("num_processes", num_processes)):
            whole_number(name, value, least=0)
        self.set(num_distributed_processes=num_processes, distributed_process_id=process_id)
        return self

    @property
    def processId(self) -> int:
        """This process's number, from 0."""
        return self._values["distributed_process_id"]

    @property
    def numProcesses(self) -> int:
        """How many processes run the program."""
        return self._values["num_distributed_processes"]


class TensorLocationSettings(OptionsDict):
    """Where tensors of one kind are kept; every setter returns the settings, so that calls chain.

    Example: ``TensorLocationSettings().useOnChipStorage(False).minElementsForOffChip(4)``.
    """

    def __init__(self) -> None:
        super().__init__()

    def _number(self, name: str, value: int) -> TensorLocationSettings:
        self.createOrSet(**{name: whole_number(name, value, least=0)})
        return self

    def _switch(self, name: str, value: bool) -> TensorLocationSettings:
        self.createOrSet(**{name: int(boolean(name, value))})
        return self

    def minElementsForOffChip(self, min_elements: int) -> TensorLocationSettings:
        """Keep tensors of fewer elements than this on chip."""
        return self._number("minElementsForOffChip", min_elements)

    def minElementsForReplicatedTensorSharding(self, min_elements: int) -> TensorLocationSettings:
        """Keep tensors of fewer elements than this whole on every replica."""
        return self._number("minElementsForReplicatedTensorSharding", min_elements)

    def useOnChipStorage(self, use: bool = True) -> TensorLocationSettings:
        """Keep the tensors on chip (True) or in streaming memory (False)."""
        return self._switch("onChip", use)

    def useReplicatedTensorSharding(self, use: bool = True) -> TensorLocationSettings:
        """Spread each tensor over the replicas, one part on each."""
        return self._switch("useReplicatedTensorSharding", use)

    def useIOTilesToLoad(self, use: bool = True) -> TensorLocationSettings:
        """Load from streaming memory through tiles set aside for it."""
        return self._switch("useIOTilesToLoad", use)

    def useIOTilesToStore(self, use: bool = True) -> TensorLocationSettings:
        """Store to streaming memory through tiles set aside for it."""
        return self._switch("useIOTilesToStore", use)


class _TensorLocationOptions(OptionsDict):
    """Where the tensors of each kind are kept."""

    def __init__(self) -> None:
        super().__init__(
            num_io_tiles=0,
            location_activation={},
            location_weight={},
            location_optimizer={},
            location_accumulator={},
        )

    def numIOTiles(self, num_tiles: int) -> _TensorLocationOptions:
        """Set aside this many tiles of each IPU for transfers: an even number from 32 to 192."""
        require(
            isinstance(num_tiles, int) and 32 <= num_tiles <= 192 and num_tiles % 2 == 0,
            "numIOTiles must be an even number between 32 and 192.",
        )
        self.set(num_io_tiles=num_tiles)
        return self

    def _locate(self, kind: str, location: TensorLocationSettings) -> _TensorLocationOptions:
        member(f"set{kind.capitalize()}Location", location, TensorLocationSettings)
        self.set(**{f"location_{kind}": location.toDict()})
        return self

    def setActivationLocation(self, location: TensorLocationSettings) -> _TensorLocationOptions:
        """Where activations are kept between the forward and the backward pass."""
        return self._locate("activation", location)

    def setWeightLocation(self, location: TensorLocationSettings) -> _TensorLocationOptions:
        """Where weights are kept."""
        return self._locate("weight", location)

    def setOptimizerLocation(self, location: TensorLocationSettings) -> _TensorLocationOptions:
        """Where optimizer state is kept: ``useOnChipStorage(False)`` moves it to streaming memory, and
        ``useReplicatedTensorSharding()`` keeps a part of it on each replica, for weights of at least
        ``minElementsForReplicatedTensorSharding`` elements (8192)."""
        self._locate("optimizer", location)
        note_optimizer_location(location.toDict())
        return self

    def setAccumulatorLocation(self, location: TensorLocationSettings) -> _TensorLocationOptions:
        """Where gradient accumulators are kept."""
        return self._locate("accumulator", location)
