"""Special functions in torch."""

from __future__ import annotations

import torch


def _polygamma(x, order):
    return torch.polygamma(order, x)


TWINS = {
    name: lambda *x, _f=f: _f(*x)
    for name, f in {
        "lgamma": torch.lgamma, "digamma": torch.digamma, "zeta": torch.special.zeta, "erfcx": torch.special.erfcx,
        "erfinv": torch.erfinv, "log_ndtr": torch.special.log_ndtr, "bessel_i0": torch.special.i0,
        "bessel_i0e": torch.special.i0e, "bessel_i1": torch.special.i1, "bessel_i1e": torch.special.i1e,
    }.items()
} | {"polygamma": _polygamma}  # fmt: skip
