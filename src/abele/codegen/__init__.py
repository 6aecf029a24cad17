"""LLVM kernels for the computer at hand: fused maps, reductions, norms, indexing, matrix products.

The room knows nothing of graphs. A caller describes a kernel with plain records, gets a :class:`Kernel` (LLVM
text plus how to call it), and compiles many of them at once with :class:`Library`.

**Calling.** Every kernel has the same native signature::

    void kernel(void **pointers, int64_t begin, int64_t end)

``pointers`` is an array of addresses in the order that the function which made the kernel documents. The work
is ``kernel.units`` independent units; a call does the units ``begin <= u < end``, so a thread pool may split
``[0, units)`` at multiples of ``kernel.grain`` in any way and the result has the same bits. Kernels allocate
nothing and call no library. A function that returns a *tuple* of kernels wants them run in order, all units of
one before any of the next, each with the same pointers.

**Dtypes.** ``"f32"``, ``"f16"`` (held in memory as float32 whose values lie on the half grid; every result is
rounded to it, to nearest even), ``"i8"``, ``"u8"``, ``"i16"``, ``"i32"``, ``"u32"``, ``"i64"``, ``"bool"``
(one byte, 0 or 1). Strides count elements, not bytes; stride 0 broadcasts.

**Expressions.** ``Expr(fn, args, dtype, **attrs)`` is a node of a scalar program. With ``n`` operands, numbers
``0 .. n-1`` in ``args`` are the operands and ``n + j`` is the ``j``-th node of the list. A constant is
``Expr("const", (), "f32", value=0.5)``; ``Expr("index", (), "i32")`` is the element's row-major position and
``Expr("index", (), "i32", dim=1)`` its coordinate in one dimension (arange, one-hot, causal masks). The
function names are ``abele.codegen.expression.FUNCTIONS``. An operand that is one run-time number (a learning
rate, a seed) is an operand with strides 0.

Example: ``y = gelu(x + bias)`` for x ``[128, 3072]``::

    from abele.codegen import Expr, Library, Operand, map_kernel

    kernel = map_kernel(
        (128, 3072),
        [Operand("f32", (3072, 1)), Operand("f32", (0, 1))],
        [Expr("add", (0, 1), "f32"), Expr("gelu", (2,), "f32")],
        [Output(3, "f32", (3072, 1))],
    )
    library = Library([kernel, ...], cache="/home/me/.cache/abele")   # cache=None: no disk
    library.call(kernel, [x, bias, y])              # NumPy arrays or int addresses; all units
    address = library.address(kernel)               # for a native step table, see Steps

**Maps** (``map.py``): ``map_kernel(shape, operands, exprs, outputs) -> Kernel``; pointers: operands, then
outputs. An output may be the same memory as an operand of equal strides. Several outputs are allowed
(optimiser updates).

**Reductions** (``reduce.py``): ``reduce_kernels(shape, axes, operands, exprs, outputs, stash=())`` ``-> tuple``.
The same expressions, in which ``Expr("reduce_sum", (i,), "f32")`` (also ``reduce_max``, ``reduce_min``,
``reduce_prod``, ``reduce_any``, ``reduce_all``, ``reduce_argmax``, ``reduce_argmin``) reduces node ``i`` over
``axes``; what is computed from reduced values alone is one value per kept position, anything else is one per
element. Reductions may feed further reductions, so softmax, norms and their gradients are one kernel. Outputs
of reduced values have stride 0 on ``axes``. ``stash`` lists ``(node, output)`` pairs: keep that element node in
the output's memory between passes in place of computing it again. Pointers: operands, outputs, and last a
workspace of ``kernel.workspace`` bytes where that is not 0. Softmax over the last axis::

    reduce_kernels((rows, n), (1,), [Operand("f32", (n, 1))], [
        Expr("reduce_max", (0,), "f32"),   # 1
        Expr("sub", (0, 1), "f32"),        # 2
        Expr("exp", (2,), "f32"),          # 3
        Expr("reduce_sum", (3,), "f32"),   # 4
        Expr("div", (3, 4), "f32"),        # 5
    ], [Output(5, "f32", (n, 1))], stash=((3, 0),))

``reduction("mean", shape, axes, operand, output, "f32")`` is the plain case (sum, mean, prod, max, min, any, all,
argmax, argmin, sum_squares; the output's ``node`` is ignored).

**Norms** (``norms.py``, also recipes to copy when something is fused in front or behind): ``softmax``,
``softmax_gradient``, ``norm``, ``norm_gradient``, ``affine_gradient`` (layer, batch, instance and RMS norm are
one function with other axes); pointers in each docstring.

**Indexing** (``indexing.py``): ``copy_kernel`` (any strides; transposes in blocks), ``gather_kernel`` and
``scatter_kernel`` (whole rows along an axis), ``take_kernel`` and ``put_kernel`` (one index per element). Slices,
padding and concatenation are copies with strides and an address inside the array. Fill and one-hot are maps.

**Matrix products** (``gemm.py``): ``pack_kernel(k, n, strides, batch)`` lays B out in panels once
(``packed_floats(k, n)`` floats per matrix); ``gemm_kernel(m, n, k, a, outputs, b=None, batch=(), operands=(),
exprs=())`` multiplies by it, or by an unpacked B with contiguous rows (``b=`` strides). Node 0 is the product,
nodes 1.. are the operands, strided over ``(*batch, m, n)``. Linear with bias and GELU, x ``[128, 768]``, weight
``[3072, 768]`` as torch keeps it::

    pack = pack_kernel(768, 3072, strides=(1, 768))
    gemm = gemm_kernel(128, 3072, 768, (768, 1), [Output(3, "f32", (3072, 1))],
                       operands=[Operand("f32", (0, 1))],
                       exprs=[Expr("add", (0, 1), "f32"), Expr("gelu", (2,), "f32")])
    library.call(pack, [weight, packed]); library.call(gemm, [x, packed, bias, y])

**Convolutions** (``conv.py``): ``Convolution(...)`` is the shape; ``conv_kernel(c, outputs, operands, exprs)`` runs
over a channels-last image that carries its border of zeros, ``weight_pack_kernel(c, strides)`` packs the weights,
``place_kernel`` copies an image of any layout into the padded buffer, ``weight_gradient_kernel(c)`` is the gradient
by the weights, ``input_gradient(c)`` the convolution that is the gradient by the input.
``channels_first_kernel(c, outputs, ...)`` needs neither packing nor another layout and is as fast where rows are
long. Depthwise convolutions and pooling are ``reduce_kernels`` over ``(image, y, x, channel, ky, kx)`` with strides
that overlap.

**Random numbers** (``random.py``): ``uniform_kernel`` and ``normal_kernel``, Philox4x32-10 by element number.

**Step tables**: ``Steps(library, [(kernel, pointers, begin, end), ...]).run()`` runs a whole list of kernels
in one native call.
"""

from abele.codegen.contract import contract_kernel, packed_floats
from abele.codegen.expression import FUNCTIONS, Expr, Operand, Output
from abele.codegen.gemm import gemm_kernel, pack_kernel
from abele.codegen.host import Host, host
from abele.codegen.indexing import copy_kernel, gather_kernel, put_kernel, scatter_kernel, take_kernel
from abele.codegen.map import map_kernel
from abele.codegen.module import Kernel, Library, Steps, pointer_table, with_units
from abele.codegen.reduce import reduce_kernels, reduction

__all__ = [
    "FUNCTIONS",
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
    "with_units",
]
