"""The vendor's PyTorch API over Abele: wrap a model, and it is compiled and run for a described machine.

Existing programs import this package unchanged. Wrapping (:func:`trainingModel`, :func:`inferenceModel`) gives
a :class:`PoplarExecutor`; everything else here configures it, annotates models, or loads data.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from . import _torch_compat, enums, optim, options, poptorch_core, profiling, testing
from ._blocks import BeginBlock, Block, BlockFunction, MultiConv, NameScope, removeBlocks
from ._device import ipuHardwareIsAvailable, ipuHardwareVersion
from ._errors import Error, RecoverableError, UnrecoverableError
from ._hooks import registerPostCompileHook, registerPreCompileHook
from ._impl import isRunningOnIpu
from ._logging import logger, setLogLevel
from ._printing import module_repr
from ._structure import ICustomArgParser, registerCustomArgParser
from .dataloader import AsynchronousDataAccessor, DataLoader
from .enums import (
    AutoStage,
    CommGroupType,
    ConnectionType,
    DataLoaderMode,
    HalfFloatCastingBehavior,
    Liveness,
    MatMulSerializationMode,
    MeanReductionStrategy,
    MultiConvPlanType,
    OutputMode,
    OverlapMode,
    ReductionType,
    SharingStrategy,
    SyncPattern,
    VariableRetrievalMode,
)
from .ops import (
    CPU,
    cond,
    ctc_beam_search_decoder,
    custom_op,
    dynamic_slice,
    dynamic_update,
    for_loop,
    fps,
    identity_loss,
    ipu_print_tensor,
    nearest,
    nop,
    recomputationCheckpoint,
    serializedMatMul,
    set_available_memory,
    set_overlap_for_input,
    set_overlap_for_output,
)
from .options import (
    Attribute,
    Options,
    ParallelPhasedExecution,
    Phase,
    PipelinedExecution,
    SerialPhasedExecution,
    ShardedExecution,
    Stage,
    TensorLocationSettings,
)

if TYPE_CHECKING:
    from .executor import PoplarExecutor

__version__ = "3.4.0"

__all__ = [
    "CPU",
    "AsynchronousDataAccessor",
    "Attribute",
    "AutoStage",
    "BeginBlock",
    "Block",
    "BlockFunction",
    "CommGroupType",
    "ConnectionType",
    "DataLoader",
    "DataLoaderMode",
    "Error",
    "HalfFloatCastingBehavior",
    "ICustomArgParser",
    "Liveness",
    "MatMulSerializationMode",
    "MeanReductionStrategy",
    "MultiConv",
    "MultiConvPlanType",
    "NameScope",
    "Options",
    "OutputMode",
    "OverlapMode",
    "ParallelPhasedExecution",
    "Phase",
    "PipelinedExecution",
    "PoplarExecutor",
    "RecoverableError",
    "ReductionType",
    "SerialPhasedExecution",
    "ShardedExecution",
    "SharingStrategy",
    "Stage",
    "SyncPattern",
    "TensorLocationSettings",
    "UnrecoverableError",
    "VariableRetrievalMode",
    "cond",
    "ctc_beam_search_decoder",
    "custom_op",
    "dynamic_slice",
    "dynamic_update",
    "enums",
    "for_loop",
    "fps",
    "identity_loss",
    "inferenceModel",
    "ipuHardwareIsAvailable",
    "ipuHardwareVersion",
    "ipu_print_tensor",
    "isRunningOnIpu",
    "load",
    "logger",
    "module_repr",
    "nearest",
    "nop",
    "optim",
    "options",
    "poptorch_core",
    "profiling",
    "recomputationCheckpoint",
    "registerCustomArgParser",
    "registerPostCompileHook",
    "registerPreCompileHook",
    "removeBlocks",
    "serializedMatMul",
    "setLogLevel",
    "set_available_memory",
    "set_overlap_for_input",
    "set_overlap_for_output",
    "testing",
    "trainingModel",
]

_torch_compat.install()


def trainingModel(
    model: torch.nn.Module | PoplarExecutor,
    options: Options | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> PoplarExecutor:
    """Wrap a model for training: one call runs the forward and backward passes and updates the weights.

    Args:
        model: a module whose forward pass returns or marks one loss, or a wrapper of one.
        options: how to compile and run; defaults when None.
        optimizer: of ``poptorch.optim``, or SGD, Adam, AdamW or RMSprop of ``torch.optim``; SGD with a learning
            rate of 0.01 when None.
    """
    return _executor().wrap(model, options, training=True, optimizer=optimizer)


def inferenceModel(model: torch.nn.Module | PoplarExecutor, options: Options | None = None) -> PoplarExecutor:
    """Wrap a model for inference. It does not call ``model.eval()``.

    Args:
        model: a module, or a wrapper of one, whose trained weights are then taken over.
        options: how to compile and run; defaults when None.
    """
    return _executor().wrap(model, options, training=False)


def load(filename: str, edit_opts_fn: Callable[[Options], None] | None = None) -> PoplarExecutor:
    """Load a model that ``compileAndExport`` or ``save`` wrote with ``export_model=True``.

    Args:
        filename: the file.
        edit_opts_fn: called with the options, to change those that matter when running.
    """
    return _executor().load(filename, edit_opts_fn)


def _executor() -> Any:
    """The module with the wrapper; it brings the compiler along, so it is imported when first needed."""
    return importlib.import_module(".executor", __name__)


def __getattr__(name: str) -> Any:
    if name == "PoplarExecutor":
        return _executor().PoplarExecutor
    if name in ("_impl", "_logging", "_poplar_executor"):
        return importlib.import_module(f".{name}", __name__)
    from abele.errors import suggest

    raise AttributeError(f"module 'poptorch' has no attribute {name!r}. {suggest(name, __all__)}".rstrip())
