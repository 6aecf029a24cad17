"""A profile in full: its tables add up to the profile, tile by tile and moment by moment."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abele import programs
from abele.charge import charged
from abele.charge.columns import Columns, holder, holds, regions
from abele.charge.detail import Flows, groups_of, work_column
from abele.compile.executable import compile_graph
from abele.cost import cost, detail
from abele.cost.pipeline import MOST
from abele.cost.profile import nodes_run
from abele.cost.trust import band_of
from abele.machine import bow, find_system, one_ipu
from abele.schedule import Axis, Grid, Layout, Repeat, Span, Step, spread

TILES = one_ipu(bow.derive("few", tiles=48))
PROGRAMS = {
    "mlp": ("mlp", TILES, {"train": True}),
    "cnn": ("mnist-cnn", find_system("bow-2000"), {"train": True, "half": True}),
    "bert": ("bert-base", find_system("bow-2000"), {"train": True, "stages": 2, "small": True}),
    "turns": (
        "bert-base",
        find_system("bow-2000"),
        {"train": True, "stages": 4, "small": True, "pipeline": "interleaved"},
    ),
    "long": ("mlp", find_system("bow-2000"), {"train": True, "stages": 2, "accumulate": MOST + 40}),
    "old": ("mlp", find_system("mk1-c2"), {}),
}


@pytest.fixture(scope="module", params=PROGRAMS)
def made(request):
    """A schedule, its system, its profile and its detail."""
    name, system, asked = PROGRAMS[request.param]
    settings = {"small": True, "stages": 1, "accumulate": 1, "pipeline": "grouped"} | asked
    loaded = programs.load(
        name, train=settings.pop("train", False), half=settings.pop("half", False), small=settings.pop("small")
    )
    if settings["stages"] > 1:
        settings["accumulate"] = max(settings["accumulate"], 2 * settings["stages"])
    options = programs.compile_options(loaded, system=system, optimizer="sgd", replicas=1, **settings)
    schedule = compile_graph(loaded.graph, options).schedule
    profile = cost(schedule, options.system)
    return schedule, options.system, profile, detail(profile, schedule, options.system)


def columns_of(tables, tiles):
    """The tile columns, laid out."""
    table = {name: np.asarray(column) for name, column in tables["columns"].items()}
    found = []
    for number in range(table["column"].max(initial=-1) + 1):
        own = table["column"] == number
        found.append(np.repeat(table["value"][own], np.diff(table["stop"][own], prepend=0)))
        assert len(found[-1]) == tiles
    return found


def test_operations_are_the_steps_and_add_up_to_the_time(made):
    schedule, _, profile, full = made
    table = {name: np.asarray(column) for name, column in full.tables["operations"].items()}
    assert len(table["id"]) == len(profile.steps)
    assert table["cycles"][table["parent"] == -1].sum() == pytest.approx(profile.cycles.total)
    parts = ("compute", "exchange", "links", "sync", "host", "bubble", "overhead")
    for part in parts:
        assert table[part][table["parent"] == -1].sum() == pytest.approx(getattr(profile.cycles, part))
    np.testing.assert_allclose(sum(table[part] for part in parts), table["cycles"])
    assert (table["flops"] * table["times"]).sum() * schedule.replicas == profile.flops
    calls = np.isin(table["kind"], ["call", "repeat"])
    assert ((table["callee"] != "") == calls).all()
    inside = table["parent"] >= 0
    assert (table["function"][inside] == table["callee"][table["parent"][inside]]).all()
    assert (table["id"][table["parent"] >= 0] != table["parent"][inside]).all()


def test_columns_say_tile_by_tile_what_is_charged(made):
    schedule, _, _, full = made
    columns, sets = columns_of(full.tables, schedule.tiles), full.tables["sets"]
    for i in range(len(sets["id"])):
        work, received = columns[sets["work"][i]], columns[sets["received"][i]]
        assert work.max() == np.ceil(sets["compute"][i])
        assert received.sum() == sets["received_bytes"][i]
        assert work.sum() == pytest.approx(sets["busy"][i], rel=1e-3)
        assert np.count_nonzero(work) <= sets["vertices"][i]


def test_code_and_state_of_compute_sets_are_what_tiles_are_charged(made):
    """The first of equal plans holds them, each further one adds its call; a kind of vertex has its code once."""
    schedule, _, profile, full = made
    columns, sets = columns_of(full.tables, schedule.tiles), full.tables["sets"]
    table, code = full.tables["operations"], full.tables["code"]
    assert list(code["id"]) == list(sets["id"])
    shape = schedule.ipus, schedule.tiles
    state, control, exchange, vertex = np.zeros((4, *shape), np.int64)
    further = np.bincount([like for like in table["like"] if like >= 0], minlength=len(table["id"])) - 1
    for i, row in enumerate(sets["operation"]):
        ipu, again = table["ipu"][row], further[row]
        there = np.zeros(schedule.tiles, np.int64)
        there[(code["first"][i] + np.arange(sets["vertices"][i])) % schedule.tiles] = 1
        assert not columns[sets["work"][i]][there == 0].any()
        state[ipu] += there * (code["state_bytes"][i] + again * code["state_again"][i])
        control[ipu] += code["control_bytes"][i] + again * code["control_again"][i]
        exchange[ipu] += columns[code["exchange"][i]]
        for name in filter(None, code["codelets"][i].split(", ")):
            own = [columns[on] for of, other, on in zip(*codelets(full), strict=True) if (of, other) == (ipu, name)]
            assert len(own) == 1 and (own[0] >= there).all()
    kinds = full.tables["codelets"]
    for ipu, size, on in zip(kinds["ipu"], kinds["bytes"], kinds["tiles"], strict=True):
        vertex[ipu] += size * columns[on]
    always = profile.memory.always
    for name, found in (("state", state), ("code", vertex)):
        np.testing.assert_array_equal(found, always[f"vertex {name}"])
    np.testing.assert_array_equal(control, always["control code"])
    np.testing.assert_array_equal(exchange, always["exchange code"])


def codelets(full):
    return (full.tables["codelets"][name] for name in ("ipu", "name", "tiles"))


def test_operations_that_are_alike_share_their_sets_and_traffic(made):
    *_, full = made
    table, sets, traffic = full.tables["operations"], full.tables["sets"], full.tables["traffic"]
    like = np.asarray(table["like"])
    rows = np.arange(len(like))
    first = like[like >= 0]
    assert (like[first] == first).all() and (first <= rows[like >= 0]).all()
    assert set(sets["operation"]) <= set(first) and set(traffic["operation"].tolist()) <= set(first)
    for link, name in enumerate(("exchange_bytes", "link_bytes")):
        own = traffic["links"] == link
        moved = np.bincount(traffic["operation"][own], traffic["bytes"][own], len(like))
        np.testing.assert_array_equal(np.where(like < 0, 0, moved[like]), table[name])
    assert (traffic["bytes"] > 0).all()


def test_traffic_ends_where_bytes_are_received(made):
    schedule, _, _, full = made
    columns, sets, traffic = columns_of(full.tables, schedule.tiles), full.tables["sets"], full.tables["traffic"]
    groups = groups_of(schedule.tiles)
    group = np.arange(schedule.tiles) * groups // schedule.tiles
    for operation in np.unique(sets["operation"]):
        own = [i for i, each in enumerate(sets["operation"]) if each == operation]
        received = sum(columns[sets["received"][i]] for i in own)
        here = (traffic["operation"] == operation) & (traffic["links"] == 0)
        got = np.bincount(traffic["target_group"][here], traffic["bytes"][here], groups)
        np.testing.assert_array_equal(got, np.bincount(group, received, groups))


def test_storages_add_up_to_what_the_tiles_hold(made):
    schedule, _, profile, full = made
    memory, line = profile.memory, full.tables["liveness"]
    categories = [name for name in line if name not in ("max", "mean")]
    total = np.sum([line[name] for name in categories], axis=0)
    assert total.max() == memory.max and total[memory.peak_step] == memory.max
    assert {name: line[name][memory.peak_step] for name in categories} == memory.categories
    assert (total <= np.asarray(line["max"])).all()
    placed = {name: np.asarray(column) for name, column in full.tables["placements"].items()}
    tensors, columns = full.tables["tensors"], columns_of(full.tables, schedule.tiles)
    for ipu, totals in enumerate(memory.totals):
        own = placed["ipu"] == ipu
        assert set(placed["tile"][own]) <= {totals.argmax()}
        live = np.zeros(len(total) + 1)
        np.add.at(live, placed["first"][own], placed["bytes"][own])
        np.add.at(live, placed["last"][own] + 1, -placed["bytes"][own])
        assert np.cumsum(live).max() == totals.max()
    for row in range(0, len(tensors["id"]), 7):
        home = columns[tensors["home"][row]] * tensors["copies"][row]
        assert (home.sum(), home.max()) == (tensors["bytes"][row], tensors["tile_bytes"][row])


def test_a_tile_holds_at_its_peak_what_lives_then(made):
    """Of a tile that is not the fullest: columns of what is always live, and the most of what comes and goes."""
    schedule, _, profile, full = made
    tensors, columns = full.tables["tensors"], columns_of(full.tables, schedule.tiles)
    ipu, tile, moments = 0, 5, len(full.tables["moments"]["start"])
    live = np.zeros(moments + 1)
    for row in range(len(tensors["id"])):
        if tensors["ipu"][row] == ipu:
            size = columns[tensors["home"][row]][tile] * tensors["copies"][row]
            live[tensors["first"][row]] += size
            live[tensors["last"][row] + 1] -= size
    assert np.cumsum(live).max() == profile.memory.totals[ipu, tile]


def test_moments_follow_the_program(made):
    _, _, profile, full = made
    moments, table = full.tables["moments"], full.tables["operations"]
    operation = np.asarray(moments["operation"])
    assert (operation >= 0).all() and operation[0] == 0 and operation[-1] == len(table["id"]) - 1
    assert np.all(np.diff(moments["start"]) >= 0)
    end = sum(moments[name][-1] for name in ("start", "sync", "exchange", "compute", "host"))
    assert end == pytest.approx(profile.cycles.total)


def test_a_pipeline_keeps_its_slots(made):
    schedule, system, _, full = made
    rows = {name: np.asarray(column) for name, column in full.tables["pipeline"].items()}
    loops = [node for f in schedule.all_functions() for node in f.nodes if isinstance(node, Repeat) and node.stages > 1]
    if not loops:
        assert not len(rows["start"])
        return
    (loop,) = loops
    charger = charged(schedule, system).charger
    slots = charger.slots[id(loop)]
    assert len(np.unique(rows["micro_batch"])) == min(loop.count, MOST)
    assert bool(full.notes) == (loop.count > MOST)
    row = int(rows["repeat"][0])
    start = next(
        s for s, o in zip(full.tables["moments"]["start"], full.tables["moments"]["operation"], strict=True) if o == row
    )
    assert rows["start"].min() == start
    assert (rows["start"] + rows["length"]).max() <= start + slots.starts()[-1] * (1 + 1e-9)
    for ipu in np.unique(rows["ipu"]):  # an IPU does one thing at a time
        own = np.flatnonzero(rows["ipu"] == ipu)
        own = own[np.argsort(rows["start"][own], kind="stable")]
        ends = rows["start"][own] + rows["length"][own]
        whole = np.diff(rows["micro_batch"][own]) <= 1
        assert (ends[:-1] <= rows["start"][own][1:] * (1 + 1e-9))[whole].all()
    for backward in np.unique(rows["backward"]):  # a micro-batch goes from stage to stage
        for batch in np.unique(rows["micro_batch"])[:3]:
            own = (rows["micro_batch"] == batch) & (rows["backward"] == backward)
            first = {s: rows["start"][own & (rows["stage"] == s)].min() for s in np.unique(rows["stage"][own])}
            order = [first[s] for s in sorted(first)]
            assert order == sorted(order, reverse=bool(backward))


def test_keys_stay_where_other_options_leave_the_operation():
    loaded = programs.load("mlp", train=True, small=True)

    def keys(**asked):
        options = programs.compile_options(loaded, system=TILES, optimizer="sgd", replicas=1, accumulate=1, **asked)
        schedule = compile_graph(loaded.graph, options).schedule
        table = detail(cost(schedule, TILES), schedule, TILES).tables["operations"]
        return table["key"]

    one, other = keys(planner="poplibs"), keys(planner="best", memory_proportion=0.2)
    assert len(set(one)) == len(one)
    products = [key for key in one if "matmul" in key]
    assert products and set(products) <= set(other)


def test_the_band_is_what_the_page_on_validation_says():
    page = (Path(__file__).parents[2] / "docs" / "validation.md").read_text()
    for mode in ("training", "inference"):
        band = band_of(mode)
        row = next(line.split("|") for line in page.splitlines() if line.startswith(f"| {mode} | known |"))
        assert [float(cell) for cell in row[4:6]] == [round(100 * band[name], 1) for name in ("median", "p90")]
        assert f"planner {band['planner']}" in band["basis"]
        assert band["basis"].startswith(row[3].split()[0])
    assert band_of("else") == {}


def test_where_an_element_lies_is_found_through_any_view():
    grid = Grid((Axis("m", 6, 3), Axis("n", 8, 4)), 16, first=10)
    home = Layout(grid, (6, 8), (Span(0), Span(1)))
    flat = np.arange(48)
    expected = grid.tile(flat // 8 // 2 * 4 + flat % 8 // 2)
    np.testing.assert_array_equal(holder(home, flat), expected)
    assert holds(home, flat).all()
    upper = Layout(Grid((Axis("m", 3, 3),), 16), (6, 8), (Span(0, offset=3), Span()))
    np.testing.assert_array_equal(holds(upper, flat), flat >= 24)


def test_bytes_of_a_row_come_from_where_the_row_lies():
    """A read of whole rows of a tensor whose rows lie two on a tile: each group of tiles gets from those that hold."""
    made = programs.load("mlp", small=True)
    options = programs.compile_options(made, system=TILES, optimizer="sgd", replicas=1, accumulate=1, planner="poplibs")
    schedule = compile_graph(made.graph, options).schedule
    flows = Flows(charged(schedule, TILES).charger)
    home = spread(64 * 8, TILES.chip.tiles)
    read = Layout(Grid((Axis("all", 64, 1),), TILES.chip.tiles, first=0), (64, 8), (Span(), Span()))
    elements = flows.charger.columns.missing(read, [home])
    share = flows._share(read, [home], elements, False)
    assert share.sum() == pytest.approx(elements.total) and not share[:, 1:].any()
    held = home.elements_on_tiles()
    held[0] = 0  # the reader's own
    np.testing.assert_allclose(share[:, 0], np.bincount(np.arange(48) * 32 // 48, held, 32), rtol=0.05)


grids = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(0, 15))


@settings(max_examples=60)
@given(home=grids, read=grids, followed=st.tuples(st.booleans(), st.booleans()), flat=st.booleans())
def test_bytes_come_from_tiles_that_hold_what_is_read(home, read, followed, flat):
    """Of 16 tiles each is a group: who sends is among those that hold an element of what the other one lacks."""
    rows, columns, tiles = 6, 8, 16

    def grid(parts):
        return Grid((Axis("m", rows, parts[0]), Axis("n", columns, parts[1])), tiles, first=parts[2])

    lies = Layout(grid(home), (rows, columns), (Span(0), Span(1)))
    if flat:
        lies = spread(rows * columns, tiles)
    spans = tuple(Span(axis if follows else None) for axis, follows in enumerate(followed))
    wanted = Layout(grid(read), (rows, columns), spans)
    made = SimpleNamespace(columns=Columns(), schedule=SimpleNamespace(tiles=tiles))
    elements = made.columns.missing(wanted, [lies])
    share = Flows(made)._share(wanted, [lies], elements, False)
    np.testing.assert_allclose(share.sum(axis=0), elements.dense())
    holds_it = holder(lies, np.arange(rows * columns)).reshape(rows, columns)
    start, stop = regions(wanted)
    for block, tile in enumerate(wanted.grid.tile(np.arange(wanted.grid.blocks))):
        piece = holds_it[start[0, block] : stop[0, block], start[1, block] : stop[1, block]]
        assert set(np.flatnonzero(share[:, tile])) <= set(piece.ravel()) - {tile} | {(tile + 1) % tiles}


def test_the_work_column_has_every_class_on_its_tiles():
    class Set:
        each = np.array([7.0, 5.5, 3.0, 2.0])

    grid = Grid((Axis("m", 5, 2), Axis("n", 7, 3)), 8, first=6)
    counts, lengths = grid.classes()
    classes = grid.classes_of_blocks()
    assert np.bincount(classes).tolist() == counts.tolist()
    m, n = grid.parts(np.arange(6))
    for axis, part, of in zip(grid.axes, (m, n), lengths, strict=True):
        assert (axis.stop(part) - axis.start(part)).tolist() == of[classes].tolist()
    column = work_column(grid, Set).dense()
    assert column[[6, 7, 0, 1, 2, 3]].tolist() == np.ceil(Set.each)[classes].tolist() and column[[4, 5]].tolist() == [
        0,
        0,
    ]


def test_flow_joins_who_makes_a_tensor_and_who_reads_it(made):
    schedule, system, _, found = made
    live, flow = charged(schedule, system).live, found.tables["flow"]
    nodes = [None, *(node for _, node in nodes_run(schedule, schedule.times_run())), None]
    copied = {live.storage[target] for each in live.copies.values() for _, target in each.entry + each.exit}
    named = [live.storage.get(name, name) for name in found.tables["tensors"]["name"]]
    read: dict[int, set[str]] = {}
    for producer, consumer, tensor in zip(*(flow[name].tolist() for name in ("producer", "consumer", "tensor"))):
        read.setdefault(consumer, set()).add(named[tensor])
        assert tensor >= 0
        if producer >= 0 and named[tensor] not in copied:
            assert named[tensor] in {live.storage[name] for name in nodes[producer].makes}
    steps = {row: node for row, node in enumerate(nodes) if isinstance(node, Step) and node.reads}
    assert read == {row: {live.storage[name] for name in node.reads} for row, node in steps.items()}
    assert (flow["producer"] >= 0).any() and (flow["producer"] < 0).any()
