"""A program that loads a C++ library of operations is told what to write instead."""

from __future__ import annotations

import ctypes
import ctypes.util

import pytest
import torch

import poptorch

HELP = r"libcube\.so holds operations of the vendor's.*abele\.ir\.register"


@pytest.fixture
def library(tmp_path):
    file = tmp_path / "libcube.so"
    file.write_bytes(b"\x7fELF\0\0\0\0_ZN6popart2OpD2Ev\0libpopart.so\0")
    return str(file)


@pytest.mark.parametrize("load", [ctypes.cdll.LoadLibrary, ctypes.CDLL])
def test_a_library_of_the_vendors_operations_is_refused(load, library):
    with pytest.raises(poptorch.Error, match=HELP):
        load(library)


def test_torch_gives_it_as_the_cause(library):
    with pytest.raises(OSError, match="Could not load") as caught:
        torch.ops.load_library(library)
    assert isinstance(caught.value.__cause__, poptorch.Error)
    caught.match("libcube")


def test_other_libraries_are_loaded_as_before(tmp_path):
    name = ctypes.util.find_library("m")
    assert ctypes.CDLL(name).abs is not None
    ctypes.CDLL(None)
    other = tmp_path / "libother.so"
    other.write_bytes(b"no library at all")
    with pytest.raises(OSError, match="libother"):
        ctypes.CDLL(str(other))
    with pytest.raises(OSError, match="missing"):
        ctypes.cdll.LoadLibrary(str(tmp_path / "missing.so"))


def test_a_plan_of_ones_own_is_charged():
    """The example's vertex is in the schedule, with the cycles that it says."""
    from tests.examples.test_examples import loaded

    from abele.compile import CompileOptions, compile_graph
    from abele.ir import Builder, Port, f32
    from abele.machine import find_system
    from abele.schedule.text import print_schedule

    loaded("examples/custom_operation.py")
    b = Builder("net")
    (y,) = b.emit("com.example.Cube", [b.input(f32(64, 32), "data", "x")], {"scale": 0.5})
    graph = b.finish([y], [Port("anchor", "y")])
    text = print_schedule(compile_graph(graph, CompileOptions(find_system("bow-2000"))).schedule)
    assert "Cube" in text.replace("com.example.Cube", "")
