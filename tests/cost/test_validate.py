"""Validation: the schema of cases, statistics by hand, the runners on small cases, and the commands."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from abele.cost.validate import (
    COLUMNS,
    RUNNERS,
    UNITS,
    Case,
    Outcome,
    Row,
    builtin_cases,
    ratios,
    read_cases,
    summarise,
    summarise_ratios,
)
from abele.cost.validate.outcome import Context
from abele.cost.validate.run import run_case, validate
from abele.errors import InvalidOption
from abele.machine import bow, find_system

HEAD = "id,family,model,system,metric,value,unit,source,options,guessed,configuration\n"
GEMM = "g,gemm,matmul,bow,flops,10,TFLOPS,somewhere,m=256;k=256;n=64,,known\n"
CONTEXT = Context(None, lambda case, step: None)


def case(family: str, model: str, unit: str = "cycles", metric: str = "cycles", value: float = 100.0, **fields) -> Case:
    options = fields.pop("options", {})
    return Case("x", family, model, fields.pop("system", "bow"), metric, value, unit, "test", options=options, **fields)


# the schema


def test_builtin_cases_are_whole() -> None:
    cases = builtin_cases()
    assert len({c.id for c in cases}) == len(cases) > 400
    for c in cases:
        assert c.source and c.unit in UNITS
        assert (c.configuration == "guessed") == bool(c.guessed), c.id
        assert find_system(c.system).ipus >= c.replicas * max(
            1, len(set(str(c.options.get("stage_ipus", "0")).split("/")))
        )
    cycle_level = {"amp", "op", "mem", "vertex", "constant"}
    assert {c.family for c in cases if c.fit == "calibration"} <= cycle_level
    assert not any(c.fit == "calibration" for c in cases if c.family in ("inference", "training", "gemm", "conv"))


def test_every_column_is_read(tmp_path) -> None:
    values = {
        "id": "a", "family": "training", "model": "bert-base", "system": "bow-pod16", "metric": "throughput",
        "value": "1.5e3", "unit": "samples/s", "source": "a, b", "ipus": "16", "mode": "train", "dtype": "f16",
        "partials": "f16", "micro_batch": "3", "replicas": "4", "accumulation": "8", "sequence_length": "128",
        "layers": "3/7/7/7", "recompute": "layers", "options": "optimizer=lamb; offload=1 ;memory_proportion=0.25",
        "noise": "5", "configuration": "guessed", "guessed": "layers", "bound": "host", "fit": "validation",
    }  # fmt: skip
    assert set(values) == set(COLUMNS)
    file = tmp_path / "cases.csv"
    file.write_text(",".join(values) + "\n" + ",".join(f'"{v}"' for v in values.values()) + "\n")
    (c,) = read_cases(file)
    assert (c.value, c.layers, c.micro_batch, c.noise) == (1500.0, (3, 7, 7, 7), 3, 5.0)
    assert c.options == {"optimizer": "lamb", "offload": 1, "memory_proportion": 0.25}
    assert c.is_rate and not c.headline


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("id,family\n", "column 'model'"),
        (HEAD.replace("guessed,", "guest,") + GEMM, "column 'guest'"),
        (HEAD + GEMM + GEMM, "line 3: the id 'g'"),
        (HEAD + GEMM.replace("TFLOPS", "TFLOP"), "line 2: unit is 'TFLOP'"),
        (HEAD + GEMM.replace(",10,", ",ten,"), "line 2: could not convert"),
        (HEAD + GEMM.replace(",10,", ",-1,"), "negative"),
        (HEAD + GEMM.replace("k=256", "k"), "'k' is not name=value"),
        (HEAD + GEMM.replace(",,", ","), "fields than columns"),
        (HEAD + GEMM.replace("somewhere", ""), "source is empty"),
    ],
)
def test_bad_files_name_the_line(tmp_path, text: str, words: str) -> None:
    file = tmp_path / "cases.csv"
    file.write_text(text)
    with pytest.raises(InvalidOption, match=r"cases\.csv") as error:
        read_cases(file)
    assert words in str(error.value)


# statistics


def test_statistics_by_hand() -> None:
    rates = [Row(case("gemm", "matmul", "TFLOPS", "flops", 100.0), "predicted", p) for p in (110.0, 80.0, 100.0)]
    times = [Row(case("conv", "conv", "s", "time", 2.0, configuration="guessed"), "predicted", 1.0)]
    missing = [Row(case("conv", "conv", "s", "time", 2.0), "no runner", reason="why")]
    gemm, known, other, both = summarise([*rates, *times, *missing])
    assert (gemm.median, gemm.p90, gemm.bias) == pytest.approx((10.0, 18.0, 0.0))  # of 0, 10, 20
    assert (known.group, known.rows, known.predicted, known.median) == ("known", 1, 0, None)
    assert (other.group, other.median, other.bias) == ("other", pytest.approx(50.0), pytest.approx(100.0))
    # of 0, 10, 20, 50
    assert (both.group, both.rows, both.predicted) == ("all", 5, 4)
    assert (both.median, both.p90) == pytest.approx((15.0, 41.0))
    assert len(summarise(rates)) == 1
    models = [
        Row(case(f, "bert", "s", "time", 2.0), "predicted", p) for f, p in (("inference", 3.0), ("training", 2.0))
    ]
    assert [(s.family, s.group, s.rows, s.median) for s in summarise(models)] == [
        ("inference", "known", 1, pytest.approx(50.0)),
        ("training", "known", 1, 0.0),
        ("end to end", "known", 2, pytest.approx(25.0)),
    ]
    assert times[0].error == pytest.approx(-50.0)  # half of the time is twice the speed


def test_units() -> None:
    found = Outcome(seconds=2e-3, cycles=10.0, samples=4, flops=2e9, bytes=4e9, points=6e6)
    wanted = {
        "ms": 2.0,
        "us": 2000.0,
        "samples/s": 2000.0,
        "TFLOPS": 1.0,
        "GB/s": 2000.0,
        "GPts/s": 3.0,
        "cycles": 10.0,
    }
    for unit, value in wanted.items():
        assert found.value(unit) == pytest.approx(value)
    with pytest.raises(InvalidOption, match="rate"):
        found.value("cycles/row")


def test_ratios_by_hand() -> None:
    """Bow over Mk2 at equal size, and each size over the next smaller of its chip; versions part the sizes alone."""
    folder = "mlcommons/training_results_v{} results/ipu-pod{}-TF1{}/resnet"

    def row(id: str, system: str, ipus: int, source: str, published: float, predicted: float | None) -> Row:
        found = case("training", "resnet50", "samples/s", "throughput", published, system=system, ipus=ipus)
        return Row(replace(found, id=id, source=source), "predicted" if predicted else "failed", predicted)

    rows = [
        row("b16", "bow-pod16", 16, folder.format("2.0", 16, "-closed"), 100.0, 110.0),
        row("b64", "bow-pod64", 64, folder.format("2.0", 64, "-closed"), 300.0, 330.0),
        row("b256", "bow-pod256", 256, folder.format("2.0", 256, "-closed"), 900.0, 1100.0),
        row("m64", "pod64", 64, folder.format("1.1", 64, ""), 200.0, 200.0),
        row("m16", "pod16", 16, folder.format("1.0", 16, ""), 70.0, 70.0),
        row("lost", "pod256", 256, folder.format("1.1", 256, ""), 70.0, None),
        row("else", "bow-pod64", 64, "a table of another kind", 300.0, 330.0),
    ]
    found = {(r.over.case.id, r.under.case.id): r for r in ratios(rows)}
    assert set(found) == {("b16", "m16"), ("b64", "m64"), ("b64", "b16"), ("b256", "b64")}
    assert found["b64", "m64"].kind == "system" and found["b64", "m64"].error == pytest.approx(10.0)
    assert found["b64", "b16"].kind == "size" and found["b64", "b16"].error == pytest.approx(0.0)
    system, size = summarise_ratios(ratios(rows))
    assert (system.kind, system.ratios, size.kind, size.ratios) == ("system", 2, "size", 2)
    assert size.largest == pytest.approx(100 * ((1100 / 330) / 3 - 1)) and size.median == pytest.approx(
        size.largest / 2
    )


# runners


def test_vertices() -> None:
    fields = {"field": 768, "in_chans": 16, "out_chans": 16}
    by_hand = (
        50 + 42 + 12 + 1 + 11 + 19 - 1 + 7 + 64 + 6 * (37 + 4 * 125 - 7)
    )  # one block of weights, 128 rows a worker
    row = run_case(case("amp", "Amp1x1", options=fields, partials="f16"), CONTEXT)
    assert row.predicted == by_hand
    flops = run_case(case("amp", "Amp1x1", "TFLOPS", "flops", options=fields, partials="f16"), CONTEXT)
    assert flops.predicted == pytest.approx(2 * 768 * 256 * 1472 / (by_hand / 1.85e9) / 1e12)
    slope = run_case(case("amp", "Amp1x1", "cycles/row", "rate", options={**fields, "of": "field"}), CONTEXT)
    assert slope.predicted == pytest.approx(4.0)
    step = {"n": 1024, "ops": "add"}
    plain, whole = (
        run_case(case("op", "Elementwise", dtype="f32", options=step | more), CONTEXT).predicted
        for more in ({}, {"step": 1})
    )
    assert plain == 1733 and whole == 1733 + bow.compute_set_cycles


def test_memory_moves_at_the_rate_of_the_tiles() -> None:
    row = run_case(case("mem", "triad", "TB/s", "bandwidth", system="gc200", dtype="f32"), CONTEXT)
    assert 0.99 * 24 * 1472 * 1.325e9 < row.predicted * 1e12 < 24 * 1472 * 1.325e9


def test_what_goes_wrong_is_a_row_and_the_others_go_on() -> None:
    cases = [
        case("vertex", "Apm1x1"),
        case("vertex", "Pool", options={"field": 4, "chanels": 2, "kernel": 9}),
        case("gemm", "matmul", options={"m": 4}),
        case("gemm", "matmul", options={"m": "four", "k": 4, "n": 4}),
        case("inference", "resnet50", dtype="f8"),
        case("inference", "no-such-model"),
        case("tea", "leaf"),
        case("constant", "sync", value=0.0),
        case("constant", "sync"),
    ]
    rows = validate(cases)
    assert [r.status for r in rows] == ["failed"] * 5 + ["no runner"] * 3 + ["predicted"]
    assert "Amp1x1" in rows[0].reason and "channels" in rows[1].reason and "'k'" in rows[2].reason
    assert rows[-1].predicted == bow.sync_cycles


def test_products_and_convolutions_in_a_loop() -> None:
    sizes = {"m": 256, "k": 256, "n": 64}
    flops, seconds = (
        run_case(case("gemm", "matmul", unit, metric, partials="f16", options=sizes), CONTEXT).predicted
        for unit, metric in (("GFLOPS", "flops"), ("s", "time"))
    )
    assert flops * 1e9 * seconds == pytest.approx(2 * 256 * 256 * 64)
    assert flops < 1e-9 * bow.peak_flops("f16")
    image = {"image": "32x48", "in_chans": 4, "out_chans": 4}
    once, more, wide = (
        run_case(case("conv", "conv", "s", "time", options=image | extra), CONTEXT).predicted
        for extra in ({}, {"iterations": 7}, {"out_chans": 8})
    )
    assert more == pytest.approx(7 * once)
    assert wide > 0


def test_several_ipus_pay_for_their_borders() -> None:
    options = {"grid": "64x64"}
    row = run_case(case("stencil", "5-point", system="bow-2000", ipus=4, dtype="f32", options=options), CONTEXT)
    system = find_system("bow-2000")
    crossing = bow.cycles(system.link_latency_seconds * 2)  # a rung, and across to the other column
    assert row.predicted > crossing + system.global_sync_cycles
    assert row.outcome is not None and "4 IPUs" in row.outcome.notes[0]


def test_a_stencil_is_the_sum_of_its_phases_and_plain_code_is_slower() -> None:
    options = {"grid": "96x64", "channels": 4, "contiguous": 1}

    def cycles(family: str, model: str, ipus: int, **extra: object) -> float:
        asked = case(family, model, "cycles", system="bow-2000", ipus=ipus, dtype="f32", options=options | extra)
        row = run_case(asked, CONTEXT)
        assert row.status == "predicted", row.reason
        return row.predicted

    parts = ("sync", "compute", "halo/exchange", "halo/globExchange", "halo/copies")
    assert sum(cycles("phase", part, 2) for part in parts) == pytest.approx(cycles("stencil", "9-point", 2))
    words, elements = (cycles("stencil", "9-point", 1, grid="960x640", codelet=c) for c in ("vector", "scalar"))
    assert 1.5 * words < elements < 2 * words
    once, more = (cycles("stencil", "9-point", 1, iterations=n) for n in (1, 7))
    assert more == pytest.approx(7 * once)
    alone = run_case(case("phase", "halo/post", "cycles", system="bow-2000", options=options), CONTEXT)
    assert alone.status == "no runner" and "sum" in alone.reason
    wrong = run_case(case("stencil", "9-point", "cycles", options=options | {"codelet": "fast"}), CONTEXT)
    assert wrong.status == "failed" and "codelet" in wrong.reason


def test_a_small_pipeline_trains_as_its_case_says() -> None:
    pytest.importorskip("transformers")
    from abele.cost.validate.models import _captured, placed

    sizes = {"depth": 4, "width": 32, "heads": 2, "vocabulary": 64, "mask_tokens": 4, "optimizer": "lamb"}
    places = {"stage_ipus": "0/1/2/0", "attention_layers": "0/3/1/0"}
    small = case(
        "training", "bert-base", "samples/s", "throughput", system="bow-pod16", micro_batch=2, replicas=2,
        accumulation=8, sequence_length=16, layers=(0, 2, 2, 0), recompute="layers", partials="f16",
        options=sizes | places,
    )  # fmt: skip
    graph, parameters = _captured(small, True)
    found = {(op.origin.stage, op.origin.ipu) for op in placed(graph, small).operations}
    assert found == {(0, 0), (1, 1), (2, 2), (3, 0)}
    by_layer: dict[tuple[str, bool], set[int]] = {}
    for op in placed(graph, small).operations:
        parts = op.origin.module.split(".")
        if "layer" in parts:
            by_layer.setdefault((parts[parts.index("layer") + 1], "attention" in parts), set()).add(op.origin.stage)
    assert by_layer[("2", True)] == {1} and by_layer[("2", False)] == {2} and by_layer[("0", False)] == {1}
    assert len(parameters) > 4 * 16
    row = run_case(small, CONTEXT)
    assert row.status == "predicted", row.reason
    assert row.outcome is not None and row.outcome.samples == 2 * 2 * 8
    assert math.isclose(sum(row.outcome.shares.values()), 1.0)
    assert {"compute", "links", "bubble"} <= row.outcome.shares.keys()


def test_separate_operations_are_charged_one_by_one_and_io_tiles_hide_the_host() -> None:
    pytest.importorskip("torch")
    sizes = {"depth": 2, "width": 64, "heads": 2, "vocabulary": 64}
    chip = find_system("c600").chip

    def found(**options: object) -> Outcome:
        asked = case(
            "inference", "bertsquad", "samples/s", "throughput", system="c600", micro_batch=2, sequence_length=256,
            partials="f16", options=sizes | options,
        )  # fmt: skip
        row = run_case(asked, CONTEXT)
        assert row.status == "predicted" and row.outcome is not None, row.reason
        return row.outcome

    chain, one = found(patterns="norm"), found(patterns="gelu/norm")
    each = -(-2 * 256 * 4 * 64 // chip.tiles)  # elements of GELU on a tile
    power = chip.estimate("Elementwise", n=each, ops="pow", dtype="f16", broadcast="scalar")
    assert chain.cycles - one.cycles > 0.9 * 2 * power  # in each of two layers; a fused chain would hide none of it
    beside = found(patterns="gelu/norm", io_tiles=32)
    assert one.shares["host"] > 0 and "host" not in beside.shares


def test_every_family_has_a_runner_or_says_so() -> None:
    without = {c.family for c in builtin_cases()} - RUNNERS.keys()
    assert not without


# commands


def test_commands(tmp_path, monkeypatch, capsys) -> None:
    from abele.cli import main
    from abele.machine.cycles import ESTIMATES

    monkeypatch.setenv("ABELE_CACHE_DIR", str(tmp_path / "cache"))
    file = tmp_path / "cases.csv"
    file.write_text(HEAD + GEMM + GEMM.replace("g,gemm", "bad,gemm").replace("n=64", "no=64"))

    main(["validate", "--cases", str(file), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [r["status"] for r in found["rows"]] == ["predicted", "failed"]
    assert found["rows"][0]["published"] == 10 and found["families"][0]["predicted"] == 1
    main(["validate", "--cases", str(file), "--match", "g"])
    shown = capsys.readouterr().out
    assert "TFLOPS" in shown and "Errors by family" in shown
    with pytest.raises(SystemExit) as stopped:
        main(["validate", "--cases", str(file), "--strict", "--json"])
    assert stopped.value.code == 1
    capsys.readouterr()
    main(["vertices", "--json"])
    rows = {r["vertex"]: r for r in json.loads(capsys.readouterr().out)}
    assert rows.keys() == ESTIMATES.keys()
    assert all(r["source"] and r["cycles"] > 0 for r in rows.values())
    assert rows["Copy"]["guess"] and not rows["Amp1x1"]["guess"]


@pytest.mark.parametrize(
    ("name", "millions"),
    [("resnet50", 25.6), ("resnet101", 44.5), ("efficientnet-b0", 5.3), ("vit-base", 86.6), ("gpt2-medium", 354.8)],
)
def test_configured_models_have_the_published_sizes(name: str, millions: float) -> None:
    pytest.importorskip("transformers")
    from abele.zoo.configured import build

    module, inputs = build(name, batch=3, train=False, half=True)
    assert sum(p.numel() for p in module.parameters()) / 1e6 == pytest.approx(millions, rel=0.01)
    assert all(p.device.type == "meta" for p in module.parameters())
    assert {v.shape[0] for v in inputs.values()} == {3}


def test_batch_norm_over_neighbours_exchanges_its_statistics() -> None:
    from abele.cost.validate.models import _captured, spanned

    small = case("training", "resnet18", "samples/s", "throughput", options={"image": 32}, micro_batch=2)
    graph, _ = _captured(small, True)
    norms = [op for op in graph.operations if op.name == "batch_norm"]
    made = [op for op in spanned(graph, 2).operations if op.name == "all_reduce"]
    assert len(made) == 2 * len(norms) == 40
    assert {(op.attributes["group"], op.attributes["reduction"]) for op in made} == {(2, "mean")}
    asked = replace(small, replicas=4, accumulation=2, system="bow-2000", ipus=4)
    rates = []
    for options in ({}, {"bn_span": 2}, {"bn_span": 2, "loss_scaling": 1, "max_grad_norm": 1.0, "image_type": "u8"}):
        row = run_case(replace(asked, options={"image": 32, "optimizer": "lars"} | options), CONTEXT)
        assert row.predicted is not None, row.reason
        rates.append(row.predicted)
    assert rates[0] > rates[1] > rates[2]


def test_kept_results_decide_what_is_computed_again() -> None:
    pytest.importorskip("torch")
    from abele.cost.validate.models import _captured, checkpointed

    small = case("training", "resnet18", "samples/s", "throughput", options={"image": 64}, micro_batch=2)
    graph, _ = _captured(small, True)
    kept = checkpointed(graph, ["stages.0.1", "stages.2.0"])
    modules = [op.origin.module for op in kept.operations if op.name == "checkpoint"]
    assert any(m.endswith("stages.0.1") for m in modules) and any(m.endswith("stages.2.0") for m in modules)
    assert any("stages.3" in m for m in modules)  # what comes after the last is kept whole
    assert not any("stages.1" in m for m in modules)
    with pytest.raises(InvalidOption, match=r"stages\.9"):
        checkpointed(graph, ["stages.9"])
    both = {"checkpoints": "stages.0.1/stages.1.1/stages.2.1"}
    again, none = (
        run_case(
            case(
                "training",
                "resnet18",
                "samples/s",
                "throughput",
                micro_batch=2,
                recompute=how,
                options=small.options | more,
            ),
            CONTEXT,
        )
        for how, more in (("checkpoints", both), ("none", {}))
    )
    assert again.predicted is not None and none.predicted is not None
    assert again.predicted < none.predicted
