"""Plans of collectives: no vertex of a tile does them; they say where the result lies.

Parts of a tensor are spread evenly over the tiles. As the vendor's, collectives are taken to be balanced: a replica's
part is a piece of what lies on each tile, so that taking it is a copy on the tiles.
"""

from __future__ import annotations

from abele.ops.plans.layouts import flat
from abele.ops.plans.planning import Question, plan_for
from abele.schedule.records import Plan


@plan_for("all_reduce", "all_to_all")
def plan_in_place(question: Question) -> Plan:
    """The result lies as the operand does."""
    home = question.homes[0] or flat(question.operands[0], question.chip, question.first)
    return Plan((), (), (home,))


@plan_for("reduce_scatter", "replica_shard")
def plan_spread(question: Question) -> Plan:
    """The part of each replica is spread evenly over its tiles."""
    return Plan((), (), (flat(question.results[0], question.chip, question.first),))


@plan_for("all_gather")
def plan_gather(question: Question) -> Plan:
    """The result lies as what it replaces, else evenly."""
    replaced = question.homes[1] if len(question.homes) > 1 else None
    return Plan((), (), (replaced or flat(question.results[0], question.chip, question.first),))
