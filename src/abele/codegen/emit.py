"""A small writer of LLVM functions: typed values with operators, loops that carry values, branches.

A :class:`Value` is a scalar or a vector in SSA form; Python's operators on it emit instructions, and a plain
Python number beside it becomes a constant of the same type. Arithmetic is strict: nothing is contracted or
reordered behind the caller's back, so a kernel's bits do not depend on what surrounds an expression.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

Number = int | float | bool


def vector(type: str, lanes: int) -> str:
    """The LLVM type of ``lanes`` values of ``type`` (the type itself for one lane)."""
    return type if lanes == 1 else f"<{lanes} x {type}>"


def element(type: str) -> str:
    """The scalar type under a vector type."""
    return type.split(" x ")[1][:-1] if type.startswith("<") else type


def lanes_of(type: str) -> int:
    """How many lanes a type has."""
    return int(type[1:].split(" x ")[0]) if type.startswith("<") else 1


def mangled(type: str) -> str:
    """A type as it is spelled in the name of an intrinsic: ``v16f32``, ``i64``, ``p0``."""
    scalar = {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}.get(element(type), element(type))
    return f"v{lanes_of(type)}{scalar}" if type.startswith("<") else scalar


def literal(value: Number, type: str) -> str:
    """A constant of ``type`` as LLVM spells it."""
    scalar = element(type)
    if scalar in ("float", "double"):
        number = float(value)
        if scalar == "float":
            try:
                number = struct.unpack("f", struct.pack("f", number))[0]
            except OverflowError:
                number = float("inf") if number > 0 else float("-inf")
        text = "0x" + struct.pack(">d", number).hex().upper()
    elif scalar == "i1":
        text = "true" if value else "false"
    else:
        bits = int(scalar[1:])
        number = int(value) & ((1 << bits) - 1)
        text = str(number - (1 << bits) if number >> (bits - 1) else number)
    return f"splat ({scalar} {text})" if type.startswith("<") else text


class Value:
    """A value of an LLVM type inside a :class:`Function`."""

    __slots__ = ("fn", "text", "type")

    def __init__(self, fn: Function, type: str, text: str) -> None:
        self.fn, self.type, self.text = fn, type, text

    @property
    def is_float(self) -> bool:
        return element(self.type) in ("float", "double", "half")

    def like(self, other: Value | Number) -> Value:
        """``other`` as a value of this one's type."""
        return other if isinstance(other, Value) else self.fn.const(other, self.type)

    def _binary(self, for_float: str, for_int: str, left: Value | Number, right: Value | Number) -> Value:
        a, b = self.like(left), self.like(right)
        return self.fn.emit(self.type, f"{for_float if self.is_float else for_int} {self.type} {a.text}, {b.text}")

    def __add__(self, other: Value | Number) -> Value:
        return self._binary("fadd", "add", self, other)

    def __radd__(self, other: Number) -> Value:
        return self._binary("fadd", "add", other, self)

    def __sub__(self, other: Value | Number) -> Value:
        return self._binary("fsub", "sub", self, other)

    def __rsub__(self, other: Number) -> Value:
        return self._binary("fsub", "sub", other, self)

    def __mul__(self, other: Value | Number) -> Value:
        return self._binary("fmul", "mul", self, other)

    def __rmul__(self, other: Number) -> Value:
        return self._binary("fmul", "mul", other, self)

    def __truediv__(self, other: Value | Number) -> Value:
        return self._binary("fdiv", "sdiv", self, other)

    def __rtruediv__(self, other: Number) -> Value:
        return self._binary("fdiv", "sdiv", other, self)

    def __mod__(self, other: Value | Number) -> Value:
        return self._binary("frem", "srem", self, other)

    def __and__(self, other: Value | Number) -> Value:
        return self._binary("", "and", self, other)

    def __or__(self, other: Value | Number) -> Value:
        return self._binary("", "or", self, other)

    def __xor__(self, other: Value | Number) -> Value:
        return self._binary("", "xor", self, other)

    def __lshift__(self, other: Value | Number) -> Value:
        return self._binary("", "shl", self, other)

    def __rshift__(self, other: Value | Number) -> Value:
        """Arithmetic shift; :meth:`logical_shift` brings in zeros."""
        return self._binary("", "ashr", self, other)

    def logical_shift(self, other: Value | Number) -> Value:
        return self._binary("", "lshr", self, other)

    def __neg__(self) -> Value:
        return self.fn.emit(self.type, f"fneg {self.type} {self.text}") if self.is_float else 0 - self

    def __invert__(self) -> Value:
        return self ^ -1

    def compare(self, how: str, other: Value | Number) -> Value:
        """``how`` is ``eq ne lt le gt ge`` (ordered; ``ne`` true on nan), or ``uno`` (either is nan)."""
        if self.is_float:
            op = "fcmp " + {"ne": "une", "uno": "uno"}.get(how, "o" + how)
        else:
            unsigned = element(self.type) in ("i1", "ptr")
            op = "icmp " + (how if how in ("eq", "ne") else ("u" if unsigned else "s") + how)
        return self.fn.emit(vector("i1", lanes_of(self.type)), f"{op} {self.type} {self.text}, {self.like(other).text}")

    def __lt__(self, other: Value | Number) -> Value:
        return self.compare("lt", other)

    def __le__(self, other: Value | Number) -> Value:
        return self.compare("le", other)

    def __gt__(self, other: Value | Number) -> Value:
        return self.compare("gt", other)

    def __ge__(self, other: Value | Number) -> Value:
        return self.compare("ge", other)

    def fma(self, factor: Value | Number, addend: Value | Number) -> Value:
        """``self * factor + addend``, fused where the processor fuses."""
        return self.fn.intrinsic("fmuladd", self, self.like(factor), self.like(addend))

    def select(self, yes: Value | Number, no: Value | Number) -> Value:
        """``yes`` where this truth value holds, else ``no``; one of the two must be a value."""
        known = yes if isinstance(yes, Value) else no
        assert isinstance(known, Value)
        a, b = known.like(yes), known.like(no)
        return self.fn.emit(a.type, f"select {self.type} {self.text}, {a.type} {a.text}, {b.type} {b.text}")

    def convert(self, how: str, scalar: str) -> Value:
        """An LLVM conversion (``fptrunc``, ``sext``, ``bitcast`` ...) to ``scalar``, lane by lane."""
        type = vector(scalar, lanes_of(self.type))
        return self if type == self.type else self.fn.emit(type, f"{how} {self.type} {self.text} to {type}")

    def bits(self, scalar: str) -> Value:
        """The same bits read as ``scalar``."""
        return self.convert("bitcast", scalar)

    def splat(self, lanes: int) -> Value:
        """This scalar in every lane."""
        if lanes == 1:
            return self
        type = vector(self.type, lanes)
        one = self.fn.emit(type, f"insertelement {type} poison, {self.type} {self.text}, i64 0")
        return self.fn.emit(type, f"shufflevector {type} {one.text}, {type} poison, <{lanes} x i32> zeroinitializer")

    def lane(self, index: int | Value) -> Value:
        """One lane as a scalar."""
        if not self.type.startswith("<"):
            return self
        which = index.text if isinstance(index, Value) else str(index)
        return self.fn.emit(element(self.type), f"extractelement {self.type} {self.text}, i64 {which}")

    def shuffle(self, order: Sequence[int], other: Value | None = None) -> Value:
        """A vector of the lanes named by ``order`` (those of ``other`` are counted after this one's)."""
        b = other.text if other else "poison"
        type = f"<{len(order)} x {element(self.type)}>"
        mask = ", ".join(f"i32 {i}" for i in order)
        return self.fn.emit(
            type, f"shufflevector {self.type} {self.text}, {self.type} {b}, <{len(order)} x i32> <{mask}>"
        )


class Function:
    """Writes one ``void`` LLVM function; :attr:`parameters` are its arguments in order."""

    def __init__(self, name: str, types: Sequence[str]) -> None:
        self.name = name
        self.attributes = ""
        self._lines: list[str] = []
        self._locals: list[str] = []
        self._block = "entry"
        self._count = 0
        self.parameters = [Value(self, type, f"%p{i}") for i, type in enumerate(types)]

    def text(self) -> str:
        """The finished function."""
        signature = ", ".join(f"{v.type} {v.text}" for v in self.parameters)
        head = f"define void @{self.name}({signature}) {self.attributes} {{"
        return "\n".join([head, "entry:", *self._locals, *self._lines, "  ret void", "}"])

    def emit(self, type: str, instruction: str) -> Value:
        """Appends ``%new = instruction``."""
        self._count += 1
        name = f"%v{self._count}"
        self._lines.append(f"  {name} = {instruction}")
        return Value(self, type, name)

    def stack(self, type: str) -> Value:
        """Memory of this call, taken once at its start however often the place is passed."""
        self._count += 1
        name = f"%v{self._count}"
        self._locals.append(f"  {name} = alloca {type}, align 64")
        return Value(self, "ptr", name)

    def do(self, instruction: str) -> None:
        """Appends an instruction without a result."""
        self._lines.append("  " + instruction)

    def const(self, value: Number, type: str) -> Value:
        return Value(self, type, literal(value, type))

    def zero(self, type: str) -> Value:
        return Value(self, type, "zeroinitializer" if type.startswith("<") else literal(0, type))

    def lane_numbers(self, scalar: str, lanes: int) -> Value:
        """The vector 0, 1, 2, ... (0 for one lane)."""
        if lanes == 1:
            return self.const(0, scalar)
        return Value(self, vector(scalar, lanes), "<" + ", ".join(f"{scalar} {i}" for i in range(lanes)) + ">")

    def intrinsic(self, name: str, *arguments: Value) -> Value:
        """Calls ``llvm.name`` overloaded on the first argument's type, which is the result's too."""
        type = arguments[0].type
        listed = ", ".join(f"{a.type} {a.text}" for a in arguments)
        return self.emit(type, f"call {type} @llvm.{name}.{mangled(arguments[0].type)}({listed})")

    def offset(self, pointer: Value, count: Value | int, type: str) -> Value:
        """``pointer`` moved by ``count`` elements of ``type``."""
        if isinstance(count, int):
            if count == 0:
                return pointer
            count = self.const(count, "i64")
        return self.emit("ptr", f"getelementptr {type}, ptr {pointer.text}, i64 {count.text}")

    def load(self, type: str, pointer: Value, mask: Value | None = None) -> Value:
        """A load aligned as one element is; lanes that ``mask`` turns off read as zero."""
        align = size_of(element(type))
        if mask is None:
            return self.emit(type, f"load {type}, ptr {pointer.text}, align {align}")
        return self.emit(
            type,
            f"call {type} @llvm.masked.load.{mangled(type)}.p0("
            f"ptr align {align} {pointer.text}, {mask.type} {mask.text}, {type} zeroinitializer)",
        )

    def store(self, value: Value, pointer: Value, mask: Value | None = None) -> None:
        align = size_of(element(value.type))
        if mask is None:
            self.do(f"store {value.type} {value.text}, ptr {pointer.text}, align {align}")
        else:
            self.do(
                f"call void @llvm.masked.store.{mangled(value.type)}.p0({value.type} {value.text}, "
                f"ptr align {align} {pointer.text}, {mask.type} {mask.text})"
            )

    def gather(self, type: str, base: Value, offsets: Value, mask: Value) -> Value:
        """Loads ``base[offsets]`` lane by lane (offsets in elements)."""
        pointers = self._pointers(type, base, offsets)
        suffix = f"{mangled(type)}.{mangled(pointers.type)}"
        return self.emit(
            type,
            f"call {type} @llvm.masked.gather.{suffix}({pointers.type} align {size_of(element(type))} "
            f"{pointers.text}, {mask.type} {mask.text}, {type} zeroinitializer)",
        )

    def scatter(self, value: Value, base: Value, offsets: Value, mask: Value) -> None:
        """Stores lanes to ``base[offsets]``."""
        pointers = self._pointers(value.type, base, offsets)
        suffix = f"{mangled(value.type)}.{mangled(pointers.type)}"
        self.do(
            f"call void @llvm.masked.scatter.{suffix}({value.type} {value.text}, "
            f"{pointers.type} align {size_of(element(value.type))} {pointers.text}, {mask.type} {mask.text})"
        )

    def _pointers(self, type: str, base: Value, offsets: Value) -> Value:
        return self.emit(
            vector("ptr", lanes_of(type)),
            f"getelementptr {element(type)}, ptr {base.text}, {offsets.type} {offsets.text}",
        )

    def first_lanes(self, count: Value | int, lanes: int) -> Value:
        """A mask of the first ``count`` of ``lanes`` lanes."""
        if isinstance(count, int):
            bits = ", ".join("i1 true" if i < count else "i1 false" for i in range(lanes))
            return Value(self, vector("i1", lanes), f"<{bits}>" if lanes > 1 else str(count > 0).lower())
        small = count.convert("trunc", "i32") if count.type == "i64" else count
        return self.lane_numbers("i32", lanes) < small.splat(lanes)

    def _label(self, hint: str) -> str:
        self._count += 1
        return f"{hint}{self._count}"

    def _start(self, label: str) -> None:
        self._lines.append(f"{label}:")
        self._block = label

    def loop(
        self,
        begin: Value | int,
        end: Value | int,
        step: int,
        carried: Sequence[Value],
        body: Callable[..., Sequence[Value] | None],
    ) -> list[Value]:
        """``for i in range(begin, end, step): carried = body(i, *carried)``; gives the last ``carried``."""
        if isinstance(begin, int) and isinstance(end, int):
            if begin >= end:
                return list(carried)
            if begin + step >= end:
                return list(body(self.const(begin, "i64"), *carried) or ())
            guarded = False
        else:
            guarded = True
        first = begin if isinstance(begin, Value) else self.const(begin, "i64")
        last = end if isinstance(end, Value) else self.const(end, "i64")
        before, head, after = self._block, self._label("loop"), self._label("done")
        if guarded:
            enter = first < last
            self.do(f"br i1 {enter.text}, label %{head}, label %{after}")
        else:
            self.do(f"br label %{head}")
        self._start(head)
        slot = len(self._lines)
        self._lines.extend([""] * (1 + len(carried)))
        index = self._fresh("i64")
        inside = [self._fresh(v.type) for v in carried]
        results = list(body(index, *inside) or ())
        following = index + step
        again = following < last
        tail = self._block
        self.do(f"br i1 {again.text}, label %{head}, label %{after}")
        self._lines[slot] = f"  {index.text} = phi i64 [{first.text}, %{before}], [{following.text}, %{tail}]"
        for at, (phi, start, result) in enumerate(zip(inside, carried, results, strict=True), slot + 1):
            self._lines[at] = f"  {phi.text} = phi {phi.type} [{start.text}, %{before}], [{result.text}, %{tail}]"
        self._start(after)
        if not guarded:
            return results
        return [
            self.emit(r.type, f"phi {r.type} [{start.text}, %{before}], [{r.text}, %{tail}]")
            for start, r in zip(carried, results, strict=True)
        ]

    def _fresh(self, type: str) -> Value:
        self._count += 1
        return Value(self, type, f"%v{self._count}")

    def when(
        self,
        condition: Value,
        then: Callable[[], Sequence[Value] | None],
        otherwise: Callable[[], Sequence[Value] | None] | None = None,
    ) -> list[Value]:
        """A branch; both sides give as many values, which are merged."""
        yes, no, after = self._label("then"), self._label("else"), self._label("end")
        self.do(f"br i1 {condition.text}, label %{yes}, label %{no}")
        self._start(yes)
        left = list(then() or ())
        left_block = self._block
        self.do(f"br label %{after}")
        self._start(no)
        right = list((otherwise() if otherwise else None) or ())
        right_block = self._block
        self.do(f"br label %{after}")
        self._start(after)
        return [
            self.emit(a.type, f"phi {a.type} [{a.text}, %{left_block}], [{b.text}, %{right_block}]")
            for a, b in zip(left, right, strict=True)
        ]


def size_of(scalar: str) -> int:
    """Bytes of a scalar LLVM type in memory."""
    return {"float": 4, "double": 8, "half": 2, "ptr": 8, "i1": 1}.get(scalar) or int(scalar[1:]) // 8
