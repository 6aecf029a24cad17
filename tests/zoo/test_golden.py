"""The modelled figures of the zoo are those of `golden.csv`."""

import math

import pytest
from tests.zoo.golden import FILE, cases, figures, parse

KEPT = parse(FILE.read_text(encoding="utf-8"))


def test_every_model_is_kept() -> None:
    assert set(KEPT) == set(cases())


def test_best_beats_the_vendors_way() -> None:
    """By a quarter in the geometric mean over the zoo, inference and training, and on no entry does it lose."""
    gains = [values["poplibs"] / values["cycles"] for values in KEPT.values()]
    assert min(gains) >= 1.0
    assert math.prod(gains) ** (1 / len(gains)) >= 1.25


@pytest.mark.parametrize(("model", "mode"), cases())
def test_figures(model: str, mode: str) -> None:
    before, now = KEPT[model, mode], figures(model, mode)
    moved = [f"{name} {before[name]} -> {v} (x {v / before[name]:.4f})" for name, v in now.items() if v != before[name]]
    assert not moved, f"{model} {mode}: {', '.join(moved)}. If that is meant: `make golden`, and say why in the commit."
