"""The modelled figures of the zoo are those of `golden.csv`."""

import pytest
from tests.zoo.golden import FILE, cases, figures, parse

KEPT = parse(FILE.read_text(encoding="utf-8"))


def test_every_model_is_kept() -> None:
    assert set(KEPT) == set(cases())


@pytest.mark.parametrize(("model", "mode"), cases())
def test_figures(model: str, mode: str) -> None:
    before, now = KEPT[model, mode], figures(model, mode)
    moved = [f"{name} {before[name]} -> {v} (x {v / before[name]:.4f})" for name, v in now.items() if v != before[name]]
    assert not moved, f"{model} {mode}: {', '.join(moved)}. If that is meant: `make golden`, and say why in the commit."
