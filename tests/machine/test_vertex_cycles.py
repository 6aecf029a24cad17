"""Vertex cycle formulas: check values worked by hand, measured points, and arrays against scalars."""

import csv
import statistics
from pathlib import Path

import numpy as np
import pytest

from abele.errors import InvalidOption
from abele.machine import bow, gc200, mk1
from abele.machine.cycles import ESTIMATES, code_bytes
from abele.machine.cycles.elementwise import ELEMENTWISE_OPS
from abele.machine.cycles.reduce import strided_worker

POINTS = list(csv.DictReader((Path(__file__).parent / "data/matrix_unit_cycles.csv").open()))

# One example of every vertex; the names of the fields that count something may be arrays.
EXAMPLES: dict[str, tuple[dict, tuple[str, ...]]] = {
    "Ctc": ({"steps": 50, "places": 21, "samples": 2, "walks": 2, "classes": 30}, ("steps", "places", "samples")),
    "CtcBeamSearch": ({"steps": 50, "candidates": 300, "samples": 2}, ("steps", "candidates", "samples")),
    "Factorize": ({"flops": 9000, "columns": 30, "matrices": 2}, ("flops", "columns", "matrices")),
    "Amp1x1": ({"field": 50, "in_chans": 40, "out_chans": 24, "groups": 2}, ("field", "in_chans", "out_chans")),
    "AmpNx1": ({"field": 50, "in_chans": 20, "out_chans": 24, "kernel": 9, "row": 7}, ("field", "in_chans")),
    "Hmac": ({"field": 50, "in_chans": 6, "out_chans": 3, "kernel": 9}, ("field", "in_chans", "out_chans")),
    "Vmac": ({"field": 50, "channels": 24, "kernel": 9}, ("field", "channels", "kernel")),
    "Slic": ({"field": 50, "row": 10, "blocks": 9, "channels": 16}, ("field", "blocks", "channels")),
    "OuterProduct": ({"field": 50, "out_chans": 24}, ("field", "out_chans")),
    "ReducePartials": ({"outputs": 50, "depth": 4}, ("outputs", "depth")),
    "Elementwise": ({"n": 100, "ops": ("mul", "add", "gelu"), "dtype": "f32"}, ("n",)),
    "Cast": ({"n": 100, "source": "f32", "to": "f16"}, ("n",)),
    "Select": ({"n": 100}, ("n",)),
    "ScaledAdd": ({"n": 100, "dtype": "f16", "other": "f32"}, ("n",)),
    "Reduce": ({"outputs": 12, "depth": 70}, ("outputs", "depth")),
    "Nonlinearity": ({"n": 101, "kind": "silu"}, ("n",)),
    "Pool": ({"field": 50, "channels": 12, "kernel": 9, "row": 7}, ("field", "channels")),
    "ArgReduce": ({"rows": 3, "cols": 100}, ("rows", "cols")),
    "TopK": ({"n": 1000, "k": 5}, ("n", "k")),
    "InvStd": ({"n": 10}, ("n",)),
    "Softmax": ({"rows": 12, "cols": 64}, ("rows", "cols")),
    "Rnn": ({"n": 64}, ("n",)),
    "Gather": ({"rows": 20, "row_elements": 64}, ("rows", "row_elements")),
    "ScatterAdd": ({"rows": 20, "row_elements": 64}, ("rows", "row_elements")),
    "DynamicSlice": ({"n": 100}, ("n",)),
    "Copy": ({"bytes": 100}, ("bytes",)),
    "Rearrange": ({"bytes": 100}, ("bytes",)),
    "Transpose": ({"rows": 10, "cols": 20}, ("rows", "cols")),
    "Stencil": ({"rows": 20, "width": 64, "ops": ("add", "mul"), "loads": 3}, ("rows", "width")),
    "Assemble": ({"rows": 20, "width": 64}, ("rows", "width")),
    "Fill": ({"n": 100}, ("n",)),
    "Random": ({"n": 100, "kind": "dropout"}, ("n",)),
    "SetSeed": ({}, ()),
}


def test_dot_products_of_one_output_at_a_time() -> None:
    """Every pass repeats the work around the dot products: 7 cycles a position, a row's and a worker's start."""
    shape = {"field": 600, "in_chans": 4, "kernel": 9, "row": 20}
    one, together, apart = (
        gc200.estimate("Hmac", out_chans=outs, out_group=group, **shape) for outs, group in ((1, 0), (4, 0), (4, 1))
    )
    assert gc200.estimate("Hmac", out_chans=1, out_group=1, **shape) == one
    passes = [apart - together, together - one]
    assert passes[0] > 3 * 9 * 600 * 7 and passes[1] > 3 * 9 * 600 * 7


@pytest.mark.parametrize(("field", "cycles"), [(6, 4_111), (24, 4_975), (96, 9_583), (384, 28_015)])
def test_matrix_unit_half(field: int, cycles: int) -> None:
    assert gc200.estimate("Amp1x1", field=field, in_chans=64, out_chans=64) == cycles


@pytest.mark.parametrize(
    ("field", "half_float", "single"), [(6, 3.4, 2.0), (24, 11.0, 6.5), (96, 21.7, 10.3), (384, 28.6, 12.1)]
)
def test_matrix_unit_rates_of_the_other_types(field: int, half_float: float, single: float) -> None:
    mixed = gc200.estimate("Amp1x1", field=field, in_chans=64, out_chans=32, partials="f32")
    assert round(field * 64 * 32 / mixed, 1) == half_float
    whole = gc200.estimate("Amp1x1", field=field, in_chans=32, out_chans=64, dtype="f32", partials="f32")
    assert round(field * 32 * 64 / whole, 1) == single


@pytest.mark.parametrize(
    ("vertex", "fields", "cycles"),
    [
        ("Elementwise", {"n": 1024, "ops": "add"}, 941),
        ("Elementwise", {"n": 1024, "ops": "add", "dtype": "f32"}, 1_733),
        ("Elementwise", {"n": 1024, "ops": "exp"}, 1_250),
        ("Elementwise", {"n": 1024, "ops": "exp", "dtype": "f32"}, 3_314),
        ("Cast", {"n": 1024, "source": "f32", "to": "f16"}, 774),
        ("Cast", {"n": 1024, "source": "f16", "to": "f32"}, 762),
        # 43 vectors of 4 a worker, in loops of 3 cycles; of 2 float in 4; of 4 half in 4, with float added
        ("ScaledAdd", {"n": 1024}, 57 + 6 * (19 + 6 + 3 * 42)),
        ("ScaledAdd", {"n": 1024, "dtype": "f32"}, 57 + 6 * (19 + 6 + 4 * 85)),
        ("ScaledAdd", {"n": 1024, "other": "f32"}, 57 + 6 * (20 + 8 + 4 * 42)),
        ("Nonlinearity", {"n": 1024, "kind": "relu"}, 435),
        ("Nonlinearity", {"n": 1024, "kind": "tanh"}, 687),
        ("Nonlinearity", {"n": 1024, "kind": "gelu_tanh"}, 1_491),
        ("Gather", {"rows": 128, "row_elements": 64, "spread": False}, 63_924),
        ("Gather", {"rows": 128, "row_elements": 64}, 16_224),
        ("DynamicSlice", {"n": 1024}, 907),
        ("SetSeed", {}, 176),
        # 3 loads, one of them of two elements, 3 operations and 3 of the loop make 10 a turn; 2 rows of 8 turns
        (
            "Stencil",
            {"rows": 12, "width": 16, "ops": ("add", "add", "mul"), "loads": 3, "unaligned": 1, "pointers": 2},
            11 + 6 * (20 + 2 * (4 + 8 * 10)),
        ),
        ("Assemble", {"rows": 12, "width": 16}, 40 + 6 * 2 * (3 * 29 + 8)),
        ("Rearrange", {"bytes": 1000}, 1_027),
    ],
)
def test_check_values(vertex: str, fields: dict, cycles: int) -> None:
    assert gc200.estimate(vertex, **fields) == cycles


def test_strided_reduction_of_one_worker() -> None:
    assert strided_worker(gc200, outputs=64, depth=32, op="add", dtype="f16") == 736


def _errors(vertex: str, *names: str, **types: str) -> list[float]:
    errors = []
    for point in POINTS:
        if point["vertex"] == vertex:
            fields = {name: int(point[name]) for name in names}
            errors.append(abs(bow.estimate(vertex, **fields, **types) / float(point["cycles"]) - 1))
    return errors


def test_matrix_unit_against_measured_cycles_on_bow() -> None:
    errors = _errors("Amp1x1", "field", "in_chans", "out_chans")
    assert len(errors) == 14
    assert statistics.median(errors) < 0.01
    assert max(errors) < 0.04


def test_larger_kernels_against_profiled_points() -> None:
    """Valid 3×3 convolutions with whole blocks of 16 input channels and float partials."""
    names = ("field", "in_chans", "out_chans", "kernel", "row")
    errors = _errors("AmpNx1", *names, dtype="f16", partials="f32")
    assert len(errors) == 7
    assert statistics.median(errors) < 0.01
    assert max(errors) < 0.02


@pytest.mark.parametrize(
    ("fields", "cycles"),
    [
        ({"field": 64}, 573),  # one run for each worker
        ({"field": 900, "row": 30}, 3_033),  # five whole rows for each
        ({"field": 2500, "row": 50, "blocks": 3}, 20_950),  # rows cut where shares end
        ({"field": 2916, "row": 54, "blocks": 14, "channel_group": 2}, 110_248),
    ],
)
def test_slic_against_profiled_points(fields: dict, cycles: int) -> None:
    """Points of the T10/Elk cost model, float partials."""
    assert gc200.estimate("Slic", partials="f32", **fields) == pytest.approx(cycles, rel=0.002)


def test_small_float_add_with_its_compute_set_is_what_was_measured() -> None:
    """Ten float adds took 330 cycles (tessellate-ipu, tile API basics); the set's start comes from 1,024."""
    assert gc200.estimate("Elementwise", n=10, ops="add", dtype="f32") + gc200.compute_set_cycles == 330


def test_peak_of_the_formula_is_the_peak_of_the_chip() -> None:
    for dtype, partials in (("f16", "f16"), ("f16", "f32"), ("f32", "f32")):
        for chip in (gc200, mk1):
            work = {"field": 100_000, "in_chans": 1600, "out_chans": 16, "dtype": dtype, "partials": partials}
            rate = 100_000 * 1600 * 16 / chip.estimate("Amp1x1", **work)
            assert 0.97 < rate / chip.macs_per_cycle(dtype, partials) <= 1


def test_every_vertex_has_an_example() -> None:
    assert set(EXAMPLES) == set(ESTIMATES)


@pytest.mark.parametrize("vertex", sorted(EXAMPLES))
def test_arrays_and_scalars_agree(vertex: str) -> None:
    fields, counts = EXAMPLES[vertex]
    scales = (1, 2, 3, 7, 16)
    for name in (*counts, None):
        columns = dict(fields)
        for count in counts if name is None else (name,):
            columns[count] = np.array([max(1, fields[count] * s // 3) for s in scales])
        together = np.broadcast_to(gc200.estimate(vertex, **columns), len(scales))
        for i in range(len(scales)):
            one = {k: int(v[i]) if isinstance(v, np.ndarray) else v for k, v in columns.items()}
            alone = gc200.estimate(vertex, **one)
            assert isinstance(alone, int)
            assert alone == together[i], (one, alone, together[i])


@pytest.mark.parametrize("vertex", sorted(EXAMPLES))
def test_more_work_never_costs_less(vertex: str) -> None:
    """Doubling every count; a few positions more may cost less on the matrix unit, twice as many never."""
    fields, counts = EXAMPLES[vertex]
    more = gc200.estimate(vertex, **{k: 2 * v if k in counts else v for k, v in fields.items()})
    assert more >= gc200.estimate(vertex, **fields) > 0


@pytest.mark.parametrize("vertex", sorted(ESTIMATES))
def test_every_estimate_says_where_it_comes_from(vertex: str) -> None:
    known = gc200.estimate_of(vertex)
    assert known.source
    assert known.confidence in ("measured", "published", "derived", "assumed")
    assert (known.function.__doc__ or "").strip()
    assert 0 < code_bytes(vertex) < 8192


@pytest.mark.parametrize("dtype", ["f16", "f32", "i32", "bool"])
@pytest.mark.parametrize("op", sorted(ELEMENTWISE_OPS))
def test_every_elementwise_operation_has_cycles(op: str, dtype: str) -> None:
    assert gc200.estimate("Elementwise", n=600, ops=op, dtype=dtype) > 0


@pytest.mark.parametrize("broadcast", ["scalar", "outer", "inner"])
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_a_broadcast_costs_about_what_the_plain_loop_does(broadcast: str, dtype: str) -> None:
    plain = gc200.estimate("Elementwise", n=12_000, ops="add", dtype=dtype)
    cycles = gc200.estimate("Elementwise", n=12_000, ops="add", dtype=dtype, broadcast=broadcast, rows=120)
    assert 0.3 * plain < cycles < 1.5 * plain


def test_a_fused_chain_is_cheaper_than_its_parts() -> None:
    parts = [gc200.estimate("Elementwise", n=3000, ops=op) for op in ("mul", "add", "tanh")]
    chain = gc200.estimate("Elementwise", n=3000, ops=("mul", "add", "tanh"), operands=3)
    assert max(parts) < chain < sum(parts)


def test_unknown_names_are_named() -> None:
    with pytest.raises(InvalidOption, match="Amp1x1"):
        gc200.estimate("Amp1x2", field=1)
    with pytest.raises(InvalidOption, match="tanh"):
        gc200.estimate("Elementwise", n=1, ops="tahn")
    with pytest.raises(InvalidOption, match="max"):
        gc200.estimate("Reduce", outputs=1, depth=2, op="maxx")
    with pytest.raises(InvalidOption, match="matrix unit"):
        gc200.estimate("Amp1x1", field=1, in_chans=1, out_chans=1, dtype="f8", partials="f16")
    with pytest.raises(InvalidOption, match="Fill"):
        code_bytes("Fil")
