"""The wrapper of a model: compiles it at the first call and runs it. ``_attachment`` keeps the weights in step."""

from __future__ import annotations

import atexit
import collections
import contextlib
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from . import _export, _hooks, _outputs, _popart_checks, optim
from ._arguments import Call
from ._attachment import Attachment
from ._errors import Error, require
from ._host_weights import Link, link_of, plain_tensors
from ._inspection import NOT_COMPILED
from ._printing import module_repr
from ._program import Program, build, translated
from ._replica_groups import Grouping
from ._structure import flatten
from ._trainer import Trainer
from .enums import CommGroupType, ConnectionType, MeanReductionStrategy, VariableRetrievalMode
from .optim._spec import log_spec
from .options import Options

__all__ = ["PoplarExecutor", "load", "wrap"]

_alive: weakref.WeakSet[PoplarExecutor] = weakref.WeakSet()


@atexit.register
def _destroy_all() -> None:
    """Cut every link before the interpreter takes objects apart: torch insists on its own classes then."""
    for executor in list(_alive):
        with contextlib.suppress(Exception):
            executor._destroy(alone=True)


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
    return Link(model, executor.copyWeightsToHostIfNeeded, executor.destroy, executor._group)


def _refuse_accumulation(options: Options) -> None:
    if options.Training.gradient_accumulation == 1:
        return
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


def load(filename: str, edit_opts_fn: Callable[[Options], None] | None = None) -> PoplarExecutor:
    """An executor from a file that ``save`` or ``compileAndExport`` wrote with the model in it.

    A model that was compiled for an offline target runs once it is loaded; ``edit_opts_fn`` may change its options
    before.
    """
    contents = _export.read(filename)
    if contents.model is None:
        raise Error(f"{filename!r} has no model in it: wrap the model yourself and call loadExecutable on the wrapper.")
    options = contents.options.clone()
    if options.connection_type is ConnectionType.Never:  # it was compiled without a device, and is loaded to be run
        options.connectionType(ConnectionType.Always)
    if edit_opts_fn is not None:
        edit_opts_fn(options)
    executor = wrap(contents.model, options, training=contents.training, optimizer=contents.optimizer)
    executor._take_over(contents)
    return executor


class PoplarExecutor(Attachment):
    """A model that runs as a compiled program. Made by ``trainingModel`` and ``inferenceModel``.

    Calling it compiles it when needed and runs all device iterations. Attributes that it does not have itself are
    those of the user's model.
    """

    def __init__(
        self, model: torch.nn.Module, options: Options, training: bool, optimizer: torch.optim.Optimizer | None = None
    ) -> None:
        if not training and not options._accumulation_commanded:
            _refuse_accumulation(options)
        fed = options._is_frozen
        options._freeze()
        self._options = options.clone()
        self._options.set(output_mode=_outputs.resolved(options.output_mode, training))
        if not training:
            self._options._for_inference(fed)
        self._options._set_frozen(True)
        self._user_model = model
        # A copy of the root alone: whether it is in training mode is decided now; all below it is shared.
        # (copy.copy would ask the module what it pickles, which parametrized ones refuse.)
        link = link_of(model)
        self._model: torch.nn.Module = object.__new__(type(model) if link is None else link.own)
        self._model.__dict__.update(model.__dict__)
        self._training = training
        self._program: Program | None = None
        self._modes: dict[str, bool] = {}
        self._groupings: dict[str, Grouping] = {}
        self._attached = False
        self._device_ahead = False
        self._uploaded: dict[Link, int] = {}
        self._trainer = Trainer(self._options.relax_optimizer_checks, self._hand_over_optimizer_state)
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
        self._compile(Call.of(self._model, args, kwargs))

    def _compile(self, call: Call, divided: bool = False) -> None:
        """Compile anew. ``divided``: each weight has optimizer numbers of its own, whatever its group."""
        if self._program is not None:
            self._leave_device()
        if self._training and self._link is None:
            self._link = _linked(self)
        _popart_checks.validate(self._options.toDict())
        self._modes = {name: module.training for name, module in self._model.named_modules()}
        _hooks.run_pre_compile()
        with translated():
            spec = self._trainer.spec
            self._program = build(
                self._model,
                self._options,
                call,
                training=self._training,
                spec=spec,
                divided=divided,
                groupings=self._groupings,
            )
            self._check_buffers()
            if spec is not None:
                log_spec(spec, "Setting")
            if self._options.connection_type is not ConnectionType.Never:
                self._attach()
        _hooks.run_post_compile()

    def _group(self, weight: torch.Tensor, kind: CommGroupType, shards: int, mode: VariableRetrievalMode) -> None:
        """Let groups of replicas have values of their own of a weight, see ``replicaGrouping`` of a parameter."""
        require(self._program is None, "replicaGrouping comes before the model is compiled: destroy() it first.")
        require(
            self._options.Distributed.numProcesses == 1,
            "replicaGrouping is not supported where replicas are shared out among several processes.",
        )
        name = next(n for n, p in self._user_model.named_parameters() if p is weight)
        grouping = Grouping.of(kind, shards, mode, self._options.replication_factor, weight, name)
        self._groupings.pop(name, None)
        if grouping is not None:
            self._groupings[name] = grouping

    def _check_buffers(self) -> None:
        missing = [n for n in self._options.updatable_named_buffers if n not in dict(self._model.named_buffers())]
        if missing:
            self._program = None
            raise Error(f"updatableNamedBuffers: the model has no buffer {', '.join(map(repr, missing))}.")

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
        self._hand_over_optimizer_state()
        with plain_tensors(self._user_model):
            _export.write(
                filename,
                model=self._user_model if export_model else None,
                options=self._options,
                training=self._training,
                optimizer=self._trainer.optimizer if export_model else None,
                rng_state=self.rng_state if save_rng_state and self._attached else None,
                program=program,
                modes=self._modes,
                groupings=self._groupings,
            )

    def loadExecutable(self, filename: str) -> None:
        """Take a compiled program from a file that :meth:`save` or :meth:`compileAndExport` wrote.

        The file's program belongs to one model and one machine; when this model makes another it is compiled.
        """
        self._take_over(_export.read(filename))

    def _take_over(self, contents: _export.Contents) -> None:
        self._groupings = dict(contents.groupings)
        with contents.cached(self._options) as options:
            own, self._options = self._options, options
            try:
                with contents.same_modes(self._model):
                    self._compile(Call.of(self._model, contents.args, contents.kwargs))
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
        call = Call.of(self._model, args, kwargs)
        if self._program is None:
            self._compile(call)
        program = self._require()
        leaves = program.expected.match(call)
        require(
            self._options.connection_type is not ConnectionType.Never,
            "Trying to run a model on an offline device: with ConnectionType.Never it can only be compiled.",
        )
        with translated():
            if not self._attached:
                self._attach()
            if self._trainer.divides(program):
                words = self.rng_state
                self._compile(call, divided=True)
                self.rng_state, program = words, self._require()
            self._before_run(program)
            mode, period = self._options.output_mode, self._options.output_return_period
            try:
                arrays, self._anchored = program.run(leaves, mode, period, self._synthetic())
                self._ran = True
            finally:  # a call that fails has updated weights too: up to there
                if program.training and program.updated:
                    self._device_ahead = True
                self._trainer.ahead = self._training
            self._trainer.stepped()
            program.write_back(arrays, leaves)
            result = program.result(arrays)
        _refuse_backward(result)
        return result

    def _before_run(self, program: Program) -> None:
        """Bring what was changed on the host, by other executors or by loading, to the device."""
        if self._trained_elsewhere() != self._uploaded:
            if self._training:  # a part of the weights may be trained here, and another elsewhere
                self.copyWeightsToHostIfNeeded()
            self.copyWeightsToDevice()
        self._trainer.write_new_state(program)

    @property
    def model(self) -> torch.nn.Module:
        """The user's model; of an inference model the copy of its root, whose training mode is its own."""
        return self._user_model if self._training else self._model

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
        return module_repr(self._user_model)

    def __reduce__(self) -> Any:
        """A pickle or a copy is a wrapper that has not been compiled, of the module with its present weights."""
        self.copyWeightsToHostIfNeeded()
        parts = (self._user_model, self._options.clone(), self._training, self._trainer.optimizer, self._groupings)
        return _unpickled, parts

    # -- the optimizer ------------------------------------------------------------------------------------

    def setOptimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Train with this optimizer from now on, or with what has changed in the one in use.

        Raises:
            Error: in an inference model, or for a change of what is built into the program.
            ValueError: when the optimizer needs another reduction strategy and the model is already compiled.
        """
        if not self._training:
            raise Error("setOptimizer() is for models that poptorch.trainingModel made.")
        combined = getattr(optimizer, "use_combined_accum", False)  # sums, whatever their type
        if getattr(optimizer, "accum_type", None) is torch.float16 and not combined:
            self._average_while_running()
        program = self._program
        self._trainer.set(optimizer, program, self._attached)
        if program is not None and self._attached:
            self._trainer.write_hypers(program)

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
        self._options._set_frozen(True)

    # -- the end ---------------------------------------------------------------------------------------

    def destroy(self) -> None:
        """Free the compiled program; the weights come back to the host. The next call compiles again."""
        self._destroy()

    def _destroy(self, *, alone: bool = False) -> None:
        self._leave_device(alone=alone)
        self._program = None
        self._ran = False
        if self._link is not None:
            self._link.cut()
            self._link = None

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self._destroy(alone=True)


def _unpickled(
    model: torch.nn.Module,
    options: Options,
    training: bool,
    optimizer: torch.optim.Optimizer | None,
    groupings: dict[str, Grouping],
) -> PoplarExecutor:
    executor = wrap(model, options, training=training, optimizer=optimizer)
    executor._groupings = groupings
    return executor


class _NoBackward:
    """Stands for ``backward`` on the tensors that a model returns."""

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        raise Error(
            "backward() cannot be called explicitly on outputs of a PopTorch model. If you're using a trainingModel, "
            "the backwards pass is performed automatically when invoking the model. If you're using an inferenceModel, "
            "you should use a trainingModel instead."
        )

    def __reduce__(self) -> Any:
        # In a file of tensors only what torch reads without trust may stand, and this is no part of the data.
        return collections.OrderedDict, ()


_no_backward = _NoBackward()


def _refuse_backward(result: Any) -> None:
    for tensor in flatten(result):
        tensor.backward = _no_backward
