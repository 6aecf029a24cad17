"""A chip with an exchange of its own: plans and costs ask it, keys cover its code, distances are told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from abele.charge.columns import mean_distance
from abele.errors import UserProgramError
from abele.machine import find_system, gc200, one_ipu
from abele.machine.exchange import exchange_cycles, exchange_cycles_two_rates
from abele.schedule.layout import Axis, Grid, Layout, Span, spread

ROOT = Path(__file__).parents[2]

CHIP = """
import numpy as np
from abele.machine import gc200
WIDTH = {width}
def rate():
    return {rate}
def cost(chip, received, sent, *, paired, messages, distance):
    return received / (WIDTH * rate())
chip = gc200.derive("own", exchange_cost=cost)
"""


def own(folder: Path, width: int, rate: int):
    (folder / f"own{width}{rate}.py").write_text(CHIP.format(width=width, rate=rate))
    return find_system(f"{folder / f'own{width}{rate}.py'}:chip").chip


def test_the_chips_own_function_is_asked(tmp_path: Path) -> None:
    chip = own(tmp_path, 2, 4)
    assert exchange_cycles(chip, 64) == 8
    assert exchange_cycles_two_rates(chip, 64, 32) == 12
    assert np.array_equal(exchange_cycles(chip, np.array([0, 8])), [0, 1])
    assert exchange_cycles(gc200, 64) != 8


def test_the_key_covers_the_function_and_what_it_uses(tmp_path: Path) -> None:
    keys = {own(tmp_path, *numbers).key() for numbers in ((2, 4), (2, 5), (3, 4))}
    assert len({*keys, gc200.derive("own").key()}) == 4
    (tmp_path / "again").mkdir()
    assert own(tmp_path / "again", 2, 4).key() in keys


def test_what_it_raises_names_its_line(tmp_path: Path) -> None:
    chip = own(tmp_path, 0, 4)
    with pytest.raises(UserProgramError, match=r"exchange on the chip 'own' raised ZeroDivisionError.*own04.py:8"):
        exchange_cycles(chip, 64)
    chip = gc200.derive("own", vertex_costs={"Gather": lambda chip, rows: rows})
    with pytest.raises(UserProgramError, match="'Gather' on the chip 'own' raised TypeError"):
        chip.estimate("Gather", rows=1, row_elements=4)


@pytest.mark.parametrize(
    ("give", "message"),
    [
        (lambda received: received * -1.0, "are -64, which is no time"),
        (lambda received: received * np.nan, "are nan, which is no time"),
        (lambda received: None, "are None, no number"),
        (lambda received: np.max(received), r"have the shape \(\), where received has \(2,\)"),
        (lambda received: np.ones(3), r"have the shape \(3,\)"),
    ],
)
def test_what_is_no_time_or_has_another_shape_is_refused(give, message: str) -> None:
    chip = gc200.derive("own", exchange_cost=lambda chip, received, sent, **how: give(received))
    with pytest.raises(UserProgramError, match=rf"exchange on the chip 'own' {message}.* At .*exchange_cost.py:\d+"):
        exchange_cycles(chip, np.array([64, 8]), np.array([8, 8]))


def test_a_function_of_other_arguments_is_refused_at_once() -> None:
    def short(received, sent):
        return received + sent

    with pytest.raises(
        UserProgramError, match=r"exchange_cost of the chip 'own' cannot be asked.*exchange_cost.py:\d+"
    ):
        gc200.derive("own", exchange_cost=short)
    with pytest.raises(UserProgramError, match="which is no function"):
        gc200.derive("own", exchange_cost=8)  # pyright: ignore[reportArgumentType]


class Mesh:
    def __init__(self, width: float) -> None:
        self.width = width

    def __call__(self, chip, received, sent, *, paired, messages, distance):
        return received / self.width


def test_the_key_covers_an_object_that_is_called() -> None:
    keys = [gc200.derive("own", exchange_cost=Mesh(width)).key() for width in (1.0, 2.0, 1.0)]
    assert keys[0] == keys[2] != keys[1]


def test_distances_of_layouts() -> None:
    line = spread(16, 16)
    assert mean_distance(line, line) == 1  # nothing is elsewhere: the neighbour is meant
    shifted = Layout(Grid(line.grid.axes, 16, first=3), line.shape, line.spans)
    # tile 3 + i reads what lies on tile i; the last three wrap round
    assert mean_distance(line, shifted) == pytest.approx((13 * 3 + 3 * 13) / 16)
    # everyone reads everything: two tiles anywhere
    everything = Layout(Grid((Axis("n", 16, 16),), 16), (16,), (Span(),))
    apart = np.abs(np.subtract.outer(range(16), range(16)))
    assert mean_distance(line, everything) == pytest.approx(apart[apart > 0].mean(), rel=0.05)


@pytest.mark.parametrize("parts", [(4, 2), (2, 4), (8, 1)])
def test_distances_of_transposed_grids(parts: tuple[int, int]) -> None:
    rows, columns = Axis("r", 8, parts[0]), Axis("c", 8, parts[1])
    home = Layout(Grid((rows, columns), 8), (8, 8), (Span(0), Span(1)))
    read = Layout(Grid((Axis("n", 64, 64),), 64), (64,), (Span(0),))
    owner = np.empty((8, 8), int)
    for block in range(8):
        owner[home.region(block)] = block
    apart = np.abs(owner.ravel() - np.arange(64))
    assert mean_distance(home, read) == pytest.approx(apart[apart > 0].mean())


def test_a_mesh_is_charged_for_distance_and_width() -> None:
    system = find_system(f"{ROOT / 'examples/mesh_chip.py'}:system")
    chip = system.chip
    assert (chip.tiles, chip.tile_memory, chip.clock_hz) == (256, 2**20, 1e9)
    assert exchange_cycles(chip, 0) == 0
    near, far = (exchange_cycles(chip, 4096, distance=d) for d in (1.0, 120.0))
    assert near < far
    # the same bytes to the neighbour take no longer than the link
    assert near == chip.exchange_start_cycles + 4096 / chip.exchange_bytes_per_cycle + 2
    assert exchange_cycles(chip.derive("wide", exchange_bytes_per_cycle=32), 4096) < exchange_cycles(chip, 4096)


def test_plans_and_costs_ask_the_chip() -> None:
    from abele.compile.executable import compile_graph
    from abele.compile.pipelines import CompileOptions
    from abele.cost import cost
    from abele.ir.text import parse_graph

    graph = parse_graph(
        'graph main(%0: f16[64,256] data "x", %1: f16[256,512] state "w") {\n'
        '  %2: f16[64,512] = matmul(%0, %1) {transpose_a=false, transpose_b=false, partials="f32"}\n'
        '  return %2 anchor "y"\n}'
    )
    asked: list[float] = []

    def counting(chip, received, sent, *, paired, messages, distance):
        asked.append(distance)
        return np.asarray(received) * 1000

    exchange = {}
    for name, own_cost in (("own", counting), ("common", None)):
        system = one_ipu(gc200.derive(name, tiles=64, exchange_cost=own_cost))
        schedule = compile_graph(graph, CompileOptions(system)).schedule
        exchange[name] = cost(schedule, system).cycles.exchange
    assert exchange["own"] > 100 * exchange["common"] > 0
    assert 0.0 in asked and max(asked) > 1
