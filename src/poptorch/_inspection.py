"""What users can ask of a wrapped model besides running it: names, anchored tensors, random state, cycles, times."""

from __future__ import annotations

import datetime
from collections.abc import Iterable

import numpy as np
import torch

from ._errors import Error, require
from ._latency import COUNTERS, Latency
from ._program import Program
from .options import Options

NOT_COMPILED = "Model has not been compiled or has been destroyed."


class Inspection:
    """The part of a model's wrapper that looks inside."""

    _options: Options
    _program: Program | None
    #: Last values of the anchored tensors, by short name.
    _anchored: dict[str, np.ndarray]
    #: Whether the program has run.
    _ran: bool

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

    @property
    def rng_state(self) -> list[int]:
        """The state of the random numbers; empty for a model that draws none.

        Raises:
            Error: when the model is not compiled.
        """
        program = self._require()
        if "seed" not in program.engine.states:
            return []
        first, second = program.engine.read("seed")
        return [int(first) ^ program.engine.first_replica, int(second)]  # as that of the first replica of all

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
            raise Error("An anchored tensor has a value only after the first call of the model.")
        return torch.from_numpy(self._anchored[short_name].copy())

    def cycleCount(self) -> int:
        """Cycles of one call on the modelled machine, from its cost model: nothing is measured on hardware.

        Raises:
            Error: without ``options.logCycleCount(True)``, or before the first run.
        """
        lower = self._options._Popart.options
        if not self._options.log_cycle_count and not lower.get("instrumentWithHardwareCycleCounter"):
            raise Error("Cycle count logging is disabled. Please set option logCycleCount to True to enable.")
        if self._program is None or not self._ran:
            raise Error("Please run the model at least once before obtaining cycle count.")
        return int(self._program.profile.cycles.total) * self._program.runs

    def getPerfCounters(self) -> dict[str, list[list[float]]]:
        """When the micro-batches of a call come and go on the modelled machine, in seconds from its beginning.

        Returns:
            ``input``, ``input_complete``, ``output``, ``output_complete``: a list for each tensor, of a moment for each
            micro-batch that is given or handed back: none with synthetic data, and nothing before the first run.
        """
        if not self._ran:
            return {name: [] for name in COUNTERS}
        if self._synthetic():
            captured = self._require().capture
            kinds = (captured.inputs, captured.inputs, captured.outputs, captured.outputs)
            return {name: [[] for _ in tensors] for name, tensors in zip(COUNTERS, kinds, strict=True)}
        options = self._options
        return self._latency().counters(self._require(), options.output_mode, options.output_return_period)

    def getHostIpuLatency(self) -> tuple[float, float, float]:
        """Least, most and mean seconds in which the inputs of a call go to the modelled machine: all the same."""
        return _alike(self._latency().inputs)

    def getComputeLatency(self) -> tuple[float, float, float]:
        """Least, most and mean seconds of a call on the modelled machine between inputs and outputs: all the same."""
        return _alike(self._latency().compute)

    def getIpuHostLatency(self) -> tuple[float, float, float]:
        """Least, most and mean seconds in which the outputs of a call come back: all the same."""
        return _alike(self._latency().outputs)

    def getLatency(self) -> tuple[float, float, float]:
        """Least, most and mean seconds of a whole call on the modelled machine: all the same."""
        return _alike(self._latency().total)

    def _latency(self) -> Latency:
        """Of the program; zeros before the first run, and with synthetic data, for which nothing goes to and fro."""
        return Latency() if not self._ran or self._synthetic() else Latency.of(self._require())

    def _synthetic(self) -> bool:
        """Whether inputs are made up."""
        lower = self._options._Popart.options
        return bool(self._options.synthetic_data or lower.get("syntheticDataMode"))

    def _require(self) -> Program:
        if self._program is None:
            raise Error(NOT_COMPILED)
        return self._program


def _alike(seconds: float) -> tuple[float, float, float]:
    return seconds, seconds, seconds
