"""Random modules of torch's operations against torch in double: what they return, and the gradients of their inputs.

    python -m tests.torchops.fuzz --count 2000 --seed 0

Each module is Python source that torch itself has run while it was written: views, writes in place, loops, branches,
several types. A module that fails is printed, and ``--only N`` writes and tries the one with that number alone.
Numbers may be off by what the type allows, or by a few times what torch is off in that type. A module in which a tiny
change of the inputs changes the results by more than that (a comparison on the edge) says nothing, and is counted.
"""

from __future__ import annotations

import argparse
import random
import sys
import textwrap
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd import Function
from torch.nn import functional as F

import poptorch
from tests.torchops import checking
from tests.torchops.statements import DEVICE_MAKER, INFERENCE_MAKER, MAKERS, Scene

LONGEST = 14
"""Statements of a module."""
LARGEST = 400
"""Elements of a tensor: larger ones are not kept."""
BOUND = 30.0
"""Numbers beyond this are not kept."""


class Doubled(Function):
    """An autograd function whose backward is not the derivative of its forward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g * ctx.saved_tensors[0].cos()


NAMES: Mapping[str, Any] = {"torch": torch, "F": F, "poptorch": poptorch, "Doubled": Doubled}


@dataclass
class Module:
    """A random module: its source, its arguments by name, and what is to be tried.

    Attributes:
        number: seed and number name it.
        arguments: inputs and weights.
        statements: its body.
        results: names of what it returns.
        kind: the type of its floats.
        gradient: whether it can be trained.
    """

    number: int
    arguments: dict[str, torch.Tensor]
    statements: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    kind: torch.dtype = torch.float32
    gradient: bool = True

    @property
    def source(self) -> str:
        body = textwrap.indent("\n".join(self.statements), "    ")
        return f"def program({', '.join(self.arguments)}):\n{body}\n    return {', '.join(self.results)},\n"

    def program(self, results: list[str] | None = None) -> Callable[..., Any]:
        """The module as a function; ``results``: what to return instead."""
        given = Module(self.number, self.arguments, self.statements, results or self.results)
        space = dict(NAMES)
        exec(compile(given.source, f"<ipython-module-{self.number}>", "exec"), space)
        return space["program"]


def starting(dice: random.Random) -> dict[str, torch.Tensor]:
    """Inputs: floats of several shapes that go together, and integers."""
    generator = torch.Generator().manual_seed(dice.randrange(1 << 30))
    n, m = dice.randrange(1, 5), dice.randrange(2, 6)
    shapes = dice.choice(((n, m), (n, m, dice.randrange(1, 5)), (n, 2, m, dice.randrange(2, 5)), (m,)))
    floats = [shapes, shapes[-1:], shapes if dice.random() < 0.5 else ()]
    given = {f"x{i}": (torch.randn(s, generator=generator) * 0.75).half().float() for i, s in enumerate(floats)}
    given["i0"] = torch.randint(0, 4, (dice.randrange(1, 5),), generator=generator)
    return given


def write(seed: int, number: int) -> Module:
    """The module of this number: statements are tried in torch as they come, and kept if all goes well."""
    dice = random.Random(f"{seed}-{number}")
    module = Module(number, starting(dice))
    roll = dice.random()
    module.kind = torch.float16 if roll < 0.2 else torch.float32
    module.gradient = dice.random() > 0.1
    scene = Scene({}, dice)
    makers, odds = [m for _, m in MAKERS], [w for w, _ in MAKERS]
    makers, odds = [*makers, DEVICE_MAKER, INFERENCE_MAKER], [*odds, 0.5, 0.0 if module.gradient else 4.0]
    scene.tensors = dict(module.arguments)
    for _ in range(dice.randrange(4, LONGEST)):
        for _attempt in range(20):
            weights = dict(scene.weights)
            statement = dice.choices(makers, odds)[0](scene)
            if statement is not None and _fits(module, scene, statement):
                break
            scene.weights = weights
    kept = [n for n, t in scene.tensors.items() if n.startswith("t")] or ["x0"]
    dice.shuffle(kept)
    module.results = kept[: dice.randrange(1, 4)]
    return module


def _fits(module: Module, scene: Scene, statement: str) -> bool:
    """Whether torch runs the module with this statement behind it, forward and backward; it is kept if so."""
    weights = {n: w for n, w in scene.weights.items() if n not in module.arguments}
    trial = Module(
        module.number,
        module.arguments | weights,
        [*module.statements, statement],
        kind=module.kind,
        gradient=module.gradient,
    )
    names = [*trial.arguments]
    names += [f"t{k}" for k in range(1, scene.count + 1)]
    made = [
        n for n in names if n in trial.arguments or any(f"{n} = " in s or f"({n},) = " in s for s in trial.statements)
    ]
    given = [v.double() if v.is_floating_point() else v for v in trial.arguments.values()]
    leaves = [v.requires_grad_() if v.is_floating_point() and module.gradient else v for v in given]
    try:
        results = trial.program(made)(*(v.clone() for v in leaves))
        found = dict(zip(made, results, strict=True))
        if not _runs(trial, made):
            return False
        if not all(isinstance(v, torch.Tensor) for v in results):
            return False
        for value in results:
            limits = value.is_floating_point() and not bool((value.detach().abs() < BOUND).all())
            if value.numel() > LARGEST or not value.numel() or limits or value.dim() > 5:
                return False
        if module.gradient:
            loss = sum(v.sum() for v in results if v.is_floating_point() and v.requires_grad)
            gradients = torch.autograd.grad(loss, [v for v in leaves if v.requires_grad], allow_unused=True)  # type: ignore[arg-type]
            if any(g is not None and not bool((g.abs() < 100 * BOUND).all()) for g in gradients):
                return False
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError, UnboundLocalError, poptorch.Error):
        return False
    module.statements.append(statement)
    module.arguments.update(weights)
    scene.tensors = {n: v.detach() for n, v in found.items()}
    return True


def _runs(module: Module, results: list[str]) -> bool:
    """Whether torch runs it in its own type; what torch has no kernel for in that type counts."""
    try:
        module.program(results)(*checking.in_type(list(module.arguments.values()), module.kind))
    except RuntimeError as error:
        return "not implemented for" in str(error)
    return True


def attempt(module: Module, compiled: bool = False) -> str:
    """Try one module: what came of it, ``agrees`` or ``on the edge``; raises what went wrong.

    ``compiled``: also compile those in float, run them in the engine, and train them by one step.
    """
    program, args = module.program(), list(module.arguments.values())
    if not stable(module):
        return "on the edge"
    checking.check_forward(program, args, module.kind, spread=4.0)
    if module.gradient:
        try:
            checking.check_gradient(program, args, module.kind, spread=4.0)
        except checking.NoGradient:
            return "agrees, without a gradient"
    if compiled and module.kind is torch.float32:
        checking.check_compiled(program, args, module.gradient, spread=4.0)
    return "agrees"


def stable(module: Module) -> bool:
    """Whether inputs that differ in their last digits give results and gradients that do."""
    program, args = module.program(), list(module.arguments.values())
    size = 1e-3 if module.kind is torch.float16 else 2e-6
    tolerance = checking.HALF if module.kind is torch.float16 else checking.FLOAT
    outcomes = []
    for turn in range(5):
        generator = torch.Generator().manual_seed(turn)
        moved = [
            a.double() * (1 + size * (turn > 0) * torch.randn(a.shape, generator=generator, dtype=torch.float64))
            if a.is_floating_point()
            else a
            for a in args
        ]
        outcomes.append(checking.truth(program, moved, module.gradient))
    for other in outcomes[1:]:
        for a, b in zip(outcomes[0], other, strict=True):
            if a.dtype.is_floating_point:
                largest = max(1.0, float(a.abs().max())) if a.numel() else 1.0
                if float((a - b).abs().max()) > 40 * tolerance * largest:
                    return False
            elif not torch.equal(a, b):
                return False
    return True


def modules(seed: int, numbers: range) -> Iterator[Module]:
    for number in numbers:
        yield write(seed, number)


def main(argv: list[str]) -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--count", type=int, default=2000)
    options.add_argument("--first", type=int, default=0)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--only", type=int)
    options.add_argument("--compiled", action="store_true", help="also through compiler and engine (slower)")
    given = options.parse_args(argv)
    first, count = (given.only, 1) if given.only is not None else (given.first, given.count)
    warnings.simplefilter("ignore")
    outcomes: Counter[str] = Counter()
    started = time.perf_counter()
    for module in modules(given.seed, range(first, first + count)):
        if given.only is not None:
            print(module.source)
        try:
            outcomes[attempt(module, given.compiled)] += 1
        except Exception as error:
            outcomes["fails"] += 1
            text = str(error).splitlines()[0] if str(error) else ""
            print(f"--- {module.number} {module.kind} {type(error).__name__}: {text}\n{module.source}", flush=True)
            if given.only is not None:
                traceback.print_exc()
    print(f"{count} modules, {time.perf_counter() - started:.0f} s: {dict(outcomes)}")
    return 1 if outcomes["fails"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
