"""Execution strategies: from the user's blocks to stages, IPUs and phases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from abele.errors import suggest

from ._errors import Error, boolean, member, require, whole_number
from ._options_effects import note
from ._placement import Placement
from .enums import AutoStage, Liveness

BlockId = str
_TIMING = "it changes when data is moved on the real machine, never the results"


class Stage:
    """Consecutive blocks that run together on one IPU.

    Args:
        block_ids: the ``user_id`` of each block of the stage.
    """

    def __init__(self, *block_ids: BlockId) -> None:
        require(
            all(isinstance(b, (str, int)) for b in block_ids),
            f"A Stage takes the user_id of its blocks, not {block_ids!r}.",
        )
        self._block_ids = [str(b) for b in block_ids]
        self._stage_id = -1
        self._phase_id = -1
        self._ipu: int | None = None

    @property
    def blocks(self) -> list[BlockId]:
        """The ``user_id`` of each block of the stage."""
        return list(self._block_ids)

    def ipu(self, ipu: int) -> Stage:
        """Run the stage on this IPU of the replica, numbered from 0."""
        self._ipu = whole_number("Stage.ipu", ipu, least=0)
        return self

    def __repr__(self) -> str:
        place = f".ipu({self._ipu})" if self._ipu is not None else ""
        return f"Stage({', '.join(map(repr, self._block_ids))}){place}"


class Phase:
    """Stages that run at the same time in phased execution.

    Args:
        arg: stages, or the ``user_id`` of blocks that form one stage together.
    """

    def __init__(self, *arg: BlockId | Stage) -> None:
        if all(isinstance(a, Stage) for a in arg):
            self.stages = [a for a in arg if isinstance(a, Stage)]
        else:
            require(
                all(isinstance(a, (str, int)) for a in arg),
                f"A Phase takes stages or the user_id of blocks, not both: {arg!r}.",
            )
            self.stages = [Stage(*arg)]  # type: ignore[arg-type]

    def stage(self, idx: int) -> Stage:
        """The stage of that number within the phase."""
        return self.stages[idx]

    def ipus(self, *ipus: int) -> Phase:
        """Run the phase's stages on these IPUs, one for each stage."""
        require(
            len(ipus) == len(self.stages),
            f"The phase has {len(self.stages)} stages but {len(ipus)} IPUs were given.",
        )
        for stage, ipu in zip(self.stages, ipus):
            stage.ipu(ipu)
        return self

    def __repr__(self) -> str:
        return f"Phase({', '.join(map(repr, self.stages))})"


class _IExecutionStrategy:
    """What all strategies share: a table from block to stage."""

    #: The name by which the schedule knows the strategy.
    kind = ""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._stages = list(stages)
        self._block_map: dict[BlockId, Stage] = {}
        for stage in self._stages:
            for block in stage.blocks:
                require(block not in self._block_map, f"The block {block!r} is in two stages.")
                self._block_map[block] = stage

    def stage(self, block_id: BlockId) -> Stage:
        """The stage of the block with that ``user_id``."""
        found = self._block_map.get(str(block_id))
        if found is None:
            raise Error(
                f"The execution strategy has no block {block_id!r}. {suggest(str(block_id), self._block_map)}".rstrip()
            )
        return found

    @property
    def phased(self) -> str:
        """The compiler's kind of phased execution; empty where nothing is swapped through streaming memory."""
        return ""

    def restart(self) -> None:
        """Forget what the last capture assigned."""

    def place(self, user_id: BlockId | None, ipu_id: int | None) -> Placement:
        """Where the operations of a block run.

        Args:
            user_id: the block's name.
            ipu_id: the IPU that the block asks for, or None.
        """
        raise NotImplementedError


class PipelinedExecution(_IExecutionStrategy):
    """Stages work at the same time on successive micro-batches (the default).

    Args:
        args: an :class:`poptorch.AutoStage`, or the stages in order, or the ``user_id`` of one block a stage.
            Without arguments the stage of a block is its ``ipu_id``.

    A block's IPU is that of its :class:`Stage` (``ipu()``), else the ``ipu_id`` of the block, else the stage's
    number.
    """

    kind = "pipelined"

    def __init__(self, *args: AutoStage | Stage | BlockId) -> None:
        self._auto_stage: AutoStage | None = AutoStage.SameAsIpu
        self._auto_ids: dict[BlockId, int] = {}
        self._next_auto_stage = 1
        stages: list[Stage] = []
        if len(args) == 1 and isinstance(args[0], AutoStage):
            self._auto_stage = args[0]
        elif args:
            self._auto_stage = None
            stages = [a if isinstance(a, Stage) else Stage(a) for a in args]  # type: ignore[arg-type]
            for number, stage in enumerate(stages):
                stage._stage_id = number
        super().__init__(stages)

    def restart(self) -> None:
        self._auto_ids.clear()
        self._next_auto_stage = 1

    def place(self, user_id: BlockId | None, ipu_id: int | None) -> Placement:
        name = str(user_id)
        if self._auto_stage is None:
            stage = self.stage(name)
            ipu = next(i for i in (stage._ipu, ipu_id, stage._stage_id) if i is not None)
            return Placement(ipu=ipu, stage=stage._stage_id, block=name)
        if self._auto_stage is AutoStage.SameAsIpu:
            if ipu_id is None and user_id is not None:
                ipu_id = self._auto_ids.get(name)  # a block that was begun before keeps its place
            if ipu_id is None:
                raise Error(
                    f"The block {name!r} has no IPU: give it an ipu_id, or set an execution strategy with a "
                    "poptorch.Stage for it."
                )
            self._auto_ids[name] = ipu_id
            return Placement(ipu=ipu_id, stage=ipu_id, block=name)
        if name not in self._auto_ids:
            self._auto_ids[name] = self._next_auto_stage
            self._next_auto_stage += 1
        number = self._auto_ids[name]
        return Placement(ipu=number if ipu_id is None else ipu_id, stage=number, block=name)

    def __repr__(self) -> str:
        arguments = [self._auto_stage] if self._auto_stage is not None else self._stages
        return f"{type(self).__name__}({', '.join(map(str, arguments))})"


class ShardedExecution(PipelinedExecution):
    """Stages take turns: each micro-batch crosses all of them before the next one starts."""

    kind = "sharded"


class _IPhasedExecution(_IExecutionStrategy):
    """Phases run one after another; weights and activations wait in streaming memory in between."""

    def __init__(self, *phases: Phase | Stage | Sequence[Stage] | Sequence[BlockId] | BlockId) -> None:
        self._phases = [self._as_phase(p) for p in phases]
        stages: list[Stage] = []
        for number, phase in enumerate(self._phases):
            for position, stage in enumerate(phase.stages):
                stage._phase_id, stage._stage_id = number, position
                stages.append(stage)
        super().__init__(stages)

    @staticmethod
    def _as_phase(given: Any) -> Phase:
        if isinstance(given, Phase):
            return given
        if isinstance(given, (Stage, str, int)):
            return Phase(given)  # type: ignore[arg-type]
        return Phase(*given)

    def phase(self, phase: int) -> Phase:
        """The phase of that number."""
        require(
            isinstance(phase, int) and 0 <= phase < len(self._phases),
            f"There are {len(self._phases)} phases, numbered from 0; {phase!r} is none of them.",
        )
        return self._phases[phase]

    def useSeparateBackwardPhase(self, use: bool = True) -> _IPhasedExecution:
        """Do not share the last forward phase with the first backward phase."""
        if boolean("useSeparateBackwardPhase", use):
            note("useSeparateBackwardPhase", _TIMING)
        return self

    def _default_ipu(self, stage: Stage) -> int:
        return stage._stage_id

    def place(self, user_id: BlockId | None, ipu_id: int | None) -> Placement:
        stage = self.stage(str(user_id))
        ipu = next(i for i in (stage._ipu, ipu_id, self._default_ipu(stage)) if i is not None)
        return Placement(ipu=ipu, stage=stage._stage_id, phase=stage._phase_id, block=str(user_id))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._phases))})"


class ParallelPhasedExecution(_IPhasedExecution):
    """Phases alternate between two groups of IPUs: even phases on even IPUs, odd phases on odd ones."""

    kind = "parallel_phased"

    def sendTensorsOffChipAfterFwd(self, off_chip: bool = True) -> ParallelPhasedExecution:
        """Send activations to streaming memory after the forward pass, also where a phase could keep them."""
        if not boolean("sendTensorsOffChipAfterFwd", off_chip):
            note("sendTensorsOffChipAfterFwd(False)", _TIMING)
        return self

    @property
    def phased(self) -> str:
        return "parallel"

    def _default_ipu(self, stage: Stage) -> int:
        return stage._phase_id % 2 + 2 * stage._stage_id


class SerialPhasedExecution(_IPhasedExecution):
    """All phases run on the same group of IPUs."""

    kind = "serial_phased"

    def __init__(self, *phases: Any) -> None:
        self._liveness = Liveness.AlwaysLive
        super().__init__(*phases)

    def setTensorsLiveness(self, liveness: Liveness) -> SerialPhasedExecution:
        """When the tensors of a phase leave the chip."""
        self._liveness = member("setTensorsLiveness", liveness, Liveness)
        return self

    @property
    def phased(self) -> str:
        return "" if self._liveness is Liveness.AlwaysLive else "serial"
