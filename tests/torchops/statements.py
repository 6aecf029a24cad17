"""What random modules are made of: statements of torch, written for tensors that are there.

A maker looks at the tensors of the module so far and writes one statement, or returns ``None`` when none of them fits.
Numbers stay small: what could blow up or leave its domain is kept in bounds as it is written.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

Maker = Callable[["Scene"], "str | None"]


@dataclass
class Scene:
    """The tensors of a module while it is written, as torch computes them, and the dice.

    Attributes:
        tensors: by name, double or integer or bool.
        random: the dice.
        count: how many names have been given.
    """

    tensors: dict[str, torch.Tensor]
    random: random.Random
    count: int = 0
    weights: dict[str, torch.Tensor] = field(default_factory=dict)

    def fresh(self) -> str:
        self.count += 1
        return f"t{self.count}"

    def pick(self, test: Callable[[torch.Tensor], bool]) -> str | None:
        """A tensor that passes; the younger, the likelier."""
        fitting = [n for n, t in self.tensors.items() if test(t)]
        return fitting[max(self.random.randrange(len(fitting)) for _ in range(2))] if fitting else None

    def float(self, test: Callable[[torch.Tensor], bool] = lambda t: True) -> str | None:
        return self.pick(lambda t: t.is_floating_point() and t.numel() > 0 and test(t))

    def integer(self, test: Callable[[torch.Tensor], bool] = lambda t: True) -> str | None:
        return self.pick(lambda t: t.dtype is torch.int64 and test(t))

    def bool(self, test: Callable[[torch.Tensor], bool] = lambda t: True) -> str | None:
        return self.pick(lambda t: t.dtype is torch.bool and test(t))

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.tensors[name].shape)

    def axis(self, name: str) -> int:
        """One of its dimensions, perhaps counted from the end."""
        rank = len(self.shape(name))
        return self.random.randrange(-rank, rank)

    def weight(self, *shape: int) -> str:
        """A new parameter."""
        name = f"w{len(self.weights)}"
        generator = torch.Generator().manual_seed(self.random.randrange(1 << 30))
        self.weights[name] = (torch.randn(shape, generator=generator) * 0.5).half().float()
        return name

    def part(self, name: str) -> str:
        """Subscripts of a part of it."""
        parts = []
        for size in self.shape(name):
            roll = self.random.random()
            if roll < 0.4 or size < 2:
                parts.append(":")
            elif roll < 0.6:
                parts.append(str(self.random.randrange(-size, size)))
            elif roll < 0.85:
                start = self.random.randrange(size - 1)
                parts.append(f"{start}:{self.random.randrange(start + 1, size + 1)}")
            else:
                parts.append(f"{self.random.randrange(2)}::2")
        while parts and self.random.random() < 0.3:
            parts.pop()
        return ", ".join(parts) or "..."


def broadcasts(a: torch.Size | tuple, b: torch.Size | tuple) -> bool:
    """Whether ``b`` broadcasts to ``a``."""
    return len(b) <= len(a) and all(m in (1, n) for n, m in zip(reversed(a), reversed(b), strict=False))


UNARY = (
    "{a}.tanh()", "{a}.sigmoid()", "{a}.sin()", "{a}.cos()", "torch.exp({a}.clamp(-3, 2))", "(-{a}.abs()).exp()",
    "torch.log({a}.abs() + 0.5)", "({a}.abs() + 0.25).sqrt()", "F.gelu({a})", "F.gelu({a}, approximate='tanh')",
    "F.silu({a})", "F.softplus({a})", "F.elu({a})", "torch.erf({a})", "{a} * 0.5", "1.5 - {a}", "{a} ** 2 * 0.25",
    "{a}.relu()", "F.leaky_relu({a}, 0.1)", "F.hardswish({a})", "{a}.abs()", "-{a}", "torch.expm1({a}.clamp(max=1.5))",
    "torch.rsqrt({a}.abs() + 0.5)", "1 / ({a}.abs() + 0.75)", "{a}.atan()", "{a}.nan_to_num()", "{a}.clamp(-1, 1)",
    "F.mish({a})", "torch.logit({a}.sigmoid() * 0.9 + 0.05)", "torch.lgamma({a}.abs() + 0.75)", "{a}.clone()",
    "{a}.contiguous()", "{a} + 0", "F.selu({a})", "F.softsign({a})", "F.hardtanh({a})", "torch.log1p({a}.square())",
    "{a}.double()", "{a}.type_as({a})", "torch.asinh({a})", "{a}.sign() * {a}", "F.logsigmoid({a})", "{a}.frac()",
    "{a}.detach() * {a}", "torch.sinc({a})", "torch.special.entr({a}.sigmoid())", "{a}.pow(3) * 0.1",
    "F.tanhshrink({a})",
    "torch.where({a} > 0.3, {a}, 0.1)", "torch.erfinv({a}.tanh() * 0.9)", "{a}.masked_fill({a} > 0.5, 0.25)",
)  # fmt: skip
BINARY = (
    "{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} / ({b}.abs() + 0.75)", "torch.maximum({a}, {b})", "{b} - {a}",
    "torch.minimum({a}, {b})", "torch.hypot({a}, {b} + 2)", "torch.lerp({a}, {b}, 0.25)", "torch.logaddexp({a}, {b})",
    "torch.addcmul({a}, {b}, {b}, value=0.5)", "torch.where({a} > 0.2, {a}, {b})", "torch.atan2({a}, {b}.abs() + 0.5)",
    "torch.add({a}, {b}, alpha=0.5)", "{a}.sub({b}, alpha=2) * 0.5", "torch.addcdiv({a}, {b}, {b}.abs() + 1)",
    "torch.copysign({a}, {b})", "{a}.mul({b}).tanh()", "({a} - {b}).square()",
    "({a} - {b}).abs().clamp(max=1)", "torch.xlogy({a}, {b}.abs() + 0.5)",
)  # fmt: skip
ALONG = (
    "{a}.sum({d})", "{a}.mean({d}, keepdim=True)", "{a}.amax({d})", "{a}.amin({d}, keepdim=True)", "{a}.softmax({d})",
    "F.log_softmax({a}, {d})", "{a}.logsumexp({d})", "{a}.cumsum({d}) * 0.5", "({a}.tanh() + 0.5).cumprod({d})",
    "{a}.sort({d})[0]", "{a}.max({d})[0]", "{a}.min({d}, keepdim=True)[0]", "{a}.flip({d})", "{a}.roll(1, {d})",
    "({a} + 0.01).norm(dim={d})", "{a}.cummax({d})[0]", "{a}.logcumsumexp({d})", "{a}.var({d}, correction=0)",
    "({a}.square() + 0.1).mean({d}).sqrt()", "{a}.unsqueeze({d})", "{a}.movedim({d}, 0)", "{a}.median({d})[0]",
    "{a}.topk(1, {d})[0]", "{a}.repeat_interleave(2, {d})", "torch.cat([{a}, {a} * 2], {d})",
    "torch.stack([{a}, -{a}], {d})",
    "{a}.narrow({d}, 0, 1)", "{a}.chunk(2, {d})[0]", "{a}.split(1, {d})[-1]", "{a}.unbind({d})[0]",
    "{a}.select({d}, -1)",
    "torch.gather({a}, {d}, {a}.argsort({d}))", "{a}.squeeze({d})", "{a}.transpose({d}, -1)", "{a}.prod({d}) * 0.5",
    "F.normalize({a} + 0.1, dim={d})", "{a}.tensor_split(2, {d})[0] * 1.5",
    "{a}.index_select({d}, torch.tensor([0, 0]))",
    "{a}.unfold({d}, 1, 1)", "F.glu(torch.cat([{a}, {a}], {d}), {d})",
)  # fmt: skip
WHOLE = (
    "{a}.sum()", "{a}.mean()", "{a}.flatten()", "{a}.amax()", "{a}.logsumexp(tuple(range({a}.dim())))",
    "{a}.reshape(-1)",
    "{a}.unsqueeze(0)", "{a}.permute(*range({a}.dim())[::-1])", "{a}.mT.tril()", "{a}.triu(1)", "{a}.tile(2)",
    "{a}.diagonal()", "F.pad({a}, (1, 1))", "F.pad({a}, (0, 1), value=0.5)", "{a}.rot90()", "torch.diag_embed({a})",
    "{a}[..., ::2]", "{a}[None]", "{a}[..., -1]", "{a}[1:]", "F.layer_norm({a}, {a}.shape[-1:])",
    "{a}.repeat(2, *[1] * ({a}.dim() - 1))",
    "{a}.as_strided(({a}.numel(),), (1,)) * 2 if {a}.is_contiguous() else {a}.ravel()",
    "torch.einsum('...i,...i->...', {a}, {a})",
    "{a}.view({a}.shape)", "F.cosine_similarity({a}, {a} + 0.5, -1)",
    "torch.outer({a}.flatten()[:3], {a}.flatten()[:2])",
    "torch.cdist({a}.reshape(1, -1, 1)[:, :4], {a}.reshape(1, -1, 1)[:, :3] + 5)",
    "F.one_hot({a}.argmax(-1), {a}.shape[-1]) * {a}",
    "{a}[{a}.argmax(0) * 0]", "{a}[[0, -1]]", "torch.kron({a}[..., :1].clone(), {a}[..., :2].clone())",
    "{a}.to(torch.float64)",
)  # fmt: skip
INPLACE = (
    "{a}.add_({b})", "{a}.mul_(0.5)", "{a}.clamp_(-1, 1)", "{a}.copy_({b})", "{a} += {b}", "{a} *= 0.75", "{a}.relu_()",
    "{a}.sub_({b})", "{a}.masked_fill_({a} > 0.5, 0.25)", "{a}.neg_()", "{a}.tanh_()", "{a}.zero_()", "{a}.fill_(0.5)",
    "{a}[{p}] = {b}.mean()", "{a}[{p}] = 0.25", "{a}[{p}] += 1", "{a}[{p}].mul_(0.5)", "{a}[{p}].copy_({a}[{p}] * 2)",
    "{a}[{p}] = {a}[{p}] * 0.5", "{a}.view(-1)[0] = 0.5", "{a}.flatten()[:1].add_(1)", "{a}.unsqueeze(0).add_(0.5)",
    "{a}[..., 0].sub_(0.25)", "{a}[{a} > 0.25] = 0.5", "{a}.select(-1, 0).copy_({a}.select(-1, -1))", "{a}.sin_()",
    "{a}.transpose(0, -1).mul_(0.5)", "{a}.diagonal().fill_(0.5)", "{a}.index_fill_(-1, torch.tensor([0]), 0.5)",
    "{a}.addcmul_({b}, {b}, value=0.5)", "{a}.lerp_({b}.expand_as({a}), 0.5)",
    "{a}.index_add_(0, torch.tensor([0]), {a}[:1] * 0.5)",
    "{a}.sigmoid_()", "{a}.squeeze(-1).add_(0.5)", "{a}.unbind(0)[0].add(1)", "{a}.exp_().clamp_(max=3)", "{a}.t_()",
    "{a}.unsqueeze_(0)", "{a}.chunk(2, -1)[0].mul(0.5)", "{a}.detach().mul_(1)",
)  # fmt: skip
INTEGERS = (
    "{i} + 1", "{i} % 3", "{i} // 2", "{i} & 3", "{i}.cumsum(0)", "{i}.flip(0)", "{i} * 2 - 1", "{i}.clamp(0, 2)",
    "{i}.abs()", "-{i}", "{i}.sort(-1)[0]", "{i}.max(-1)[1]", "{i}.sum(-1)", "torch.where({i} > 1, {i}, 0)", "{i} ^ 1",
    "torch.bincount({i}.flatten().clamp(0, 4), minlength=5)", "{i}.to(torch.int32).to(torch.int64)",
    "{i}.unsqueeze(-1)",
)  # fmt: skip
TO_FLOAT = ("{i}.to({f}.dtype) * 0.25", "{i} * 0.5", "F.one_hot({i}.clamp(0, 3), 4).to({f}.dtype)", "{i} / 2")
INDEXED = (
    "{a}[{i}.clamp(0, {n} - 1)]", "{a}.index_select(0, {i}.flatten().clamp(0, {n} - 1))",
    "F.embedding({i}.clamp(0, {n} - 1), {a}) if {a}.dim() == 2 else {a}",
    "{a}.index_add(0, {i}.flatten().clamp(0, {n} - 1)[:{n}], {a}[:{i}.numel()][:{n}])",
    "{a}.index_put(({i}.flatten().clamp(0, {n} - 1),), {a}.mean(), accumulate=True)",
    "torch.zeros_like({a}).index_add(0, {i}.flatten().clamp(0, {n} - 1)[:1], {a}[:1])",
    "{a}.scatter_add(0, {i}.flatten().clamp(0, {n} - 1)[:1].reshape(1, *[1] * ({a}.dim() - 1)), {a}[:1])",
    "{a}.index_reduce(0, {i}.flatten()[:1].clamp(0, {n} - 1), {a}[:1] * 2, 'amax')",
    "{a}.take({i}.clamp(0, {n} - 1))", "torch.cat([{a}[:1], {a}[{i}.flatten().clamp(0, {n} - 1)]])",
)  # fmt: skip
BOOLS = (
    "{a} > 0.2", "{a} <= {c}", "({a} > 0) & ({a} < 1)", "~({a} > 0.5)", "torch.logical_or({a} > 1, {a} < 0.1)",
    "{i} > 1",
    "{i} == {i}.flatten()[0]", "({a} > 0.4).any(-1)", "torch.isfinite({a})", "({a} > 0).all(0)",
)  # fmt: skip
MASKED = (
    "{a}.masked_fill({m}, 0.5)", "torch.where({m}, {a}, -{a})", "{a} * {m}",
    "{m}.to({a}.dtype).cumsum(-1) * 0.5 + {a} * 0",
    "torch.where({m}, 0.5, {a})", "{a}.masked_scatter({m}, {a}.flip(0))", "({m} * {a}).sum() + {m}.sum()",
)  # fmt: skip
BLOCKS = (
    "for k in range(3):\n    {a} = {a} * 0.5 + {b}.mean() * k",
    "for part in {a}.unbind(0):\n    {r} = part.tanh() + {b}.sum()",
    "parts = []\nfor row in {a}:\n    parts.append(row * 0.5 if len(parts) % 2 else row.sin())\n"
    "{r} = torch.stack(parts)",
    "if {a}.dim() > 1 and {a}.shape[0] > 1:\n    {r} = {a}[1:] + {a}[:-1]\nelse:\n    {r} = {a} * 2",
    "with torch.no_grad():\n    scale = {a}.abs().mean() + 0.5\n{r} = {a} / scale",
    "with torch.no_grad():\n    {a}.mul_(0.5)",
    "def inner(x, y=0.5):\n    return (x * y).tanh()\n{r} = inner({a}) + inner({b}.mean(), 2)",
    "state = torch.zeros({a}.shape[1:], dtype={a}.dtype)\nfor row in {a}:\n    state = (state + row).tanh()\n"
    "{r} = state",
    "total = 0\nwhile isinstance(total, int) or total.dim() < {a}.dim():\n    total = {a} + total\n{r} = total",
    "{r} = {a}.clone()\n{r}[..., 0] = {b}.mean()\n{r}.mul_({b}.sum().tanh())",
    "buffer = torch.zeros(3, dtype={a}.dtype)\nbuffer[1] = {a}.mean()\nbuffer += {b}.mean()\n{r} = buffer",
    "{r} = torch.utils.checkpoint.checkpoint(lambda x: (x * 2).sin(), {a}, use_reentrant=False)",
    "{r} = Doubled.apply({a}) + {b}.mean()",
    "left, right = {a}.clone(), {a}.detach()\nleft.add_(right)\n{r} = left * right",
)
INFERENCE = (
    "({r},) = poptorch.for_loop(3, lambda x: x * 0.5 + 1, [{a}])",
    "({r},) = poptorch.cond({b}.sum() > 0.1, lambda x: x.tanh(), [{a}], lambda x: x * 2, [{a}])",
)
DEVICE = (
    "{r} = poptorch.nop({a}) + poptorch.recomputationCheckpoint({b}).mean()",
    "{r} = poptorch.dynamic_slice({a}, 0, torch.tensor(0), 1, 1)",
    "{r} = poptorch.dynamic_update({a}, {a}[:1] * 2, 0, torch.tensor(0), 1)",
)


def _from(forms: tuple[str, ...], need: Callable[[torch.Tensor], bool] = lambda t: True, bind: bool = True) -> Maker:
    """Forms of one float ``a`` and of what else they ask for; ``bind``: expressions, whose result gets a name."""

    def make(scene: Scene) -> str | None:
        form = scene.random.choice(forms)
        a = scene.float(need)
        if a is None or ("{d}" in form and not scene.shape(a)):
            return None
        shape = scene.shape(a)
        given = {"a": a, "n": shape[0] if shape else 1, "r": scene.fresh()}
        wanted: Mapping[str, Callable[[], object]] = {
            "b": lambda: scene.float(lambda t: broadcasts(shape, t.shape)),
            "c": lambda: scene.float(lambda t: broadcasts(shape, t.shape)),
            "d": lambda: scene.axis(a),
            "p": lambda: scene.part(a),
            "i": lambda: scene.integer(),
            "f": lambda: a,
            "m": lambda: scene.bool(lambda t: broadcasts(shape, t.shape)),
        }
        for key, find in wanted.items():
            if f"{{{key}}}" in form:
                given[key] = find()  # type: ignore[assignment]
                if given[key] is None:
                    return None
        return f"{{r}} = {form}".format(**given) if bind else form.format(**given)

    return make


def _product(scene: Scene) -> str | None:
    a = scene.float(lambda t: t.dim() >= 1)
    if a is None:
        return None
    shape, r = scene.shape(a), scene.fresh()
    rank, out = len(shape), scene.random.randrange(1, 5)
    kind = scene.random.choice(("linear", "matmul", "self", "conv", "bmm", "norm", "pool", "resize", "attention"))
    if kind == "linear":
        return f"{r} = F.linear({a}, {scene.weight(out, shape[-1])}, {scene.weight(out)}) * 0.5"
    if kind == "matmul" and rank >= 2:
        return f"{r} = {a} @ {scene.weight(shape[-1], out)}"
    if kind == "self" and rank >= 2:
        return f"{r} = {a} @ {a}.mT * 0.25"
    if kind == "bmm" and rank == 3:
        return f"{r} = torch.bmm({a}, {scene.weight(shape[0], shape[2], out)})"
    if kind == "norm" and rank >= 2:
        return f"{r} = F.layer_norm({a}, ({shape[-1]},), {scene.weight(shape[-1])}, {scene.weight(shape[-1])})"
    if kind == "conv" and rank in (3, 4):
        kernel = tuple(min(n, 2) for n in shape[2:])
        weight = scene.weight(out, shape[1], *kernel)
        return f"{r} = F.conv{rank - 2}d({a}, {weight}, padding={scene.random.randrange(2)}) * 0.5"
    if kind == "pool" and rank in (3, 4) and min(shape[2:]) >= 2:
        return f"{r} = F.{scene.random.choice(('avg', 'max'))}_pool{rank - 2}d({a}, 2)"
    if kind == "resize" and rank == 4:
        mode = scene.random.choice(("nearest", "bilinear", "bicubic", "area"))
        return f"{r} = F.interpolate({a}, ({out}, 3), mode='{mode}')"
    if kind == "attention" and rank >= 3:
        return f"{r} = F.scaled_dot_product_attention({a}, {a} * 0.5, {a})"
    return None


MAKERS: tuple[tuple[float, Maker], ...] = (
    (5, _from(UNARY)),
    (5, _from(BINARY)),
    (6, _from(ALONG, lambda t: t.dim() > 0)),
    (4, _from(WHOLE, lambda t: t.dim() > 0)),
    (5, _from(INPLACE, bind=False)),
    (2, _from(BOOLS, lambda t: t.dim() > 0)),
    (2, _from(MASKED)),
    (1.5, _from(INTEGERS)),
    (1, _from(TO_FLOAT)),
    (2, _from(INDEXED, lambda t: t.dim() > 0)),
    (3, _product),
    (2, _from(BLOCKS, lambda t: t.dim() > 0, bind=False)),
)
"""Makers with how often each is asked."""
DEVICE_MAKER = _from(DEVICE, lambda t: t.dim() > 0, bind=False)
"""Operations of PopTorch's own."""
INFERENCE_MAKER = _from(INFERENCE, lambda t: t.dim() > 0, bind=False)
"""Control flow of PopTorch, which cannot be trained."""
