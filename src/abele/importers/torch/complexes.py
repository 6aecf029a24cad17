"""Complex tensors, as pairs of real ones: each stands for a real tensor with a last dimension of two.

The machine has no complex numbers. A complex tensor of the program is known by its place, as real ones are, and what
is done with it is done to its pair by real operations of torch, which are captured like the program's own. So views of
a complex tensor are views of its pair, writes in place reach both, and gradients follow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from abele.errors import Unsupported
from abele.importers.torch import fourier
from abele.importers.torch.storage import Place, place_of

if TYPE_CHECKING:
    from abele.importers.torch.calls import Call
    from abele.importers.torch.tracer import Tracer

Rule = Callable[..., Any]
_RULES: dict[str, Rule] = {}
_VIEWS: dict[str, Rule] = {}
ENTRIES = ("view_as_complex", "complex", "polar", "_fft_r2c", "_to_copy")
"""Operations that make complex tensors of real ones."""


@dataclass
class Complexes:
    """The pairs of all complex tensors that stand for values of the graph."""

    pairs: dict[Place, torch.Tensor] = field(default_factory=dict)
    storages: dict[int, torch.UntypedStorage] = field(default_factory=dict)

    def knows(self, tensor: torch.Tensor) -> bool:
        """Whether a complex tensor stands for a value of the graph."""
        return tensor.untyped_storage()._cdata in self.storages

    def remember(self, tensor: torch.Tensor, pair: torch.Tensor) -> torch.Tensor:
        """From now on the complex tensor stands for its pair."""
        self.pairs[place_of(tensor)] = pair
        self.storages.setdefault(tensor.untyped_storage()._cdata, tensor.untyped_storage())
        return tensor

    def pair(self, tensor: torch.Tensor) -> torch.Tensor:
        """The real tensor ``[..., 2]`` of a complex one; that of a constant is made now."""
        place = place_of(tensor)
        if place not in self.pairs:
            self.remember(tensor, torch.view_as_real(tensor.resolve_conj().resolve_neg()))
        return self.pairs[place]


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register what an operation does to pairs: given real tensors and numbers, it returns a pair or a real tensor."""

    def add(function: Rule) -> Rule:
        _RULES.update(dict.fromkeys(names, function))
        return function

    return add


def view(*names: str) -> Callable[[Rule], Rule]:
    """Register how a view of a complex tensor looks at its pair: ``f(pair, rank, *args, **kwargs)``."""

    def add(function: Rule) -> Rule:
        _VIEWS.update(dict.fromkeys(names, function))
        return function

    return add


def concerns(call: Call, tensors: Sequence[torch.Tensor], kwargs: dict) -> bool:
    """Whether an operation reads or makes complex tensors."""
    if any(t.is_complex() for t in tensors):
        return True
    made = kwargs.get("dtype")
    return call.name in ENTRIES and (call.name != "_to_copy" or (made is not None and made.is_complex))


def translate(tracer: Tracer, func: Any, call: Call, args: tuple, kwargs: dict) -> Any:
    """Capture one operation on complex tensors."""
    name, known = call.name, tracer.complexes
    with tracer:
        if name == "view_as_real":
            return torch.ops.aten.alias(known.pair(args[0]))
        if name == "view_as_complex":
            return known.remember(_meta(tracer, args[0].shape[:-1], _complex_type(args[0].dtype)), args[0])
        if name == "as_strided":
            # Autograd takes views so, where one of them is written.
            shown = tracer.plainly(func, *args, **kwargs)
            place = place_of(shown)
            if place in known.pairs:
                return shown
            root = next(pair for other, pair in known.pairs.items() if other[0] == place[0])
            if not root.is_contiguous():
                return _refuse(tracer, func)
            strides = (*(2 * s for s in shown.stride()), 1)
            start = root.storage_offset() + 2 * shown.storage_offset()
            return known.remember(shown, root.as_strided((*shown.shape, 2), strides, start))
        if name in _VIEWS:
            pair = _VIEWS[name](known.pair(args[0]), args[0].dim(), *args[1:], **kwargs)
            shown = tracer.plainly(func, *args, **kwargs)  # in place it changes the argument itself
            if isinstance(shown, tuple | list):
                return type(shown)(known.remember(s, p) for s, p in zip(shown, pair, strict=True))
            return known.remember(shown, pair)
        if name == "copy_":
            return _written(tracer, args)
        if name not in _RULES:
            return _refuse(tracer, func)
        result = _RULES[name](*_paired(known, args), **_paired(known, kwargs))
        if not isinstance(result, Pair):
            return result
        if call.kind == "inplace":
            known.pair(args[0]).copy_(result.both)
            return args[0]
        both = result.both
        return known.remember(_meta(tracer, both.shape[:-1], _complex_type(both.dtype)), both)


def _written(tracer: Tracer, args: tuple) -> torch.Tensor:
    target, source = args[:2]
    value = _of(tracer.complexes.pair(source) if source.is_complex() else source, source.is_complex())
    tracer.complexes.pair(target).copy_(value.both.expand(*target.shape, 2))
    return target


def _refuse(tracer: Tracer, func: Any) -> Any:
    raise Unsupported(
        f"The operation {func.overloadpacket.__name__} is used on complex tensors",
        where=tracer.where(),
        remedy="Write it with real and imaginary parts (torch.view_as_real) and arithmetic, which exist.",
    )


def _meta(tracer: Tracer, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A contiguous tensor of this shape and type that has no values."""
    return tracer.plainly(torch.empty, tuple(shape), dtype=dtype, device="meta")


def _complex_type(dtype: torch.dtype) -> torch.dtype:
    return {torch.float64: torch.complex128, torch.float16: torch.complex32}.get(dtype, torch.complex64)


class Pair:
    """A complex tensor inside a rule: real and imaginary parts."""

    def __init__(self, real: torch.Tensor, imag: torch.Tensor, both: torch.Tensor | None = None) -> None:
        self.real, self.imag, self._both = real, imag, both

    @property
    def both(self) -> torch.Tensor:
        """The two in a last dimension."""
        if self._both is None:
            self._both = torch.stack(torch.broadcast_tensors(self.real, self.imag), -1)
        return self._both

    def map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> Pair:
        return Pair(function(self.real), function(self.imag))


def _of(value: Any, paired: bool = False) -> Pair:
    """A tensor or number as real and imaginary part."""
    if isinstance(value, Pair):
        return value
    if paired:
        return Pair(value[..., 0], value[..., 1], value)
    if isinstance(value, complex):
        return Pair(torch.tensor(value.real), torch.tensor(value.imag))
    real = value if isinstance(value, torch.Tensor) else torch.tensor(float(value))
    return Pair(real, torch.zeros((), dtype=real.dtype))


def _paired(known: Complexes, data: Any) -> Any:
    """Arguments with pairs in the place of complex tensors."""
    if isinstance(data, torch.Tensor):
        return _of(known.pair(data), True) if data.is_complex() else data
    if isinstance(data, tuple | list):
        return type(data)(_paired(known, d) for d in data)
    if isinstance(data, dict):
        return {k: _paired(known, v) for k, v in data.items()}
    return data


def _real(value: Any) -> bool:
    return not isinstance(value, Pair | complex)


# Making and reading


@rule("complex")
def make(real: torch.Tensor, imag: torch.Tensor) -> Pair:
    return Pair(real, imag)


@rule("polar")
def polar(size: torch.Tensor, angle: torch.Tensor) -> Pair:
    return Pair(size * angle.cos(), size * angle.sin())


@rule("clone", "_to_copy", "contiguous", "lift", "lift_fresh", "resolve_conj")
def copy(x: Any, dtype: torch.dtype | None = None, **_: Any) -> Any:
    if dtype is not None and not dtype.is_complex:
        return _of(x).real.to(dtype)
    kind = {torch.complex128: torch.float64, torch.complex64: torch.float32}.get(dtype) if dtype is not None else None
    return _of(x).map(lambda p: p.to(kind) if kind is not None else p.clone())


@rule("_conj", "conj_physical", "_conj_physical")
def conj(x: Pair) -> Pair:
    return Pair(x.real, -x.imag)


@rule("abs")
def size(x: Pair) -> torch.Tensor:
    """The gradient at zero is zero, as torch has it."""
    square = x.real.square() + x.imag.square()
    zero = square == 0
    return torch.where(zero, 0, torch.where(zero, 1, square).sqrt())


@rule("angle")
def angle(x: Pair) -> torch.Tensor:
    return torch.atan2(x.imag, x.real)


# Arithmetic


@rule("add")
def add(a: Any, b: Any, alpha: Any = 1) -> Pair:
    x, y = _of(a), _of(multiply(b, alpha) if alpha != 1 else b)
    return Pair(x.real + y.real, x.imag + y.imag)


@rule("sub")
def subtract(a: Any, b: Any, alpha: Any = 1) -> Pair:
    return add(a, negative(_of(multiply(b, alpha) if alpha != 1 else b)))


@rule("rsub")
def subtract_from(a: Any, b: Any, alpha: Any = 1) -> Pair:
    return subtract(b, a, alpha)


@rule("neg", "negative")
def negative(x: Pair) -> Pair:
    return x.map(torch.neg)


@rule("mul", "multiply")
def multiply(a: Any, b: Any) -> Any:
    if _real(a) and _real(b):
        return a * b
    if _real(b):
        return _of(a).map(lambda p: p * b)
    if _real(a):
        return _of(b).map(lambda p: p * a)
    x, y = _of(a), _of(b)
    return Pair(x.real * y.real - x.imag * y.imag, x.real * y.imag + x.imag * y.real)


@rule("reciprocal")
def reciprocal(x: Pair) -> Pair:
    square = x.real.square() + x.imag.square()
    return Pair(x.real / square, -x.imag / square)


@rule("div", "divide", "true_divide")
def divide(a: Any, b: Any) -> Pair:
    return _of(a).map(lambda p: p / b) if _real(b) else _of(multiply(a, reciprocal(_of(b))))


@rule("sgn")
def sign(x: Pair) -> Pair:
    length = size(x)
    length = torch.where(length == 0, 1, length)
    return Pair(x.real / length, x.imag / length)


@rule("exp")
def exp(x: Pair) -> Pair:
    return polar(x.real.exp(), x.imag)


@rule("log")
def log(x: Pair) -> Pair:
    return Pair(size(x).log(), angle(x))


@rule("sqrt")
def sqrt(x: Pair) -> Pair:
    return polar(size(x).sqrt(), angle(x) * 0.5)


@rule("square")
def square(x: Pair) -> Pair:
    return _of(multiply(x, x))


@rule("pow")
def power(a: Any, b: Any) -> Pair:
    if isinstance(b, int) and 0 < b <= 4:
        result: Any = a
        for _ in range(b - 1):
            result = multiply(result, a)
        return _of(result)
    return exp(_of(multiply(log(_of(a)), b)))


def _reduced(operation: Callable[..., torch.Tensor]) -> Rule:
    return lambda x, *args, dtype=None, **kwargs: x.map(lambda p: operation(p, *args, **kwargs))


_RULES.update({"sum": _reduced(torch.sum), "mean": _reduced(torch.mean), "cumsum": _reduced(torch.cumsum)})


@rule("mm", "bmm", "mv", "dot")
def product(a: Any, b: Any) -> Pair:
    x, y = _of(a), _of(b)
    return Pair(x.real @ y.real - x.imag @ y.imag, x.real @ y.imag + x.imag @ y.real)


@rule("vdot")
def inner(a: Pair, b: Pair) -> Pair:
    return product(conj(a), b)


@rule("addmm", "baddbmm")
def add_product(c: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Pair:
    return add(multiply(c, beta), multiply(product(a, b), alpha))


@rule("where")
def where(condition: torch.Tensor, a: Any, b: Any) -> Pair:
    x, y = _of(a), _of(b)
    return Pair(torch.where(condition, x.real, y.real), torch.where(condition, x.imag, y.imag))


@rule("masked_fill")
def masked_fill(x: Pair, mask: torch.Tensor, value: Any) -> Pair:
    return where(mask, value, x)


@rule("eq")
def equal(a: Any, b: Any) -> torch.Tensor:
    x, y = _of(a), _of(b)
    return (x.real == y.real) & (x.imag == y.imag)


@rule("ne")
def unequal(a: Any, b: Any) -> torch.Tensor:
    return ~equal(a, b)


@rule("isfinite")
def finite(x: Pair) -> torch.Tensor:
    return torch.isfinite(x.real) & torch.isfinite(x.imag)


# Shapes that make new tensors


def _together(operation: Callable[..., torch.Tensor]) -> Rule:
    def apply(tensors: Sequence[Any], dim: int = 0) -> Pair:
        parts = [_of(t) for t in tensors]
        return Pair(operation([p.real for p in parts], dim), operation([p.imag.expand_as(p.real) for p in parts], dim))

    return apply


_RULES["cat"] = _together(torch.cat)
_RULES["stack"] = _together(torch.stack)


def _each(operation: Callable[..., torch.Tensor]) -> Rule:
    return lambda x, *args, **kwargs: x.map(lambda p: operation(p, *args, **kwargs))


_OWN: dict[str, Callable[..., torch.Tensor]] = {
    "flip": torch.flip,
    "roll": torch.roll,
    "repeat": lambda p, repeats: p.repeat(*repeats),
    "index_select": torch.index_select,
    "gather": torch.gather,
    "tril": torch.tril,
    "triu": torch.triu,
    "index": lambda p, indices: torch.ops.aten.index(p, indices),
    "constant_pad_nd": lambda p, pad, value=0: torch.nn.functional.pad(p, pad, value=float(value)),
}
_RULES.update({name: _each(operation) for name, operation in _OWN.items()})


# Views: a dimension that counts from the end counts without the pair's


@view("view", "_unsafe_view", "reshape", "_reshape_alias")
def reshaped(pair: torch.Tensor, rank: int, size: Sequence[int], *_: Any) -> torch.Tensor:
    known = math.prod(n for n in size if n != -1)
    return pair.reshape([n if n != -1 else pair.numel() // 2 // max(1, known) for n in size] + [2])


@view("expand")
def expand(pair: torch.Tensor, rank: int, size: Sequence[int], **_: Any) -> torch.Tensor:
    return pair.expand(*size, 2)


@view("permute")
def permute(pair: torch.Tensor, rank: int, dims: Sequence[int]) -> torch.Tensor:
    return pair.permute(*(d % rank for d in dims), rank)


@view("transpose", "swapaxes", "swapdims")
def transpose(pair: torch.Tensor, rank: int, dim0: int, dim1: int) -> torch.Tensor:
    return pair.transpose(dim0 % rank, dim1 % rank) if rank else pair


@view("t", "numpy_T")
def turned(pair: torch.Tensor, rank: int) -> torch.Tensor:
    return pair.permute(*range(rank)[::-1], rank)


@view("mT")
def matrix_turned(pair: torch.Tensor, rank: int) -> torch.Tensor:
    return pair.transpose(rank - 2, rank - 1)


@view("unsqueeze")
def unsqueeze(pair: torch.Tensor, rank: int, dim: int) -> torch.Tensor:
    return pair.unsqueeze(dim % (rank + 1))


@view("squeeze")
def squeeze(pair: torch.Tensor, rank: int, dim: Any = None) -> torch.Tensor:
    dims = range(rank) if dim is None else [dim] if isinstance(dim, int) else dim
    gone = {d % rank for d in dims} if rank else set()
    return pair.reshape([n for i, n in enumerate(pair.shape) if i == rank or i not in gone or n != 1])


@view("alias", "detach")
def alias(pair: torch.Tensor, rank: int) -> torch.Tensor:
    return torch.ops.aten.alias(pair)


def _along(name: str) -> Rule:
    """A view along one dimension, the first argument or ``dim``."""

    def apply(pair: torch.Tensor, rank: int, dim: int = 0, *args: Any, **kwargs: Any) -> Any:
        return getattr(torch.ops.aten, name)(pair, dim % max(1, rank), *args, **kwargs)

    return apply


_VIEWS.update({name: _along(name) for name in ("select", "slice", "narrow", "unbind")})


@view("split", "split_with_sizes", "chunk")
def split(pair: torch.Tensor, rank: int, sizes: Any, dim: int = 0) -> Any:
    return pair.split(sizes, dim % rank)


# Fourier transforms


@rule("_fft_r2c")
def from_real(x: torch.Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> Pair:
    return Pair(*fourier.from_real(x, dim, normalization, onesided))


@rule("_fft_c2c")
def between(x: Pair, dim: Sequence[int], normalization: int, forward: bool) -> Pair:
    return Pair(*fourier.between(x.real, x.imag, dim, normalization, forward))


@rule("_fft_c2r")
def to_real(x: Pair, dim: Sequence[int], normalization: int, last_dim_size: int) -> torch.Tensor:
    return fourier.to_real(x.real, x.imag, dim, normalization, last_dim_size)
