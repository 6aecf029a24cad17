"""Capturing a torch module or function as a graph, without running its arithmetic."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.utils.checkpoint

import abele.importers.torch.rules
import abele.ops  # noqa: F401  (registers the operations that the rules emit)
from abele.errors import InvalidOperand, Unsupported
from abele.importers.torch import structure as tree
from abele.importers.torch.autograd import functions_captured
from abele.importers.torch.dtypes import machine_type, to_numpy, to_torch
from abele.importers.torch.functions import Functions
from abele.importers.torch.origin import Origins, Placement
from abele.importers.torch.tensors import Overlapped
from abele.importers.torch.tracer import Tracer
from abele.ir import Graph, Operation, Port, Value


@dataclass(frozen=True)
class HostTensor:
    """A tensor as the user's program sees it: its path, shape and torch type (the graph has the machine's)."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass
class Capture:
    """A captured program.

    Attributes:
        graph: its forward.
            Inputs: ``data`` by argument (``input_ids``, ``args.0``, ``batch.labels``); ``state`` by the name of the
            parameter or buffer, ``constant.N`` for tensors of known values, ``seed`` (``u32[2]``) for random numbers.
            Outputs: ``anchor`` by path (``0``, ``hidden.1``; empty for a lone tensor); ``loss`` (``loss.N``) for each
            loss of a training capture that no other is computed from; ``state`` for each parameter or buffer that is
            updated in place.
        inputs, outputs: the tensors as the program has them, in the order of the ``data`` and ``anchor`` ports.
        input_structure, output_structure: how they nest in arguments ``(args, kwargs)`` and in the result.
        parameters, buffers: those that the graph uses, by name, as they are in the module.
        constants: values of the states ``constant.N``.
        aliases: other names of a parameter or buffer (tied weights) to the name in the graph.
        losses: the values that known losses and ``identity_loss`` made, in order of the calls.
        overlapped: the values whose transfer with the host is marked to overlap with compute.
        updated_inputs: index of an input that is updated in place to the name of its new value, an ``anchor``
            output ``updated.N`` after those of the result.
        random: whether the graph draws random numbers.
        reassigned: buffers and parameters that the forward bound to another tensor or deleted (the module has
            been put back as it was); those that it deleted are in ``removed`` too.
    """

    graph: Graph
    inputs: list[HostTensor]
    outputs: list[HostTensor]
    input_structure: tree.Structure
    output_structure: tree.Structure
    parameters: dict[str, torch.Tensor] = field(default_factory=dict)
    buffers: dict[str, torch.Tensor] = field(default_factory=dict)
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    losses: list[Value] = field(default_factory=list)
    overlapped: list[Overlapped] = field(default_factory=list)
    updated_inputs: dict[int, str] = field(default_factory=dict)
    random: bool = False
    reassigned: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)

    def independent_losses(self) -> list[int]:
        """Numbers of the losses that no later loss is computed from."""
        return independent(self.graph.operations, self.losses)

    def state(self, seed: int = 0) -> dict[str, np.ndarray]:
        """Initial values of the state inputs, in the machine's types."""
        values = {n: to_numpy(t, n) for n, t in (self.parameters | self.buffers | self.constants).items()}
        if self.random:
            values["seed"] = np.array([seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF], np.uint32)
        return values

    def arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> list[np.ndarray]:
        """Tensors of a call with the captured structure, shapes and types, in the machine's types and port order.

        Raises:
            InvalidOperand: the call differs from the captured one.
        """
        leaves, shape = tree.flatten((tuple(args), dict(kwargs or {})))
        if not _same_structure(shape, self.input_structure):
            raise InvalidOperand(
                "The arguments differ in structure or in values that are no tensors from those of the capture",
                remedy="Capture the program again for these arguments.",
            )
        for given, expected in zip(leaves, self.inputs, strict=True):
            if tuple(given.shape) != expected.shape or given.dtype != expected.dtype:
                raise InvalidOperand(
                    f"Argument {expected.name} is {given.dtype} {list(given.shape)}, it was captured as "
                    f"{expected.dtype} {list(expected.shape)}",
                    remedy="Capture the program again for these arguments.",
                )
        return [to_numpy(t, given.name) for t, given in zip(leaves, self.inputs, strict=True)]

    def result(self, arrays: Sequence[np.ndarray]) -> Any:
        """The program's result from the values of its ``anchor`` outputs (those of ``updated_inputs`` left out)."""
        tensors = [to_torch(a, t.dtype) for a, t in zip(arrays, self.outputs, strict=False)]
        return tree.unflatten(self.output_structure, tensors)


def capture(
    program: torch.nn.Module | Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    placement: Placement | None = None,
    training: bool | None = None,
    device_apart: bool = False,
) -> Capture:
    """Capture one call of a module or function as a graph.

    Nothing is computed and the program is left as it was: parameters and buffers keep their values, and what the
    forward changes in Python on the module is put back, also when it raises.

    Args:
        program: an ordinary module, or a function of tensors.
        args, kwargs: arguments of the call. Their tensors give shapes and types; all else is frozen.
        placement: asked at every operation, by its ATen name, for its (pipeline stage, IPU).
        training: whether gradients will be taken: detached tensors then stop them, and known losses become outputs.
            ``None``: as the module's ``training`` flag says; False for a function.
        device_apart: tensors that are neither arguments nor states, nor made by the forward on the device, are the
            host's: the forward may compute with them alone and return them, and what it writes into them stays, but
            beside a tensor of the device they are refused. Else they are constants, and put back as they were.

    Raises:
        DataDependent: the program asks for the value of a tensor.
        Unsupported: it uses an operation that has no rule, or with ``device_apart`` a tensor of the host.
    """
    args, kwargs = tuple(args), dict(kwargs or {})
    program = getattr(program, "_orig_mod", program)  # what torch.compile wraps
    module = program if isinstance(program, torch.nn.Module) else getattr(program, "__self__", None)
    module = module if isinstance(module, torch.nn.Module) else None
    if any(isinstance(m, torch.jit.ScriptModule) for m in (module.modules() if module is not None else ())):
        raise Unsupported("A scripted module is given", remedy="Give the module from which it was scripted or traced.")
    if training is None:
        training = module.training if module is not None else False
    origins = Origins(module, placement)
    tracer = Tracer(origins, training=training, device_apart=device_apart)
    leaves, input_structure = tree.flatten((args, kwargs))
    names = _argument_names(program, args, kwargs)
    for given, name in zip(leaves, names, strict=True):
        if given.layout is not torch.strided:
            raise Unsupported(
                f"Argument {name} is a {given.layout} tensor",
                remedy="Give a dense tensor, or its indices and values as tensors of their own.",
            )
    twins = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta") for t in leaves]
    for given, one, name in zip(leaves, twins, names, strict=True):
        tracer.places.set(one, tracer.add_input(Port("data", name), machine_type(given)))
    states, aliases = _states(module)
    for name, tensor in states.items():
        tracer.state(tensor, name)
    for buffer in module.buffers() if module is not None else ():
        if buffer.is_complex():
            tracer.complexes.remember(buffer, next(t for t in states.values() if t.data_ptr() == buffer.data_ptr()))
    new_args, new_kwargs = tree.unflatten(input_structure, twins)
    with (
        _unchanged(module) as (reassigned, removed),
        _constants(tracer, device_apart),
        origins,
        _traced(),
        functions_captured(tracer),
        tracer,
        Functions(tracer),
    ):
        result = program(*new_args, **new_kwargs)
        origins.settle()
        outputs, output_structure = tree.flatten(result)
        _refuse_hidden(output_structure)
        with tracer.located():
            anchors = [tracer.output(t) for t in outputs]
    tracer.keep_tables()
    ports = [Port("anchor", p) for p in tree.paths(output_structure)]
    updated = {}
    for index, one in enumerate(twins):
        if tracer.places.root_of(one).version:
            refuse_shared(leaves, names, index)
            updated[index] = f"updated.{index}"
            anchors.append(tracer.places.read(one))
            ports.append(Port("anchor", updated[index]))
    if training:
        for n in independent(tracer.e.b.operations, tracer.losses):
            anchors.append(tracer.losses[n])
            ports.append(Port("loss", f"loss.{n}"))
    for name, tensor in states.items():
        if tracer.places.root_of(tensor).version:
            if name not in {p.name for p, _ in tracer.inputs if p.kind == "state"}:
                tracer.add_input(Port("state", name), machine_type(tensor))  # written but never read
            anchors.append(tracer.places.read(tensor))
            ports.append(Port("state", name))
    order = {n: i for i, n in enumerate([*states, *tracer.constants, "seed"])}
    graph = tracer.finish(anchors, ports, lambda port: (port.kind != "data", order.get(port.name, -1)))
    used = graph.inputs_of("state")
    parameters: dict[str, torch.Tensor] = {
        n: t for n, t in states.items() if n in used and isinstance(t, torch.nn.Parameter)
    }
    return Capture(
        graph,
        [HostTensor(n, tuple(t.shape), t.dtype) for n, t in zip(names, leaves, strict=True)],
        [HostTensor(p, tuple(t.shape), t.dtype) for p, t in zip(tree.paths(output_structure), outputs, strict=True)],
        input_structure,
        output_structure,
        parameters,
        {n: t for n, t in states.items() if n in used and n not in parameters},
        {n: t for n, t in tracer.constants.items() if n in used},
        aliases,
        tracer.losses,
        tracer.overlapped,
        updated,
        "seed" in used,
        reassigned,
        removed,
    )


def independent(operations: Sequence[Operation], losses: Sequence[Value]) -> list[int]:
    """Numbers of the losses that no later loss is computed from."""
    number: dict[Value, int] = {}
    for n, loss in enumerate(losses):
        number.setdefault(loss, n)
    below: dict[Value, set[int]] = {}
    absorbed: set[int] = set()
    for op in operations:
        reached: set[int] = set().union(*(below.get(v, set()) for v in op.operands))
        for value in op.results:
            if value in number:
                absorbed |= reached
                below[value] = {number[value]}
            elif reached:
                below[value] = reached
    return [n for n in number.values() if n not in absorbed]


def _states(module: torch.nn.Module | None) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Parameters and buffers by their first name, and the other names of those that have several.

    A complex buffer is the pair of reals that shares its memory.
    """
    states: dict[str, torch.Tensor] = {}
    aliases: dict[str, str] = {}
    pairs: dict[int, torch.Tensor] = {}
    if module is None:
        return states, aliases
    seen: dict[int, str] = {}
    for name, tensor in (
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ):
        if torch.nn.parameter.is_lazy(tensor):
            raise Unsupported(
                f"The parameter {name} of a lazy module has no shape yet",
                remedy="Run the module once in plain PyTorch, which gives it one.",
            )
        if tensor.is_complex():
            if isinstance(tensor, torch.nn.Parameter):
                raise Unsupported(
                    f"The parameter {name} is complex",
                    remedy="Keep it as torch.view_as_real(x), and make it complex in the forward.",
                )
            tensor = pairs.setdefault(id(tensor), torch.view_as_real(tensor))
        first = seen.setdefault(id(tensor), name)
        if first == name:
            states[name] = tensor
        else:
            aliases[name] = first
    return states, aliases


def _argument_names(program: Any, args: tuple, kwargs: dict) -> list[str]:
    """Names of the tensors in a call, by the parameters of the signature: ``x``, ``args.0``, ``batch.mask.1``."""
    target = program.forward if isinstance(program, torch.nn.Module) else program
    heads: list[str] = []
    try:
        parameters = list(inspect.signature(target).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    for index in range(len(args)):
        rest = next((p for p in parameters[: index + 1] if p.kind is p.VAR_POSITIONAL), None)
        if rest is not None:
            heads.append(f"{rest.name}.{index - parameters.index(rest)}")
        else:
            heads.append(parameters[index].name if index < len(parameters) else f"args.{index}")
    names: list[str] = []
    for head, value in zip([*heads, *kwargs], [*args, *kwargs.values()], strict=True):
        names += tree.paths(tree.flatten(value, str(head))[1])
    return names


def _refuse_hidden(structure: tree.Structure) -> None:
    """Refuse results that keep tensors where they cannot be given values: sets, generators, objects of the user's."""
    for value in tree.constants(structure):
        inside = value if isinstance(value, set | frozenset) else vars(value).values() if _is_record(value) else ()
        if isinstance(value, Iterator) or any(isinstance(i, torch.Tensor) for i in inside):
            raise Unsupported(
                f"The forward returns a {type(value).__name__} with tensors in it",
                remedy="Return tensors in tuples, lists, dicts, named tuples or dataclasses.",
            )


def _is_record(value: object) -> bool:
    return hasattr(value, "__dict__") and not isinstance(value, type | torch.nn.Module)


def refuse_shared(leaves: Sequence[torch.Tensor], names: Sequence[str], written: int) -> None:
    """Refuse an argument that is written in place while another shows its elements: each is a tensor of its own here.

    Raises:
        Unsupported: one tensor, or two views of the same elements, are given as two arguments.
    """
    ours = _extent(leaves[written])
    for number, other in enumerate(leaves):
        theirs = _extent(other)
        if number != written and ours[0] < theirs[1] and theirs[0] < ours[1]:
            raise Unsupported(
                f"The arguments {names[written]} and {names[number]} share elements, and the model writes into the "
                "first",
                remedy=f"Give {names[number]} as a clone, or write into a clone in the model.",
            )


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """The addresses between which a tensor's elements lie in the host's memory."""
    if tensor.device.type == "meta" or not tensor.numel():
        return (0, 0)
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()


def _same_structure(a: tree.Structure, b: tree.Structure) -> bool:
    if isinstance(a, tree.Node) and isinstance(b, tree.Node):
        same = a.type is b.type and a.keys == b.keys
        return same and all(_same_structure(x, y) for x, y in zip(a.items, b.items, strict=True))
    if isinstance(a, tree.Constant) and isinstance(b, tree.Constant):
        return a.value is b.value or bool(a.value == b.value)
    return isinstance(a, tree.Leaf) and isinstance(b, tree.Leaf)


@contextlib.contextmanager
def _unchanged(module: torch.nn.Module | None) -> Iterator[tuple[list[str], list[str]]]:
    """Put attributes of the module and its submodules back.

    The lists name the states that had been exchanged or deleted, and those of them that had been deleted.
    """
    reassigned: list[str] = []
    removed: list[str] = []
    before = []
    for name, one in module.named_modules() if module is not None else ():
        tables = {k: dict(one.__dict__[k]) for k in ("_parameters", "_buffers", "_modules")}
        before.append((name, one, dict(one.__dict__), tables))
    try:
        yield reassigned, removed
    finally:
        for name, one, attributes, tables in before:
            for kind in ("_parameters", "_buffers"):
                now = one.__dict__[kind]
                for key, tensor in tables[kind].items():
                    if now.get(key) is not tensor:
                        reassigned.append(f"{name}.{key}" if name else key)
                        if key not in now:
                            removed.append(reassigned[-1])
            one.__dict__.clear()
            one.__dict__.update(attributes)
            for kind, table in tables.items():
                one.__dict__[kind].clear()
                one.__dict__[kind].update(table)


@contextlib.contextmanager
def _constants(tracer: Tracer, keep: bool) -> Iterator[None]:
    """Put back tensors that the program has written known values into: always when it raises, else unless to keep."""
    try:
        yield
    except BaseException:
        tracer.put_back()
        raise
    if not keep:
        tracer.put_back()


@contextlib.contextmanager
def _traced() -> Iterator[None]:
    """Libraries that ask whether they are being traced are told that they are, and take no data-dependent shortcut.

    Distributions do not look at their parameters' values, unless the program asks them to (``validate_args=True``).
    """
    patched: list[tuple[Any, str, Any]] = [
        # It would compare the mask with a causal one to choose a kernel; a mask that is applied is right either way.
        (
            torch.nn.modules.transformer,
            "_detect_is_causal_mask",
            lambda mask, is_causal=None, size=None: is_causal is True,
        ),
        (torch.distributions.Distribution, "_validate_args", False),
        (torch.utils.checkpoint, "check_backward_validity", lambda *_: None),  # it would miss autograd's graph
        # As Python, which says where it is, and has no tensors in it that were made when it was optimized before.
        (torch.jit.ScriptFunction, "__call__", _call_in_python),
    ]
    library: Any = sys.modules.get("transformers.utils.import_utils")
    if hasattr(library, "is_fake_tensor"):
        patched.append((library, "is_fake_tensor", lambda tensor: isinstance(tensor, torch.Tensor)))
    with contextlib.ExitStack() as stack:
        stack.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
        torch.backends.mha.set_fastpath_enabled(False)
        for owner, name, value in patched:
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)
        yield


_run_script = torch.jit.ScriptFunction.__call__


def _call_in_python(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call the Python function from which this one was scripted; one that was traced has none."""
    return getattr(function, "_torchdynamo_inline", partial(_run_script, function))(*args, **kwargs)
