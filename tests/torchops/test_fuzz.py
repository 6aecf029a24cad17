"""A slice of the random modules, and what the fuzzer promises: the same module for the same number."""

from __future__ import annotations

import warnings

import pytest
import torch

from abele.importers.torch.calls import describe
from abele.importers.torch.table import RULES
from tests.torchops import fuzz

SLICE = range(5000, 5040)
"""Not those of the command, which start at 0."""


@pytest.mark.parametrize("first", SLICE[::10])
def test_random_modules_agree_with_torch(first: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = [fuzz.attempt(module) for module in fuzz.modules(0, range(first, first + 10))]
    assert sum("agrees" in o for o in outcomes) >= 8


def test_a_number_names_a_module() -> None:
    one, again = fuzz.write(0, 17), fuzz.write(0, 17)
    assert one.source == again.source and fuzz.write(1, 17).source != one.source
    for name, tensor in one.arguments.items():
        assert torch.equal(tensor, again.arguments[name])


def test_a_wrong_rule_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    module = fuzz.Module(0, {"x0": torch.tensor([0.5, -1.0])}, ["t1 = x0.tanh()"], ["t1"])
    assert fuzz.attempt(module) == "agrees"
    right = RULES["tanh"]
    monkeypatch.setitem(RULES, "tanh", lambda e, x: e.emit("neg", right(e, x)))
    describe.cache_clear()
    try:
        with pytest.raises(AssertionError, match="result 0"):
            fuzz.attempt(module)
    finally:
        monkeypatch.undo()
        describe.cache_clear()
