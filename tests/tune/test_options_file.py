"""The options file: what tune writes is what poptorch, ``abele profile`` and ``abele run`` read."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

import poptorch
from abele.errors import InvalidOption
from abele.tune.options_file import _CALLS, PASSED_OVER, read_options, write_options

USUAL = {
    "batch": 4,
    "stages": 2,
    "pipeline": "grouped",
    "replicas": 2,
    "accumulate": 8,
    "recompute": "standard",
    "offload": True,
    "shard": 8192,
    "partials": "f16",
    "memory_proportion": 0.2,
}


@pytest.mark.parametrize("train", [True, False])
def test_what_is_written_is_read(tmp_path: Path, train: bool) -> None:
    varied = {
        "stages": (1, 3),
        "pipeline": ("grouped", "interleaved"),
        "recompute": ("layers", "recompute_all"),
        "shard": (0, 100),
    }
    for values in itertools.product(*varied.values()):
        settings = USUAL | dict(zip(varied, values))
        file = tmp_path / "some.options"
        file.write_text(write_options(settings, train, ("a comment", "# another")))
        read = read_options(file, train)
        passed_over = set() if train else {"offload", "recompute", "shard"}
        assert {
            n: read.get(n, {"stages": 1, "pipeline": "grouped"}.get(n)) for n in settings if n not in passed_over
        } == {n: v for n, v in settings.items() if n not in passed_over}


def test_poptorch_takes_every_line(tmp_path: Path) -> None:
    file = tmp_path / "some.options"
    file.write_text(write_options(USUAL | {"pipeline": "interleaved"}, True))
    options = poptorch.Options().loadFromFile(str(file))
    assert options.replication_factor == 2
    assert options.Training.gradient_accumulation == 8
    assert options.available_memory_proportion == {0: 0.2, 1: 0.2}
    assert options.TensorLocations.location_optimizer == {"onChip": 0, "useReplicatedTensorSharding": 1}
    assert options._Popart.options["autoRecomputation"] == 1
    assert options._Popart.options["partialsTypeMatMuls"] == "half"
    assert options._own == {"batchSize": 4, "stages": 2, "pipeline": "interleaved"}


def test_the_system_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "some.options"
    file.write_text(write_options(USUAL, True, system="here/mine.py:it's"))
    assert read_options(file, True)["system"] == "here/mine.py:it's"
    assert poptorch.Options().loadFromFile(str(file)).replication_factor == 2
    file.write_text("# abele: system(4)")
    with pytest.raises(InvalidOption, match="system takes a name"):
        read_options(file, True)


@pytest.mark.parametrize(
    "line", ["# abele: stages()", "# abele: depth(3)", "replicationFactor 3", "# abele: stages('x')"]
)
def test_a_line_that_is_no_call_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "bad.options"
    file.write_text(f"replicationFactor(2)\n{line}\n")
    with pytest.raises(InvalidOption, match="Line 2"):
        read_options(file, True)
    with pytest.raises(poptorch.options.ConfigFileError, match="line 2"):
        poptorch.Options().loadFromFile(str(file))


def test_an_editors_mark_of_the_encoding_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "some.options"
    file.write_text("replicationFactor(2)\n", encoding="utf-8-sig")
    assert read_options(file, True) == {"replicas": 2}
    assert poptorch.Options().loadFromFile(str(file)).replication_factor == 2


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"none\.options"):
        read_options(tmp_path / "none.options", True)


LOCATION = "poptorch.TensorLocationSettings()"


@pytest.mark.parametrize(
    "line",
    [
        'replicationFactor("x")',
        "replicationFactor(2.5)",
        "replicationFactor(True)",
        "replicationFactor(0)",
        "replicationFactor()",
        "replicationFactor(2, 3)",
        "replicationFactor(factor=2)",
        "replicationFactor(10**30)",
        "Training.gradientAccumulation(None)",
        "setAvailableMemoryProportion(0.5)",
        'setAvailableMemoryProportion({"IPU0": "a"})',
        'setAvailableMemoryProportion({"IPU0": 0.5, "IPU1": [1]})',
        'setAvailableMemoryProportion({"IPU0": 5})',
        "setAvailableMemoryProportion({**{}})",
        '_Popart.set("autoRecomputation", [1])',
        '_Popart.set("autoRecomputation", 9)',
        '_Popart.set({"autoRecomputation": 1})',
        "Precision.setPartialsType('half')",
        "TensorLocations.setOptimizerLocation(3)",
        "TensorLocations.setWeightLocation()",
        "deviceItertions(4)",
        "# abele: pipeline('groups')",
        "# abele: recompute(2)",
        "# abele: batchSize(0)",
        "(",
        "\x00",
    ],
)
def test_a_call_with_a_wrong_argument_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "bad.options"
    file.write_text(f"replicationFactor(2)\n{line}\n")
    with pytest.raises(InvalidOption, match="Line 2"):
        read_options(file, True)


def test_a_mistyped_name_is_suggested(tmp_path: Path) -> None:
    file = tmp_path / "bad.options"
    file.write_text("deviceItertions(4)\n")
    with pytest.raises(InvalidOption, match="Did you mean 'deviceIterations'"):
        read_options(file, True)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("replicationFactor(replication_factor=2)", {"replicas": 2}),
        ("replicationFactor(2).setAvailableMemoryProportion({'IPU0': 1})", {"replicas": 2, "memory_proportion": 1}),
        (f"TensorLocations.setWeightLocation({LOCATION}.useOnChipStorage(False))", {"offload_weights": True}),
        (
            f"TensorLocations.setActivationLocation({LOCATION}.useOnChipStorage(use=True))",
            {"offload_activations": False},
        ),
        ("TensorLocations.numIOTiles(32)", {"io_tiles": 32}),
        (
            "TensorLocations.setOptimizerLocation("
            f"{LOCATION}.useReplicatedTensorSharding().minElementsForReplicatedTensorSharding(0))",
            {"offload": False, "shard": 1},
        ),
        ("deviceIterations(4)", {}),
        ("outputMode(poptorch.OutputMode.All)", {}),
    ],
)
def test_whatever_poptorch_takes_is_read(tmp_path: Path, line: str, found: dict) -> None:
    file = tmp_path / "some.options"
    file.write_text(line)
    poptorch.Options().loadFromFile(str(file))
    assert read_options(file, True) == found


def test_every_call_of_the_vendor_is_known() -> None:
    options = poptorch.Options()
    groups = ("", "Distributed", "Jit", "Precision", "TensorLocations", "Training", "_Popart")
    quiet = {
        "checkIsFrozen",
        "clone",
        "defaultOutputMode",
        "exists",
        "get",
        "numProcesses",
        "processId",
        "toDict",
        "update",
    }
    for group in groups:
        part = getattr(options, group) if group else options
        for name in dir(type(part)):
            if name.startswith("_") or name in quiet or not callable(getattr(type(part), name)):
                continue
            full = f"{group}.{name}".lstrip(".")
            assert name in ("set", "createOrSet", "deleteIfExists") or full in {*_CALLS, *PASSED_OVER}, full
