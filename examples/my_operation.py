"""An operation of one's own, in one's own file: squared ReLU, differentiated, compiled, run and charged.

python examples/my_operation.py
"""

import numpy as np

from abele.compile import CompileOptions, compile_graph
from abele.compile.passes.autodiff import Autodiff
from abele.cost import cost
from abele.engine import Engine
from abele.ir import Arg, Builder, Composite, Port, Sample, evaluate, f16, f32, register
from abele.machine import find_system


def squared_relu(b, operands, attributes):
    """relu(x) squared, times ``scale``: written with other operations, so that everything else follows."""
    y = b.relu(operands[0])
    return [b.mul(b.mul(y, y), b.constant(attributes["scale"], y.dtype))]


def samples():
    """Uses on which every shared test would try the operation."""
    for type_ in (f32(3, 5), f16(7), f32(0, 4)):
        yield Sample((Arg(type_),), {"scale": 0.5})


register(Composite("squared_relu", {"scale": 1.0}, squared_relu, samples))


def main() -> None:
    b = Builder("net")
    x, w = b.input(f32(64, 32), "data", "x"), b.input(f32(32, 16), "state", "w")
    y = b.squared_relu(b.matmul(x, w), scale=0.5)
    graph = b.finish([y], [Port("anchor", "y")])

    system = find_system("bow-2000")
    executable = compile_graph(graph, CompileOptions(system))
    rng = np.random.default_rng(0)
    values = {n: rng.standard_normal(s).astype(np.float32) for n, s in (("x", (64, 32)), ("w", (32, 16)))}
    engine = Engine(executable.schedule)
    engine.write("w", values["w"])
    got = engine.run({"x": values["x"][None, None]})["y"][0, 0]
    (expected,) = evaluate(graph, [values["x"], values["w"]])
    print(f"largest difference from the interpreter: {np.abs(got - expected).max():.1e}")
    print(f"{cost(executable.schedule, system).cycles.total:,.0f} cycles on {system.name}")

    b = Builder("loss")
    w = b.input(f32(4), "state", "w")
    loss = b.reduce_sum(b.squared_relu(w), axes=(0,))
    gradient = Autodiff(("w",)).run(b.finish([loss], [Port("loss", "loss")]))
    print("gradient at [-1, 1, 2, 3]:", evaluate(gradient, [np.array([-1, 1, 2, 3], np.float32)])[1])


if __name__ == "__main__":
    main()
