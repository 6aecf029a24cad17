"""Readers written for the vendor's library, on reports of Abele: the fields that they touch, and sums over them."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pva
from abele.errors import AbeleError, BadReport, InvalidOption
from abele.report.store import SCHEMA, write
from abele.report.store import Report as File
from tests.report.synthetic import Shape, program

Type = pva.Program.Type

PROGRAM = """
import torch, poptorch

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(24, 40), torch.nn.Linear(40, 8)

    def forward(self, x, y):
        z = torch.softmax(self.second(torch.relu(self.first(x))), 1)
        return z, poptorch.identity_loss(((z - y) ** 2).sum(), reduction="none")

options = poptorch.Options().replicationFactor(2)
options.Training.gradientAccumulation(4)
model = Block()
trained = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=0.1))
trained(torch.rand(16, 24), torch.rand(16, 8))
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipelined training step of two IPUs, and the empty program."""
    path = tmp_path_factory.mktemp("pva") / "profile.pop"
    write(path, (program(shape) for shape in (Shape(2, 64, 600, fill=1.3), Shape(1, 64, 0))))
    return path


@pytest.fixture(scope="module")
def synthetic(path: Path) -> pva.Report:
    return pva.openReport(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a poptorch program wrote its reports, as the engine's options asked."""
    folder = tmp_path_factory.mktemp("mydirectory")
    (folder / "program.py").write_text(PROGRAM)
    with pytest.MonkeyPatch.context() as patch:
        asked = {"autoReport.all": "true", "autoReport.directory": str(folder)}
        patch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(asked))
        exec(compile(PROGRAM, str(folder / "program.py"), "exec"), {"__name__": "__main__"})
    return folder


@pytest.fixture(scope="module")
def trained(folder: Path) -> pva.Report:
    return pva.openReport(str(folder / "training" / "profile.pop"), str(folder / "debug.cbor"))


@pytest.fixture(scope="module", params=["synthetic", "trained"])
def report(request: pytest.FixtureRequest) -> pva.Report:
    return request.getfixturevalue(request.param)


def test_what_tutorials_print(trained: pva.Report) -> None:
    compilation = trained.compilation
    assert compilation.graph.numComputeSets == len(compilation.computeSets) > 10
    assert compilation.target.numTiles == len(compilation.tiles) == 2 * len(compilation.ipus[0].tiles)
    assert trained.poplarVersion.string.startswith("Abele ") and trained.poplarVersion.major >= 0
    assert compilation.target.architecture is pva.IPU.Architecture.Ipu21
    assert compilation.target.totalMemory == compilation.target.numTiles * 624 * 1024
    assert (compilation.target.numIPUs, compilation.target.numReplicas) == (2, 2)
    assert trained.version.major == SCHEMA and not trained.version.isUnstableFormat
    settings = trained.instrumentationSettings
    assert settings.compute is settings.ComputeInstrumentationLevel.Tile


def test_cycles_of_steps_are_those_of_the_run(trained: pva.Report) -> None:
    execution = trained.execution
    (run,) = execution.runs
    total = execution.totalCycles.total
    assert sum(step.ipus[0].cycles for step in execution.steps) == pytest.approx(total, rel=1e-3)
    assert run.cyclesByIpu == [total, total]
    assert f"{execution.totalCycles:,}" and len(run.steps) == len(execution.steps)
    microseconds = run.microseconds.end - run.microseconds.start
    assert microseconds == pytest.approx(1e6 * total / trained.compilation.target.clockFrequency, rel=1e-5)
    often = Counter(step.name for step in execution.steps if step.program.type is Type.OnTileExecute)
    assert often["first/fused matmul"] % 4 == 0  # of each micro-batch


def test_steps_are_in_order_and_of_the_programs(report: pva.Report) -> None:
    before = 0
    for step in report.execution.steps[::7]:
        at = step.ipus[0].activeCycles
        assert before <= at.cyclesFrom.min <= at.cyclesFrom.max <= at.cyclesTo.min <= at.cyclesTo.max
        before = at.cyclesFrom.max
    runs = Counter(step.program for step in report.execution.steps)
    assert set(runs) <= set(report.compilation.programs)


def test_a_visitor_is_called_by_type(report: pva.Report) -> None:
    intervals: dict[str, list[tuple[int, int]]] = defaultdict(list)

    class Intervals(pva.ProgramVisitor):
        def __init__(self, active) -> None:
            super().__init__()
            self.active = active

        def visitOnTileExecute(self, it: pva.OnTileExecute) -> None:
            assert all(vertex.type.name for vertex in it.computeset.vertices)
            intervals["compute"].append((self.active.cyclesFrom.max, self.active.cyclesTo.max))

        def visitDoExchange(self, it: pva.Program) -> None:
            intervals["exchange"].append((self.active.cyclesFrom.max, self.active.cyclesTo.max))

        def visitStreamCopyMid(self, it: pva.Program) -> None:
            intervals["host"].append((self.active.cyclesFrom.max, self.active.cyclesTo.max))

    for step in report.execution.runs[0].steps:
        step.program.accept(Intervals(step.ipus[0].activeCycles))
    assert set(intervals) == {"compute", "exchange", "host"}


def test_memory_of_tiles_is_that_of_the_store(path: Path, synthetic: pva.Report) -> None:
    with File(path) as file:
        tiles, limit = file.table("tiles"), file.summary()["tile_memory"]["limit"]
    memories = [tile.memory for tile in synthetic.compilation.tiles]
    assert [m.total.includingGaps for m in memories] == tiles.numbers("total").tolist()
    assert max(m.overflowed.excludingGaps for m in memories) == tiles.numbers("total").max() - limit > 0
    assert [m.category.vertexCode.total for m in memories] == tiles.numbers("vertex code").tolist()
    first = memories[0]
    categories = [getattr(first.category, name).total for name in dir(first.category)]
    assert sum(categories) == first.total.excludingGaps == first.alwaysLiveBytes + first.notAlwaysLiveBytes
    with pytest.raises(AttributeError, match="no category 'vertexcode'"):
        first.category.vertexcode  # noqa: B018


def test_what_programs_keep_on_tiles_is_what_the_tiles_are_charged(trained: pva.Report) -> None:
    """Code and state of all programs together, tile by tile: what equal operations share is counted once."""
    compilation = trained.compilation
    exchange, control, state = np.zeros((3, compilation.target.numTiles), np.int64)
    for each in compilation.programs:
        exchange += each.codeBytesByTile
        control += 0 if each.children else np.array(each.controlCodeByTile)
        assert each.type is Type.DoExchange or not any(each.codeBytesByTile)
        if each.type is Type.OnTileExecute:
            for vertex in each.computeset.vertices:
                placed = np.array(vertex.countByTile)
                assert placed.max() == 1 and placed.sum() == vertex.count * compilation.target.numReplicas
                state += placed * vertex.type.size
    memories = [tile.memory for tile in compilation.tiles]
    assert exchange.tolist() == [m.category.internalExchangeCode.total for m in memories]
    assert control.tolist() == [m.category.controlCode.total for m in memories]
    assert state.tolist() == [m.category.vertexInstanceState.total for m in memories]
    code = [sum(vertex.codeBytes for vertex in m.vertices) for m in memories]
    assert code == [m.category.vertexCode.total for m in memories] and min(code) < max(code)
    assert compilation.programs[0].controlCodeByTile == control.tolist()  # all that it runs with it


def test_vertices_of_a_compute_set_have_their_code_on_its_tiles(trained: pva.Report) -> None:
    compilation = trained.compilation
    on_tile = [{vertex.type.name for vertex in tile.memory.vertices} for tile in compilation.tiles]
    for computeset in compilation.computeSets:
        cycles = computeset.estimatedCyclesByTile
        for vertex in computeset.vertices:
            placed = vertex.countByTile
            assert vertex.type.size or all(vertex.type.name in on_tile[tile] for tile in np.flatnonzero(placed))
            assert not any(cycles[tile] for tile in np.flatnonzero(np.array(placed) == 0))
    sizes = {(v.type.name, v.type.size) for each in compilation.computeSets for v in each.vertices}
    assert len(sizes) == len(dict(sizes)) > len(on_tile[0])  # a name has one size: readers add up by names
    edges = sum(next(iter(each.vertices)).count for each in compilation.computeSets if each.vertices)
    assert compilation.graph.numEdges > edges == compilation.graph.numVertices


def test_lowered_variables_are_the_variables_tile_by_tile(report: pva.Report) -> None:
    compilation = report.compilation
    lowered, tiles = compilation.loweredVariables, compilation.target.numTiles
    everything = list(lowered.allBriefVars)
    assert [var.id for var in everything] == list(range(len(lowered.allBriefVars)))
    sizes: Counter[pva.Variable] = Counter()
    by_tile: list[dict[int, int]] = [{} for _ in range(tiles)]
    for var in everything:
        assert var.bytes > 0
        sizes[var.unloweredVar] += var.bytes
        by_tile[var.tileId][var.id] = var.bytes
    replicas = compilation.target.numReplicas
    assert all(size == variable.size * replicas for variable, size in sizes.items())
    for tile in (0, 5, tiles - 1, -1, -tiles):
        assert {var.id: var.bytes for var in lowered.forTile(tile)} == by_tile[tile]
    middle = lowered.allBriefVars[len(everything) // 2]
    other = everything[len(everything) // 2]
    assert (middle.id, middle.tileId, middle.bytes) == (other.id, other.tileId, other.bytes)


def test_a_tile_or_an_ipu_that_is_not_there_is_named(report: pva.Report) -> None:
    compilation = report.compilation
    step, target = compilation.livenessProgramSteps[0], compilation.target
    tiles, ipus = target.numTiles, target.numTiles // target.tilesPerIpu
    for of in (
        compilation.loweredVariables.forTile,
        compilation.alwaysLiveVariablesForTile,
        step.notAlwaysLiveMemoryForTile,
    ):
        for tile in (tiles, -tiles - 1):
            with pytest.raises(IndexError, match=f"There is no tile {tile}: the report has {tiles}"):
                of(tile)
    with pytest.raises(IndexError, match=f"There is no IPU {ipus}: the report has {ipus}"):
        step.notAlwaysLiveMemoryForIpu(ipus)
    assert step.notAlwaysLiveMemoryForIpu(-1).bytes == step.notAlwaysLiveMemoryForIpu(ipus - 1).bytes


def test_lowered_variables_are_live_when_the_tile_is_charged_for_them(report: pva.Report) -> None:
    compilation = report.compilation
    steps, lowered = compilation.livenessProgramSteps, compilation.loweredVariables
    for tile in (1, compilation.target.tilesPerIpu - 1):
        line = np.zeros(len(steps), np.int64)
        for var in lowered.forTile(tile):
            for interval in var.equivalenceClass.steps:
                line[interval.start : interval.end] += var.bytes
        always = compilation.alwaysLiveVariablesForTile(tile)
        tensors = sum(v.size for v in always if v.name not in ("vertexCode", "controlCode", "stack", *OTHER_CODE))
        for at in range(0, len(steps), 11):
            there = steps[at].notAlwaysLiveMemoryForTile(tile)
            assert there.bytes == line[at] - tensors == sum(v.size for v in there.variables)


OTHER_CODE = ("vertexInstanceState", "internalExchangeCode")


def test_the_memory_of_a_tile_is_what_lives_on_it(trained: pva.Report) -> None:
    """At its peak, and always; with them the parts that readers add up."""
    compilation = trained.compilation
    for tile in (0, 7, compilation.target.numTiles - 1):
        memory = compilation.tiles[tile].memory
        always = sum(variable.size for variable in compilation.alwaysLiveVariablesForTile(tile))
        assert always == memory.alwaysLiveBytes
        peak = max(s.notAlwaysLiveMemoryForTile(tile).bytes for s in compilation.livenessProgramSteps)
        assert peak <= memory.notAlwaysLiveBytes  # moments without a program are no steps


def test_an_operation_uses_what_it_makes_and_reads(trained: pva.Report) -> None:
    names: dict[str, set[str]] = {}
    for operation in pva.OperationAnalysis(trained).operations:
        used = {var.unloweredVar for var in operation.vars}
        names.setdefault(operation.name, set()).update(variable.name for variable in used)
        first, last = operation.firstStepIndex, operation.lastStepIndex
        if first >= 0 and used:
            classes = {var.equivalenceClass for var in operation.vars}
            spans = [interval for each in classes for interval in each.steps]
            assert any(span.start <= last and first < span.end for span in spans)
        assert len(operation.vars) == len(list(operation.vars))
    assert {"first/weight", "first/bias"} <= names["first/fused matmul"]


def test_reports_of_the_schema_before_have_all_but_code(path: Path, tmp_path: Path) -> None:
    older = tmp_path / "older.pop"
    with closing(sqlite3.connect(path)) as file, closing(sqlite3.connect(older)) as copy:
        file.backup(copy)
        copy.execute("delete from packet where name in ('code', 'codelets')")
        copy.execute("delete from meta where key = 'check'")
        copy.execute("update meta set value = '0.0.7' where key = 'abele'")
        copy.execute("pragma user_version = 2")
        copy.commit()
    report = pva.openReport(older)
    assert report.execution.totalCycles.total > 0 and len(report.compilation.loweredVariables.allBriefVars)
    assert (report.version.major, pva.openReport(path).version.major) == (2, SCHEMA)
    assert (report.poplarVersion.string, report.poplarVersion.point) == ("Abele 0.0.7", 7)
    with pytest.raises(pva.NotInReport, match="no table 'codelets'"):
        _ = report.compilation.tiles[0].memory.vertices


def test_variables_and_liveness(report: pva.Report) -> None:
    compilation = report.compilation
    replicas, ipus = compilation.target.numReplicas, compilation.target.ipusPerReplica
    always = sum(variable.size for variable in compilation.alwaysLiveVariables)
    assert always > 0
    peak = max(compilation.livenessProgramSteps, key=lambda step: step.notAlwaysLiveMemory.bytes)
    there = peak.notAlwaysLiveMemory
    assert there.bytes == sum(variable.size for variable in there.variables) > 0
    by_ipu = [peak.notAlwaysLiveMemoryForIpu(i) for i in range(ipus)]
    assert sum(memory.bytes for memory in by_ipu) == there.bytes and peak.program.name
    if replicas > 1:  # of a real program: code and stacks are variables too
        assert always == sum(tile.memory.alwaysLiveBytes for tile in compilation.tiles) / replicas
        assert {"vertexCode", "controlCode", "stack"} <= {v.name for v in compilation.alwaysLiveVariables}


def test_cycles_by_tile_are_those_of_the_compute_sets(report: pva.Report) -> None:
    sums: Counter[str] = Counter()
    tiles = report.compilation.target.numTiles
    for step in report.execution.steps[:200]:
        column = step.cyclesByTile
        assert len(column) == tiles
        sums[step.program.type.name] += sum(column)
        (ipu, *_) = step.ipus
        assert 0 <= ipu.tileBalance <= ipu.activeTileBalance <= 1 + 1e-9
        for computeset in step.computeSets:
            assert max(computeset.estimatedCyclesByTile) == max(column)
            charged = max(each.cycles for each in step.ipus)
            assert max(column) == pytest.approx(charged, abs=1)
    assert sums["OnTileExecute"] > 0 and sums["Sync"] > 0


def test_data_goes_in_and_out(trained: pva.Report) -> None:
    steps = [step for step in trained.execution.steps if step.program.type is Type.StreamCopyMid]
    come, go = (sum(getattr(step.ipus[0], name) for step in steps) for name in ("dataIn", "dataOut"))
    micro_batches, loss = 4 * 2 * (24 + 8) * 4, 4 * 4
    assert come == micro_batches and go >= loss


def test_the_tree_of_programs(synthetic: pva.Report) -> None:
    programs = synthetic.compilation.programs
    main = programs[0]
    assert main.type is Type.Sequence and main.name == "main"
    seen: set[pva.Program] = set()
    below = [main]
    while below:
        each = below.pop()
        if each not in seen:
            seen.add(each)
            below += each.children
    assert seen == set(programs)


def test_stages_overlap(synthetic: pva.Report) -> None:
    """As the table ``pipeline`` has them: both IPUs compute at the same time."""
    times: dict[int, list[tuple[int, int]]] = {0: [], 1: []}
    for step in synthetic.execution.steps:
        if step.program.type is Type.OnTileExecute:
            for ipu, spans in times.items():
                if step.ipus[ipu].cycles:
                    active = step.ipus[ipu].activeCycles
                    spans.append((active.cyclesFrom.min, active.cyclesTo.max))
    first, second = (np.array(times[ipu]) for ipu in times)
    assert any(((a < second[:, 1]) & (b > second[:, 0])).any() for a, b in first)
    total = synthetic.execution.totalCycles
    assert max(first.max(), second.max()) <= total


def test_operations_have_layers_and_lines(folder: Path, trained: pva.Report) -> None:
    lines = PROGRAM.splitlines()
    found, inputs = {}, {}
    for operation in pva.OperationAnalysis(trained).operations:
        described = json.loads(operation.debugContext.json)
        assert operation.name == described["op_name"]
        assert described["layer"] == ("poptorch" if operation.debugContext.location.fileName else "abele")
        inputs[operation.name, described["phase"]] = described["inputs"]
        assert operation.name.endswith(described["op_type"])
        location = operation.debugContext.location
        if described["phase"] == "forward" and location.fileName:
            found[operation.name] = lines[location.lineNumber - 1]
        steps = trained.compilation.livenessProgramSteps
        if operation.firstStepIndex >= 0:
            assert steps[operation.firstStepIndex].program == operation.programs()[0]
            assert operation.firstStepIndex <= operation.lastStepIndex < len(steps)
    assert {"first/weight", "first/bias"} <= set(inputs["first/fused matmul", "forward"])
    assert "torch.softmax" in found["softmax"] and "self.first(x)" in found["first/fused matmul"]


def test_the_trace_holds_events_in_events(path: Path, synthetic: pva.Report) -> None:
    trace = pva.openTrace(path)
    assert [process.pid for process in trace.processes] == [0, 1]
    process = trace.processes[0]
    assert [thread.name for thread in process.threads] == ["IPU 0", "IPU 1"]
    events = process.threads[0].events
    lasted = 0.0
    for event in events[:100]:
        assert event.label and event.duration >= 0
        lasted += event.duration
        for inner in event.children():
            assert event.start <= inner.start and inner.end <= event.end + 1e-9 and not inner.children()
    assert 0 < lasted < 1e6 * synthetic.execution.totalCycles / synthetic.compilation.target.clockFrequency


def test_what_a_report_does_not_hold_is_said(synthetic: pva.Report) -> None:
    compilation = synthetic.compilation
    exchange = next(p for p in compilation.programs if p.type is Type.DoExchange)
    vertex = compilation.computeSets[0].vertices[0]
    for thing, field in (
        (compilation.target, "minSyncDelay"),
        (compilation.target, "relativeSyncDelayByTile"),
        (compilation.tiles[0].memory.category.vertexCode, "interleaved"),
        (vertex, "codeBytes"),
    ):
        with pytest.raises(pva.NotInReport, match="A report of Abele has no"):
            getattr(thing, field)
        assert getattr(thing, field, None) is None  # readers that ask whether it is there go on
    assert issubclass(pva.NotInReport, AbeleError)
    assert not hasattr(exchange, "computeset")
    assert len(synthetic.execution.blocks) == len(synthetic.execution.blocks(0)) == 0


def test_every_field_answers_or_says_why_not(report: pva.Report) -> None:
    """As a reader does that prints whatever there is."""
    refused = set()

    def walk(thing: object, depth: int) -> None:
        for name in dir(thing):
            if name.startswith("_"):
                continue
            try:
                value = getattr(thing, name)
            except pva.NotInReport as error:
                refused.add(str(error).split(" has no ")[1].split(". ")[0])
                continue
            if type(value).__module__.startswith("pva.") and depth:
                walk(value[0] if isinstance(value, Sequence) and len(value) else value, depth - 1)
            elif isinstance(value, list) and value:
                walk(value[0], depth - 1)

    walk(report, 4)
    steps = {step.program.type: step for step in report.execution.steps[:400]}
    for step in steps.values():
        walk(step.ipus[0], 2)
    walk(pva.OperationAnalysis(report).operations[0], 2)
    assert refused >= {"target.minSyncDelay", "vertex.codeBytes", "run.programs"}
    assert not any(word in each for each in refused for word in ("lowered", "vertices", "countByTile", "CodeByTile"))


def test_what_cannot_be_opened_is_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"no report .*missing\.pop"):
        pva.openReport(tmp_path / "missing.pop")
    with pytest.raises(InvalidOption, match="debug information"):
        pva.openReport(path, tmp_path / "missing.cbor")
    (tmp_path / "other.pvti").write_bytes(b"SQLite format 3\0" + bytes(200))
    with pytest.raises(BadReport, match="not public"):
        pva.openTrace(tmp_path / "other.pvti")


def test_lists_are_made_item_by_item(synthetic: pva.Report) -> None:
    steps = synthetic.execution.steps
    assert [step.name for step in steps[2:9:3]] == [steps[i].name for i in (2, 5, 8)]
    assert steps[-1].name == steps[len(steps) - 1].name and steps[:0].__len__() == 0
    with pytest.raises(IndexError):
        steps[len(steps)]


def test_more_steps_than_memory_holds_are_refused_before_they_are_made(tmp_path):
    one = program(Shape(1, 8, 60))
    kinds, count = one.tables["operations"]["kind"].tolist(), np.array(one.tables["operations"]["count"])
    count[[kind in ("call", "repeat") for kind in kinds]] = 10**9
    operations = {**one.tables["operations"], "count": count}
    write(tmp_path / "long.pop", [replace(one, tables={**one.tables, "operations": operations})])
    report = pva.openReport(tmp_path / "long.pop")
    with pytest.raises(AbeleError, match="no more than 20,000,000 steps"):
        _ = report.execution.runs
