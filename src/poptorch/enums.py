"""The enumerations of the vendor's API, with its names and values."""

from __future__ import annotations

import enum


class MeanReductionStrategy(enum.IntEnum):
    """When a mean over accumulated and replicated gradients divides.

    ``Running`` keeps a running mean at every accumulation step; ``Post`` divides once after the accumulation;
    ``PostAndLoss`` divides the loss by the replica count and the rest after the accumulation.
    """

    Running = 0
    Post = 1
    PostAndLoss = 2


class DataLoaderMode(enum.IntEnum):
    """How a :class:`poptorch.DataLoader` runs.

    ``Sync`` loads in the calling process; ``Async`` loads ahead in another process; ``AsyncRebatched`` also
    lets that process form the batches, so that the workers' incomplete batches are not lost.
    """

    Sync = 0
    Async = 1
    AsyncRebatched = 2


class SharingStrategy(enum.IntEnum):
    """How the process of an asynchronous accessor is started and how it hands tensors over."""

    SharedMemory = 0
    FileSystem = 1
    Fork = 2
    ForkServer = 3


class OutputMode(enum.IntEnum):
    """Which of the outputs of one call come back to the host.

    ``Final``: those of the last micro-batch; ``EveryN``: of each N-th; ``All``: of every one; ``Sum``: their
    sum; ``Default``: ``Final`` in training and ``All`` otherwise.
    """

    Final = 0
    EveryN = 1
    All = 2
    Sum = 3
    Default = 4


class ConnectionType(enum.IntEnum):
    """When a model attaches to its device: at once, at the first need, or never (compile only)."""

    Always = 0
    OnDemand = 1
    Never = 2


class HalfFloatCastingBehavior(enum.IntEnum):
    """Deprecated by the vendor: mixed half and float operands always follow PyTorch's promotion."""

    FloatDowncastToHalf = 0
    HalfUpcastToFloat = 1
    Default = 2


class ReductionType(enum.IntEnum):
    """How gradients (or outputs) are combined over accumulation steps and replicas."""

    Sum = 0
    Mean = 1
    NoReduction = 2


class SyncPattern(enum.IntEnum):
    """Which IPUs synchronise with which."""

    Full = 0
    SinglePipeline = 1
    ReplicaAndLadder = 2


class MatMulSerializationMode(enum.Enum):
    """The dimension along which a matrix product is cut into smaller products, or none."""

    InputChannels = "input_channels"
    ReducingDim = "reducing_dim"
    OutputChannels = "output_channels"
    Disabled = "none"


class Liveness(enum.IntEnum):
    """When the tensors of a phase leave the chip in phased execution."""

    AlwaysLive = 0
    OffChipAfterFwd = 1
    OffChipAfterFwdNoOverlap = 2
    OffChipAfterEachPhase = 3


class OverlapMode(enum.Enum):
    """With which loop the transfer of an input or an output overlaps."""

    NoOverlap = "no_overlap"
    OverlapAccumulationLoop = "overlap_accumulation_loop"
    OverlapDeviceIterationLoop = "overlap_device_iteration_loop"


class AutoStage(enum.IntEnum):
    """How a block without a :class:`poptorch.Stage` gets its stage: its IPU, or one more than the last."""

    SameAsIpu = 0
    AutoIncrement = 1


class MultiConvPlanType(enum.IntEnum):
    """Whether the convolutions of a :class:`poptorch.MultiConv` run side by side or one after another."""

    Parallel = 0
    Serial = 1


class CommGroupType(enum.IntEnum):
    """How replicas are grouped: all together, neighbours, every n-th, or each alone."""

    All = 0
    Consecutive = 1
    Orthogonal = 2
    NoGrouping = 3


class VariableRetrievalMode(enum.IntEnum):
    """Which replicas a grouped weight is read back from: one of each group, or all."""

    OnePerGroup = 0
    AllReplicas = 2
