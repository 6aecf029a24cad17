"""Chips and systems: published figures come out, every number has a source, users' files load."""

import dataclasses
import re
from pathlib import Path

import pytest

import abele
from abele.errors import InvalidOption, UserProgramError
from abele.machine import (
    CHIPS,
    SYSTEMS,
    Chip,
    Constant,
    bow,
    c600,
    find_system,
    gc200,
    list_systems,
    mk1,
    one_ipu,
)
from abele.machine.constants import CONFIDENCES, dtype_bytes, number_fields

EXAMPLE = Path(__file__).parents[2] / "examples/my_chip.py"


@pytest.mark.parametrize(
    ("chip", "half", "mixed", "single", "sram", "exchange"),
    [
        (mk1, 124.5, 124.5, 31.1, 46.7, 7.78),
        (gc200, 249.65, 124.8, 62.4, 46.8, 7.80),
        (bow, 348.6, 174.3, 87.1, 65.36, 10.9),
        (c600, 282.6, 141.3, 70.7, 53.0, 8.83),
    ],
    ids=lambda value: value.name if isinstance(value, Chip) else None,
)
def test_published_rates(chip, half, mixed, single, sram, exchange) -> None:
    assert chip.peak_flops("f16") / 1e12 == pytest.approx(half, rel=2e-3)
    assert chip.peak_flops("f16", "f32") / 1e12 == pytest.approx(mixed, rel=2e-3)
    assert chip.peak_flops("f32") / 1e12 == pytest.approx(single, rel=2e-3)
    rate = chip.tiles * chip.clock_hz / 1e12
    assert (chip.load_bytes_per_cycle + chip.store_bytes_per_cycle) * rate == pytest.approx(sram, rel=2e-3)
    assert chip.exchange_bytes_per_cycle * rate == pytest.approx(exchange, rel=2e-3)


def test_eight_bit_floats_are_the_c600s_alone() -> None:
    assert c600.peak_flops("f8") / 1e12 == pytest.approx(565, rel=2e-3)  # 560 quoted
    assert bow.amp_units("f8", "f16") == 0


def test_published_systems() -> None:
    assert find_system("m2000").peak_flops() / 1e15 == pytest.approx(1.0, rel=2e-3)
    assert find_system("bow-2000").peak_flops() / 1e15 == pytest.approx(1.394, rel=2e-3)
    assert find_system("pod128").peak_flops() / 1e15 == pytest.approx(31.955, rel=2e-3)
    assert find_system("bow-pod256").peak_flops() / 1e15 == pytest.approx(89.23, rel=2e-3)
    assert find_system("m2000").memory() == 4 * 1472 * 624 * 1024
    assert find_system("bow-pod64").machines == 16
    assert find_system("bow-2000").streaming_memory() == 256e9


def test_bow_does_more_per_watt_as_the_vendor_says() -> None:
    old, new = find_system("m2000"), find_system("bow-2000")
    faster = new.peak_flops() / old.peak_flops()
    assert faster == pytest.approx(1.396, abs=2e-3)
    assert faster / (new.watts / old.watts) == pytest.approx(1.16, rel=5e-3)


@pytest.mark.parametrize("record", [*CHIPS.values(), *SYSTEMS.values()], ids=lambda r: f"{type(r).__name__}-{r.name}")
def test_every_constant_has_unit_source_and_confidence(record) -> None:
    fields = number_fields(record)
    assert set(record.constants) == set(fields)
    for name in fields:
        constant = record.provenance(name)
        assert constant.value == getattr(record, name)
        assert constant.unit == fields[name]
        assert len(constant.source) > 3 and not constant.source.startswith("the description of")
        assert constant.confidence in CONFIDENCES


def test_names() -> None:
    names = [system.name for system in list_systems()]
    assert names == list(SYSTEMS)
    for name in ("mk1", "gc200", "bow", "c600", "m2000", "bow-2000", "pod4", "pod256", "bow-pod4", "bow-pod256"):
        assert find_system(name).name == name
    assert find_system("Bow-2000") is SYSTEMS["bow-2000"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("bow2000", "bow-2000"),
        ("my_chip.py", "my_chip.py:system"),
        ("nowhere.py:system", "nowhere.py"),
        (f"{EXAMPLE}:sytem", "system"),
        (f"{EXAMPLE}:gather", "function"),
    ],
)
def test_unknown_systems_suggest(name: str, hint: str) -> None:
    with pytest.raises(InvalidOption, match=hint):
        find_system(name)


def test_unknown_fields_suggest() -> None:
    with pytest.raises(InvalidOption, match="tile_memory"):
        gc200.derive("x", tile_mem=1)
    with pytest.raises(InvalidOption, match="clock_hz"):
        gc200.provenance("clock")
    with pytest.raises(InvalidOption, match="machine_watts"):
        find_system("m2000").derive("x", machine_watt=1)
    with pytest.raises(InvalidOption, match="Gather"):
        gc200.derive("x", vertex_costs={"Gathr": lambda chip, **fields: 1})
    with pytest.raises(InvalidOption, match="f32"):
        dtype_bytes("float32")
    with pytest.raises(InvalidOption, match="positive"):
        gc200.derive("x", tiles=0)


def test_a_users_file() -> None:
    system = find_system(f"{EXAMPLE}:system")
    assert (system.ipus, system.chip.tiles, system.chip.name) == (4, 64, "big-tiles")
    assert system.chip.estimate("Gather", rows=128, row_elements=64) == 1320
    assert gc200.estimate("Gather", rows=128, row_elements=64) == 16_224
    assert system.chip.estimate("Fill", n=64) == gc200.estimate("Fill", n=64)
    assert system.chip.estimate_of("Gather").confidence == "assumed"
    alone = find_system(f"{EXAMPLE}:chip")
    assert alone.ipus == 1 and alone.chip.key() == system.chip.key()


def test_a_users_file_that_raises(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("1 / 0\n")
    with pytest.raises(UserProgramError, match="ZeroDivisionError"):
        find_system(f"{path}:system")


def test_derived_numbers_know_where_they_come_from() -> None:
    sheet = Constant(2e9, "Hz", "data sheet, page 3", "published")
    chip = gc200.derive("mine", tiles=8, clock_hz=sheet)
    assert chip.clock_hz == 2e9 and chip.provenance("clock_hz") is sheet
    assert chip.provenance("tiles") == Constant(8, "tiles", "the description of 'mine'", "assumed")
    assert chip.provenance("workers") == gc200.provenance("workers")
    assert dataclasses.replace(gc200, tiles=8).provenance("tiles").confidence == "assumed"
    with pytest.raises(ValueError, match="source"):
        Constant(1, "B", "", "assumed")


def test_power_goes_with_tiles_unless_it_is_given() -> None:
    half = gc200.derive("half", tiles=736)
    assert (half.load_watts, half.idle_watts) == (gc200.load_watts / 2, gc200.idle_watts / 2)
    assert half.provenance("load_watts").confidence == "assumed"
    assert "736 of 'half'" in half.provenance("load_watts").source
    assert half.derive("same", clock_hz=1e9).load_watts == half.load_watts
    assert gc200.derive("own", tiles=736, load_watts=40.0).load_watts == 40.0
    machine = find_system("m2000")
    assert machine.derive("half", chip=half).watts == pytest.approx(machine.watts / 2)
    assert machine.derive("own", chip=half, machine_watts=7.0).machine_watts == 7.0


def test_keys_change_with_what_they_describe() -> None:
    def cost(chip, **fields):
        return 1

    def other(chip, **fields):
        return 2

    chips = [
        gc200,
        bow,
        gc200.derive("gc200", tiles=8),
        gc200.derive("gc200", vertex_costs={"Fill": cost}),
        gc200.derive("gc200", vertex_costs={"Fill": other}),
    ]
    assert len({chip.key() for chip in chips}) == len(chips)
    assert gc200.derive("gc200").key() == gc200.key()
    assert one_ipu(bow).key() != one_ipu(gc200).key()


def test_one_ipu_has_the_links_of_the_machine_it_was_sold_in() -> None:
    assert find_system("mk1").host_bytes_per_second == find_system("mk1-c2").host_bytes_per_second == 8e9
    assert find_system("gc200").streaming_bytes == find_system("m2000").streaming_bytes == 448e9
    assert find_system("bow").streaming_bytes == find_system("bow-2000").streaming_bytes == 256e9
    assert find_system(c600).links_per_ipu == find_system("c600").links_per_ipu == 4
    own = one_ipu(gc200.derive("mine"))
    for name in set(number_fields(own)) - {"machine_watts"}:
        known = own.provenance(name)
        assert getattr(own, name) == getattr(find_system("bow-2000"), name)
        assert known.confidence == "assumed" and "Bow-2000" in known.source


def test_no_number_is_there_for_nothing() -> None:
    """Every numeric field of a chip and of a system is read somewhere."""
    source = "\n".join(path.read_text() for path in Path(abele.__file__).parent.rglob("*.py"))
    for record in (bow, find_system("bow-2000")):
        for name in number_fields(record):
            assert re.search(rf"\.{name}\b", source), name


def test_with_ipus() -> None:
    m2000 = find_system("m2000")
    two = m2000.with_ipus(2)
    assert (two.ipus, two.name, two.machines, two.watts) == (2, "m2000-x2", 1, m2000.watts / 2)
    assert two.with_ipus(8).name == "m2000-x8"
    assert m2000.with_ipus(4) is m2000
    with pytest.raises(InvalidOption, match="at least 1"):
        m2000.with_ipus(0)


@pytest.mark.parametrize(
    "change",
    [
        {"tiles": 1.5},
        {"tiles": 0},
        {"tiles": "many"},
        {"clock_hz": float("nan")},
        {"exchange_bytes_per_cycle": 0},
        {"sync_cycles": -3},
        {"load_watts": float("inf")},
    ],
    ids=str,
)
def test_numbers_that_no_chip_can_have_are_refused(change: dict) -> None:
    (name,) = change
    with pytest.raises(InvalidOption, match=name):
        gc200.derive("strange", **change)


def test_a_system_has_a_whole_number_of_ipus() -> None:
    with pytest.raises(InvalidOption, match=r"1\.5"):
        one_ipu(gc200).with_ipus(1.5)
