"""The twin in Python of an operation that a program had in a C++ library: a cube, with its gradient, plan and cycles.

python examples/custom_operation.py

The program loaded ``libcube.so`` and called ``poptorch.custom_op([x], "Cube", "com.example", 1, ...)``. Here the name
is registered instead; the call stays as it is.
"""

import torch

import poptorch
from abele.ir import Arg, Composite, Sample, f16, f32, register
from abele.ops.plans.layouts import split_dims
from abele.ops.plans.planning import plan_for, read
from abele.schedule.layout import Layout, Span
from abele.schedule.records import Access, ComputeSet, Plan
from abele.schedule.vertex import VertexKind, register_vertex


# What it means. Type rule and reference follow from what it is made of.
def cube(b, operands, attributes):
    (x,) = operands
    return [b.mul(b.constant(attributes["scale"], x.dtype), b.mul(x, b.mul(x, x)))]


# Its gradient, where the derived one will not do: here it is the same, written out.
def gradient(b, op, given):
    (dy,), (x,) = given, op.operands
    slope = b.mul(b.constant(3 * op.attributes["scale"], x.dtype), b.mul(x, x))
    return [b.mul(dy, slope)]


def samples():
    yield from (Sample((Arg(t),), {"scale": 0.5}) for t in (f32(3, 5), f16(7)))


register(Composite("com.example.Cube", {"scale": 1.0}, cube, samples, gradient))


# How it lies on the tiles: every dimension split, each tile with its own piece.
@plan_for("com.example.Cube")
def plan(question):
    (x,) = question.operands
    grid = split_dims(x.shape, question.chip.tiles, first=question.first)
    pieces = Layout(grid, x.shape, tuple(Span(axis) for axis in range(x.rank)))
    step = ComputeSet("Cube", grid, (read(question, 0, pieces),), (Access("out0", pieces),), dict(question.attributes))
    return Plan((step,), homes=(pieces,))


# What a vertex does with its piece, and what that costs: the codelet's loop, four cycles for two floats.
def compute(block, pieces, attributes):
    return [attributes["scale"] * pieces[0] ** 3]


def cycles(chip, work):
    return chip.supervisor_call_cycles + 4 * work.writes[0] // 2


register_vertex(VertexKind("Cube", compute, cycles, ("Elementwise",)))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, x):
        (y,) = poptorch.custom_op([x * self.weight], "Cube", "com.example", 1, [x], {"scale": 0.5})
        return y, poptorch.identity_loss(y, "sum")


def main():
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = poptorch.trainingModel(model, optimizer=optimizer)
    y, loss = step(torch.ones(3))
    print("cubes:", y.tolist(), "loss:", loss.item())
    print("weights after a step:", [round(w, 3) for w in model.weight.tolist()])


if __name__ == "__main__":
    main()
