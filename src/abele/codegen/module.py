"""Kernels and the library that compiles them, with a cache of object code on disk.

A :class:`Kernel` is named by a hash of its text, so equal kernels are compiled once however often they are
asked for. A :class:`Library` is one LLVM module: compiled, or read back from the cache, as a whole.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import llvmlite
import llvmlite.binding as llvm
import numpy as np

from abele.codegen.emit import Function
from abele.codegen.host import Host, host
from abele.codegen.store import Store

Pointer = int | np.ndarray

_SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_RUN_STEPS = "abele_run_steps"


@dataclass(frozen=True, slots=True)
class Kernel:
    """LLVM text of one native function ``void (void **pointers, int64 begin, int64 end)``.

    Attributes:
        name: the symbol, a hash of the text.
        text: the function.
        pointers: how many addresses it takes.
        units: independent pieces of work; a call does those of ``[begin, end)``.
        grain: where a range may be cut: multiples of this give the same bits as one call, at full speed.
        workspace: bytes behind the last pointer, 0 when there is no workspace pointer.
        cost: about how many floating-point or memory operations one unit is, to decide on threads.
    """

    name: str
    text: str
    pointers: int
    units: int
    grain: int = 1
    workspace: int = 0
    cost: int = 1


def start() -> Function:
    """A function with the common signature, to be ended with :func:`finish`."""
    return Function("kernel", ("ptr", "i64", "i64"))


def finish(
    fn: Function,
    prefix: str,
    pointers: int,
    units: int,
    *,
    grain: int = 1,
    cost: int = 1,
    target: Host | None = None,
) -> Kernel:
    """Names what :func:`start` began by its content and makes the kernel."""
    bits = (target or host()).vector_bits
    # Without these, processors that prefer narrow vectors would get them.
    fn.attributes = f'nounwind "min-legal-vector-width"="{bits}" "prefer-vector-width"="{bits}"'
    digest = hashlib.sha256(fn.text().encode()).hexdigest()[:16]
    fn.name = f"{prefix}_{digest}"
    return Kernel(fn.name, fn.text(), pointers, units, grain, 0, cost)


def arguments(fn: Function, count: int) -> list:
    """The ``count`` addresses that the first parameter points at."""
    return [fn.load("ptr", fn.offset(fn.parameters[0], i, "ptr")) for i in range(count)]


def _steps_text() -> str:
    """A loop over a table of (function, pointers, begin, end)."""
    fn = Function(_RUN_STEPS, ("ptr", "i64", "i64"))
    table, first, last = fn.parameters

    def step(i):
        row = fn.offset(table, i * 4, "i64")
        code, pointers = fn.load("ptr", row), fn.load("ptr", fn.offset(row, 1, "i64"))
        begin, end = fn.load("i64", fn.offset(row, 2, "i64")), fn.load("i64", fn.offset(row, 3, "i64"))
        fn.do(f"call void {code.text}(ptr {pointers.text}, i64 {begin.text}, i64 {end.text})")

    fn.loop(first, last, 1, [], step)
    return fn.text()


class Library:
    """Compiles kernels together and gives their addresses.

    Args:
        kernels: any number, repeats allowed.
        cache: a directory for object code, made when missing; None keeps nothing. A directory that cannot be
            written is done without; an entry that cannot be read back is moved aside with a warning.
        target: the processor; this computer's unless a test says otherwise.
    """

    def __init__(
        self,
        kernels: Iterable[Kernel | Iterable[Kernel]],
        cache: str | os.PathLike[str] | None = None,
        target: Host | None = None,
    ) -> None:
        self.target = target or host()
        unique: dict[str, Kernel] = {}
        for entry in kernels:
            for kernel in (entry,) if isinstance(entry, Kernel) else entry:
                unique[kernel.name] = kernel
        names = sorted(unique)
        self.text = "\n\n".join([_steps_text(), *(unique[n].text for n in names)])
        key = "\0".join([self.text, self.target.cpu, self.target.features, llvmlite.__version__])
        self.key = hashlib.sha256(key.encode()).hexdigest()
        self.from_cache = False
        store = Store(cache, ".o") if cache is not None else None
        code = store.get(self.key) if store else None
        if code is None:
            code = self._compile()
            if store:
                store.put(self.key, code)
        else:
            self.from_cache = True
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), self._machine())
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        self._addresses = {n: self._engine.get_function_address(n) for n in [*names, _RUN_STEPS]}

    def _machine(self) -> llvm.TargetMachine:
        target = llvm.Target.from_triple(llvm.get_process_triple())
        return target.create_target_machine(cpu=self.target.cpu, features=self.target.features, opt=3, jit=True)

    def _compile(self) -> bytes:
        machine = self._machine()
        module = llvm.parse_assembly(self.text)
        module.triple = llvm.get_process_triple()
        module.data_layout = str(machine.target_data)
        # The kernels are already written in vectors and blocks: the usual pipeline takes ten times as long as
        # these two passes and its code is no faster.
        builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options())
        passes = llvm.create_new_function_pass_manager()
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
        for function in module.functions:
            if not function.is_declaration:
                passes.run(function, builder)
        return machine.emit_object(module)

    def address(self, kernel: Kernel | str) -> int:
        """The native address of a kernel (or of the step runner, by name)."""
        return self._addresses[kernel if isinstance(kernel, str) else kernel.name]

    def function(self, kernel: Kernel):
        """A ctypes function ``(pointer_table, begin, end)``."""
        return _SIGNATURE(self.address(kernel))

    def call(
        self,
        kernels: Kernel | Sequence[Kernel],
        pointers: Sequence[Pointer],
        begin: int = 0,
        end: int | None = None,
    ) -> None:
        """Runs a kernel, or a tuple of them in order, over ``[begin, end)`` (all units by default).

        Allocates the pointer table, and the workspace when ``pointers`` leaves it out: for tests and one-off
        calls. A program that runs often keeps tables of its own, see :class:`Steps`.
        """
        for kernel in (kernels,) if isinstance(kernels, Kernel) else kernels:
            given = list(pointers)
            if kernel.workspace and len(given) == kernel.pointers - 1:
                pointers = [*given, np.empty(kernel.workspace, np.uint8)]
                given = list(pointers)
            if len(given) != kernel.pointers:
                raise ValueError(f"{kernel.name} takes {kernel.pointers} pointers, not {len(given)}")
            table = pointer_table(given)
            self.function(kernel)(table.ctypes.data, begin, kernel.units if end is None else end)


def pointer_table(pointers: Sequence[Pointer]) -> np.ndarray:
    """The addresses of arrays (or given addresses) as a kernel wants them."""
    return np.array([p if isinstance(p, int) else p.ctypes.data for p in pointers], np.uintp)


class Steps:
    """A fixed list of kernel calls that runs as one native call.

    Args:
        library: where the kernels were compiled.
        calls: (kernel, pointers, begin, end) in order. The arrays among the pointers are kept alive.
    """

    def __init__(self, library: Library, calls: Sequence[tuple[Kernel, Sequence[Pointer], int, int]]) -> None:
        self._keep = (library, [list(pointers) for _, pointers, _, _ in calls])
        self._tables = [pointer_table(pointers) for _, pointers, _, _ in calls]
        rows = [
            (library.address(kernel), table.ctypes.data, begin, end)
            for (kernel, _, begin, end), table in zip(calls, self._tables, strict=True)
        ]
        self.table = np.array(rows, np.int64).reshape(len(rows), 4)
        self._run = _SIGNATURE(library.address(_RUN_STEPS))

    def run(self, begin: int = 0, end: int | None = None) -> None:
        """Runs the calls ``[begin, end)`` of the list, all by default. Releases Python's lock."""
        self._run(self.table.ctypes.data, begin, len(self.table) if end is None else end)
