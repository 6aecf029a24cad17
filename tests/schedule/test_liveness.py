"""Storage sharing and live ranges, on programs small enough to follow by hand."""

import dataclasses

from handmade import add_plan, dense, loop, plain, scale_plan

from abele.ir.graph import Origin, Port
from abele.ir.types import f32
from abele.schedule import Axis, Call, Function, Grid, Repeat, Schedule, Step, Tensor, Use, spread
from abele.schedule.liveness import Interval, liveness
from abele.schedule.records import abreast

TILES = 4
HOME = plain(Grid((Axis("n", 8, 4),), TILES), (8,), 0)


def use(name):
    return Use(name, f32(8))


def scale(source, target, **origin):
    return Step("hand_scale", (use(source),), (use(target),), {}, scale_plan(HOME, 2.0), Origin(**origin))


def add(a, b, target, **origin):
    return Step("hand_add", (use(a), use(b)), (use(target),), {}, add_plan(HOME), Origin(**origin))


def program(nodes, results, functions=(), inputs=("w",), states=True, kinds=None, homes=None):
    """A program over f32[8] tensors that all lie alike; parameters of main are states, named as they are."""
    main = Function("main", inputs, results, tuple(nodes))
    made = {f.name: f for f in functions}
    tensors = {}
    for function in (main, *functions):
        for name in function.parameters:
            kind = ("state" if states else "data") if function is main else "argument"
            tensors[name] = Tensor(name, f32(8), (kinds or {}).get(name, kind), (homes or {}).get(name, HOME))
        for node in function.nodes:
            for result in node.results:
                name = result.tensor if isinstance(result, Use) else result
                tensors[name] = Tensor(name, f32(8), "value", (homes or {}).get(name, HOME), node.origin.ipu)
    ports = tuple(Port(tensors[n].kind, n) for n in inputs)
    outs = tuple(
        Port("state", inputs[i]) if states and i < len(inputs) else Port("anchor", n) for i, n in enumerate(results)
    )
    return Schedule("p", "bow", TILES, 1, 1, tensors, main, made, ports, outs)


def ranges(live):
    return {i.tensor: (i.first, i.last) for i in live.intervals}


def test_values_live_from_maker_to_last_reader():
    live = liveness(dense())
    # begin, three steps, end
    assert [m.kind for m in live.moments] == ["begin", "step", "step", "step", "end"]
    assert ranges(live) == {"x": (0, 1), "xw": (1, 2), "z": (2, 3), "y": (3, 4)}
    assert set(live.always) == {"w", "bias"}


def test_state_is_updated_in_place_when_nobody_reads_the_old_value():
    live = liveness(program([scale("w", "v")], ("v",)))
    assert live.storage["v"] == "w"
    assert live.final == () and live.intervals == ()
    read_later = liveness(program([scale("w", "v"), add("w", "v", "u")], ("v", "u")))
    assert read_later.storage["v"] == "v"
    assert read_later.final == (("v", "w"),)
    elsewhere = liveness(program([scale("w", "v")], ("v",), homes={"v": spread(8, TILES, first=1)}))
    assert elsewhere.final == (("v", "w"),)


def test_steps_that_start_together_hold_what_all_of_them_touch():
    nodes = [scale("w", "a"), scale("a", "b"), dataclasses.replace(scale("w", "c"), beside=True), add("b", "c", "d")]
    live = liveness(program(nodes, ("d",), states=False))
    assert abreast(nodes) == [(0, 0), (1, 2), (1, 2), (3, 3)]
    assert ranges(live) == {"w": (0, 3), "a": (1, 3), "b": (2, 4), "c": (2, 4), "d": (4, 5)}


def test_a_state_is_not_written_over_while_another_step_reads_it():
    update = scale("w", "v")
    for others, storage in (([], "w"), ([dataclasses.replace(scale("w", "u"), beside=True)], "v")):
        live = liveness(program([update, *others], ("v", *("u" for _ in others))))
        assert live.storage["v"] == storage
    reader = [scale("w", "u"), dataclasses.replace(update, beside=True)]
    assert liveness(program(reader, ("v", "u"))).storage["v"] == "v"


def body(*nodes, parameters, results, name="body"):
    return Function(name, parameters, results, nodes)


def test_a_loop_binds_without_copies():
    f = body(scale("k", "a"), add("acc", "a", "b"), parameters=("acc", "k"), results=("b",))
    start = scale("w", "zero")
    live = liveness(program([start, Repeat("body", 3, ("zero", "w"), ("t",)), scale("t", "out")], ("out",), [f]))
    (copies,) = live.copies.values()
    assert (copies.entry, copies.turns, copies.exit) == ((), (), ())
    assert live.storage["k"] == "w"
    assert {live.storage[n] for n in ("zero", "acc", "b", "t")} == {"zero"}
    # begin, scale, enter, scale, add, exit, scale, end: the accumulator lives from its making to its reading
    assert ranges(live) == {"zero": (1, 6), "a": (3, 4)}


def test_a_loop_copies_what_is_still_needed():
    f = body(add("acc", "k", "b"), add("acc", "b", "c"), parameters=("acc", "k"), results=("b",))
    nodes = [scale("w", "zero"), Repeat("body", 3, ("zero", "w"), ("t",)), add("t", "zero", "out")]
    live = liveness(program(nodes, ("out",), [f]))
    (copies,) = live.copies.values()
    assert copies.entry == (("zero", "acc"),)  # zero is read again after the loop
    assert copies.turns == (("b", "acc"),)  # acc is read again after b is made
    assert ranges(live)["acc"] == (2, 5)


def test_a_function_called_twice_copies_what_differs():
    f = body(add("p", "q", "r"), parameters=("p", "q"), results=("r",))
    nodes = [scale("w", "x"), Call("body", ("x", "w"), ("y",)), Call("body", ("y", "w"), ("z",))]
    live = liveness(program(nodes, ("z",), [f]))
    assert live.storage["q"] == "w"
    first, second = (live.copies[id(n)] for n in nodes[1:])
    assert (first.entry, first.exit) == ((("x", "p"),), (("r", "y"),))
    assert (second.entry, second.exit) == ((("y", "p"),), (("r", "z"),))
    assert [i for i in live.intervals if i.tensor == "p"] == [Interval("p", 2, 3), Interval("p", 5, 6)]


def test_reading_the_loop_result_keeps_its_operand():
    """The inner loop works in its operand's storage, so what it returns must be read before that is overwritten."""
    inner = body(scale("i", "j"), parameters=("i",), results=("j",), name="inner")
    outer = body(
        Repeat("inner", 2, ("o",), ("t",)),
        scale("t", "next"),
        add("t", "next", "late"),
        parameters=("o",),
        results=("next",),
        name="outer",
    )
    live = liveness(program([Repeat("outer", 2, ("w",), ("end",))], ("end",), [outer, inner]))
    assert live.storage["t"] == "w"
    assert live.storage["next"] != "w"
    assert (("next", "o"),) in [c.turns for c in live.copies.values()]


def test_pipeline_stash():
    """A value of stage 0 of 3 that the backward pass reads waits five slots; one that stays in its stage waits none."""
    f = body(
        scale("acc", "a", stage=0),
        scale("a", "b", stage=1),
        scale("b", "c", stage=2),
        scale("c", "d", stage=2, phase="backward"),
        add("d", "b", "e", stage=1, phase="backward"),
        add("e", "a", "g", stage=0, phase="backward"),
        parameters=("acc",),
        results=("g",),
    )
    live = liveness(program([Repeat("body", 8, ("w",), ("t",), 3)], ("t",), [f]))
    found = {i.tensor: i for i in live.intervals}
    whole = (1, len(live.moments) - 2)
    assert found["a"] == Interval("a", *whole, 5)
    assert found["b"] == Interval("b", *whole, 3)
    assert found["c"].copies == 1
    by_halves = liveness(program([Repeat("body", 8, ("w",), ("t",), 3, pipeline="interleaved")], ("t",), [f]))
    assert {i.tensor: i.copies for i in by_halves.intervals if i.tensor in "abc"} == {"a": 3, "b": 2, "c": 1}
    one_by_one = liveness(program([Repeat("body", 8, ("w",), ("t",), 3, pipeline="sequential")], ("t",), [f]))
    assert all(i.copies == 1 for i in one_by_one.intervals)
    plain_loop = liveness(program([Repeat("body", 8, ("w",), ("t",))], ("t",), [f]))
    assert all(i.copies == 1 for i in plain_loop.intervals)


def test_outputs_live_to_the_end_and_data_from_the_beginning():
    live = liveness(program([scale("w", "a"), scale("a", "b")], ("a", "b"), states=False))
    assert ranges(live) == {"w": (0, 1), "a": (1, 3), "b": (2, 3)}


def test_times():
    live = liveness(loop(count=3))
    times = {getattr(m.node, "operation", None): m.times for m in live.moments if m.kind == "step"}
    assert times["hand_stencil"] == 3 and times["all_reduce"] == 1
    assert dataclasses.asdict(live.moments[0])["depth"] == 0
