"""Elementwise arithmetic, reductions, products, linear algebra, transforms."""

from __future__ import annotations

import math

import torch
from torch.nn import functional as F

from tests.torchops.cases import ODD, A, B, D, Draw, J, M, P, S, V, X, Y, Z, case

_draw = Draw(12)
normal, positive = _draw.normal, _draw.positive

SMALL = P * 0.8
NO_HALF = "torch has none in half"
COMPLEX = "complex halves do not exist"
W = 0.3 * normal(4, 4) + 2 * torch.eye(4)
SPD = torch.stack([W @ W.T, 2 * W.T @ W])


def one(f, *args, **kw):
    return [case(f, *args, **kw)]


def grouped(a, b, ends):
    """Torch's own products of groups; in double, where it has none, one group after another."""
    if a.dtype is not torch.float64:
        return F.grouped_mm(a, b, offs=ends.int())
    starts = [0, *ends[:-1]]
    if b.dim() == 3:
        return torch.cat([a[s:t] @ m for m, s, t in zip(b, starts, ends, strict=True)])
    if a.dim() == 3:
        return torch.cat([m @ b[:, s:t] for m, s, t in zip(a, starts, ends, strict=True)], 1)
    return torch.stack([a[:, s:t] @ b[s:t] for s, t in zip(starts, ends, strict=True)])


ELEMENTWISE = {
    "torch.abs": one(torch.abs, X) + one(torch.abs, Z),
    "torch.acos": one(torch.acos, SMALL),
    "torch.acosh": one(torch.acosh, P + 1),
    "torch.add": one(lambda x, y: (x + y, torch.add(x, y, alpha=2), x + 2), X, Y)
    + one(lambda z, x: (z + x, z + 2.5, z + z), Z, X),
    "torch.addcdiv": one(lambda x, y, p: torch.addcdiv(x, y, p, value=0.5), X, Y, P),
    "torch.addcmul": one(lambda x, y, p: torch.addcmul(x, y, p, value=0.5), X, Y, P),
    "torch.angle": one(torch.angle, X),
    "torch.asin": one(torch.asin, SMALL),
    "torch.asinh": one(torch.asinh, X),
    "torch.atan": one(torch.atan, X),
    "torch.atan2": one(torch.atan2, X, Y),
    "torch.atanh": one(torch.atanh, SMALL),
    "torch.bitwise_and": one(lambda z, j: (z & j, z & 3), Z, J),
    "torch.bitwise_left_shift": one(lambda z, j: z << j.abs(), Z, J),
    "torch.bitwise_not": one(lambda z, b: (~z, ~b), Z, B),
    "torch.bitwise_or": one(lambda z, j, b: (z | j, b | b), Z, J, B),
    "torch.bitwise_right_shift": one(lambda z, j: z >> j.abs(), Z, J),
    "torch.bitwise_xor": one(lambda z, j, b: (z ^ j, b ^ ~b), Z, J, B),
    "torch.ceil": one(torch.ceil, X),
    "torch.clamp": one(lambda x, y: (x.clamp(-1, 0.5), x.clamp(min=y), x.clamp(y - 1, y + 1)), X, Y)
    + one(lambda z: z.clamp(0, 4), Z),
    "torch.clamp_max": one(lambda x, y: (x.clamp_max(0.3), x.clamp_max(y)), X, Y),
    "torch.clamp_min": one(lambda x, y: (x.clamp_min(0.3), x.clamp_min(y)), X, Y),
    "torch.copysign": one(torch.copysign, X, Y),
    "torch.cos": one(torch.cos, X),
    "torch.cosh": one(torch.cosh, X),
    "torch.deg2rad": one(torch.deg2rad, X) + one(torch.rad2deg, X),
    "torch.digamma": one(torch.digamma, P + 0.5) + one(torch.digamma, X * 2 + 0.25),
    "torch.div": one(lambda x, p: (x / p, x / 3, 1 / p), X, P)
    + one(lambda z, j: (z / j, torch.div(z, j, rounding_mode="trunc"), torch.div(z, j, rounding_mode="floor")), Z, J),
    "torch.erf": one(torch.erf, X),
    "torch.erfc": one(torch.erfc, X),
    "torch.erfinv": one(torch.erfinv, SMALL - 0.4),
    "torch.exp": one(torch.exp, X),
    "torch.exp2": one(torch.exp2, X),
    "torch.expm1": one(torch.expm1, X),
    "torch.fix": one(torch.fix, X),
    "torch.float_power": one(lambda x: torch.float_power(x, 2), X, half="it computes in double"),
    "torch.floor": one(torch.floor, X),
    "torch.floor_divide": one(torch.floor_divide, X, P, gradient="torch has none") + one(torch.floor_divide, Z, J),
    "torch.fmax": one(torch.fmax, X, Y),
    "torch.fmin": one(torch.fmin, X, Y),
    "torch.fmod": one(torch.fmod, X, P) + one(torch.fmod, Z, J) + one(lambda x: x.fmod(0.7), X),
    "torch.frac": one(torch.frac, X),
    "torch.frexp": one(torch.frexp, X),
    "torch.heaviside": one(torch.heaviside, X, Y, gradient="torch has none"),
    "torch.hypot": one(torch.hypot, X, Y),
    "torch.i0": one(torch.i0, X),
    "torch.isclose": one(lambda x: torch.isclose(x, x + 0.5), X),
    "torch.ldexp": one(
        lambda x, z: torch.ldexp(x, z.abs() // 4), X, Z, gradient="torch takes it in whole numbers, and so loses it"
    ),
    "torch.lerp": one(lambda x, y, p: (torch.lerp(x, y, 0.3), torch.lerp(x, y, p)), X, Y, P),
    "torch.lgamma": one(torch.lgamma, P + 0.5) + one(torch.lgamma, X * 2 + 0.25),
    "torch.log": one(torch.log, P),
    "torch.log10": one(torch.log10, P),
    "torch.log1p": one(torch.log1p, P),
    "torch.log2": one(torch.log2, P),
    "torch.logaddexp": one(torch.logaddexp, X, Y),
    "torch.logaddexp2": one(torch.logaddexp2, X, Y),
    "torch.logical_and": one(torch.logical_and, Z, X),
    "torch.logical_not": one(torch.logical_not, Z),
    "torch.logical_or": one(torch.logical_or, B, Z),
    "torch.logical_xor": one(torch.logical_xor, B, X),
    "torch.logit": one(lambda p: (torch.logit(p), torch.logit(p, 0.2)), SMALL),
    "torch.maximum": one(torch.maximum, X, Y),
    "torch.minimum": one(torch.minimum, X, Y),
    "torch.mul": one(lambda x, y: (x * y, x * 2), X, Y) + one(lambda b, x, z: (b * x, z * x), B, X, Z),
    "torch.mvlgamma": one(lambda p: torch.mvlgamma(p + 2, 2), P),
    "torch.nan_to_num": one(lambda x: (x.nan_to_num(0.5, 9, -9), x.nan_to_num(1, 2, 3)), ODD),
    "torch.neg": one(torch.neg, X) + one(torch.neg, Z),
    "torch.polygamma": one(lambda p: torch.polygamma(1, p + 0.5), P) + one(lambda p: torch.polygamma(2, p + 0.5), P),
    "torch.positive": one(torch.positive, X),
    "torch.pow": one(lambda x, p: (x**2, x**3, p**0.5, p**-1, 2**x, p**x, p**-0.5, p**1.7), X, P)
    + one(lambda z: (z**2, z**3), Z),
    "torch.reciprocal": one(torch.reciprocal, P),
    "torch.remainder": one(torch.remainder, X, P) + one(torch.remainder, Z, J) + one(lambda x: x % 0.7, X),
    "torch.round": one(torch.round, X) + one(lambda x: x.round(decimals=1), X),
    "torch.rsqrt": one(torch.rsqrt, P),
    "torch.rsub": one(lambda x, y: (torch.rsub(x, y, alpha=2), 3 - x), X, Y),
    "torch.sgn": one(torch.sgn, X),
    "torch.sigmoid": one(torch.sigmoid, X),
    "torch.sign": one(torch.sign, X) + one(torch.sign, Z),
    "torch.signbit": one(torch.signbit, X),
    "torch.sin": one(torch.sin, X),
    "torch.sinc": one(torch.sinc, X),
    "torch.sinh": one(torch.sinh, X),
    "torch.sqrt": one(torch.sqrt, P),
    "torch.square": one(torch.square, X),
    "torch.sub": one(lambda x, y: (x - y, torch.sub(x, y, alpha=2), 3 - x), X, Y),
    "torch.tan": one(torch.tan, SMALL),
    "torch.tanh": one(torch.tanh, X),
    "torch.true_divide": one(torch.true_divide, X, P),
    "torch.trunc": one(torch.trunc, X),
    "torch.xlogy": one(torch.xlogy, X, P),
}

COMPARE = {
    "torch.eq": one(lambda x, y, z: (x == y, x == 0, z == 3), X, Y, Z),
    "torch.ge": one(lambda x, y, z: (x >= y, z >= 2), X, Y, Z),
    "torch.gt": one(lambda x, y, z: (x > y, z > 2), X, Y, Z),
    "torch.isfinite": one(torch.isfinite, ODD),
    "torch.isinf": one(lambda x: (x.isinf(), x.isposinf(), x.isneginf()), ODD),
    "torch.isnan": one(torch.isnan, ODD),
    "torch.le": one(lambda x, y, z: (x <= y, z <= 2), X, Y, Z),
    "torch.lt": one(lambda x, y, z: (x < y, z < x), X, Y, Z),
    "torch.max": one(lambda d, e: (d.max(), *d.max(1), torch.max(d, e)), D, D.flip(0) + 0.01),
    "torch.min": one(lambda d, e: (d.min(), *d.min(0, keepdim=True), torch.min(d, e)), D, D.flip(0) + 0.01),
    "torch.ne": one(lambda x, y, z: (x != y, z != 0), X, Y, Z),
}

REDUCE = {
    "torch.all": one(lambda b, x: (b.all(), b.all(1), x.all(0)), B, X),
    "torch.amax": one(lambda d: (d.amax(1), d.amax((0, 1), True)), D),
    "torch.amin": one(lambda d: (d.amin(1), d.amin((0, 1), True)), D),
    "torch.aminmax": one(lambda d: (*d.aminmax(), *d.aminmax(dim=1)), D),
    "torch.any": one(lambda b, x: (b.any(), b.any(1), x.any(0)), B, X),
    "torch.argmax": one(lambda d: (d.argmax(), d.argmax(1), d.argmax(0, True)), D),
    "torch.argmin": one(lambda d: (d.argmin(), d.argmin(1), d.argmin(0, True)), D),
    "torch.count_nonzero": one(lambda z: (torch.count_nonzero(z), torch.count_nonzero(z, 1)), Z),
    "torch.cov": one(lambda x: (torch.cov(x), torch.corrcoef(x)), X),
    "torch.cumprod": one(lambda x: (x.cumprod(1), x.cumprod(0)), X),
    "torch.cumsum": one(lambda x: (x.cumsum(1), x.cumsum(0), x.cumsum(1, dtype=torch.float32)), X)
    + one(lambda z: z.cumsum(1), Z),
    "torch.cumulative_trapezoid": one(lambda x: (torch.cumulative_trapezoid(x), torch.trapezoid(x, dim=0)), X),
    "torch.diff": one(lambda x: (x.diff(), x.diff(n=2, dim=0)), X),
    "torch.gradient": one(lambda x: torch.gradient(x, dim=1), X),
    "torch.logcumsumexp": one(lambda x: x.logcumsumexp(1), X)
    + one(lambda x: (x * 40).logcumsumexp(0), X, half="numbers beyond half"),
    "torch.logsumexp": one(lambda x: (x.logsumexp(1), x.logsumexp((0, 1), True)), X),
    "torch.mean": one(lambda x: (x.mean(), x.mean(1, True), x.mean((0, 1))), X),
    "torch.nanmean": one(lambda x: (x.nanmean(), x.nansum(1)), X),
    "torch.norm": one(lambda x: (x.norm(), x.norm(1, 1), x.norm(math.inf), torch.norm(x, p="fro", dim=1)), X),
    "torch.prod": one(lambda x: (x.prod(), x.prod(1)), X) + one(lambda z: z.prod(1), Z),
    "torch.std": one(lambda x: (x.std(), x.std(1), x.std((0, 1), correction=0)), X),
    "torch.std_mean": one(lambda x: torch.std_mean(x, 1), X),
    "torch.sum": one(lambda x: (x.sum(), x.sum(1, True), x.sum((0, 1))), X)
    + one(lambda z, b: (z.sum(1), b.sum()), Z, B),
    "torch.var": one(lambda x: (x.var(), x.var(1), x.var(0, correction=0)), X),
    "torch.var_mean": one(lambda x: torch.var_mean(x, 1), X),
}

PRODUCTS = {
    "torch.addbmm": one(lambda x, a, s: torch.addbmm(x[:, :5], a, s, beta=0.5, alpha=2), X, A, S),
    "torch.addmm": one(lambda x, a, s: torch.addmm(x, a[0], s[0], beta=0.5, alpha=2), X, A, S),
    "torch.addmv": one(lambda x, v: torch.addmv(x[:, 0], x, v, beta=0.5, alpha=2), X, V),
    "torch.addr": one(lambda x, v: torch.addr(x, x[:, 0], v, alpha=2), X, V),
    "torch.baddbmm": one(lambda x, a, s: torch.baddbmm(x, a, s, beta=0.5, alpha=2), X, A, S),
    "torch.bmm": one(torch.bmm, A, S),
    "torch.chain_matmul": one(lambda a, s, x: torch.linalg.multi_dot((a[0], s[0], x.T)), A, S, X),
    "torch.cross": one(lambda x, y: torch.cross(x.T, y.T, dim=1), X, Y)
    + one(lambda x, y: torch.linalg.cross(x, y, dim=0), X, Y),
    "torch.dot": one(lambda v, x: (v.dot(x[0]), v.vdot(x[1]), v.inner(x[2])), V, X),
    "torch.einsum": one(lambda a, s: torch.einsum("bij,bjk->bik", a, s), A, S)
    + one(lambda x, y: (torch.einsum("ij,kj->ik", x, y), torch.einsum("ij->j", x), torch.einsum("ij,ij->", x, y)), X, Y)
    + one(lambda a, s, x: torch.einsum("bij,bjk,ck->bic", a, s, x), A, S, X)
    + one(lambda m: (torch.einsum("...ij->...ji", m), torch.einsum("abcd,abcd->ab", m, m)), M)
    + one(lambda w: (torch.einsum("ii->i", w), torch.einsum("ii", w)), W),
    "torch.inner": one(torch.inner, X, Y),
    "torch.matmul": one(lambda a, s, v: (a @ s, a[0] @ s, a @ s[0], s @ v, v @ s.mT), A, S, V),
    "torch.mm": one(lambda x, y: x.mm(y.T), X, Y),
    "torch.mv": one(torch.mv, X, V),
    "torch.outer": one(lambda v, x: torch.outer(v, x[:, 0]), V, X),
    "torch.tensordot": one(lambda a, s: torch.tensordot(a, s, ([0, 2], [0, 1])), A, S),
    "torch.nn.functional.bilinear": one(F.bilinear, X, Y, normal(2, 5, 5), normal(2)),
    "torch.nn.functional.grouped_mm": one(grouped, normal(8, 4), normal(3, 4, 4), torch.tensor([3, 3, 8]))
    + one(grouped, normal(3, 4, 4), normal(4, 8), torch.tensor([1, 6, 8]))
    + one(grouped, normal(4, 8), normal(8, 4), torch.tensor([4, 4, 8]))
    + one(lambda a, b: a @ b if a.dtype is torch.float64 else F.grouped_mm(a, b), normal(2, 4, 8), normal(2, 8, 4)),
    "torch.nn.functional.linear": one(F.linear, X, Y, X[0, :3]) + one(F.linear, A, S[0].T),
}

LINALG = {
    "torch.cdist": one(torch.cdist, X, Y)
    + one(lambda x, y: torch.cdist(x, y, p=1), X, Y)
    + one(lambda x, y: torch.cdist(x, y, math.inf), X, Y)
    + one(lambda x, y: torch.cdist(x, y, 3), X, Y),
    "torch.cholesky_solve": one(
        lambda s, x: torch.cholesky_solve(x[0].reshape(4, -1)[:, :2], torch.linalg.cholesky(s[0])),
        SPD,
        M.reshape(1, -1)[:, :16],
        half=NO_HALF,
    ),
    "torch.dist": one(lambda x, y: (torch.dist(x, y), torch.dist(x, y, 1)), X, Y),
    "torch.linalg.cholesky": one(
        torch.linalg.cholesky, SPD, half=NO_HALF, gradient="torch's is symmetric", tolerance=1e-4
    ),
    "torch.linalg.det": one(torch.linalg.det, SPD, half=NO_HALF),
    "torch.linalg.diagonal": one(torch.linalg.diagonal, SPD),
    "torch.linalg.eigh": one(lambda s: torch.linalg.eigh(s)[0], SPD, half=NO_HALF, tolerance=1e-4)
    + one(torch.linalg.eigvalsh, SPD, half=NO_HALF, tolerance=1e-4),
    "torch.linalg.inv": one(torch.linalg.inv, SPD, half=NO_HALF, tolerance=1e-4) + one(torch.inverse, W, half=NO_HALF),
    "torch.linalg.matrix_exp": one(torch.linalg.matrix_exp, W - torch.eye(4), half=NO_HALF, tolerance=1e-4)
    + one(torch.matrix_exp, SPD / 8, half=NO_HALF, tolerance=1e-4),
    "torch.linalg.matrix_norm": one(
        lambda x: (
            torch.linalg.matrix_norm(x),
            torch.linalg.matrix_norm(x, 1),
            torch.linalg.matrix_norm(x, math.inf),
            torch.linalg.matrix_norm(x, -1),
        ),
        X,
    )
    + one(
        lambda x: (torch.linalg.matrix_norm(x, 2), torch.linalg.matrix_norm(x, "nuc")), X, half=NO_HALF, tolerance=1e-4
    ),
    "torch.linalg.matrix_power": one(lambda w: (torch.linalg.matrix_power(w, 3), torch.linalg.matrix_power(w, 0)), W)
    + one(lambda w: torch.linalg.matrix_power(w, -2), W, half=NO_HALF),
    "torch.linalg.multi_dot": one(lambda a, s, x: torch.linalg.multi_dot((a[0], s[0], x.T)), A, S, X),
    "torch.linalg.norm": one(
        lambda x: (
            torch.linalg.norm(x),
            torch.linalg.norm(x, 1),
            torch.linalg.norm(x, "fro"),
            torch.linalg.norm(x, math.inf, 1),
        ),
        X,
    ),
    "torch.linalg.qr": one(lambda w: torch.linalg.qr(w), W, half=NO_HALF, tolerance=1e-4)
    + one(lambda a: torch.linalg.qr(a.mT), A, half=NO_HALF, tolerance=1e-4),
    "torch.linalg.slogdet": one(torch.linalg.slogdet, SPD, half=NO_HALF)
    + one(torch.logdet, SPD, half=NO_HALF)
    + one(torch.linalg.slogdet, -W[:3, :3], half=NO_HALF),
    "torch.linalg.solve": one(lambda s, a: torch.linalg.solve(s, a.mT), SPD, A, half=NO_HALF, tolerance=1e-4)
    + one(lambda w, a: torch.linalg.solve(w, a[0, 0]), W, A, half=NO_HALF)
    + one(lambda w, a: torch.linalg.solve(w, a[0], left=False), W, A, half=NO_HALF),
    "torch.linalg.solve_triangular": one(
        lambda w, a: (
            torch.linalg.solve_triangular(w.tril(), a[0].T, upper=False),
            torch.linalg.solve_triangular(w.triu(), a[0].T, upper=True),
            torch.linalg.solve_triangular(w.triu(), a[0], upper=True, left=False),
        ),
        W,
        A,
        half=NO_HALF,
    ),
    "torch.linalg.svdvals": one(torch.linalg.svdvals, X, half=NO_HALF, tolerance=1e-4),
    "torch.linalg.vector_norm": one(
        lambda x: (
            torch.linalg.vector_norm(x),
            torch.linalg.vector_norm(x, 3, 1),
            torch.linalg.vector_norm(x, math.inf, 0),
            torch.linalg.vector_norm(x, 0.5, 1),
            torch.linalg.vector_norm(x, -math.inf, 1),
        ),
        X,
    )
    + one(lambda x: torch.linalg.vector_norm(x, 0), X),
    "torch.pdist": one(F.pdist, X, half=NO_HALF),
    "torch.trace": one(torch.trace, X),
    "torch.nn.functional.cosine_similarity": one(
        lambda x, y: (F.cosine_similarity(x, y), F.cosine_similarity(x, y, 0)), X, Y
    ),
    "torch.nn.functional.pairwise_distance": one(
        lambda x, y: (F.pairwise_distance(x, y), F.pairwise_distance(x, y, 1, keepdim=True)), X, Y
    ),
}


def real(x):
    return torch.view_as_real(x.resolve_conj())


def pairs(x):
    """A complex tensor of the two halves of a real one."""
    return torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous())


FFT = {
    "torch.fft.fft": one(lambda x: real(torch.fft.fft(x)), X, half=COMPLEX)
    + one(
        lambda x: (real(torch.fft.fft(pairs(x), norm="ortho")), real(torch.fft.fft(pairs(x), 5, 0))), D, half=COMPLEX
    ),
    "torch.fft.fft2": one(lambda x: real(torch.fft.fft2(x)), M, half=COMPLEX)
    + one(lambda x: real(torch.fft.fft2(pairs(x))), M, half=COMPLEX),
    "torch.fft.fftn": one(lambda x: real(torch.fft.fftn(x, dim=(1, 2, 3))), M, half=COMPLEX),
    "torch.fft.fftshift": one(lambda x: (torch.fft.fftshift(x), torch.fft.ifftshift(x)), X),
    "torch.fft.hfft": one(lambda x: (torch.fft.hfft(pairs(x)), real(torch.fft.ihfft(x))), D, half=COMPLEX),
    "torch.fft.ifft": one(lambda x: real(torch.fft.ifft(pairs(x))), D, half=COMPLEX)
    + one(lambda x: real(torch.fft.ifft(x, norm="forward")), X, half=COMPLEX),
    "torch.fft.ifft2": one(lambda x: real(torch.fft.ifft2(pairs(x))), M, half=COMPLEX),
    "torch.fft.irfft": one(
        lambda x: (torch.fft.irfft(torch.fft.rfft(x), 5), torch.fft.irfft(pairs(x[:, 1:]), 4)), X, half=COMPLEX
    ),
    "torch.fft.irfft2": one(lambda x: torch.fft.irfft2(torch.fft.rfft2(x) * 2, x.shape[-2:]), M, half=COMPLEX),
    "torch.fft.rfft": one(
        lambda x: (real(torch.fft.rfft(x)), real(torch.fft.rfft(x, 8)), real(torch.fft.rfft(x, 3, 0, "ortho"))),
        X,
        half=COMPLEX,
    ),
    "torch.fft.rfft2": one(lambda x: real(torch.fft.rfft2(x)), M, half=COMPLEX),
    "torch.fft.rfftfreq": one(lambda x: x * torch.fft.fftfreq(5) + torch.fft.rfftfreq(8), X),
    "torch.stft": one(
        lambda x, w: real(torch.stft(x, 8, 4, window=w, return_complex=True)), normal(2, 20), positive(8), half=COMPLEX
    ),
    "torch.istft": one(
        lambda x, w: torch.istft(torch.stft(x, 8, 2, window=w, return_complex=True), 8, 2, window=w, length=20),
        normal(2, 20),
        positive(8),
        half=COMPLEX,
    ),
}

COMPLEX_NUMBERS = {
    "torch.polar": one(lambda p, x: torch.view_as_real(torch.polar(p, x)), P, X, half=COMPLEX),
    "torch.complex": one(lambda x, y: real(torch.complex(x, y)), X, Y, half=COMPLEX),
    "torch.view_as_complex": one(lambda x: real(pairs(x) * 2), D, half=COMPLEX),
    "complex arithmetic": one(
        lambda x, y: tuple(
            real(v)
            for v in (
                pairs(x) + pairs(y),
                pairs(x) - pairs(y),
                pairs(x) * pairs(y),
                pairs(x) / pairs(y),
                -pairs(x),
                pairs(x) * 2,
                pairs(x) * (1 + 2j),
                pairs(x) + 3,
            )
        ),
        D,
        D.flip(0) + 0.3,
        half=COMPLEX,
    ),
    "complex conjugate": one(
        lambda x: (real(pairs(x).conj().resolve_conj()), real(pairs(x) * pairs(x).conj())), D, half=COMPLEX
    ),
    "complex parts": one(
        lambda x: (pairs(x).real, pairs(x).imag * 2, pairs(x).abs(), pairs(x).angle()), D + 0.07, half=COMPLEX
    ),
    "complex functions": one(
        lambda x: tuple(real(v) for v in (pairs(x).exp(), pairs(x).sum(1), pairs(x).mean(), torch.sgn(pairs(x)))),
        D + 0.07,
        half=COMPLEX,
    ),
    "complex products": one(
        lambda x, y: (real(pairs(x) @ pairs(y).mT), real(torch.einsum("ij,kj->ik", pairs(x), pairs(y)))),
        D,
        D.flip(0),
        half=COMPLEX,
    ),
    "complex shapes": one(
        lambda x: tuple(
            real(v)
            for v in (
                pairs(x).t().reshape(-1),
                torch.cat([pairs(x), pairs(x)], 1),
                pairs(x)[1:, ::2],
                pairs(x).unsqueeze(0).expand(2, -1, -1),
                torch.stack([pairs(x), pairs(x)]),
            )
        ),
        D,
        half=COMPLEX,
    ),
}

SPECIAL = {
    "torch.special.entr": one(torch.special.entr, P),
    "torch.special.erfcx": one(torch.special.erfcx, X, half=NO_HALF),
    "torch.special.exp2": one(torch.special.exp2, X),
    "torch.special.expit": one(torch.special.expit, X),
    "torch.special.gammaln": one(torch.special.gammaln, P + 0.5),
    "torch.special.i0": one(torch.special.i0, X * 3, half="numbers beyond the usual tolerance"),
    "torch.special.i0e": one(torch.special.i0e, X),
    "torch.special.i1": one(torch.special.i1, X, half=NO_HALF),
    "torch.special.i1e": one(torch.special.i1e, X, half=NO_HALF),
    "torch.special.log_ndtr": one(torch.special.log_ndtr, X, half=NO_HALF)
    + one(lambda x: torch.special.log_ndtr(x * 4), X, half=NO_HALF),
    "torch.special.log_softmax": one(lambda x: torch.special.log_softmax(x, 1), X),
    "torch.special.multigammaln": one(lambda p: torch.special.multigammaln(p + 2, 2), P),
    "torch.special.ndtr": one(torch.special.ndtr, X),
    "torch.special.ndtri": one(torch.special.ndtri, SMALL, half=NO_HALF),
    "torch.special.psi": one(torch.special.psi, P + 0.5),
    "torch.special.round": one(torch.special.round, X),
    "torch.special.sinc": one(torch.special.sinc, X),
    "torch.special.softmax": one(lambda x: torch.special.softmax(x, 1), X),
    "torch.special.xlog1py": one(torch.special.xlog1py, X, P),
    "torch.special.xlogy": one(torch.special.xlogy, X, P),
    "torch.special.zeta": one(lambda p: torch.special.zeta(2.0, p + 0.5), P, half=NO_HALF),
}

SECTIONS = {
    "Arithmetic and functions of one element": ELEMENTWISE,
    "Comparisons": COMPARE,
    "Reductions and scans": REDUCE,
    "Products": PRODUCTS,
    "Linear algebra": LINALG,
    "Fourier transforms": FFT,
    "Complex numbers": COMPLEX_NUMBERS,
    "Special functions": SPECIAL,
}
