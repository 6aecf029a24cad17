"""LLVM kernels for the computer at hand: fused maps, reductions, indexing, matrix products.

The room knows nothing of graphs. A caller describes a kernel with plain records, gets a :class:`Kernel` (LLVM text plus
how to call it), and compiles many of them at once with :class:`Library`. Each module's docstring says what its
kernels take: ``map``, ``reduce``, ``indexing``, ``gemm``; ``recipe`` helps to write expressions.

**Calling.** Every kernel has the same native signature::

    void kernel(void **pointers, int64_t begin, int64_t end)

``pointers`` is an array of addresses in the order that the function which made the kernel documents. The work is
``kernel.units`` independent units; a call does the units ``begin <= u < end``, so a thread pool may split them at
multiples of ``kernel.grain`` in any way and the result has the same bits. Kernels allocate nothing and call no
library. A function that returns a *tuple* of kernels wants them run in order, each with the same pointers. ``Steps``
runs a whole list of kernels in one native call.

**Dtypes.** ``"f32"``, ``"f16"`` (held in memory as float32 whose values lie on the half grid; every result is rounded
to it, to nearest even), ``"i8"``, ``"u8"``, ``"i16"``, ``"i32"``, ``"u32"``, ``"i64"``, ``"bool"`` (one byte, 0 or 1).
Strides count elements, not bytes; stride 0 broadcasts.

**Expressions.** ``Expr(fn, args, dtype, **attrs)`` is a node of a scalar program. With ``n`` operands, numbers
``0 .. n-1`` in ``args`` are the operands and ``n + j`` is the ``j``-th node of the list. A constant is
``Expr("const", (), "f32", value=0.5)``; ``Expr("index", (), "i32")`` is the element's row-major position, with
``dim=1`` its coordinate in one dimension. The names are those of ``FUNCTIONS``.
``y = relu(x + bias)`` for x ``[128, 3072]``::

    kernel = map_kernel(
        (128, 3072),
        [Operand("f32", (3072, 1)), Operand("f32", (0, 1))],
        [Expr("add", (0, 1), "f32"), Expr("relu", (2,), "f32")],
        [Output(3, "f32", (3072, 1))],
    )
    Library([kernel], cache=directory).call(kernel, [x, bias, y])
"""

from abele.codegen.contract import contract_kernel, packed_floats
from abele.codegen.expression import FUNCTIONS, ROUND_TO_FLOAT8, Expr, Operand, Output
from abele.codegen.gemm import gemm_kernel, pack_kernel
from abele.codegen.host import Host, host
from abele.codegen.indexing import copy_kernel, gather_kernel, put_kernel, scatter_kernel, take_kernel
from abele.codegen.map import map_kernel
from abele.codegen.module import Kernel, Library, Steps, pointer_table
from abele.codegen.reduce import reduce_kernels, reduction

__all__ = [
    "FUNCTIONS",
    "ROUND_TO_FLOAT8",
    "Expr",
    "Host",
    "Kernel",
    "Library",
    "Operand",
    "Output",
    "Steps",
    "contract_kernel",
    "copy_kernel",
    "gather_kernel",
    "gemm_kernel",
    "host",
    "map_kernel",
    "pack_kernel",
    "packed_floats",
    "pointer_table",
    "put_kernel",
    "reduce_kernels",
    "reduction",
    "scatter_kernel",
    "take_kernel",
]
