"""The schedule: records, layouts, kinds of vertex, text form, rules, and liveness."""

from abele.schedule.layout import Axis, Grid, Layout, Span, spread
from abele.schedule.records import (
    Access,
    Call,
    ComputeSet,
    Function,
    Node,
    Plan,
    Repeat,
    Schedule,
    Step,
    Tensor,
    Use,
)
from abele.schedule.rules import check, check_plan
from abele.schedule.text import parse_schedule, print_schedule
from abele.schedule.vertex import KINDS, Block, VertexKind, Work, register_vertex, vertex_kind

__all__ = [
    "KINDS",
    "Access",
    "Axis",
    "Block",
    "Call",
    "ComputeSet",
    "Function",
    "Grid",
    "Layout",
    "Node",
    "Plan",
    "Repeat",
    "Schedule",
    "Span",
    "Step",
    "Tensor",
    "Use",
    "VertexKind",
    "Work",
    "check",
    "check_plan",
    "parse_schedule",
    "print_schedule",
    "register_vertex",
    "spread",
    "vertex_kind",
]
