"""The dispatch mode that turns ATen calls into operations of a graph.

Tensors of the program stand for values; what they hold is never computed. Tensors that depend on no input,
parameter or buffer (``torch.arange(n)``, say) are computed for real as they come, and become constants of the graph
when they meet one that does.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from abele.errors import Unsupported
from abele.importers.torch import complexes, dependent
from abele.importers.torch.calls import (
    CREATION,
    LIKE,
    RANDOM,
    Call,
    decompositions,
    describe,
    metas,
    on_meta,
    out_names,
    tensors_in,
    twin,
    without_places,
)
from abele.importers.torch.dtypes import machine_type
from abele.importers.torch.storage import place_of
from abele.importers.torch.table import Read, Write
from abele.importers.torch.tensors import Tensors
from abele.ir import Graph, Operation, Port, Value, lookup

LARGE = 1 << 20
"""From this many elements on, a tensor that is filled or counted is an operation, and is not made for real."""

_UNSET = object()


class Tracer(Tensors):
    """Collects the graph of one capture.

    Args:
        origins: says where each operation comes from.
        training: gradients will be taken, so that detached tensors must stop them.
        device_apart: tensors of the host cannot be constants of the graph (see :class:`Host`).
    """

    # Calls

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if self._plain:
            return func(*args, **(kwargs or {}))
        return self._dispatch(func, args, kwargs or {})

    def _dispatch(self, func: Any, args: tuple, kwargs: dict) -> Any:
        call = describe(func)
        if self._handles:
            args, kwargs = self.grasp(args), self.grasp(kwargs)
        tensors = tensors_in(args, kwargs)
        if call.kind == "reshape" and not args[0].is_complex():
            return self._reshape_in_place(func, call, args, kwargs)
        if kwargs.get("generator") is not None:
            self._say_once_of_generators(call)
        if call.name in LIKE and call.kind == "plain":
            return self._like(func, args, kwargs)
        if call.name not in RANDOM and not self.involved(tensors):
            result = self._constantly(func, call, tensors, args, kwargs)
            if result is not _UNSET:
                return result
        if self.host is not None and call.name == "copy_" and args[1].device.type != "meta":
            args = (args[0], self.host.moved(args[1]), *args[2:])  # as between any two devices
        if complexes.concerns(call, tensors, kwargs):
            self.origins.target = call.name
            return complexes.translate(self, func, call, args, kwargs)
        if func.overloadpacket.__name__ in dependent.OPERATIONS:
            dependent.refuse(func.overloadpacket.__name__, self.where())
        self.origins.target = call.name
        with self.located():
            return self._translate(func, call, args, kwargs)

    def _say_once_of_generators(self, call: Call) -> None:
        if not self._generators_told:
            self._generators_told = True
            warnings.warn(
                f"{self.where()}: generator= of {call.name} has no effect: the device draws its own numbers, from the "
                "seed of the program (poptorch.Options().randomSeed)",
                stacklevel=2,
            )

    def _translate(self, func: Any, call: Call, args: tuple, kwargs: dict) -> Any:
        if call.kind == "raw":
            self.e.name = call.name
            return call.rule(self, func, args, kwargs)
        if call.kind == "view":
            return self._view(func, call, args, kwargs)
        if call.rule is None:
            return self._decompose(func, call, args, kwargs)
        if call.kind == "inplace":
            value = self._apply(call.plain or func, call, args, kwargs, fallback=args[0])
            self.write(args[0], value if isinstance(value, Value) else value[0])
            return args[0]
        if call.kind == "out":
            return self._into(call, args, kwargs)
        outs = func(*metas(args), **metas(on_meta(kwargs)))
        return self._bind_all(outs, self._emit(call, outs, args, kwargs))

    def _emit(self, call: Call, outs: Any, args: tuple, kwargs: dict) -> Any:
        """Run a rule. ``outs``: the results as torch describes them."""
        self.e.name, self.e.meta = call.name, args
        self.e.outs = [machine_type(o) for o in (outs if isinstance(outs, tuple | list) else (outs,)) if o is not None]
        return call.rule(self.e, *self._values(args), **self._values(without_places(kwargs)))

    def _apply(self, plain: Any, call: Call, args: tuple, kwargs: dict, fallback: torch.Tensor) -> Any:
        """The value that an in-place form writes: computed as the plain form would."""
        outs: Any = fallback
        if plain is not None and not str(plain._schema.name).endswith("_"):
            outs = plain(*metas(args), **metas(on_meta(kwargs)))
        return self._emit(call, outs, args, kwargs)

    def _into(self, call: Call, args: tuple, kwargs: dict) -> Any:
        targets = {k: kwargs[k] for k in out_names(call.plain[1])}
        rest = {k: v for k, v in kwargs.items() if k not in targets}
        if rest.get("dtype") is None and any(a.name == "dtype" for a in call.plain[0]._schema.arguments):
            rest["dtype"] = next(iter(targets.values())).dtype  # what out= holds is the type to compute in
        outs = call.plain[0](*metas(args), **metas(on_meta(rest)))
        values = self._emit(call, outs, args, rest)
        values = values if isinstance(values, tuple) else (values,)
        for target, value in zip(targets.values(), values, strict=True):
            self.write_out(target, value)
        return tuple(targets.values()) if len(targets) > 1 else next(iter(targets.values()))

    def write_out(self, target: torch.Tensor, value: Value) -> torch.Tensor:
        """Give the ``out=`` of a call its value; returns it. Unlike torch's, it is never resized."""
        if target.shape != value.shape:
            raise Unsupported(
                f"out= has shape {list(target.shape)} where the result has {list(value.shape)}",
                where=self.where(),
                remedy="Give out= a tensor of the result's shape, or leave it away.",
            )
        self.write(target, value)
        return target

    def _view(self, func: Any, call: Call, args: tuple, kwargs: dict) -> Any:
        result = func(*args, **kwargs)
        source = args[0]
        several = isinstance(result, tuple | list)
        results = list(result) if several else [result]
        for index, (read, write) in enumerate(call.rule(source, args[1:], kwargs)):
            results[index] = self.view_of(results[index], source, read, write)
            # Read now, at the user's line, except what may never be read at all.
            if self.places.knows(source) and self.places.root_of(source).value is not None:
                self.places.read(results[index])
        return type(result)(results) if several else results[0]

    def view_of(self, result: torch.Tensor, source: torch.Tensor, read: Read, write: Write) -> torch.Tensor:
        """``result``, or a tensor like it, as a view of ``source``; no gradient flows through it where they stop."""
        if self.places.knows(source) and self._gradients_stop():
            return self.view_apart(result, source, read, write)
        self.places.add_view(result, source, read, write)
        return result

    def view_apart(self, result: torch.Tensor, source: torch.Tensor, read: Read, write: Write) -> torch.Tensor:
        """A view through which no gradient flows: in torch's memory apart from its source, or both were one place."""
        apart = self.plainly(twin, result)
        self.places.add_view(
            apart,
            source,
            lambda e, x: self.stop_gradient(read(e, x)),
            lambda e, x, new: self.straight_through(write(e, x, new), x),
        )
        return apart

    def _reshape_in_place(self, func: Any, call: Call, args: tuple, kwargs: dict) -> Any:
        """``x.unsqueeze_(0)``: the tensor itself becomes a view of what it was."""
        target = args[0]
        if target.device.type != "meta" and target.untyped_storage()._cdata not in self._local:
            raise Unsupported(
                f"{func.overloadpacket.__name__} changes the shape of a tensor of the program itself",
                where=self.where(),
                remedy=f"Use {func.overloadpacket.__name__.rstrip('_')}, which makes a view.",
            )
        before = place_of(target)
        (read, write), *_ = call.rule(target, args[1:], kwargs)
        if not self.places.knows(target):
            self._constant_roots.setdefault(before, target.alias())
        func(*args, **kwargs)
        after = place_of(target)
        if after not in self.places.roots and after not in self.places.views and after != before:
            self.places.remember_view(after, before, read, write)
        return target

    def _decompose(self, func: Any, call: Call, args: tuple, kwargs: dict) -> Any:
        """An operation without a rule: by torch's own decomposition, if it has one."""
        table = decompositions()
        found = table.get(func)
        if found is not None:
            with self:
                return found(*args, **kwargs)
        if call.kind == "inplace" and call.plain is not None:
            with self:
                self.write(args[0], self.read(call.plain(*args, **kwargs)))
            return args[0]
        if call.kind == "out" and call.plain and call.plain[0] is not None:
            names = out_names(func)
            with self:
                made = call.plain[0](*args, **{k: v for k, v in kwargs.items() if k not in names})
            for name, one in zip(names, made if isinstance(made, tuple) else (made,), strict=True):
                self.write_out(kwargs[name], self.read(one))
            return tuple(kwargs[n] for n in names) if len(names) > 1 else kwargs[names[0]]
        with self:
            result = func.decompose(*args, **kwargs)
        if result is not NotImplemented:
            return result
        name = func.overloadpacket.__name__
        raise Unsupported(
            f"The operation {func.namespace}::{name} has no rule in the importer",
            where=self.where(),
            remedy=dependent.INSTEAD.get(name, "Write it with other operations of torch, or as a custom operator."),
        )

    def _bind_all(self, outs: Any, values: Any) -> Any:
        if isinstance(outs, torch.Tensor):
            return self.bind(outs, values if isinstance(values, Value) else values[0])
        rest = iter(values if isinstance(values, tuple | list) else (values,))
        return type(outs)([None if o is None else self.bind(o, next(rest)) for o in outs])

    def _values(self, data: Any) -> Any:
        """Arguments with values in the place of tensors."""
        if isinstance(data, torch.Tensor):
            return self.read(data)
        if isinstance(data, tuple | list):
            return type(data)(self._values(d) for d in data)
        if isinstance(data, dict):
            return {k: self._values(v) for k, v in data.items()}
        return data

    # Tensors that depend on nothing

    def _constantly(self, func: Any, call: Call, tensors: list, args: tuple, kwargs: dict) -> Any:
        """Compute what depends on nothing for real, unless it is large."""
        if any(t.device.type == "meta" for t in tensors):
            return _UNSET
        written = args[0] if call.kind == "inplace" else kwargs.get("out")
        if isinstance(written, torch.Tensor):
            self._keep_before(written.untyped_storage())
        if call.name in CREATION and not tensors and call.rule is not None:
            meta = func(*args, **(kwargs | {"device": "meta"}))
            if meta.numel() >= LARGE:
                with self.located():
                    return self.bind(meta, self._emit(call, meta, args, kwargs))
        on_meta = kwargs.get("device") is not None and torch.device(kwargs["device"]).type == "meta"
        if on_meta:
            kwargs = kwargs | {"device": torch.device("cpu")}
        result = func(*args, **kwargs)
        if call.name in ("empty", "empty_strided") and result.dtype is not torch.bool:
            result.zero_()  # its values are arbitrary: let them be the same every time
        if call.kind == "view":
            self._view_of_constant(call, args, kwargs, result)
        given = {t.untyped_storage()._cdata for t in tensors}
        for one in tensors_in((result,), {}):
            storage = one.untyped_storage()
            if storage._cdata not in given:
                self._local.setdefault(storage._cdata, storage)
        if self.host is not None:
            self.host.made(tensors_in((result,), {}), tensors, lifted=call.name in ("lift", "lift_fresh"))
        return self.handle(result) if on_meta else result

    def _keep_before(self, storage: torch.UntypedStorage) -> None:
        """Keep what a tensor of the user's holds before it is written for the first time."""
        if storage._cdata not in self._local and storage._cdata not in self._theirs:
            self._theirs[storage._cdata] = (storage, storage.clone())

    def put_back(self) -> None:
        """Give tensors of the user's, which the program has written known values into, those that they had before."""
        for storage, before in self._theirs.values():
            storage.copy_(before)

    def _view_of_constant(self, call: Call, args: tuple, kwargs: dict, result: Any) -> None:
        """Remember how a constant's view is made, in case the constant is written later with a value."""
        results = result if isinstance(result, tuple | list) else [result]
        source, above = args[0], place_of(args[0])
        if above not in self.places.views:
            self._constant_roots.setdefault(above, source)
        for one, (read, write) in zip(results, call.rule(source, args[1:], kwargs), strict=True):
            place = place_of(one)
            if place not in self._constant_roots and place not in self.places.views:
                self.places.remember_view(place, above, read, write)

    def _like(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """A new tensor shaped by another, whose values do not matter."""
        meta = func(*metas(args), **metas(on_meta(kwargs)))
        if meta.numel() >= LARGE:
            call = describe(func)
            with self.located():
                return self.bind(meta, self._emit(call, meta, args, kwargs))
        result = func(*metas(args), **(kwargs | {"device": torch.device("cpu")}))
        if "empty" in func.overloadpacket.__name__:
            result.zero_()
        self._local.setdefault(result.untyped_storage()._cdata, result.untyped_storage())
        if self.host is not None:
            self.host.move([result])
        return result

    # The end

    def finish(self, outputs: Sequence[Value], ports: Sequence[Port], order: Callable[[Port], Any]) -> Graph:
        """The graph, without the operations that nothing needs."""
        b = self.e.b
        b.operations = needed([*self.prologue, *b.operations], outputs)
        used = {v for op in b.operations for v in op.operands} | set(outputs)
        written = {p.name for p in ports if p.kind == "state"}
        kept = [(p, v) for p, v in self.inputs if p.kind != "state" or v in used or p.name in written]
        inputs = sorted(kept, key=lambda item: order(item[0]))
        b.input_ports, b.inputs = [p for p, _ in inputs], [v for _, v in inputs]
        return b.finish(outputs, ports)


def needed(operations: Sequence[Operation], outputs: Sequence[Value]) -> list[Operation]:
    """The operations on which outputs or effects depend, in order."""
    alive, kept = set(outputs), []
    for op in reversed(operations):
        if not alive.isdisjoint(op.results) or (op.name not in ("call", "repeat") and lookup(op.name).effect):
            kept.append(op)
            alive.update(op.operands)
    return kept[::-1]
