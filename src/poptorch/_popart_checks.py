"""Checks the options of the lower layer by name and type, as its own compiler does before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from abele.errors import suggest

from ._errors import Error
from ._logging import logger

_BOOLEAN = """
aliasZeroCopy automaticLossScalingSettings.enabled compileEngine constantWeights
batchSerializationSettings.concatOnExecutionPhaseChange batchSerializationSettings.concatOnPipelineStageChange
batchSerializationSettings.concatOnVirtualGraphChange createImplicitPipeliningFwdOnlyProgram decomposeGradSum
delayVarUpdates disableGradAccumulationTensorStreams disableOptimizerStateTensorStreams enableEfficientOverlapIOTopoCons
enableEngineCaching enableExplicitIR enableExplicitMainLoops enableFloatingPointChecks enableFullyConnectedPass
enableGradientAccumulation enableInplaceAmbiguityChecking enableLoadAndOffloadRNGState enableMergeExchange
enableNonStableSoftmax enableOutlining enableOutliningCopyCostPruning enablePipelining enablePrefetchDatastreams
enableReplicatedGraphs enableSerializedMatmuls enableStableNorm enableStochasticRounding
enableSupportedDataTypeCasting enableVariablesCaching ensureFp32LossScaleTensor explicitRecomputation
exportPoplarComputationGraph exportPoplarVertexGraph groupHostSync groupNormStridedChannelGrouping
instrumentWithHardwareCycleCounter opxAliasChecking opxModifyChecking rearrangeAnchorsOnHost
rearrangeStreamsOnHost replicatedCollectivesSettings.mergeAllReduceCollectives
replicatedCollectivesSettings.mergeReduceScatterCollectives replicatedCollectivesSettings.mergeAllGatherCollectives
replicatedCollectivesSettings.prepareScheduleForMergingCollectives scheduleNonWeightUpdateGradientConsumersEarly
separateCallOpPdfs shouldDelayVarUpdates strictOpVersions swapLimitScheduler throwIfLog2ScaleFactorNotInRange
useHostCopyOps useLoopCandidateCreator
"""
_NUMBER = """
accumulateOuterFragmentSettings.schedule accumulationAndReplicationReductionType accumulationFactor
autoRecomputation automaticLossScalingSettings.binEdgeLocation
automaticLossScalingSettings.gradientTensorTrackingMethod automaticLossScalingSettings.thresholdUpperCountProportion
automaticLossScalingSettings.updatePeriod batchSerializationSettings.batchSchedule batchSerializationSettings.factor
batchSerializationSettings.method batchSerializationSettings.transformContext bufferingDepth
defaultBufferingDepth defaultPrefetchBufferingDepth executionPhaseSettings.activationIOSchedule
executionPhaseSettings.accumulatorIOSchedule executionPhaseSettings.optimizerStateIOSchedule
executionPhaseSettings.phases executionPhaseSettings.schedule executionPhaseSettings.stages
executionPhaseSettings.weightIOSchedule finalDotOp firstDotOp looseThresholdAtPeak
meanAccumulationAndReplicationReductionStrategy mergeVarUpdate mergeVarUpdateMemThreshold numIOTiles
outlineSequenceBreakCost outlineThreshold replicatedGraphCount subgraphCopyingStrategy syntheticDataMode
timeLimitScheduler transitiveClosureOptimizationThreshold virtualGraphMode
"""
_TEXT = "cachePath kahnTieBreaker logDir partialsTypeMatMuls saveInitializersToFile serializedPoprithmsShiftGraphsDir"
_LIST = """
accumulateOuterFragmentSettings.excludedVirtualGraphs automaticLossScalingSettings.toTrackTensors customCodelets
dotChecks hardwareInstrumentations updatableNamedBuffers
"""
_MAP = """
bufferingDepthMap convolutionOptions customCodeletCompileFlags engineOptions gclOptions lstmOptions matmulOptions
patterns prefetchBufferingDepthMap reportOptions
"""
_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(_BOOLEAN.split(), (bool, int)),
    **dict.fromkeys(_NUMBER.split(), (int, float)),
    **dict.fromkeys(_TEXT.split(), (str,)),
    **dict.fromkeys(_LIST.split(), (list, set, tuple)),
    **dict.fromkeys(_MAP.split(), (Mapping,)),
    "patterns_level": (int,),
}


def validate(options: Mapping[str, Any]) -> None:
    """Check ``options.toDict()`` and log every value at debug level.

    Raises:
        Error: for a name that the lower layer does not have, or a value of a type that it does not take.
    """
    for name, value in options.items():
        if name != "popart_options":
            logger.debug("poptorch.Options set %s to value %s", name, value)
    for name, value in options.get("popart_options", {}).items():
        _validate_popart(name, value)


def _validate_popart(name: str, value: Any) -> None:
    kind = type(value).__name__
    if not isinstance(value, (bool, int, float, str, list, set, tuple, Mapping)):
        raise Error(f"Unknown value type {kind} for option {name}.")
    expected = _TYPES.get(name)
    if expected is None:
        raise Error(f"Unknown {kind} option {name}. {suggest(name, _TYPES)}".rstrip())
    if not isinstance(value, expected):
        wanted = " or ".join(sorted({t.__name__.lower() for t in expected}))
        raise Error(f"Unknown value type {kind} for option {name}: it takes a {wanted}.")
    if isinstance(value, Mapping):
        for key, entry in value.items():
            logger.debug("poptorch.Options set %s[%s] to %s", name, key, entry)
    elif isinstance(value, (list, set, tuple)):
        for entry in value:
            logger.debug("poptorch.Options added %s to %s", entry, name)
    else:
        shown = str(value).lower() if isinstance(value, bool) else value
        logger.debug("poptorch.Options set %s to value %s", name, shown)
