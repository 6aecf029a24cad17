"""The few figures of a program that are followed live are those of its profile."""

import pytest

from abele.charge import charged
from abele.charge.figures import figures
from abele.compile.executable import compile_graph
from abele.cost import cost
from abele.machine.system import find_system
from abele.programs import compile_options, load


def compiled(model="mlp", system="bow-2000", batch=4, **settings):
    loaded = load(model, batch=batch, train=True, small=True)
    system = find_system(system)
    return compile_graph(loaded.graph, compile_options(loaded, system=system, **settings)).schedule, system


def test_those_of_one_ipu():
    schedule, system = compiled(accumulate=3)
    profile, found = cost(schedule, system, samples=12), figures(charged(schedule, system))
    assert found["seconds"] == profile.seconds and found["cycles_by"] == profile.cycles.as_dict()
    assert found["memory"] == {"max": profile.memory.max, "limit": profile.memory.limit, "fits": True}
    assert found["loop"]["count"] == 3 and 0 < found["loop"]["cycles"] < found["cycles"]
    (stage,) = found["stages"]
    assert sum(v for v in stage.values() if isinstance(v, float)) <= 1
    assert stage["compute"] == pytest.approx(profile.cycles.compute / profile.cycles.total)
    streams = [step for step in profile.steps if step.stream]
    moved = sum(step.streamed * step.times for step in streams) + sum(charged(schedule, system).charger.ends_bytes())
    assert found["host_in"] + found["host_out"] == moved and found["host_in"] > found["host_out"] > 0
    assert 0 < found["busy"] <= 1


def test_those_of_a_pipeline():
    schedule, system = compiled(stages=2, accumulate=8, replicas=2)
    found = figures(charged(schedule, system))
    assert (found["ipus"], found["replicas"]) == (2, 2)
    assert [stage["ipu"] for stage in found["stages"]] == [0, 1]
    for stage in found["stages"]:
        assert 0 < sum(v for v in stage.values() if isinstance(v, float)) < 1, "it waits for the other, and at the ends"
    loop = found["loop"]
    assert (loop["stages"], loop["ramp"]) == (2, 2)
    assert found["cycles_by"]["bubble"] == pytest.approx(loop["bubble"])
    assert 0 < loop["bubble"] < loop["ramp"] * loop["slot"], "only some stages run while it fills and drains"


def test_waits_are_told_apart_by_what_is_waited_for():
    """Transfers of the host, and those of streaming memory by what lies there."""
    schedule, system = compiled(system="m2000", accumulate=2, optimizer="adam", offload=True, offload_weights=True)
    profile, found = cost(schedule, system, samples=8), figures(charged(schedule, system))
    waits = found["waits"]
    assert set(waits) == {"data", "optimizer state", "weights"}
    assert sum(wait["cycles"] for wait in waits.values()) == pytest.approx(profile.cycles.host)
    moments = [t for t in schedule.tensors.values() if t.source.startswith("optimiser.") and t.kind == "remote"]
    kept = sum(t.type.bytes for t in moments)
    assert waits["optimizer state"]["moved"] == 2 * kept and waits["optimizer state"]["tile"] == -(-kept // 1472)
    for kind, part in (("optimizer state", "update"), ("weights", "forward")):
        spent = sum(
            step.cycles.host * step.times
            for step in profile.steps
            if step.name == "remote_load" and step.origin.phase == part
        )
        assert 0 < spent <= waits[kind]["cycles"]
    # What a transfer beside compute is waited for counts as its.
    schedule, system = compiled(system="m2000", accumulate=2, optimizer="adam", offload=True, io_tiles=32)
    waits, host = figures(charged(schedule, system))["waits"], charged(schedule, system).cycles.host
    assert sum(wait["cycles"] for wait in waits.values()) == pytest.approx(host)


def test_what_is_done_once_a_step():
    for accumulate in (1, 4):
        schedule, system = compiled(system="m2000", accumulate=accumulate, optimizer="adam")
        found, profile = figures(charged(schedule, system)), cost(schedule, system, samples=4 * accumulate)
        updates = sum(s.cycles.total * s.times for s in profile.steps if s.origin.phase == "update")
        assert updates + profile.cycles.overhead <= found["once"] * 1.001 < found["cycles"]
