"""Functions on tensors that exist besides PyTorch's own.

In plain PyTorch they compute what they compute on the device, or pass their argument on where they only mark
something. In a model that is being captured they leave their mark in the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from abele.ir import OPERATIONS

from . import _custom_libraries, _library, _placement, _structure
from ._blocks import Attribute
from ._errors import Error, member, require
from ._options_effects import note
from ._structure import map_tensors
from .enums import MatMulSerializationMode, OverlapMode

__all__ = [
    "CPU",
    "cond",
    "ctc_beam_search_decoder",
    "custom_op",
    "dynamic_slice",
    "dynamic_update",
    "for_loop",
    "fps",
    "identity_loss",
    "ipu_print_tensor",
    "nearest",
    "nop",
    "recomputationCheckpoint",
    "serializedMatMul",
    "set_available_memory",
    "set_overlap_for_input",
    "set_overlap_for_output",
]

_ops = torch.ops.poptorch

#: A loop of more rounds than this is not unrolled: the graph, and so the program, would grow with it.
MAX_UNROLLED_ROUNDS = 256

# The device has no wider integers and floats; its types are what messages name.
_DEVICE_DTYPE = {torch.int64: torch.int32, torch.float64: torch.float32}


def _unsupported(what: str, remedy: str) -> Error:
    return Error(f"{what} is not supported. {remedy}")


def identity_loss(x: torch.Tensor, reduction: str) -> torch.Tensor:
    """Mark a tensor as the loss: a gradient of ones enters here.

    Args:
        x: any shape.
        reduction: ``"sum"`` or ``"mean"`` (the result is a scalar), or ``"none"``.

    Raises:
        ValueError: for any other reduction.
    """
    if reduction not in ("sum", "mean", "none"):
        raise ValueError(f"Unsupported reduction type {reduction!r}: it is 'sum', 'mean' or 'none'.")
    return _ops.identity_loss(x, reduction)


def ipu_print_tensor(
    tensor: torch.Tensor,
    title: str = "",
    print_gradient: bool = True,
    summarise_threshold: int = 1000,
    edge_items: int = 3,
    max_line_width: int = 80,
    digits: int = 4,
    float_format: str = "auto",
    separator: str = ", ",
    open_bracket: str = "(",
    close_bracket: str = ")",
) -> torch.Tensor:
    """Print a tensor whenever the program comes here; use what it returns, or nothing is printed.

    Args:
        tensor: any shape.
        title: printed before the values.
        print_gradient: also print the gradient, in training.
        summarise_threshold: show only the edges of tensors of more elements than this.
        edge_items: how many elements to show at each edge.
        max_line_width: where lines are broken, in characters.
        digits: how many digits of a number.
        float_format: ``"auto"``, ``"fixed"``, ``"scientific"`` or ``"none"``.
        separator, open_bracket, close_bracket: one character each, or with a space (separator).
    """
    formats = ("auto", "fixed", "scientific", "none")
    require(float_format in formats, f"The float format is one of {', '.join(formats)}, not {float_format!r}.")
    return _ops.ipu_print_tensor(
        tensor,
        title,
        print_gradient,
        summarise_threshold,
        edge_items,
        max_line_width,
        digits,
        float_format,
        separator,
        open_bracket,
        close_bracket,
    )


def nop(tensor: torch.Tensor) -> torch.Tensor:
    """An operation that passes its argument on."""
    return _ops.nop(tensor)


def recomputationCheckpoint(*tensors: Any) -> Any:
    """Keep these tensors for the backward pass instead of computing them again.

    Args:
        tensors: tensors, or tuples or lists of them.

    Returns:
        the tensors in the structure given; a single argument comes back as it is, not in a tuple.
    """
    marked = map_tensors(tensors, _ops.recomputation_checkpoint)
    return marked[0] if len(tensors) == 1 else marked


def set_available_memory(tensor: torch.Tensor, available_memory_proportion: float) -> torch.Tensor:
    """How much of each tile's memory the operation that made ``tensor`` may use temporarily.

    Args:
        tensor: the result of a convolution, matrix product, embedding or indexing operation.
        available_memory_proportion: above 0, up to 1.

    The plan of a single operation cannot be steered here: ``options.setAvailableMemoryProportion`` does it for all.
    """
    require(
        0 < available_memory_proportion <= 1,
        f"The proportion of memory is above 0 and up to 1, not {available_memory_proportion!r}.",
    )
    note("poptorch.set_available_memory", "use options.setAvailableMemoryProportion, which is for all operations")
    return _ops.set_available_memory(tensor, available_memory_proportion)


def _overlap(tensors: Any, mode: OverlapMode, mark: Any, name: str) -> Any:
    member(name, mode, OverlapMode)
    return map_tensors(tensors, lambda t: mark(t, mode.value))


def set_overlap_for_input(input_tensors: Any, mode: OverlapMode) -> Any:
    """Let the transfer of an input overlap with the computation; must be the first use of the input.

    Args:
        input_tensors: a tensor, or tensors in tuples, lists or dictionaries.
        mode: the loop to overlap with.
    """
    return _overlap(input_tensors, mode, _ops.set_overlap_for_input, "set_overlap_for_input")


def set_overlap_for_output(output_tensors: Any, mode: OverlapMode) -> Any:
    """Let the transfer of an output overlap with the computation; return what it returns from the model.

    Args:
        output_tensors: a tensor, or tensors in tuples, lists or dictionaries.
        mode: the loop to overlap with.
    """
    return _overlap(output_tensors, mode, _ops.set_overlap_for_output, "set_overlap_for_output")


def _check_size(size: int) -> None:
    if size == 0:
        raise Error("The start and end of a slice must be different. Ask for a size of 1 or more.")
    if size < 0:
        raise Error("Taking a slice of a tensor with the end less than the start is not supported.")


def dynamic_slice(tensor: torch.Tensor, dim: int, start: Any, size: int, step: int) -> torch.Tensor:
    """``tensor[start : start + size : step]`` along ``dim``, where ``start`` is known only at run time.

    Args:
        tensor: any shape; its length along ``dim`` is a multiple of ``size``.
        dim: the dimension to slice.
        start: an integer tensor of one element.
        size: how far the slice reaches, fixed when compiling.
        step: the distance between the elements taken.
    """
    _check_size(size)
    length = tensor.shape[dim]
    if length % size:
        raise Error(f"The size of the slice ({size}) must be a factor of the slicing dimension ({length}).")
    return _ops.dynamic_slice(tensor, dim, torch.as_tensor(start), size, step)


def dynamic_update(input: torch.Tensor, src: torch.Tensor, dim: int, start: Any, size: int) -> torch.Tensor:
    """A copy of ``input`` in which ``[start : start + size]`` along ``dim`` is ``src``.

    Args:
        input: any shape.
        src: the same shape but for ``size`` elements along ``dim``; the same type.
        dim: the dimension to update.
        start: an integer tensor of one element, known only at run time.
        size: how many elements to replace, fixed when compiling.
    """
    _check_size(size)
    if input.dim() != src.dim():
        raise Error(f"input and src tensors must have same dimensionality. ({input.dim()}) vs ({src.dim()})")
    types = [_DEVICE_DTYPE.get(t.dtype, t.dtype) for t in (input, src)]
    if types[0] != types[1]:
        raise Error(f"input and src tensor must have same dtype. ({types[0]} vs {types[1]})")
    return _ops.dynamic_update(input, src, dim, torch.as_tensor(start), size)


def serializedMatMul(
    lhs: torch.Tensor,
    rhs: torch.Tensor,
    mode: MatMulSerializationMode,
    factor: int = 0,
    keep_precision: bool = False,
) -> torch.Tensor:
    """A matrix product computed in ``factor`` parts, to use less memory at a time.

    Args:
        lhs, rhs: as for ``torch.matmul``.
        mode: the dimension that is cut, or ``Disabled``.
        factor: the number of parts; it divides that dimension.
        keep_precision: keep the products of half operands in float until the parts are summed.

    Returns:
        what ``torch.matmul`` returns: the cut changes memory and time, not the result.
    """
    require(isinstance(mode, MatMulSerializationMode), f"Invalid serialization mode: {mode!r}.")
    require(isinstance(factor, int) and factor >= 0, f"The factor is a whole number, not {factor!r}.")
    if mode is not MatMulSerializationMode.Disabled:
        cut = {
            MatMulSerializationMode.InputChannels: (lhs.shape[-2:-1] or [1])[0],
            MatMulSerializationMode.ReducingDim: lhs.shape[-1],
            MatMulSerializationMode.OutputChannels: rhs.shape[-1],
        }[mode]
        require(factor > 0, f"A serialization factor of {factor} cuts nothing: it is 1 or more.")
        require(cut % factor == 0, f"The serialization factor {factor} does not divide the dimension of {cut}.")
    with Attribute(serialize_matmul=(mode.value, factor, bool(keep_precision))):
        return torch.matmul(lhs, rhs)


def _inference_only(name: str) -> None:
    running = _placement.current_capture()
    if running is not None and running.training:
        raise Error(f"poptorch.{name}() is only supported in inference models.")


def _check_tensors(inputs: Any) -> list[torch.Tensor]:
    if not isinstance(inputs, list):
        raise ValueError(f"Object is not list: the inputs are a list of tensors, not {type(inputs).__name__}.")
    for index, value in enumerate(inputs):
        if not isinstance(value, torch.Tensor):
            raise ValueError(f"Object contained in list at index {index} is not torch.tensor: {value!r}.")
    return inputs


def _outputs(result: Any) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else list(result)


def for_loop(count: int, body: Callable[..., Any], inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Call ``body`` ``count`` times, each time on what the last call returned. Inference only.

    Args:
        count: how often, fixed when compiling.
        body: takes and returns as many tensors as there are inputs, of the same shapes and types.
        inputs: a list of tensors, passed by value: the caller's are not changed.

    Returns:
        a list of what the last call returned.

    Raises:
        ValueError: when the inputs are not a list of tensors.
        Error: in a training model, or when the body changes the number or shapes of the tensors.
    """
    _inference_only("for_loop")
    values = [t.clone() for t in _check_tensors(inputs)]
    if _placement.current_capture() is not None and count > MAX_UNROLLED_ROUNDS:
        raise _unsupported(
            f"A poptorch.for_loop of {count} rounds",
            f"Loops are unrolled up to {MAX_UNROLLED_ROUNDS} rounds: split the loop over several calls of the model.",
        )
    for _ in range(count):
        results = _outputs(body(*values))
        shapes = [(t.shape, t.dtype) for t in values]
        if [(t.shape, t.dtype) for t in results] != shapes:
            raise Error(
                "The body of poptorch.for_loop must return as many tensors as it takes, of the same shapes and "
                f"types: it takes {shapes} and returns {[(t.shape, t.dtype) for t in results]}."
            )
        values = results
    return values


def cond(
    condition: torch.Tensor,
    then_body: Callable[..., Any],
    then_inps: list[torch.Tensor],
    else_body: Callable[..., Any],
    else_inps: list[torch.Tensor],
) -> list[torch.Tensor]:
    """What ``then_body`` or ``else_body`` returns, as ``condition`` says at run time. Inference only.

    In a captured model both bodies run and the result is selected.

    Args:
        condition: a tensor of one element.
        then_body, else_body: functions of tensors that return tensors of the same shapes and types.
        then_inps, else_inps: the arguments, passed by value.

    Returns:
        a list of what the chosen body returned.
    """
    _inference_only("cond")
    then_values = [t.clone() for t in _check_tensors(then_inps)]
    else_values = [t.clone() for t in _check_tensors(else_inps)]
    require(condition.numel() == 1, f"The condition is a tensor of one element, not {condition.numel()}.")
    if _placement.current_capture() is None:
        return _outputs(then_body(*then_values) if condition.item() else else_body(*else_values))
    then_results, else_results = _outputs(then_body(*then_values)), _outputs(else_body(*else_values))
    kinds = [[(tuple(t.shape), t.dtype) for t in r] for r in (then_results, else_results)]
    if kinds[0] != kinds[1]:
        raise Error(
            "The two bodies of poptorch.cond must return tensors of the same number, shapes and types: "
            f"{kinds[0]} and {kinds[1]}."
        )
    choice = condition.reshape(()).to(torch.bool)
    return [torch.where(choice, a, b) for a, b in zip(then_results, else_results)]


class CPU:
    """Call a function on the host from within a model. Inference only; its inputs go to the host and its results back.

    It also runs once when the model is compiled, on zeros, to see the shapes and types of what it returns.

    Args:
        layer_to_call: a function or module of tensors that returns a tensor, or a list, tuple or dict of them.
        ID: a name for it that no other call has.
    """

    def __init__(self, layer_to_call: Callable[..., Any], ID: str) -> None:
        require(callable(layer_to_call), "poptorch.CPU takes a function or a module.")
        require(isinstance(ID, str), f"The ID is a string, not {ID!r}.")
        self._layer_to_call = layer_to_call
        self._like: Any = None
        names = (ID, *(f"{ID}.{n}" for n in range(1, len(_library.HOST_FUNCTIONS) + 1)))
        self._ID = next(name for name in names if name not in _library.HOST_FUNCTIONS)
        _library.HOST_FUNCTIONS[self._ID] = self

    def run(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """The results in a list; none shares memory with an input."""
        self._like = self._layer_to_call(*inputs)
        return [t.clone() for t in _structure.flatten(self._like)]

    def __call__(self, *args: Any) -> Any:
        running = _placement.current_capture()
        if running is None:
            return self._layer_to_call(*args)
        if running.training:
            raise _unsupported(
                f"poptorch.CPU({self._ID!r}) inside a model that is trained",
                "Nothing is known of the derivative of a function of the host: call it before the model, or write it "
                "with operations that the model can hold.",
            )
        require(
            all(isinstance(a, torch.Tensor) for a in args),
            f"poptorch.CPU({self._ID!r}) takes tensors; bind other arguments with functools.partial.",
        )
        results = torch.ops.poptorch.host_call(list(args), self._ID)
        return _structure.rebuild(self._like, results)


def custom_op(
    inputs: Sequence[torch.Tensor],
    name: str,
    domain: str,
    domain_version: int,
    example_outputs: Sequence[torch.Tensor],
    attributes: Mapping[str, Any] | None = None,
) -> list[torch.Tensor]:
    """An operation that the user has written for the device: one registered with ``abele.ir.register``.

    Args:
        inputs: its operands.
        name, domain, domain_version: which operation. It is looked up as ``domain.name``, then as ``name``; the version
            is not looked at.
        example_outputs: tensors of the shapes and types that it returns.
        attributes: floats, integers, strings, or lists of one of them, by name.

    Returns:
        what the operation makes; outside a compiled model copies of the example outputs where it is not registered.

    Raises:
        Error: inside a compiled model, the operation is not registered: the vendor's compiled operations cannot be
            loaded; or its results are not of the shapes and types of the example outputs.
    """
    require(isinstance(name, str) and isinstance(domain, str), "The name and the domain are strings.")
    given = dict(attributes or {})
    for key, value in given.items():
        entries = value if isinstance(value, (list, tuple)) else [value]
        require(
            isinstance(key, str) and all(isinstance(e, (int, float, str)) for e in entries),
            f"The attribute {key!r} holds floats, integers or strings, not {value!r}.",
        )
    found = next((n for n in (f"{domain}.{name}", name) if n in OPERATIONS), None)
    if found is not None:
        return _library.custom(list(inputs), found, given, list(example_outputs))
    if _placement.current_capture() is not None:
        raise _unsupported(
            f"The custom operation {domain}.{name} (version {domain_version})",
            _custom_libraries.HELP,
        )
    return [t.clone() for t in example_outputs]


def ctc_beam_search_decoder(
    probs: torch.Tensor, lengths: torch.Tensor, blank: int = 0, beam_width: int = 100, top_paths: int = 1
) -> list[torch.Tensor]:
    """The likeliest label sequences of a CTC model, by beam search. Inference only.

    Args:
        probs: log probabilities [time, batch, class].
        lengths: int[batch], the valid part of each sequence.
        blank: the class that stands for nothing.
        beam_width: how many candidates are kept.
        top_paths: how many sequences are returned.

    Returns:
        log probabilities [batch, top_paths] of the sequences, the likeliest first; their lengths, int32 of that shape;
        and their labels, int32[batch, top_paths, time], filled up with blanks.
    """
    _inference_only("ctc_beam_search_decoder")
    require(
        1 <= top_paths <= beam_width,
        f"top_paths={top_paths} sequences cannot come out of a beam of {beam_width}: 1 <= top_paths <= beam_width.",
    )
    return list(torch.ops.poptorch.ctc_beam_search(probs, lengths, blank, beam_width, top_paths))


def fps(src: torch.Tensor, ptr: list[int], ratio: float = 0.5, random_start: bool = False) -> torch.Tensor:
    """Farthest-point sampling of a point cloud. Not supported."""
    raise _unsupported("poptorch.fps", "Sample the points on the host, before the model.")


def nearest(x: torch.Tensor, y: torch.Tensor, batch_x: Any = None, batch_y: Any = None) -> torch.Tensor:
    """For each row of ``x`` the nearest row of ``y``. Not supported."""
    raise _unsupported("poptorch.nearest", "Use torch.cdist(x, y).argmin(dim=1).")


assert _library  # importing it defines the operators that this module calls
