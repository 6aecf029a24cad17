"""A program of torch's operations against torch in double precision: what it returns, and the gradient of its inputs.

The program is captured, its graph is differentiated by the compiler's own pass, and both are evaluated by the graph's
reference. What torch computes in double from the same numbers is the truth.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

import poptorch
from abele.compile.passes.autodiff import Autodiff
from abele.importers.torch import Capture, capture, flatten
from abele.ir import check, evaluate
from poptorch import _placement

FLOAT = 2e-5
"""Relative to the largest number of a tensor: 24 bits, and a few dozen additions."""
HALF = 4e-3
"""The same for 11 bits."""

COMPILED = 4e-5
"""For the engine, whose functions are good to a few units in the last place, in vectors of another order."""

Program = Callable[..., Any]


class Differs(AssertionError):
    """The graph gives other numbers than torch."""


def in_type(args: Sequence[Any], kind: torch.dtype) -> list[Any]:
    """Copies of the arguments, floats (and complex numbers) of this type."""
    return [
        a.detach().to(kind).clone() if isinstance(a, torch.Tensor) and a.is_floating_point()
        else a.detach().clone() if isinstance(a, torch.Tensor) else a
        for a in args
    ]  # fmt: skip


def values_of(captured: Capture, args: Sequence[Any], graph: Any = None) -> dict[str, np.ndarray]:
    """Outputs of the captured graph, or of one made from it, by ``kind name``."""
    graph = graph or captured.graph
    state, data = captured.state(), iter(captured.arguments(args))
    inputs = [next(data) if p.kind == "data" else state[p.name] for p in graph.input_ports]
    return {f"{p.kind} {p.name}".rstrip(): a for p, a in zip(graph.output_ports, evaluate(graph, inputs), strict=True)}


def close(ours: Any, theirs: torch.Tensor, tolerance: float, what: str, more: float = 0.0) -> None:
    """Raise ``Differs`` unless they agree, the error relative to the largest number that is finite, plus ``more``."""
    mine = torch.as_tensor(ours)
    if tuple(mine.shape) != tuple(theirs.shape):
        raise Differs(f"{what}: shape {list(mine.shape)} instead of {list(theirs.shape)}")
    a, b = mine.detach().double(), theirs.detach().double()
    finite = torch.isfinite(b)
    if not torch.equal(torch.isfinite(a), finite) or not torch.equal(a[~finite].nan_to_num(), b[~finite].nan_to_num()):
        raise Differs(f"{what}: not finite in other places: {a.flatten()[:8].tolist()} for {b.flatten()[:8].tolist()}")
    a, b = a[finite], b[finite]
    if not b.numel():
        return
    exact = not theirs.dtype.is_floating_point
    error = float((a - b).abs().max())
    allowed = 0.0 if exact else tolerance * max(1.0, float(b.abs().max())) + more
    if error > allowed:
        worst = int((a - b).abs().argmax())
        raise Differs(f"{what}: {float(a[worst])} instead of {float(b[worst])} ({error:.3g} > {allowed:.3g})")


def results_of(program: Program, args: Sequence[Any]) -> list[torch.Tensor]:
    """What torch makes of the arguments."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return flatten(program(*(a.clone() if isinstance(a, torch.Tensor) else a for a in args)))[0]


def _own_errors(make: Callable[[torch.dtype], list[torch.Tensor]], kind: torch.dtype, spread: float) -> list[float]:
    """``spread`` times how far torch itself is off in this type; nothing where it does not compute in it."""
    truth = make(torch.float64)
    try:
        found = make(kind) if spread else truth
    except RuntimeError:
        found = truth
    errors = []
    for a, b in zip(found, truth, strict=True):
        off = (a.double() - b.double()).abs() if a.shape == b.shape else torch.zeros(())
        off = off[torch.isfinite(off)]
        errors.append(spread * float(off.max()) if off.numel() else 0.0)
    return errors


def check_forward(
    program: Program, args: Sequence[Any], kind: torch.dtype, tolerance: float | None = None, spread: float = 0.0
) -> None:
    """Hold what the program returns for floats of this type against torch.

    ``spread``: it may also be off by so many times what torch is off in this type.
    """
    given = in_type(args, kind)
    with _placement.capture():  # control flow of PopTorch takes part
        captured = capture(program, in_type(given, kind))
    check(captured.graph)
    found = list(values_of(captured, given).values())
    ours = flatten(captured.result(found[: len(captured.outputs)]))[0]

    def make(type_: torch.dtype) -> list[torch.Tensor]:
        return results_of(program, in_type(given, type_))

    allowed = tolerance or (HALF if kind is torch.float16 else FLOAT)
    theirs, errors = make(torch.float64), _own_errors(make, kind, spread)
    for number, (a, b, more) in enumerate(zip(ours, theirs, errors, strict=True)):
        close(a, b, allowed, f"result {number}", more)


class _Weighed(torch.nn.Module):
    """The program as a module whose float arguments are parameters, and the sum of its weighed results as its loss."""

    def __init__(self, program: Program, args: Sequence[Any]) -> None:
        super().__init__()
        self.program, self.given, self.names = program, list(args), []
        for number, arg in enumerate(args):
            if isinstance(arg, torch.Tensor) and arg.is_floating_point():
                self.names.append(f"arg{number}")
                self.register_parameter(f"arg{number}", torch.nn.Parameter(arg.clone()))
            elif isinstance(arg, torch.Tensor):
                self.register_buffer(f"arg{number}", arg.clone())

    def forward(self) -> torch.Tensor:
        args = [
            # Results of views of a leaf may not be written in place, those of a copy may.
            getattr(self, f"arg{number}").clone() if isinstance(arg, torch.Tensor) else arg
            for number, arg in enumerate(self.given)
        ]
        rng = np.random.default_rng(11)
        total = None
        for result in flatten(self.program(*args))[0]:
            if result.is_floating_point() and result.numel():
                weights = torch.from_numpy(rng.uniform(0.5, 1.5, tuple(result.shape)))
                term = (result * weights.to(result.dtype)).sum()
                total = term if total is None else total + term
        if total is None:
            raise NoGradient
        return poptorch.identity_loss(total, "none")


class NoGradient(Exception):
    """No result of the program has a gradient."""


def _torch_gradients(program: Program, args: Sequence[Any]) -> dict[str, torch.Tensor]:
    module = _Weighed(program, args)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loss = module()
        if not loss.requires_grad:
            raise NoGradient
        loss.backward()
    parameters = {name: module.get_parameter(name) for name in module.names}
    return {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in parameters.items()}


def truth(program: Program, args: Sequence[Any], gradient: bool) -> list[torch.Tensor]:
    """Results, and gradients where asked for and there are any, as torch computes them."""
    found = results_of(program, args)
    if gradient:
        with contextlib.suppress(NoGradient):
            found += _torch_gradients(program, args).values()
    return found


def check_gradient(
    program: Program, args: Sequence[Any], kind: torch.dtype, tolerance: float | None = None, spread: float = 0.0
) -> None:
    """Hold the gradient of every float argument against torch; raises ``NoGradient`` where there is none."""
    given = in_type(args, kind)

    def make(type_: torch.dtype) -> list[torch.Tensor]:
        return list(_torch_gradients(program, in_type(given, type_)).values())

    theirs, errors = make(torch.float64), _own_errors(make, kind, spread)
    module = _Weighed(program, given).train()
    captured = capture(module, ())
    graph = Autodiff(tuple(module.names)).run(captured.graph)
    check(graph)
    found = values_of(captured, (), graph)
    allowed = tolerance or (HALF if kind is torch.float16 else FLOAT)
    for name, b, more in zip(module.names, theirs, errors, strict=True):
        ours = found.get(f"gradient {name}")
        close(np.zeros(tuple(b.shape)) if ours is None else ours, b, allowed, f"gradient of {name}", more)


class _Called(torch.nn.Module):
    """The program as a module."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program

    def forward(self, *args: Any) -> Any:
        return self.program(*args)


def check_compiled(program: Program, args: Sequence[Any], gradient: bool, spread: float = 0.0) -> None:
    """The same in float through all of the house: compiled, run by the engine, and trained by one step of 1."""
    kind = torch.float32
    given = in_type(args, kind)

    def results(type_: torch.dtype) -> list[torch.Tensor]:
        return results_of(program, in_type(given, type_))

    model = poptorch.inferenceModel(_Called(program))
    ours = flatten(model(*in_type(given, kind)))[0]
    model.destroy()
    for number, (a, b, more) in enumerate(
        zip(ours, results(torch.float64), _own_errors(results, kind, spread), strict=True)
    ):
        close(a, b, COMPILED, f"compiled result {number}", more)
    if not gradient:
        return

    def slopes(type_: torch.dtype) -> list[torch.Tensor]:
        return list(_torch_gradients(program, in_type(given, type_)).values())

    theirs, errors = slopes(torch.float64), _own_errors(slopes, kind, spread)
    module = _Weighed(program, given).train()
    step = poptorch.trainingModel(module, optimizer=poptorch.optim.SGD(module.parameters(), lr=1.0))
    step()
    for name, b, more in zip(module.names, theirs, errors, strict=True):
        before, after = (t.detach() for t in (given[int(name.removeprefix("arg"))], module.get_parameter(name)))
        close(before - after, b, COMPILED, f"compiled gradient of {name}", more)
    step.destroy()
