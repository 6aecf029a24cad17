"""The tables of rules: what each ATen operation, and each function of torch's API, becomes.

A rule is one small function. Rules are found by the operation's name without namespace and overload
(``add``), or with the overload where one differs from the rest (``min.dim``); those of another namespace are
written with it (``poptorch::nop``).

Three kinds, by what the operation does with storage:

* ``rule``: makes new tensors. It is given values (``abele.ir.Value``) in the place of tensors and returns one
  value, or a tuple of them. In-place and ``out=`` forms use the rule of the plain form.
* ``view``: returns another view of its operand's storage. Its rule returns two functions: one reads the view from
  the operand's value, the other gives the operand's new value after the view was written.
* ``raw``: is given the tensors themselves and the tracer, and does everything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from abele.ir import Value

if TYPE_CHECKING:
    import torch

    from abele.importers.torch.emitter import Emitter
    from abele.importers.torch.tracer import Tracer

Rule = Callable[..., Any]
Read = Callable[["Emitter", Value], Value]
Write = Callable[["Emitter", Value, Value], Value]

RULES: dict[str, Rule] = {}
VIEWS: dict[str, Callable[[torch.Tensor, tuple, dict], list[tuple[Read, Write]]]] = {}
RAW: dict[str, Rule] = {}
FUNCTIONS: dict[Any, Callable[[Tracer, Any, tuple, dict], Any]] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register the rule of functional operations."""
    return _into(RULES, names)


def raw(*names: str) -> Callable[[Rule], Rule]:
    """Register the rule of operations that need the tensors themselves: ``f(tracer, func, args, kwargs)``."""
    return _into(RAW, names)


def view(*names: str) -> Callable[[Rule], Rule]:
    """Register the rule of views: ``f(operand, args, kwargs)`` gives a (read, write) pair for every result."""
    return _into(VIEWS, names)


def function(*functions: Any) -> Callable[[Rule], Rule]:
    """Register the rule of functions of torch's API: ``f(tracer, func, args, kwargs)``."""
    return _into(FUNCTIONS, functions)


def _into(table: dict[Any, Rule], names: tuple[Any, ...]) -> Callable[[Rule], Rule]:
    def add(rule: Rule) -> Rule:
        for name in names:
            assert name not in table, name
            table[name] = rule
        return rule

    return add
