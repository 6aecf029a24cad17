"""What random modules and real programs found to be wrong, a test for each kind."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from abele.errors import DataDependent, Unsupported
from abele.importers.torch import capture
from tests.torchops.cases import Draw
from tests.torchops.checking import Program, check_forward, check_gradient, values_of

normal = Draw(21).normal
M, K, V = normal(3, 4, 5), torch.tensor([1, 2, -1]), normal(4, 5)


def written(m: torch.Tensor, i: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    y = m.clone()
    y[i[0]] = v
    y[i[1], 1] = v[0]
    y[:, i[0], ::2] = v[0, 0]
    y[i[0], i[1]] = v[1]
    y[..., i[0]] = 3.0
    y[None, 1, i[0]] = v[2]
    return y


def all_or_nothing(m: torch.Tensor) -> Any:
    high, low = m.mean(), m.mean() - 100
    high[high > -10] = 0.5
    low[low > -10] = 0.5
    part = m.clone()
    part[m.sum() > 1000] = 0
    return high, low, part


def scanned_apart(x: torch.Tensor) -> torch.Tensor:
    """Sums of exponentials of numbers that lie far apart keep their gradients."""
    return (x * 40).logcumsumexp(0)


def view_by_number(m: torch.Tensor, i: torch.Tensor) -> Any:
    """What a tensor of one number selects is a view."""
    y = m.clone()
    part = y[i[1]]
    part.mul_(2)
    y[:, i[2]].add_(1)
    y[0] += 1
    with torch.no_grad():
        still = m[i[0]]
    return y, part, still * m[0]


PROGRAMS: dict[str, tuple[Any, ...]] = {
    "a tensor of one number reads": (
        lambda m, i: (
            m[i[0]],
            m[:, i[1]],
            m[..., i[2]],
            m[i[0], 1:, i[1]],
            m[0, i[0], i[1]],
            m[i[0], i],
            m[:, i[0], None],
        ),
        M,
        K,
    ),
    "a tensor of one number writes": (written, M, K, V),
    "a tensor of one number gives a view": (view_by_number, M, K),
    "a quotient of zeros": (lambda v: torch.sinc(v - v) * v + torch.sinc(v), V),
    "a mask of one element": (all_or_nothing, M),
    "a running sum of exponentials far apart": (scanned_apart, M[:, :, 0]),
    "a shape taken from a tensor": (lambda m, v: torch.ops.aten.expand_as(v, m) * 2, M, V),
    "a matrix and its index of one number": (lambda v: v[v.argmax(0)[0] * 0], V),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_agrees_with_torch(program: tuple[Any, ...]) -> None:
    function, *args = program
    check_forward(function, args, torch.float32)
    check_gradient(function, args, torch.float32)


REFUSED: dict[str, tuple[Program, tuple[Any, ...], type[Exception], str]] = {
    "nonzero": (lambda x: torch.nonzero(x), (V,), DataDependent, "torch.where"),
    "where alone": (lambda x: torch.where(x > 0), (V,), DataDependent, "torch.where"),
    "unique": (lambda i: torch.unique(i), (K,), DataDependent, "keep the shape"),
    "unique_consecutive": (lambda i: torch.unique_consecutive(i), (K,), DataDependent, "keep the shape"),
    "repeats in a tensor": (lambda x, i: x.repeat_interleave(i.abs(), 0), (M, K), DataDependent, "output_size"),
    "a mask that reads": (lambda x: x[x > 0], (V,), DataDependent, "torch.where"),
    "bags with max_norm": (
        lambda x, i: F.embedding_bag(i[None] % 3, x, max_norm=1.0),
        (V, K),
        Unsupported,
        "embedding",
    ),
    "a gradient": (
        lambda v: torch.autograd.grad((v.requires_grad_() ** 3).sum(), v)[0],
        (V,),
        Unsupported,
        r"gradient is asked for.*autograd.Function",
    ),
    "a gradient of a function": (torch.func.grad(lambda v: (v**3).sum()), (V,), Unsupported, "gradient is asked for"),
    "complex results": (lambda x: torch.fft.fft(x), (V,), Unsupported, "view_as_real"),
    "complex arguments": (lambda x: x.abs(), (torch.complex(V, V),), Unsupported, "view_as_real"),
    "segments along another axis": (
        lambda x, n: torch.segment_reduce(x, "sum", lengths=n, axis=1),
        (V, torch.ones(4, 5, dtype=torch.int64)),
        Unsupported,
        "axis 0",
    ),
}


def test_a_matrix_without_an_answer_spoils_nothing_else() -> None:
    """As arithmetic does: NaN or infinity, for this matrix alone. Torch would raise."""
    singular = torch.stack([torch.zeros(2, 2), 2 * torch.eye(2)])
    captured = capture(lambda a: (torch.linalg.inv(a), torch.linalg.cholesky(a - torch.eye(2))), (singular,))
    inverse, factor = list(values_of(captured, (singular,)).values())
    assert not np.isfinite(inverse[0]).all() and not np.isfinite(factor[0]).all()
    np.testing.assert_allclose(inverse[1], np.eye(2) / 2)
    np.testing.assert_allclose(factor[1], np.eye(2))


def test_integers_are_counted() -> None:
    """As on other accelerators; torch's own way for the CPU refuses them."""
    captured = capture(lambda i: torch.histc(i, 4, 0, 3), (K,))
    assert next(iter(values_of(captured, (K,)).values())).tolist() == [0, 1, 1, 0]


def test_rows_beyond_the_last_group_are_zero() -> None:
    program = lambda r, w, o: F.grouped_mm(r, w, offs=o)  # noqa: E731
    rows, weights, ends = normal(5, 4), normal(2, 4, 4), torch.tensor([1, 3], dtype=torch.int32)
    (result,) = values_of(capture(program, (rows, weights, ends)), (rows, weights, ends)).values()
    np.testing.assert_allclose(result[:1], rows[:1] @ weights[0], rtol=1e-5)
    np.testing.assert_allclose(result[1:3], rows[1:3] @ weights[1], rtol=1e-5)
    assert not result[3:].any()


def test_a_failed_factorisation_is_told() -> None:
    matrices = torch.stack([torch.eye(3), -torch.eye(3), torch.diag(torch.tensor([1.0, 2.0, 0.0]))])
    captured = capture(lambda a: (torch.linalg.cholesky_ex(a).info, torch.linalg.inv_ex(a).info), (matrices,))
    factors, inverses = list(values_of(captured, (matrices,)).values())
    assert (factors > 0).tolist() == [False, True, True]
    assert (inverses > 0).tolist() == [False, False, True]


class Spectrum(torch.nn.Module):
    """A window that is a buffer, or made on the way."""

    def __init__(self, kept: bool, **options: Any) -> None:
        super().__init__()
        self.options = options
        self.register_buffer("window", torch.hann_window(6) if kept else None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        window = torch.hann_window(6) if self.window is None else self.window
        return torch.view_as_real(torch.stft(x, 8, 3, 6, window, return_complex=True, **self.options))


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"center": False, "onesided": False}, {"normalized": True, "pad_mode": "constant"}], ids=str
)
@pytest.mark.parametrize("shape", [(20,), (2, 9)])
def test_windows_of_spectra_need_not_be_arguments(kept: bool, options: dict[str, Any], shape: tuple[int, ...]) -> None:
    module, x = Spectrum(kept, **options), torch.linspace(-1, 2, math.prod(shape)).reshape(shape).cos()
    captured = capture(module, (x,))
    (found,) = values_of(captured, (x,)).values()
    np.testing.assert_allclose(found, module(x).numpy(), atol=1e-5)


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED)
def test_is_refused_with_a_remedy(refused: tuple[Program, tuple[Any, ...], type[Exception], str]) -> None:
    program, args, kind, remedy = refused
    with pytest.raises(kind, match=remedy):
        capture(program, args)
