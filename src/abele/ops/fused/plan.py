"""How a root with a map behind it lies: the plan of the root, and the map where the root's result lies."""

from __future__ import annotations

from dataclasses import replace

from abele.ops.elementwise.expression import body_of
from abele.ops.fused.op import root_of, root_types
from abele.ops.plans.chains import map_vertex
from abele.ops.plans.layouts import align, align_in_view, even, read_along
from abele.ops.plans.planning import Question, choices_of, make_plan, plan_for
from abele.schedule.records import Access, ComputeSet, Plan
from abele.schedule.vertex import then


@plan_for("fused", choices=2)
def plan_fused(question: Question) -> Plan:
    """The plan of the root, and then the map where its result lies.

    The last vertices of the root hand their result on to the map within the tile, where they make it whole and the map
    works where it lies; else it is a temporary. Nobody else sees it.
    """
    attributes = dict(question.attributes)
    name, given, number = root_of(attributes)
    first, *others = root_types(question.operands, attributes)
    asked = Question(
        name,
        tuple(given.items()),
        question.operands[:number],
        (first, *others),
        question.homes[:number],
        question.chip,
        question.first,
        question.options,
    )
    root = make_plan(asked)
    if question.choice:
        other = make_plan(replace(asked, choice=question.choice)) if question.choice < choices_of(asked) else root
        if other is root:
            return make_plan(replace(question, choice=0))
        root = other
    inner = f"tmp{len(root.temporaries)}"
    sets = tuple(_renamed(s, "out0", inner) for s in root.sets)
    home, result = root.homes[0], question.results[0]
    reads, layout = [Access(inner, home, True)], home
    for i in range(number, len(question.operands)):
        aligned = align_in_view(home, result.shape, question.operands[i].shape)
        if aligned is None:
            layout = even(result, question.chip, question.first)
            break
        reads.append(read_along(question, i, aligned, result.shape))
    if layout is not home:
        again = [align(layout, result.shape, question.operands[i].shape) for i in range(number, len(question.operands))]
        reads = [Access(inner, layout)] + [
            read_along(question, i, found, result.shape) for i, found in enumerate(again, number) if found is not None
        ]
    write = Access("out0", layout)
    vertex, given = map_vertex(body_of(attributes))
    last, written = sets[-1], [a for s in sets for a in s.writes if a.name == inner]
    ending = [replace(a, over="") for a in last.writes]
    if layout is home and ending == [Access(inner, home)] and len(written) == 1:
        write = replace(write, over=last.writes[0].over if first.dtype is result.dtype else "")
        name, given = then(last.vertex, last.attributes, len(last.reads), first, vertex, given)
        ended = ComputeSet(name, last.grid, (*last.reads, *reads[1:]), (write,), given)
        return Plan((*sets[:-1], ended), root.temporaries, (layout, *root.homes[1:]), root.operands)
    mapped = ComputeSet(vertex, layout.grid, tuple(reads), (write,), dict(given))
    return Plan((*sets, mapped), (*root.temporaries, first), (layout, *root.homes[1:]), root.operands)


def _renamed(s: ComputeSet, old: str, new: str) -> ComputeSet:
    """The compute set with one tensor called otherwise."""

    def rename(a: Access) -> Access:
        over = new if a.over == old else a.over
        return replace(a, name=new if a.name == old else a.name, over=over)

    reads, writes = tuple(map(rename, s.reads)), tuple(map(rename, s.writes))
    return ComputeSet(s.vertex, s.grid, reads, writes, s.attributes)
