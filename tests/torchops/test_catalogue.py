"""Every operation of the catalogue: what it returns and its gradient, in float and in half."""

from __future__ import annotations

import warnings

import pytest
import torch

from tests.torchops.cases import Case
from tests.torchops.catalogue import CATALOGUE
from tests.torchops.checking import NoGradient, check_forward, check_gradient

ROWS = [
    pytest.param(cases, id=name.removeprefix("torch.")) for rows in CATALOGUE.values() for name, cases in rows.items()
]


def attempt(case: Case, kind: torch.dtype) -> None:
    tolerance = None if kind is torch.float16 else case.tolerance
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_forward(case.program, case.args, kind, tolerance)
        if not case.gradient:
            try:
                check_gradient(case.program, case.args, kind, tolerance)
            except NoGradient:
                return


@pytest.mark.parametrize("cases", ROWS)
def test_operation_agrees_with_torch(cases: list[Case]) -> None:
    assert cases
    for case in cases:
        attempt(case, torch.float32)
        if not case.half:
            attempt(case, torch.float16)
