"""The operations of the ``poptorch`` namespace of PyTorch.

They are ordinary PyTorch operators with a kernel that also runs on meta tensors and, where it makes sense, a
derivative. So they run in plain PyTorch, and a dispatch mode that captures a model sees them as
``poptorch.NAME.default`` with all their arguments. None returns its input itself: an operator's output must not
alias its input unannounced.
"""

from __future__ import annotations

import json
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch._subclasses import FakeTensor

from abele.importers.torch.dtypes import machine_type, to_numpy, to_torch
from abele.ir import evaluate_operation
from abele.ir.operation import complete_attributes

from . import _placement
from ._errors import Error

_library = torch.library.Library("poptorch", "DEF")

_DTYPES = {"FLOAT": torch.float32, "FLOAT16": torch.float16, "float": torch.float32, "half": torch.float16}


def _define(schema: str, kernel: Any, backward: Any = None, setup: Any = None) -> None:
    name = _library.define(schema)
    _library.impl(name, kernel, "CompositeExplicitAutograd")
    if backward is not None:
        torch.library.register_autograd(f"poptorch::{name}", backward, setup_context=setup, lib=_library)


def _pass_on(x: torch.Tensor, *rest: Any) -> torch.Tensor:
    return x.clone()


def _gradient_of_first(arguments: int) -> Any:
    """The derivative of an operator that passes its first argument on and has ``arguments`` more."""

    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return (gradient, *[None] * arguments) if arguments else gradient

    return backward


def _identity_loss(x: torch.Tensor, reduction: str) -> torch.Tensor:
    if reduction == "sum":
        return x.sum()
    return x.mean() if reduction == "mean" else x.clone()


def _identity_loss_setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.shape, ctx.reduction = inputs[0].shape, inputs[1]


def _identity_loss_backward(ctx: Any, gradient: torch.Tensor) -> Any:
    spread = gradient.expand(ctx.shape)
    return (spread / max(1, ctx.shape.numel()) if ctx.reduction == "mean" else spread), None


def _window(x: torch.Tensor, start: torch.Tensor, size: int, step: int) -> torch.Tensor:
    """The positions of a slice along its dimension, int64[ceil(size / step)]."""
    return start.reshape(()).to(torch.int64) + torch.arange(0, size, step, device=x.device)


def _dynamic_slice(x: torch.Tensor, dim: int, start: torch.Tensor, size: int, step: int) -> torch.Tensor:
    return x.index_select(dim, _window(x, start, size, step))


def _dynamic_slice_setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, ctx.dim, start, ctx.size, ctx.step = inputs
    ctx.shape = x.shape
    ctx.save_for_backward(start)


def _dynamic_slice_backward(ctx: Any, gradient: torch.Tensor) -> Any:
    (start,) = ctx.saved_tensors
    zeros = gradient.new_zeros(ctx.shape)
    whole = zeros.index_copy(ctx.dim, _window(zeros, start, ctx.size, ctx.step), gradient)
    return whole, None, None, None, None


def _dynamic_update(x: torch.Tensor, src: torch.Tensor, dim: int, start: torch.Tensor, size: int) -> torch.Tensor:
    return x.index_copy(dim, _window(x, start, size, 1), src)


def _dynamic_update_setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    _, _, ctx.dim, start, ctx.size = inputs
    ctx.save_for_backward(start)


def _dynamic_update_backward(ctx: Any, gradient: torch.Tensor) -> Any:
    (start,) = ctx.saved_tensors
    window = _window(gradient, start, ctx.size, 1)
    return gradient.index_fill(ctx.dim, window, 0.0), gradient.index_select(ctx.dim, window), None, None, None


def _nothing_to_keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    pass


def _internal_cast(x: torch.Tensor, dtype: str) -> torch.Tensor:
    if dtype not in _DTYPES:
        raise Error(f"internal_cast takes one of {', '.join(_DTYPES)}, not {dtype!r}.")
    return x.to(_DTYPES[dtype], copy=True)


def _internal_cast_setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.dtype = inputs[0].dtype


def _internal_cast_backward(ctx: Any, gradient: torch.Tensor) -> Any:
    return gradient.to(ctx.dtype), None


def _push_name_scope(name: str) -> None:
    running = _placement.current_capture()
    if running is not None:
        running.names.append(name)


def _pop_name_scope() -> None:
    running = _placement.current_capture()
    if running is not None and running.names:
        running.names.pop()


_define(
    "identity_loss(Tensor x, str reduction) -> Tensor",
    _identity_loss,
    _identity_loss_backward,
    _identity_loss_setup,
)
_define(
    "ipu_print_tensor(Tensor self, str title, bool print_gradient, int summarise_threshold, int edge_items, "
    "int max_line_width, int digits, str float_format, str separator, str open_bracket, str close_bracket) -> Tensor",
    _pass_on,
    _gradient_of_first(10),
    _nothing_to_keep,
)
_define("nop(Tensor self) -> Tensor", _pass_on, _gradient_of_first(0), _nothing_to_keep)
_define("recomputation_checkpoint(Tensor self) -> Tensor", _pass_on, _gradient_of_first(0), _nothing_to_keep)
_define(
    "set_available_memory(Tensor self, float proportion) -> Tensor",
    _pass_on,
    _gradient_of_first(1),
    _nothing_to_keep,
)
_define("set_overlap_for_input(Tensor self, str mode) -> Tensor", _pass_on, _gradient_of_first(1), _nothing_to_keep)
_define(
    "set_overlap_for_output(Tensor self, str mode) -> Tensor",
    _pass_on,
    _gradient_of_first(1),
    _nothing_to_keep,
)
_define(
    "internal_cast(Tensor self, str dtype) -> Tensor",
    _internal_cast,
    _internal_cast_backward,
    _internal_cast_setup,
)
_define(
    "dynamic_slice(Tensor self, int dim, Tensor start, int size, int step) -> Tensor",
    _dynamic_slice,
    _dynamic_slice_backward,
    _dynamic_slice_setup,
)
_define(
    "dynamic_update(Tensor self, Tensor src, int dim, Tensor start, int size) -> Tensor",
    _dynamic_update,
    _dynamic_update_backward,
    _dynamic_update_setup,
)


def _evaluated(
    inputs: list[torch.Tensor], name: str, attributes: dict[str, Any], examples: list[torch.Tensor]
) -> list[torch.Tensor]:
    """What the reference of an operation makes, in plain PyTorch: tensors like the examples."""
    if any(t.device.type == "meta" or isinstance(t, FakeTensor) for t in (*inputs, *examples)):
        return [torch.empty_like(t) for t in examples]
    results = [machine_type(t) for t in examples]
    made = evaluate_operation(name, [to_numpy(t) for t in inputs], complete_attributes(name, attributes), results)
    return [to_torch(a, t.dtype) for a, t in zip(made, examples, strict=True)]


def _ctc_beam_search(
    probs: torch.Tensor, lengths: torch.Tensor, blank: int, width: int, top: int
) -> tuple[torch.Tensor, ...]:
    steps, batch, _ = probs.shape
    counts = torch.empty(batch, top, dtype=torch.int32, device=probs.device)
    examples = [probs.new_empty(batch, top), counts, counts.new_empty(batch, top, steps)]
    attributes = {"blank": blank, "beam_width": width, "top_paths": top}
    return tuple(_evaluated([probs, lengths.to(torch.int32)], "ctc_beam_search", attributes, examples))


_define(
    "ctc_beam_search(Tensor probs, Tensor lengths, int blank, int width, int top) -> (Tensor, Tensor, Tensor)",
    _ctc_beam_search,
)


def _custom(inputs: list[torch.Tensor], name: str, attributes: str, examples: list[torch.Tensor]) -> list[torch.Tensor]:
    return _evaluated(inputs, name, json.loads(attributes), examples)


_define("custom_op(Tensor[] inputs, str name, str attributes, Tensor[] examples) -> Tensor[]", _custom)


def custom(
    inputs: list[torch.Tensor], name: str, attributes: dict[str, Any], examples: list[torch.Tensor]
) -> list[torch.Tensor]:
    """An operation of the user by its registered name. Attributes travel as JSON: a schema has no mixed mapping."""
    return list(torch.ops.poptorch.custom_op(inputs, name, json.dumps(attributes), examples))


HOST_FUNCTIONS: WeakValueDictionary[str, Any] = WeakValueDictionary()
"""Objects of ``poptorch.CPU`` by their names in graphs; each has ``run``, a function of a list of tensors."""


def _host_call(inputs: list[torch.Tensor], function: str) -> list[torch.Tensor]:
    with _placement.suspended(), torch.no_grad():
        return HOST_FUNCTIONS[function].run(inputs)


_define("host_call(Tensor[] inputs, str function) -> Tensor[]", _host_call)


_define("push_name_scope(str name) -> ()", _push_name_scope)
_define("pop_name_scope() -> ()", _pop_name_scope)
