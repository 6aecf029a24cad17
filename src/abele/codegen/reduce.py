"""Reductions, alone or in a chain with elementwise work: sums, softmax, norms and their gradients.

A kernel is one expression list in which ``reduce_*`` nodes reduce over ``axes``. The nodes fall into levels: a
reduction is one level above what it reduces. Each level is one pass over the reduced elements; values that do
not vary along ``axes`` are computed once per kept position between the passes.

The last dimension (as the largest operand lies in memory) carries the vectors. When it is reduced, several
vector accumulators run along it and are folded in a fixed order; when it is kept, each lane owns a column. Sums
restart every few thousand elements and are added up block by block, and a large sum over few positions is split
into fixed chunks whose partial results a second kernel reduces: the error stays near that of pairwise summation
and the bits do not depend on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from abele.codegen.emit import element, size_of
from abele.codegen.expression import Expr, Operand, Output, load_type
from abele.codegen.host import Host, host
from abele.codegen.module import Kernel
from abele.codegen.reduce_passes import Emitter
from abele.codegen.reducer import REDUCTIONS, Job, Source
from abele.codegen.space import check, contiguous
from abele.errors import Unsupported

_CHUNK = 16384  # elements of a chunk of a split reduction
_FEW_UNITS = 8  # a reduction over fewer units than this is split


def reduce_kernels(
    shape: Sequence[int],
    axes: Sequence[int],
    operands: Sequence[Operand],
    exprs: Sequence[Expr],
    outputs: Sequence[Output],
    stash: Sequence[tuple[int, int]] = (),
    target: Host | None = None,
) -> tuple[Kernel, ...]:
    """Kernels, one to three, that compute ``outputs`` over ``shape`` with reductions over ``axes``.

    Args:
        shape: the whole iteration space.
        axes: the reduced dimensions.
        operands: strides over ``shape``; an operand with stride 0 on all ``axes`` is one per kept position.
        exprs: nodes, ``reduce_*`` among them.
        outputs: of elements, or of kept positions (stride 0 on ``axes``).
        stash: (node, position in ``outputs``): an element node to keep in that output's memory from the pass
            that computes it first to the later ones. The output must be f32 or of the node's dtype, and be
            written in a later pass.

    Pointers: operands, outputs, and a workspace where ``kernel.workspace`` is not 0. An element output may be
    the memory of an operand of equal strides only if no pass after the one that writes it (or stashes in it)
    reads the operand.
    """
    target = target or host()
    axes = tuple(sorted(a % len(shape) for a in axes))
    check(shape, [o.strides for o in (*operands, *outputs)])
    sources = [Source(i, 0, o.dtype, o.strides) for i, o in enumerate((*operands, *outputs))]
    job = Job(
        tuple(shape),
        axes,
        tuple(sources[: len(operands)]),
        tuple(exprs),
        tuple(sources[len(operands) :]),
        tuple(o.node for o in outputs),
        tuple(stash),
        len(sources),
        target,
    )
    split = _split(job)
    if split is None:
        return (Emitter(job).kernel(),)
    jobs, workspace = split
    return tuple(replace(Emitter(j).kernel(), pointers=len(sources) + 1, workspace=workspace) for j in jobs)


def _split(job: Job) -> tuple[list[Job], int] | None:
    """Jobs over equal chunks, over what these leave, and over the partial results of both, and the bytes between
    them; None: one job will do."""
    plan = Emitter(job)
    kept = [d for d in range(len(job.shape)) if d not in job.axes]
    positions = math.prod(job.shape[d] for d in kept)
    length = math.prod(job.shape[d] for d in job.axes)
    units = positions if plan.along else -(-positions // plan.lanes)
    simple = (
        plan.passes == 1
        and not plan.elementwise
        and not any(r.by_position for r in plan.reducers)
        and not any(e.fn == "index" for e in job.exprs)
    )
    if not simple or units >= _FEW_UNITS or positions * length < 2 * _CHUNK:
        return None
    # The chunked dimension is the reduced one with the largest stride of the largest operand.
    lead = max(job.operands, key=lambda o: math.prod(n for n, s in zip(job.shape, o.strides) if s))
    dim = max(job.axes, key=lambda a: (abs(lead.strides[a]), job.shape[a]) if job.shape[a] > 1 else (-1, 0))
    size = job.shape[dim]
    share = max(1, _CHUNK // max(1, positions * length // size))
    share = next((s for s in range(share, share // 2, -1) if size % s == 0), share)
    chunks, rest = divmod(size, share)
    if chunks < 2:
        return None
    shape = (*job.shape[:dim], chunks, share, *job.shape[dim + 1 :])
    axes = tuple(a if a < dim else a + 1 for a in job.axes)

    def divided(s: tuple[int, ...]) -> tuple[int, ...]:
        return (*s[:dim], s[dim] * share, s[dim], *s[dim + 1 :])

    def later(o: Source) -> Source:
        skipped = chunks * share * o.strides[dim] * size_of(element(load_type(o.dtype, 1)))
        return replace(o, start=o.start + skipped)

    workspace = 0
    partials: list[Source] = []
    last_operands: list[Source] = []
    kept_strides = contiguous([job.shape[d] for d in kept])
    for r in plan.reducers:
        flat = [0] * len(shape)
        for d, s in zip(kept, kept_strides):
            flat[d if d < dim else d + 1] = s
        flat[dim] = positions
        partials.append(Source(job.pointers, workspace, r.dtype, tuple(flat)))
        over_chunks = [flat[d if d < dim else d + 1] for d in kept]
        last_operands.append(Source(job.pointers, workspace, r.dtype, (positions, *over_chunks)))
        workspace += -(-(chunks + 1) * positions * 8 // 64) * 64
    unrounded = tuple(
        Expr(e.fn, e.args, "f32", **dict(e.attrs)) if e.fn in REDUCTIONS and e.dtype == "f16" else e for e in job.exprs
    )
    first = replace(
        job,
        shape=shape,
        axes=axes,
        operands=tuple(replace(o, strides=divided(o.strides)) for o in job.operands),
        exprs=unrounded,
        outputs=tuple(partials),
        nodes=tuple(r.node for r in plan.reducers),
        stash=(),
        pointers=job.pointers + 1,
    )
    left = replace(
        first,
        shape=(*job.shape[:dim], rest, *job.shape[dim + 1 :]),
        axes=job.axes,
        operands=tuple(later(o) for o in job.operands),
        outputs=tuple(
            replace(
                o,
                start=o.start + chunks * positions * size_of(element(load_type(o.dtype, 1))),
                strides=(*o.strides[:dim], *o.strides[dim + 1 :]),
            )
            for o in partials
        ),
    )
    # The last job has the first's operands (one per kept position, or not used), then the partial results.
    n, extra = len(job.operands), len(partials)
    source_of = {r.node: n + k for k, r in enumerate(plan.reducers)}

    def moved(node: int) -> int:
        return node if node < n else node + extra

    exprs = tuple(
        Expr(e.fn, (source_of[n + j],), e.dtype)
        if n + j in source_of
        else Expr(e.fn, tuple(moved(a) for a in e.args), e.dtype, **dict(e.attrs))
        for j, e in enumerate(job.exprs)
    )
    last = replace(
        job,
        shape=(chunks + (rest > 0), *(job.shape[d] for d in kept)),
        axes=(0,),
        operands=(
            *(replace(o, strides=(0, *(o.strides[d] for d in kept))) for o in job.operands),
            *last_operands,
        ),
        exprs=exprs,
        outputs=tuple(replace(o, strides=(0, *(o.strides[d] for d in kept))) for o in job.outputs),
        nodes=tuple(moved(k) for k in job.nodes),
        stash=(),
        pointers=job.pointers + 1,
    )
    return [first, left, last] if rest else [first, last], workspace


def reduction(
    fn: str, shape: Sequence[int], axes: Sequence[int], operand: Operand, output: Output, dtype: str
) -> tuple[Kernel, ...]:
    """The plain case: one operand, one of ``sum mean prod max min any all argmax argmin sum_squares``."""
    count = math.prod(shape[a] for a in axes)
    if fn == "mean":
        exprs = [
            Expr("reduce_sum", (0,), "f32"), Expr("const", (), "f32", value=count), Expr("div", (1, 2), dtype)
        ]  # fmt: skip
    elif fn == "sum_squares":
        exprs = [Expr("mul", (0, 0), "f32"), Expr("reduce_sum", (1,), dtype)]
    elif f"reduce_{fn}" in REDUCTIONS:
        exprs = [Expr(f"reduce_{fn}", (0,), dtype)]
    else:
        raise Unsupported(f"no reduction {fn!r}")
    return reduce_kernels(shape, axes, [operand], exprs, [replace(output, node=len(exprs))])
