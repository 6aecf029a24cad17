"""The wrapper of a model: compiles it at the first call, runs it, and keeps its weights and the host's in step.

The device's weights are a copy of their own. What training changes reaches the user's module when something looks at
it (see ``_host_weights``); what the user changes on the host reaches the device when the model is compiled or attached,
by ``load_state_dict`` or by ``copyWeightsToDevice``.
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import datetime
import itertools
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch

from abele.importers.torch.dtypes import to_numpy, to_torch

from . import _export, _hooks, _optimizer_spec, _outputs, _popart_checks, optim
from ._arguments import canonical, detached
from ._errors import Error, require
from ._host_weights import Link, link_of, plain_tensors
from ._latency import Latencies
from ._logging import logger
from ._program import Program, build, check_same_types, translated
from .enums import ConnectionType, MeanReductionStrategy
from .optim._spec import AttributeTracker, OptimizerSpec, log_spec
from .optim._spec import read as read_optimizer
from .options import Options

__all__ = ["PoplarExecutor", "load", "wrap"]

NOT_COMPILED = "Model has not been compiled or has been destroyed."
_seeds = itertools.count()
_alive: weakref.WeakSet[PoplarExecutor] = weakref.WeakSet()


@atexit.register
def _destroy_all() -> None:
    """Cut every link before the interpreter takes objects apart: torch insists on its own classes then."""
    for executor in list(_alive):
        with contextlib.suppress(Exception):
            executor.destroy()


def wrap(
    model: torch.nn.Module | PoplarExecutor,
    options: Options | None,
    *,
    training: bool,
    optimizer: torch.optim.Optimizer | None = None,
) -> PoplarExecutor:
    """The executor of a module, or of the module inside another executor.

    Raises:
        RuntimeError: when the module is to be trained and already is by another executor.
        Error: for options that do not go together.
    """
    user = model._user_model if isinstance(model, PoplarExecutor) else model
    require(isinstance(user, torch.nn.Module), f"A torch.nn.Module is needed, not {model!r}.")
    require(
        options is None or isinstance(options, Options), f"The options are poptorch.Options or None, not {options!r}."
    )
    return PoplarExecutor(user, Options() if options is None else options, training, optimizer)


def _linked(executor: PoplarExecutor) -> Link:
    """Tie the user's module to the executor that trains it; RuntimeError when another one does."""
    model = executor._user_model
    link = link_of(model)
    if link is not None:
        if link.alive():
            raise RuntimeError(
                "Model has already been wrapped in 'poptorch.trainingModel'. Call model.destroy() on the model to "
                "unwrap before wrapping again."
            )
        link.cut()
    return Link(model, executor.copyWeightsToHostIfNeeded, executor.destroy)


def load(filename: str, edit_opts_fn: Callable[[Options], None] | None = None) -> PoplarExecutor:
    """An executor from a file that ``save`` or ``compileAndExport`` wrote with the model in it."""
    contents = _export.read(filename)
    if contents.model is None:
        raise Error(f"{filename!r} has no model in it: wrap the model yourself and call loadExecutable on the wrapper.")
    options = contents.options.clone()
    if edit_opts_fn is not None:
        edit_opts_fn(options)
    executor = wrap(contents.model, options, training=contents.training, optimizer=contents.optimizer)
    executor._take_over(contents)
    return executor


class PoplarExecutor:
    """A model that runs as a compiled program. Made by ``trainingModel`` and ``inferenceModel``.

    Calling it compiles it when needed and runs all device iterations. Attributes that it does not have itself are
    those of the user's model.
    """

    def __init__(
        self, model: torch.nn.Module, options: Options, training: bool, optimizer: torch.optim.Optimizer | None = None
    ) -> None:
        if not training and options.Training.gradient_accumulation != 1:
            raise Error(
                "You must set poptorch.Options().Training.gradientAccumulation to 1 or leave it as its default value "
                "(1) when running a poptorch.inferenceModel()."
                + (
                    " Use poptorch.Options().deviceIterations to process a sufficient number of batches each run "
                    "for pipelined execution instead."
                    if options._execution_strategy.kind == "pipelined"
                    else ""
                )
            )
        options._freeze()
        self._options = options.clone()
        self._options._freeze()
        self._user_model = model
        # A copy of the root alone: whether it is in training mode is decided now; all below it is shared.
        self._model = copy.copy(model)
        self._training = training
        self._program: Program | None = None
        self._attached = False
        #: The device's tensors are newer than the host's.
        self._device_ahead = False
        #: Version of the host's tensors that the device has, of those that training makes.
        self._uploaded = 0
        self._tracker = AttributeTracker(self._options.relax_optimizer_checks)
        self._optimizer: torch.optim.Optimizer | None = None
        self._spec: OptimizerSpec | None = None
        self._optimizer_ahead = False
        self._latencies = Latencies()
        self._anchored: dict[str, np.ndarray] = {}
        self._ran = False
        self._link: Link | None = None
        _alive.add(self)
        if training:
            if optimizer is None and any(True for _ in model.parameters()):
                optimizer = optim.SGD(model.parameters(), lr=0.01)
            self._link = _linked(self)
            if optimizer is not None:
                self.setOptimizer(optimizer)

    # -- compiling ----------------------------------------------------------------------------------------

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile for calls with arguments like these, without running. A compiled model is compiled anew."""
        args, kwargs = canonical(self._model, args, kwargs)
        self._compile(*detached((args, kwargs)))

    def _compile(self, args: tuple, kwargs: dict[str, Any]) -> None:
        if self._program is not None:
            self._leave_device()
        if self._training and self._link is None:
            self._link = _linked(self)
        _popart_checks.validate(self._options.toDict())
        _hooks.run_pre_compile()
        with translated():
            self._program = build(
                self._model, self._options, args, kwargs, training=self._training, spec=self._spec
            )
            self._check_names(self._program)
            if self._spec is not None:
                log_spec(self._spec, "Setting")
            if self._options.connection_type is not ConnectionType.Never:
                self._attach()
        _hooks.run_post_compile()

    def _check_names(self, program: Program) -> None:
        missing = [n for n in self._options.updatable_named_buffers if n not in dict(self._model.named_buffers())]
        if missing:
            self._program = None
            raise Error(f"updatableNamedBuffers: the model has no buffer {', '.join(map(repr, missing))}.")
        for short, anchor in self._options.anchored_tensors.items():
            name = anchor.long_name
            if name.removeprefix("UpdatedVar___") not in program.host_tensors:
                self._program = None
                raise Error(
                    f"The tensor {name!r} cannot be anchored as {short!r}: parameters, buffers and UpdatedVar___<name> "
                    f"can be, of {', '.join(program.host_tensors)}. Return any other from the model's forward."
                )

    def isCompiled(self) -> bool:
        """Whether there is a compiled program."""
        return self._program is not None

    def compilationTime(self) -> datetime.timedelta:
        """How long capturing and compiling took on this computer.

        Raises:
            Error: before compiling, or with ``showCompilationProgressBar(False)``.
        """
        if self._program is None:
            raise Error("Please compile the model before obtaining compilation time.")
        if not self._options.show_compilation_progress_bar:
            raise Error("Please set showCompilationProgressBar option to obtain compilation time.")
        return datetime.timedelta(seconds=self._program.seconds)

    def compileAndExport(self, filename: str, *args: Any, export_model: bool = True, **kwargs: Any) -> None:
        """Compile for these arguments and write the program to a file (see :meth:`save`)."""
        self.compile(*args, **kwargs)
        self.save(filename, export_model=export_model)

    def save(self, filename: str, export_model: bool = True, save_rng_state: bool = True) -> None:
        """Write the compiled program to a file; with ``export_model`` also the model, the options and the optimizer.

        Args:
            filename: the file, or a folder that exists, in which it is called ``model.poptorch``.
            export_model: whether :func:`poptorch.load` can restore everything from the file.
            save_rng_state: whether to keep the state of the random numbers.
        """
        require(self._program is not None, NOT_COMPILED)
        program = self._require()
        self.copyWeightsToHostIfNeeded()
        if isinstance(self._optimizer, optim.Optimizer) and self._attached:
            self._hand_over_optimizer_state()
        with plain_tensors(self._user_model):
            _export.write(
                filename,
                model=self._user_model if export_model else None,
                options=self._options,
                training=self._training,
                optimizer=self._optimizer if export_model else None,
                rng_state=self.rng_state if save_rng_state and self._attached else None,
                program=program,
            )

    def loadExecutable(self, filename: str) -> None:
        """Take a compiled program from a file that :meth:`save` or :meth:`compileAndExport` wrote.

        The file's program belongs to one model and one machine; when this model makes another it is compiled.
        """
        self._take_over(_export.read(filename))

    def _take_over(self, contents: _export.Contents) -> None:
        with contents.cached(self._options) as options:
            own, self._options = self._options, options
            try:
                self._compile(contents.args, contents.kwargs)
            finally:
                self._options = own
        if contents.rng_state is not None and self._attached:
            self.rng_state = contents.rng_state

    # -- running ------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model for all device iterations; arguments and result are those of the model's ``forward``.

        Dimension 0 of every tensor holds deviceIterations × gradientAccumulation × replicationFactor micro-batches, in
        that order.

        Raises:
            Error: when the arguments differ from those that the model was compiled for; see the messages.
            AssertionError: when a batch does not divide into micro-batches.
        """
        started = time.perf_counter()
        args, kwargs = detached(canonical(self._model, args, kwargs))
        if self._program is None:
            self._compile(args, kwargs)
        program = self._require()
        leaves = program.expected.match(args, kwargs)
        if self._options.connection_type is ConnectionType.Never:
            raise Error(
                "Trying to run a model on an offline device (ConnectionType.Never): it was only to be compiled."
            )
        with translated():
            if not self._attached:
                self._attach()
            self._before_run(program)
            began = time.perf_counter()
            mode = _outputs.resolved(self._options.output_mode, self._training)
            arrays = program.run(leaves, mode, self._options.output_return_period, self._options.synthetic_data)
            ended = time.perf_counter()
            self._ran = True
            if program.training and program.updated:
                self._device_ahead = True
            self._optimizer_ahead = self._training
            for short, anchor in self._options.anchored_tensors.items():
                self._anchored[short] = program.engine.read(anchor.long_name.removeprefix("UpdatedVar___"))
            program.write_back(arrays, leaves)
            result = program.result(arrays)
        self._latencies.add(started, began, ended, time.perf_counter())
        if self._training:
            _refuse_backward(result)
        return result

    def _before_run(self, program: Program) -> None:
        """Bring what was changed on the host, by other executors or by loading, to the device."""
        link = link_of(self._user_model)
        if link is not None and link is not self._link:
            link.refresh()
            if link.version != self._uploaded:
                self.copyWeightsToDevice()
        if isinstance(self._optimizer, optim.Optimizer) and program.plan is not None:
            loaded = self._optimizer.take_new_state()
            if loaded is not None:
                _optimizer_spec.load_state_dict(program.plan, loaded, program.engine.write, program.engine.states)

    @property
    def model(self) -> torch.nn.Module:
        """The user's model."""
        return self._user_model

    @property
    def options(self) -> Options:
        """The options that the model was wrapped with, frozen."""
        return self._options

    def eval(self) -> PoplarExecutor:
        """Put the model into evaluation mode; a compiled program stays as it is until it is destroyed."""
        return self.train(False)

    def train(self, mode: bool = True) -> PoplarExecutor:
        """Put the model into training or evaluation mode; a compiled program stays as it is until it is destroyed."""
        self._model.train(mode)
        return self

    def __getattr__(self, attr: str) -> Any:
        if attr.startswith("__") or "_user_model" not in self.__dict__:
            raise AttributeError(attr)
        return getattr(self._user_model, attr)

    def __repr__(self) -> str:
        return repr(self._user_model)

    # -- weights ------------------------------------------------------------------------------------------

    def copyWeightsToHostIfNeeded(self) -> bool:
        """Bring the host's parameters and buffers up to date when training has changed them; whether it had."""
        if not self._device_ahead:
            return False
        self._device_ahead = False
        logger.debug("Implicit copyWeightsToHost()")
        self.copyWeightsToHost()
        return True

    def copyWeightsToHost(self) -> None:
        """Give the user's model the parameters and buffers of the device.

        Raises:
            Error: when the model is not compiled.
        """
        program = self._require()
        if not self._attached:
            return
        self._device_ahead = False
        with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            for name in program.updated:
                target = program.host_tensors[name]
                target.data.copy_(to_torch(program.engine.read(name), target.dtype))
        link = link_of(self._user_model)
        if link is not None:
            link.version += 1
            if link is self._link:
                self._uploaded = link.version

    def copyWeightsToDevice(self) -> None:
        """Give the device the parameters and buffers of the user's model.

        Raises:
            Error: when the model is not compiled.
        """
        program = self._require()
        if not self._attached:
            return
        with translated(), torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            check_same_types(program)
            for name, tensor in program.host_tensors.items():
                if name in program.engine.states:
                    program.engine.write(name, to_numpy(tensor))
        self._device_ahead = False
        link = link_of(self._user_model)
        self._uploaded = 0 if link is None else link.version

    def copyNamedBuffersToDevice(self) -> None:
        """Give the device the buffers that ``options.updatableNamedBuffers`` names.

        Raises:
            Error: when the model is not compiled, or the option names none.
        """
        program, names = self._require(), self._options.updatable_named_buffers
        if not names:
            raise Error("There are no buffers to copy: name them with options.updatableNamedBuffers before wrapping.")
        buffers = dict(self._model.named_buffers())
        with translated(), torch._C.DisableTorchFunctionSubclass():
            for name in names:
                if name in program.engine.states:
                    program.engine.write(name, to_numpy(buffers[name]))

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> Any:
        """As the module's own, and the device gets the new values."""
        self.copyWeightsToHostIfNeeded()
        result = self._user_model.load_state_dict(state_dict, strict)
        if self._program is not None and self._attached:
            self.copyWeightsToDevice()
        return result

    # -- the optimizer ------------------------------------------------------------------------------------

    def setOptimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Train with this optimizer from now on, or with what has changed in the one in use.

        Raises:
            Error: in an inference model, or for a change of what is built into the program.
            ValueError: when the optimizer needs another reduction strategy and the model is already compiled.
        """
        if not self._training:
            raise Error("setOptimizer() is for models that poptorch.trainingModel made.")
        if isinstance(optimizer, optim.Optimizer) and getattr(optimizer, "accum_type", None) is torch.float16:
            self._average_while_running()
        spec = read_optimizer(optimizer, self._tracker)
        program = self._program
        if program is not None and program.plan is not None:
            program.plan.check(spec)
            if self._optimizer is not optimizer:
                self._hand_over_optimizer_state()
        previous, self._optimizer, self._spec = self._optimizer, optimizer, spec
        if previous is not optimizer:
            if isinstance(previous, optim.Optimizer):
                previous.connect(None)
            if isinstance(optimizer, optim.Optimizer):
                optimizer.connect(self._hand_over_optimizer_state)
        if program is not None and self._attached:
            log_spec(spec, "Updating")
            self._write_hypers(program)

    def _average_while_running(self) -> None:
        training = self._options.Training
        running = MeanReductionStrategy.Running
        if training.meanAccumulationAndReplicationReductionStrategy is running:
            return
        if self._program is not None:
            raise ValueError(
                "An optimizer with accum_type=torch.float16 needs the reduction strategy Running, and the model is "
                "already compiled with another one: call destroy() on it first."
            )
        self._options._unfreeze()
        training.setMeanAccumulationAndReplicationReductionStrategy(running)
        self._options._freeze()

    def _write_hypers(self, program: Program) -> None:
        if program.plan is None or self._spec is None:
            return
        for name, value in program.plan.hypers(self._spec).items():
            if name in program.engine.states:
                program.engine.write(name, value)

    def _hand_over_optimizer_state(self) -> None:
        """Give the optimizer the state that the device has."""
        program = self._program
        if program is None or program.plan is None or not isinstance(self._optimizer, optim.Optimizer):
            return
        if not self._attached or not (self._optimizer_ahead or not self._optimizer.has_state()):
            return
        engine = program.engine
        self._optimizer.set_state_dict(_optimizer_spec.state_dict(program.plan, engine.read, engine.states))
        self._optimizer_ahead = False

    # -- the device ---------------------------------------------------------------------------------------

    def isAttachedToDevice(self) -> bool:
        """Whether the program is on the (modelled) device."""
        return self._attached

    def attachToDevice(self) -> None:
        """Put the compiled program on the device, with the host's weights.

        Raises:
            Error: when the model is not compiled, or for an offline target.
        """
        self._require()
        require(not self._attached, "The model is already attached to its device.")
        if self._options.connection_type is ConnectionType.Never:
            raise Error("Trying to attach to an offline device (ConnectionType.Never).")
        with translated():
            self._attach()

    def detachFromDevice(self) -> None:
        """Take the program off the device; weights and optimizer state come back to the host.

        Raises:
            Error: when the model is not compiled or not attached.
        """
        self._require()
        if not self._attached:
            raise Error("The device has already been detached.")
        self._leave_device()

    def _attach(self) -> None:
        program = self._require()
        self._attached = True
        link = link_of(self._user_model)
        if link is not None and link is not self._link:
            link.refresh()
        constants = program.capture.constants
        for name, tensor in constants.items():
            if name in program.engine.states:
                program.engine.write(name, to_numpy(tensor))
        if program.capture.random:
            seed = self._seed()
            program.engine.write("seed", np.array([seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF], np.uint32))
        self.copyWeightsToDevice()
        self._write_hypers(program)
        if isinstance(self._optimizer, optim.Optimizer) and self._optimizer.has_state() and program.plan is not None:
            state = self._optimizer.take_new_state() or self._optimizer.get_state_dict()
            wanted = {"ipu_state": state["ipu_state"], "ipu_param": None}
            _optimizer_spec.load_state_dict(program.plan, wanted, program.engine.write, program.engine.states)
        self._optimizer_ahead = self._training

    def _seed(self) -> int:
        """The seed of the options; else one of its own for each program, from PyTorch's."""
        chosen = self._options.random_seed
        if chosen is not None:
            return chosen & (2**64 - 1)
        return (torch.initial_seed() + 0x9E3779B97F4A7C15 * next(_seeds)) & (2**64 - 1)

    def _leave_device(self) -> None:
        if self._attached:
            self.copyWeightsToHostIfNeeded()
            self._hand_over_optimizer_state()
        if self._program is not None and self._program._engine is not None:
            self._program._engine.close()
            self._program._engine = None
        self._attached = False

    def destroy(self) -> None:
        """Free the compiled program; the weights come back to the host. The next call compiles again."""
        self._leave_device()
        self._program = None
        self._ran = False
        if self._link is not None:
            self._link.cut()
            self._link = None

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.destroy()

    # -- looking inside -----------------------------------------------------------------------------------

    @property
    def rng_state(self) -> list[int]:
        """The state of the random numbers; empty for a model that draws none.

        Raises:
            Error: when the model is not compiled.
        """
        program = self._require()
        if "seed" not in program.engine.states:
            return []
        return [int(word) for word in program.engine.read("seed")]

    @rng_state.setter
    def rng_state(self, state: Iterable[int]) -> None:
        words = [int(word) for word in state]
        if not words:
            return
        program = self._require()
        if len(words) != 2 or "seed" not in program.engine.states:
            raise Error("The state of the random numbers is that of another kind of model.")
        program.engine.write("seed", np.array(words, np.uint32))

    def getTensorNames(self) -> list[str]:
        """Names of the tensors of the program: inputs, outputs, weights, and in training gradients and updates.

        Raises:
            AssertionError: when the model is not compiled.
        """
        require(self._program is not None, NOT_COMPILED)
        return self._require().names()

    def getAnchoredTensor(self, short_name: str) -> torch.Tensor:
        """The last value of a tensor that ``options.anchorTensor`` named.

        Raises:
            Error: for an unknown name, or before the first run.
        """
        if short_name not in self._options.anchored_tensors:
            raise Error(f"No tensor is anchored as {short_name!r}: see poptorch.Options.anchorTensor.")
        if short_name not in self._anchored:
            raise Error("Please run the model at least once before reading an anchored tensor.")
        return torch.from_numpy(self._anchored[short_name].copy())

    def cycleCount(self) -> int:
        """Cycles of one call on the modelled machine, from its cost model: nothing is measured on hardware.

        Raises:
            Error: without ``options.logCycleCount(True)``, or before the first run.
        """
        if not self._options.log_cycle_count:
            raise Error("Cycle count logging is disabled. Please set option logCycleCount to True to enable.")
        if self._program is None or not self._ran:
            raise Error("Please run the model at least once before obtaining cycle count.")
        from abele.cost import cost

        compiled = self._program.compiled
        profile = cost(compiled.executable.schedule, compiled.options.system, samples=compiled.samples)
        return int(profile.cycles.total) * self._program.runs

    def getPerfCounters(self) -> tuple[list[list[float]], ...]:
        """Times of each call in seconds from the first: input, input complete, output, output complete.

        They are this computer's, not the modelled machine's.
        """
        return self._latencies.counters()

    def getHostIpuLatency(self) -> tuple[float, float, float]:
        """Least, most and mean seconds in which this computer prepared the inputs of a call."""
        return self._latencies.between(0, 1)

    def getComputeLatency(self) -> tuple[float, float, float]:
        """Least, most and mean seconds in which this computer ran a call."""
        return self._latencies.between(1, 2)

    def getIpuHostLatency(self) -> tuple[float, float, float]:
        """Least, most and mean seconds in which this computer handed the outputs of a call back."""
        return self._latencies.between(2, 3)

    def getLatency(self) -> tuple[float, float, float]:
        """Least, most and mean seconds of a whole call on this computer."""
        return self._latencies.between(0, 3)

    def _require(self) -> Program:
        if self._program is None:
            raise Error(NOT_COMPILED)
        return self._program


def _refuse_backward(result: Any) -> None:
    from ._structure import flatten

    for tensor in flatten(result):
        tensor.backward = _backward  # type: ignore[method-assign]


def _backward(*args: Any, **kwargs: Any) -> None:
    raise Error(
        "backward() cannot be called on what a poptorch.trainingModel returns: the call has already run the backward "
        "pass and updated the weights."
    )
