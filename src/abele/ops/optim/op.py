"""Optimisers as graph operations: the next parameter and the next state from parameter, gradient and state.

Hyper-parameters are ``f32[]`` operands, so that the host may change them between steps. Parameters, gradients and
state are f32 or f16; all arithmetic is in float, and each result is rounded once to the type of what it replaces. The
updates use the unrounded state.

``sgd`` follows PopTorch and popART in the first step too: the velocity starts at zero and becomes
``(1 - dampening) g``, where torch starts it at ``g``. With dampening 0 the two agree.

The attribute ``zero`` names hyper-parameters that are 0 for good: their terms are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from abele.errors import InvalidOperand
from abele.ir import (
    Arg,
    Builder,
    Composite,
    DType,
    NotDifferentiable,
    Sample,
    TensorType,
    Value,
    f16,
    f32,
    register,
)
from abele.ir.operation import Attributes
from abele.ops.rules import need_operands, to_float

MAY_BE_ZERO = ("weight_decay", "dampening")
"""What the attribute ``zero`` may name."""

STATE = {
    "sgd": ("velocity",),
    "adam": ("m", "v"),
    "rmsprop": ("square_average", "momentum_buffer", "grad_average"),
    "lamb": ("m", "v"),
    "lamb_step": ("m", "v"),
    "lars": ("velocity",),
}
"""State of each optimiser: its operands after ``param`` and ``grad``, and its results after ``param``."""

HYPER = {
    "sgd": ("lr", "momentum", "dampening", "weight_decay"),
    "adam": ("step", "lr", "beta1", "beta2", "eps", "weight_decay"),
    "rmsprop": ("lr", "alpha", "eps", "momentum", "weight_decay"),
    "lamb": ("step", "lr", "beta1", "beta2", "eps", "weight_decay", "max_weight_norm"),
    "lamb_step": ("step", "beta1", "beta2", "eps", "weight_decay"),
    "lars": ("lr", "momentum", "weight_decay", "eta"),
}
"""Scalar operands of each optimiser, after its state."""


class Update:
    """The operands of one update by name, in float, with the few operations that the formulas use."""

    def __init__(self, b: Builder, name: str, operands: Sequence[Value], attributes: Attributes) -> None:
        self.zero: tuple[str, ...] = attributes["zero"]
        for label in self.zero:
            if label not in MAY_BE_ZERO:
                raise InvalidOperand(f"{name}: {label!r} may not be zero for good; {', '.join(MAY_BE_ZERO)} may")
        names = ("param", "grad", *STATE[name], *HYPER[name])
        if len(operands) != len(names):
            raise InvalidOperand(f"{name} takes {len(names)} operands ({', '.join(names)}), not {len(operands)}")
        for position, (label, value) in enumerate(zip(names, operands, strict=True)):
            scalar = label in HYPER[name]
            if scalar and value.type != f32():
                raise InvalidOperand(f"{name}: operand {position} ({label}) must be f32[], it is {value.type}")
            if not scalar and (value.shape != operands[0].shape or not value.dtype.is_float):
                raise InvalidOperand(
                    f"{name}: operand {position} ({label}) must be float {list(operands[0].shape)}, it is {value.type}"
                )
        self.b = b
        self.given = dict(zip(names, operands, strict=True))
        self.one = b.constant(1.0, DType.F32)
        self.value = {label: to_float(b, v) for label, v in self.given.items()}

    def __getitem__(self, label: str) -> Value:
        return self.value[label]

    def decayed(self, label: str, rate: str, new: Value) -> Value:
        """``rate · state + (1 - rate) · new``."""
        b = self.b
        return b.add(b.mul(self[rate], self[label]), b.mul(b.sub(self.one, self[rate]), new))

    def corrected(self, value: Value, rate: str) -> Value:
        """``value / (1 - rate ** step)``; the power by ``expm1``, since ``rate`` may be close to 1."""
        b = self.b
        return b.div(value, b.neg(b.expm1(b.mul(self["step"], b.log(self[rate])))))

    def stored(self, label: str, value: Value) -> Value:
        """``value`` rounded to the type of the operand that it replaces."""
        return self.b.cast_to(value, self.given[label].dtype)

    def minus(self, rate: Value, direction: Value) -> Value:
        """The next parameter: ``param - rate · direction``, stored."""
        return self.stored("param", self.b.sub(self["param"], self.b.mul(rate, direction)))

    def grad_with_decay(self) -> Value:
        """``grad + weight_decay · param``."""
        return self.with_decay(self["grad"])

    def with_decay(self, x: Value) -> Value:
        """``x + weight_decay · param``."""
        if "weight_decay" in self.zero:
            return x
        return self.b.add(x, self.b.mul(self["weight_decay"], self["param"]))


def _sgd(b: Builder, operands: Sequence[Value], attributes: Attributes) -> list[Value]:
    """``v' = momentum v + (1 - dampening) g``; the step is ``v'``, or ``g + momentum v'`` with ``nesterov``."""
    u = Update(b, "sgd", operands, attributes)
    g = u.grad_with_decay()
    if not attributes["use_momentum"]:
        if attributes["nesterov"]:
            raise InvalidOperand("sgd: nesterov=true needs use_momentum=true")
        return [u.minus(u["lr"], g), u.given["velocity"]]
    share = g if "dampening" in u.zero else b.mul(b.sub(u.one, u["dampening"]), g)
    velocity = b.add(b.mul(u["momentum"], u["velocity"]), share)
    step = b.add(g, b.mul(u["momentum"], velocity)) if attributes["nesterov"] else velocity
    return [u.minus(u["lr"], step), u.stored("velocity", velocity)]


def _adam(b: Builder, operands: Sequence[Value], attributes: Attributes) -> list[Value]:
    """Adam (D. Kingma, J. Ba, 2015), or AdamW (I. Loshchilov, F. Hutter, 2019) when ``decoupled``."""
    u = Update(b, "adam", operands, attributes)
    g = u["grad"] if attributes["decoupled"] else u.grad_with_decay()
    m, v = u.decayed("m", "beta1", g), u.decayed("v", "beta2", b.mul(g, g))
    first, second = m, v
    if attributes["bias_correction"]:
        first, second = u.corrected(m, "beta1"), u.corrected(v, "beta2")
    step = b.div(first, b.add(b.sqrt(second), u["eps"]))
    if attributes["decoupled"]:
        step = u.with_decay(step)
    return [u.minus(u["lr"], step), u.stored("m", m), u.stored("v", v)]


def _rmsprop(b: Builder, operands: Sequence[Value], attributes: Attributes) -> list[Value]:
    """``eps`` is added to the root, or under it in the TensorFlow variant; ``centered`` subtracts the squared mean."""
    u = Update(b, "rmsprop", operands, attributes)
    g = u.grad_with_decay()
    square, mean = u.decayed("square_average", "alpha", b.mul(g, g)), None
    spread = square
    if attributes["centered"]:
        mean = u.decayed("grad_average", "alpha", g)
        spread = b.sub(square, b.mul(mean, mean))
    tensorflow = attributes["tf_variant"]
    root = b.sqrt(b.add(spread, u["eps"])) if tensorflow else b.add(b.sqrt(spread), u["eps"])
    step, buffer = b.div(g, root), u.given["momentum_buffer"]
    if attributes["use_momentum"]:
        # The TensorFlow variant accumulates steps already scaled by the learning rate.
        moved = b.mul(u["lr"], step) if tensorflow else step
        step = b.add(b.mul(u["momentum"], u["momentum_buffer"]), moved)
        buffer = u.stored("momentum_buffer", step)
    rate = u.one if attributes["use_momentum"] and tensorflow else u["lr"]
    return [
        u.minus(rate, step),
        u.stored("square_average", square),
        buffer,
        u.given["grad_average"] if mean is None else u.stored("grad_average", mean),
    ]


def _lamb(b: Builder, operands: Sequence[Value], attributes: Attributes) -> list[Value]:
    """LAMB (Y. You et al., 2020): an Adam step scaled by ``min(|param|, max_weight_norm) / |step|``.

    The factor is 1 where either norm is 0."""
    u = Update(b, "lamb", operands, attributes)
    step, m, v = _lamb_direction(u, attributes)

    def square(x: Value) -> Value:
        squares = b.mul(x, x)
        return b.reduce_sum(squares, axes=tuple(range(x.type.rank)), keep=False) if x.type.rank else squares

    ratio = _trust(b, square(u["param"]), square(step), u["max_weight_norm"])
    return [u.minus(b.mul(u["lr"], ratio), step), u.stored("m", m), u.stored("v", v)]


def _lamb_direction(u: Update, attributes: Attributes) -> tuple[Value, Value, Value]:
    """The unscaled step, in float, and the next moments."""
    b, g = u.b, u["grad"]
    m, v = u.decayed("m", "beta1", g), u.decayed("v", "beta2", b.mul(g, g))
    first, second = m, v
    if attributes["bias_correction"]:
        first, second = u.corrected(m, "beta1"), u.corrected(v, "beta2")
    step = u.with_decay(b.div(first, b.add(b.sqrt(second), u["eps"])))
    return step, m, v


def _trust(b: Builder, weight_square: Value, step_square: Value, most: Value) -> Value:
    """The factor of a LAMB step from the squares of both norms."""
    zero, one = b.constant(0.0, DType.F32), b.constant(1.0, DType.F32)
    weight_norm, step_norm = b.min(b.sqrt(weight_square), most), b.sqrt(step_square)
    usable = b.logical_and(b.gt(weight_norm, zero), b.gt(step_norm, zero))
    return b.select(usable, b.div(weight_norm, b.select(usable, step_norm, one)), one)


def _lamb_step(b: Builder, operands: Sequence[Value], attributes: Attributes) -> list[Value]:
    """The first half of LAMB, element by element: the unscaled step in float, and the next moments."""
    u = Update(b, "lamb_step", operands, attributes)
    step, m, v = _lamb_direction(u, attributes)
    return [step, u.stored("m", m), u.stored("v", v)]


def _lamb_apply(b: Builder, operands: Sequence[Value], attributes: Attributes) -> list[Value]:
    """The second half of LAMB: the next parameter, given the squares of the norms of the whole parameter and step."""
    need_operands("lamb_apply", [v.type for v in operands], 6)
    param, step, weight_square, step_square, rate, most = operands
    scale = b.mul(rate, _trust(b, weight_square, step_square, most))
    return [b.cast_to(b.sub(to_float(b, param), b.mul(scale, step)), param.dtype)]


def _lars(b: Builder, operands: Sequence[Value], attributes: Attributes) -> list[Value]:
    """LARS (Y. You et al., 2017): momentum, its gradient scaled by ``eta |param| / (|grad| + weight_decay |param|)``.

    The velocity holds the rate, as TensorFlow's momentum does: ``v' = momentum v + lr · scale · (grad + weight_decay ·
    param)``. The scale is 1 where either norm is 0. Parameters of fewer than two dimensions (biases, norms) take plain
    momentum without decay.
    """
    u = Update(b, "lars", operands, attributes)
    rank = operands[0].type.rank
    if rank < 2:
        move = b.mul(u["lr"], u["grad"])
    else:
        every = tuple(range(rank))
        weight, grad = (b.sqrt(b.reduce_sum(b.mul(x, x), axes=every)) for x in (u["param"], u["grad"]))
        zero, whole = b.constant(0.0, DType.F32), grad
        if "weight_decay" not in u.zero:
            whole = b.add(grad, b.mul(u["weight_decay"], weight))
        usable = b.logical_and(b.gt(weight, zero), b.gt(grad, zero))
        scale = b.select(usable, b.div(b.mul(u["eta"], weight), b.select(usable, whole, u.one)), u.one)
        move = b.mul(b.mul(u["lr"], scale), u.grad_with_decay())
    velocity = b.add(b.mul(u["momentum"], u["velocity"]), move)
    return [u.stored("param", b.sub(u["param"], velocity)), u.stored("velocity", velocity)]


_FORMULAS: dict[str, tuple[Callable, dict, Sequence[dict]]] = {
    "sgd": (
        _sgd,
        {"nesterov": False, "use_momentum": True},
        ({}, {"nesterov": True}, {"use_momentum": False}, {"zero": ("weight_decay", "dampening")}),
    ),
    "adam": (
        _adam,
        {"decoupled": False, "bias_correction": True},
        ({}, {"decoupled": True}, {"bias_correction": False}, {"decoupled": True, "zero": ("weight_decay",)}),
    ),
    "rmsprop": (
        _rmsprop,
        {"centered": False, "use_momentum": False, "tf_variant": False},
        (
            {},
            {"centered": True, "use_momentum": True},
            {"tf_variant": True},
            {"tf_variant": True, "use_momentum": True},
        ),
    ),
    "lamb": (_lamb, {"bias_correction": True}, ({}, {"bias_correction": False})),
    "lamb_step": (_lamb_step, {"bias_correction": True}, ({}, {"bias_correction": False})),
    "lars": (_lars, {}, ({}, {"zero": ("weight_decay",)})),
}

_RANGES = {
    "step": (1.0, 5.0),
    "lr": (0.001, 0.1),
    "weight_decay": (0.0, 0.1),
    "eps": (1e-6, 1e-4),
    "max_weight_norm": (0.5, 10.0),
}


def _samples(name: str, variants: Sequence[dict]):
    def samples() -> Iterable[Sample]:
        for param, state in (
            (f32(5, 3), f32(5, 3)),
            (f16(9), f32(9)),
            (f16(4, 7), f16(4, 7)),
            (f32(), f32()),
            (f32(0, 2), f32(0, 2)),
        ):
            for attributes in variants:
                yield Sample(tuple(_args(name, param, state)), attributes)

    return samples


def _args(name: str, param: TensorType, state: TensorType) -> Iterable[Arg]:
    yield Arg(param)
    yield Arg(param)
    for label in STATE[name]:
        # Second moments are positive, and no smaller than the square of the mean of gradients.
        squares = label in ("v", "square_average")
        yield Arg(state, "uniform", 1.5, 3.0) if squares else Arg(state, "uniform", -1.0, 1.0)
    for label in HYPER[name]:
        yield Arg(f32(), "uniform", *_RANGES.get(label, (0.5, 0.99)))


for _name, (_formula, _attributes, _variants) in _FORMULAS.items():
    register(
        Composite(
            _name,
            {**_attributes, "zero": ()},
            _formula,
            _samples(_name, _variants),
            NotDifferentiable("an optimizer's update is not differentiated"),
            traits=frozenset({"in_place"}),
        )
    )


def _apply_samples() -> Iterable[Sample]:
    for param in (f32(7), f16(5, 3)):
        norms = [Arg(f32(), "uniform", 0.5, 2.0)] * 2
        rates = [Arg(f32(), "uniform", *_RANGES[label]) for label in ("lr", "max_weight_norm")]
        yield Sample((Arg(param), Arg(f32(*param.shape)), *norms, *rates), {})


register(
    Composite(
        "lamb_apply",
        {},
        _lamb_apply,
        _apply_samples,
        NotDifferentiable("an optimizer's update is not differentiated"),
    )
)
