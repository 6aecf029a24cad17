"""The names that programs written for PopTorch use are there, and no other package has to be asked for them.

What options do is tested in ``test_options_effects``, what the rest does in the tests of its own modules.
"""

from __future__ import annotations

import enum
import inspect

import pytest
import torch

import poptorch

MODULE = """
inferenceModel trainingModel load Options OutputMode DataLoader DataLoaderMode AsynchronousDataAccessor
SharingStrategy BeginBlock Block BlockFunction removeBlocks Stage Phase AutoStage Liveness MultiConv MultiConvPlanType
NameScope Attribute PipelinedExecution ShardedExecution SerialPhasedExecution ParallelPhasedExecution ConnectionType
SyncPattern OverlapMode ReductionType MeanReductionStrategy MatMulSerializationMode CommGroupType
VariableRetrievalMode HalfFloatCastingBehavior TensorLocationSettings identity_loss custom_op for_loop cond
dynamic_slice dynamic_update serializedMatMul CPU nop fps nearest ctc_beam_search_decoder ipu_print_tensor
recomputationCheckpoint set_available_memory set_overlap_for_input set_overlap_for_output isRunningOnIpu
ipuHardwareIsAvailable ipuHardwareVersion setLogLevel registerPreCompileHook registerPostCompileHook
registerCustomArgParser ICustomArgParser Error RecoverableError UnrecoverableError PoplarExecutor optim.SGD optim.Adam
optim.AdamW optim.RMSprop optim.LAMB profiling.Channel testing.allclose options.ConfigFileError poptorch_core.Error
poptorch_core.isCompilingWithDispatcher _poplar_executor.PoplarExecutor _impl.isDispatchTracing
_impl.rewrapModelIfNecessary _impl.unwrapModelIfNecessary _impl._restoreWrapperIfNecessary enums.OutputMode
"""
EXECUTOR = """
__call__ compile compileAndExport save loadExecutable destroy attachToDevice detachFromDevice isCompiled
isAttachedToDevice copyWeightsToHost copyWeightsToDevice copyNamedBuffersToDevice setOptimizer load_state_dict
getTensorNames getAnchoredTensor cycleCount compilationTime getPerfCounters getLatency getHostIpuLatency
getComputeLatency getIpuHostLatency rng_state model options
"""
MEMBERS = {
    "OutputMode": "Final EveryN All Sum Default",
    "DataLoaderMode": "Sync Async AsyncRebatched",
    "MeanReductionStrategy": "Running Post PostAndLoss",
    "AutoStage": "SameAsIpu AutoIncrement",
    "CommGroupType": "All Consecutive Orthogonal NoGrouping",
    "VariableRetrievalMode": "OnePerGroup AllReplicas",
    "ConnectionType": "Always OnDemand Never",
    "ReductionType": "Sum Mean",
}
ARGUMENTS = {
    "custom_op": "inputs name domain domain_version example_outputs attributes",
    "ctc_beam_search_decoder": "probs lengths blank beam_width top_paths",
    "serializedMatMul": "lhs rhs mode factor keep_precision",
    "optim.SGD": "loss_scaling velocity_scaling use_combined_accum accum_type velocity_accum_type max_grad_norm",
    "optim.AdamW": "bias_correction loss_scaling accum_type first_order_momentum_accum_type max_grad_norm",
    "optim.RMSprop": "loss_scaling accum_type use_tf_variant",
    "optim.LAMB": "bias_correction loss_scaling max_weight_norm",
    "DataLoader": "options dataset batch_size shuffle num_workers drop_last persistent_workers mode async_options",
    "AsynchronousDataAccessor": "dataset buffer_size miss_sleep_time_in_ms load_indefinitely early_preload",
}


def found(name):
    value = poptorch
    for part in name.split("."):
        value = getattr(value, part)
    return value


@pytest.mark.parametrize("name", MODULE.split())
def test_a_name_of_the_package_is_there(name):
    assert found(name) is not None


@pytest.mark.parametrize("name", EXECUTOR.split())
def test_a_name_of_a_wrapped_model_is_there_and_documented(name):
    member = inspect.getattr_static(poptorch.PoplarExecutor, name)
    assert inspect.getdoc(member)


@pytest.mark.parametrize("kind", MEMBERS)
def test_an_enumeration_has_its_members(kind):
    assert issubclass(found(kind), enum.Enum) and set(MEMBERS[kind].split()) <= set(found(kind).__members__)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_function_takes_its_arguments_by_name(name):
    assert set(ARGUMENTS[name].split()) <= set(inspect.signature(found(name)).parameters)


def test_optimizers_say_which_attributes_are_constant():
    optimizer = poptorch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    optimizer.variable_attrs.markAsVariable("momentum")
    assert not optimizer.variable_attrs.isConstant("momentum")
    optimizer.variable_attrs.markAsConstant("momentum")
    assert optimizer.variable_attrs.isConstant("momentum")


def test_a_pickle_of_the_vendors_package_opens():
    kept = torch.zeros(1)
    assert poptorch._impl._restoreWrapperIfNecessary(kept) is kept


def test_a_captured_program_is_written_where_the_environment_says(tmp_path, monkeypatch):
    file = tmp_path / "new" / "model.proto"
    monkeypatch.setenv("POPTORCH_EXPORT_PROTO_FILE", str(file))
    poptorch.inferenceModel(torch.nn.ReLU())(torch.ones(2))
    assert "relu" in file.read_text()
