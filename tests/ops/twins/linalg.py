"""Linear algebra in torch."""

from __future__ import annotations

import torch


def _solve(a, y, transpose):
    return torch.linalg.solve(a.mT if transpose else a, y)


def _triangular(a, y, upper, transpose, unit):
    if transpose:
        a, upper = a.mT, not upper
    return torch.linalg.solve_triangular(a, y, upper=upper, unitriangular=unit)


TWINS = {
    "cholesky": lambda a: torch.linalg.cholesky(a),
    "solve": _solve,
    "triangular_solve": _triangular,
    "slogdet": lambda a: tuple(torch.linalg.slogdet(a)),
    "qr": lambda a: tuple(torch.linalg.qr(a)),
    "eigh": lambda a: torch.linalg.eigh(a)[0],  # the sign of the vectors is anyone's
    "svd": lambda a: tuple(torch.linalg.svd(a, full_matrices=False)),
}
