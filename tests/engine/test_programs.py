"""Random programs with loops, views and state against the interpreter: lifetimes, writes in place, carried values."""

from __future__ import annotations

import numpy as np
import pytest

from abele.engine.engine import Engine
from abele.ir import Builder, Port, evaluate
from abele.ir.graph import Value
from abele.ir.interpret import Host
from abele.ir.types import f32
from tests.engine.support import load, schedule_of, store

SHAPES = ((4, 6), (6,), (24,), (4, 1))


class Writer:
    """Writes random operations into a builder."""

    def __init__(self, b: Builder, rng: np.random.Generator, values: list[Value]) -> None:
        self.b, self.rng, self.values = b, rng, values

    def pick(self, shape: tuple[int, ...] | None = None) -> Value:
        fit = [v for v in self.values if shape is None or v.shape == shape]
        return fit[self.rng.integers(len(fit))] if fit else self.b.constant(0.5, f32().dtype, shape or ())

    def write(self, count: int) -> None:
        for _ in range(count):
            kind = self.rng.integers(7)
            x = self.pick()
            if kind == 0 and x.type.size == 24:
                made = self.b.reshape(x, shape=(24,) if x.shape == (4, 6) else (4, 6))
            elif kind == 1:
                made = self.b.tanh(x)
            elif kind == 2 and x.shape == (4, 6):
                made = self.b.reduce_sum(x, axes=(1,), keep=True)
            elif kind == 3:
                made = self.b.mul(x, self.b.constant(0.7, x.dtype))
            elif kind == 4 and x.shape == (4, 6):
                made = self.b.matmul(x, self.pick((4, 6)), transpose_b=True)
                made = self.b.matmul(made, x)
            elif kind == 5:
                store(self.b, f"out{x.shape}", x)
                continue
            else:
                made = self.b.add(x, self.pick(x.shape))
            self.values.append(self.b.tanh(made) if kind == 4 else made)


def program(seed: int):
    rng = np.random.default_rng(seed)
    functions = {}

    def body(name: str, depth: int) -> tuple[int, tuple]:
        """A function whose results are like its first parameters; returns the number of results and its inputs."""
        b = Builder(name, functions)
        shapes = [SHAPES[i] for i in rng.integers(0, len(SHAPES), rng.integers(1, 4))]
        extra = [SHAPES[i] for i in rng.integers(0, len(SHAPES), 2)]
        inputs = [b.input(f32(*s)) for s in (*shapes, *extra)]
        w = Writer(b, rng, list(inputs))
        w.values.append(load(b, "x", f32(4, 6)))
        w.write(int(rng.integers(2, 6)))
        if depth:
            nest(w, f"{name}n", depth - 1)
        w.write(int(rng.integers(1, 5)))
        functions[name] = b.finish([w.pick(s) for s in shapes])
        return len(shapes), (*shapes, *extra)

    def nest(w: Writer, name: str, depth: int) -> None:
        results, shapes = body(name, depth)
        w.b.functions[name] = functions[name]
        operands = [w.pick(s) for s in shapes]
        made = w.b.repeat(name, int(rng.integers(1, 4)), operands)
        assert len(made) == results
        w.values += made

    b = Builder("main", functions)
    names = [f"s{i}" for i in range(4)]
    states = [b.input(f32(*SHAPES[i]), "state", n) for i, n in enumerate(names)]
    w = Writer(b, rng, list(states))
    w.write(3)
    nest(w, "f", int(rng.integers(0, 2)))
    nest(w, "g", 0)
    w.write(4)
    b.functions.update(functions)
    graph = b.finish([w.pick(s.shape) for s in states], [Port("state", n) for n in names])
    return graph, names, [s.shape for s in states]


@pytest.mark.parametrize("providers", [["numpy"], ["llvm"]])
@pytest.mark.parametrize("seed", range(25))
def test_program_agrees_with_the_interpreter(seed: int, providers: list[str]) -> None:
    graph, names, shapes = program(seed)
    e = Engine(schedule_of(graph), threads=1, providers=providers)
    # What no instruction has written must not be read: memory that passes starts as NaN.
    arena = e._bound.arenas[0]
    arena.bytes[arena.plan.kept :].view(np.float32)[:] = np.nan
    rng = np.random.default_rng(seed)
    states = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    for name, value in zip(names, states, strict=True):
        e.write(name, value)
    for _ in range(2):
        turns = e.inputs["x"][1]
        x = rng.standard_normal((turns, 4, 6)).astype(np.float32)
        made = e.run({"x": x[:, None]})
        host = Host({"x": list(x)})
        states = list(evaluate(graph, states, host))
        for name, want in zip(names, states, strict=True):
            np.testing.assert_allclose(e.read(name), want, rtol=1e-4, atol=1e-5)
        for name, stored in host.outputs.items():
            np.testing.assert_allclose(made[name][:, 0], np.stack(stored), rtol=1e-4, atol=1e-5)
