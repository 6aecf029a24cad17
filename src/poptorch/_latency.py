"""When a call of a model begins and ends on the modelled machine, by its schedule. Nothing is measured."""

from __future__ import annotations

from dataclasses import dataclass

from ._program import Program
from .enums import OutputMode

COUNTERS = ("input", "input_complete", "output", "output_complete")


@dataclass(frozen=True)
class Latency:
    """Seconds of one call on the modelled machine: the host's inputs, the IPUs' work, and outputs to the host."""

    inputs: float = 0.0
    compute: float = 0.0
    outputs: float = 0.0

    @classmethod
    def of(cls, program: Program) -> Latency:
        """Of all device iterations of a program."""
        profile = program.profile

        def seconds(*names: str) -> float:
            cycles = sum(step.cycles.total * step.times for step in profile.steps if step.name in names)
            return cycles / profile.clock_hz * program.runs

        loaded, stored = seconds("begin", "host_load"), seconds("end", "host_store")
        return cls(loaded, max(0.0, profile.seconds * program.runs - loaded - stored), stored)

    @property
    def total(self) -> float:
        return self.inputs + self.compute + self.outputs

    def counters(self, program: Program, mode: OutputMode, period: int) -> dict[str, list[list[float]]]:
        """Seconds from the beginning of a call at which micro-batches come and go, those of a turn at the same time.

        Args:
            mode, period: which outputs come back.

        Returns:
            For each of ``COUNTERS`` a list for every input or output tensor, of a moment for each of its micro-batches.
        """
        batching = program.batching
        turns = batching.iterations * batching.accumulation
        if mode in (OutputMode.Final, OutputMode.Sum):
            kept = [turns - 1]
        elif mode is OutputMode.EveryN:
            kept = [turn for turn in range(turns) if (turn // batching.accumulation + 1) % period == 0]
        else:
            kept = list(range(turns))

        def moments(of: list[int], offset: float) -> list[float]:
            return [(turn * self.total + offset) / turns for turn in of for _ in range(batching.replicas)]

        every, captured = list(range(turns)), program.capture
        found = {
            "input": (every, 0.0, captured.inputs),
            "input_complete": (every, self.inputs, captured.inputs),
            "output": (kept, self.inputs + self.compute, captured.outputs),
            "output_complete": (kept, self.total, captured.outputs),
        }
        return {name: [moments(of, offset) for _ in tensors] for name, (of, offset, tensors) in found.items()}
