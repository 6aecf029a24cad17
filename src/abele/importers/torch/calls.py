"""ATen operations as the importer sees them: name, kind and rule of each; and what their arguments hold."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from abele.importers.torch.table import RAW, RULES, VIEWS, Rule

CREATION = ("zeros", "ones", "full", "empty", "arange", "scalar_tensor", "new_zeros", "new_ones", "new_full")
LIKE = ("zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full")
LIKE += ("new_empty", "new_empty_strided")
RANDOM = ("rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "bernoulli", "normal")
RANDOM += ("native_dropout", "multinomial", "poisson", "exponential", "binomial", "_standard_gamma")
RANDOM += ("_sample_dirichlet",)
RANDOM += ("uniform_", "normal_", "bernoulli_", "random_", "exponential_", "rrelu_with_noise")
RANDOM += ("geometric_", "cauchy_", "log_normal_")


@dataclass(frozen=True)
class Call:
    """What there is to know about an ATen operation before it is called.

    Attributes:
        name: as the tables have it: of an in-place form that of the plain one, unless it has a rule of its own.
        kind: ``view``, ``reshape`` (a view in place), ``inplace``, ``out``, ``raw`` or ``plain``.
        rule: from the tables; ``None`` when there is none.
        plain: for ``inplace`` and ``out`` forms, the form that makes a new tensor (``None`` if there is none).
    """

    name: str
    kind: str
    rule: Any
    plain: Any = None


def twin(tensor: torch.Tensor) -> torch.Tensor:
    """A meta tensor with the same shape, strides and type, and a storage of its own."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def metas(data: Any) -> Any:
    """Arguments with meta twins in the place of tensors that are on another device."""
    if isinstance(data, torch.Tensor):
        return data if data.device.type == "meta" else twin(data)
    if isinstance(data, tuple | list):
        return type(data)(metas(d) for d in data)
    if isinstance(data, dict):
        return {k: metas(v) for k, v in data.items()}
    return data


def tensors_in(args: Sequence, kwargs: dict) -> list[torch.Tensor]:
    """The tensors among arguments, also those in lists."""
    found = []
    for item in (*args, *kwargs.values()):
        if isinstance(item, torch.Tensor):
            found.append(item)
        elif isinstance(item, tuple | list):
            found.extend(t for t in item if isinstance(t, torch.Tensor))
    return found


def on_meta(kwargs: dict) -> dict:
    return kwargs | {"device": torch.device("meta")} if kwargs.get("device") is not None else kwargs


def without_places(kwargs: dict) -> dict:
    """Keyword arguments without those that say where and how a tensor lies in the host's memory."""
    return {k: v for k, v in kwargs.items() if k not in _PLACES}


_PLACES = ("device", "layout", "pin_memory", "non_blocking", "memory_format", "generator")


def out_names(func: Any) -> list[str]:
    return [a.name for a in func._schema.arguments if a.is_out]


@functools.cache
def describe(func: Any) -> Call:
    """Name, kind and rule of an ATen operation."""
    schema = func._schema
    base = func.overloadpacket.__name__
    prefix = "" if func.namespace in ("aten", "prim") else f"{func.namespace}::"
    full = f"{prefix}{base}.{func._overloadname}"

    def find(table: dict[str, Any]) -> Rule | None:
        return table.get(full) or table.get(prefix + base)

    if (found := find(RAW)) is not None:
        return Call(prefix + base, "raw", found)
    if (found := find(VIEWS)) is not None:
        return Call(prefix + base, "view", found)
    if base in ("squeeze_", "unsqueeze_", "t_", "transpose_", "swapaxes_", "swapdims_", "as_strided_"):
        return Call(base.rstrip("_"), "reshape", VIEWS[base.rstrip("_")])
    if any(a.is_out for a in schema.arguments):
        plain = _sibling(func, base)
        rule = _rule_of(base, plain._overloadname) if plain else None
        return Call(base, "out", rule, (plain, func))
    first = schema.arguments[0].alias_info if schema.arguments else None
    if first is not None and first.is_write:
        # A form such as random_ that exists in place only has its rule under that name.
        name = base if base in RULES else base.rstrip("_")
        plain = None if base in RULES else _sibling(func, name)
        rule = find(RULES) or _rule_of(name, plain._overloadname if plain else func._overloadname)
        return Call(name, "inplace", rule, plain)
    return Call(prefix + base, "plain", find(RULES))


def _rule_of(name: str, overload: str) -> Rule | None:
    return RULES.get(f"{name}.{overload}") or RULES.get(name)


def _sibling(func: Any, name: str) -> Any:
    """The form of an ATen operation that makes a new tensor from the same arguments; ``None`` where there is none."""
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return None
    wanted = _arguments(func)
    for overload in packet.overloads():
        found = getattr(packet, overload)
        if not found._schema.is_mutable and _arguments(found) == wanted:
            return found
    return None


def _arguments(func: Any) -> list[tuple[str, str]]:
    return [(a.name, str(a.type)) for a in func._schema.arguments if not a.is_out]


@functools.cache
def decompositions() -> dict:
    import torch._decomp
    import torch._refs  # registers more of them

    return torch._decomp.decomposition_table
