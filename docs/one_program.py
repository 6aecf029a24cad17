"""One small network through every stage of Abele, printed as it goes.

Run it: ``python docs/one_program.py``. It needs no torch: the graph is built by hand. CI runs it, so it is true.
"""

from __future__ import annotations

import numpy as np

from abele.compile import CompileOptions, compile_graph
from abele.compile.passes.update import Optimiser
from abele.cost import cost, explain
from abele.engine import Engine, run_reference
from abele.ir import Builder, Host, Origin, Port, f32, i32, parse_graph
from abele.machine import find_system, one_ipu
from abele.schedule.text import parse_schedule, print_schedule


def heading(text: str) -> None:
    print(f"\n=== {text} ===\n")


heading("1. A graph: two linear layers and a loss")
# An importer makes such a graph from a PyTorch module; here we build it. Weights are `state`, a batch is `data`.
b = Builder("classifier")
x = b.input(f32(8, 16), "data", "x")
labels = b.input(i32(8), "data", "labels")
w1, b1 = b.input(f32(32, 16), "state", "w1"), b.input(f32(32), "state", "b1")
w2, b2 = b.input(f32(4, 32), "state", "w2"), b.input(f32(4), "state", "b2")
with b.at(Origin("docs/one_program.py", 31, "hidden")):
    hidden = b.relu(b.linear(x, w1, b1))
with b.at(Origin("docs/one_program.py", 33, "output")):
    logits = b.linear(hidden, w2, b2)
    loss = b.cross_entropy(logits, labels, reduction="mean")
graph = b.finish([logits, loss], [Port("anchor", "logits"), Port("loss", "loss")])
print(graph)
assert str(parse_graph(str(graph))) == str(graph)  # the text form is the graph

heading("2. Passes: gradients, the optimiser, fusion")
weights = ("w1", "b1", "w2", "b2")
sgd = Optimiser("sgd", (weights,), ((("momentum", 0.9), ("dampening", 0.0), ("weight_decay", 0.0)),))
# A machine that one can oversee: a Bow chip cut down to 8 tiles.
chip = find_system("bow-2000").chip.derive("tiny", tiles=8)
machine = one_ipu(chip)
seen: list[str] = []
executable = compile_graph(
    graph, CompileOptions(machine, optimiser=sgd), watch=lambda name, g: seen.append(f"{name}: {len(g.operations)}")
)
print(" -> ".join(seen))

heading("3. The schedule: every operation laid over the tiles")
schedule = executable.schedule
text = print_schedule(schedule)
# The text begins with layouts and plans, which steps share; here are the steps.
print("\n".join(line[:140] for line in text[text.index("  main main(") :].splitlines()))
assert parse_schedule(text) == schedule

heading("4. The engine runs it, for real, on this computer")
rng = np.random.default_rng(0)
state = {
    "w1": rng.standard_normal((32, 16)).astype(np.float32) * 0.3,
    "b1": np.zeros(32, np.float32),
    "w2": rng.standard_normal((4, 32)).astype(np.float32) * 0.3,
    "b2": np.zeros(4, np.float32),
}
images = rng.standard_normal((8, 16)).astype(np.float32)
classes = rng.integers(0, 4, 8).astype(np.int32)
streams = {"x": images[None, None], "labels": classes[None, None]}  # [turns, replicas, ...]
engine = Engine(schedule)
for name, value in state.items():
    engine.write(name, value)
engine.write("learning_rate.0", np.float32(0.1))
losses = [float(engine.run(streams)["loss"].item()) for _ in range(20)]
print("losses:", " ".join(f"{value:.3f}" for value in losses))
assert losses[-1] < losses[0]

heading("5. The reference executor runs the same schedule tile by tile")
# Each tile has memory of its own, filled with NaN; what is exchanged is counted.
given = state | {"learning_rate.0": np.float32(0.1)}
initial = [
    given.get(p.name, np.zeros(schedule.tensors[t].type.shape, np.float32))
    for p, t in zip(schedule.input_ports, schedule.main.parameters, strict=True)
]
host = Host({"x": [images], "labels": [classes]})
reference = run_reference(schedule, [initial], [host])
print(f"first loss: reference {host.outputs['loss'][0].item():.6f}, engine {losses[0]:.6f}")
sets = [(step.times, one) for step in reference.counts for one in step.sets]
vertices = sum(times * one.vertices for times, one in sets)
received = sum(times * int(one.received.sum()) for times, one in sets)
print(f"{vertices} vertices ran, {received} bytes were exchanged")

heading("6. Cost charges the same schedule")
profile = cost(schedule, machine, samples=8)
print(f"{profile.cycles.total:,.0f} cycles, {profile.seconds * 1e6:.1f} µs, {profile.energy.joules:.2e} J")
for row in profile.by_operation()[:6]:
    print(f"  {row.key:20s} {row.cycles.total:10,.0f} cycles")
print(explain(profile).text)

heading("7. The same program on a whole Bow IPU")
whole = find_system("bow-2000")
big = compile_graph(graph, CompileOptions(whole, optimiser=sgd))
print(f"{cost(big.schedule, whole, samples=8).cycles.total:,.0f} cycles on {whole.chip.tiles} tiles")
