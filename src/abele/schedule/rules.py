"""Named rules that every schedule obeys. The compiler runs them on each schedule that it makes.

All of them are closed form: they look at axes, spans and windows, at most at NumPy columns over blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from abele.errors import Bug
from abele.ir.graph import INPUT_KINDS, OUTPUT_KINDS
from abele.ir.operation import has
from abele.ir.types import TensorType
from abele.schedule.geometry import Windows, lies_in, lies_in_any, overlap, partitions_window, tiles_view, window
from abele.schedule.layout import Layout
from abele.schedule.records import PIPELINES, Access, Plan, Repeat, Schedule, Step, Use, abreast, place_of

Rule = Callable[[Schedule], Iterator[str]]
RULES: dict[str, Rule] = {}
TENSOR_KINDS = ("data", "state", "remote", "hyper", "argument", "value")


def rule(name: str) -> Callable[[Rule], Rule]:
    """Register a rule: a generator of complaints about a schedule."""

    def add(function: Rule) -> Rule:
        RULES[name] = function
        return function

    return add


def check(schedule: Schedule) -> Schedule:
    """Run every rule, on ``load`` too; raises ``Bug`` with the complaints, else returns the schedule.

    The rules about names run first: the others follow names, and are left out when a name leads nowhere.
    """
    found: list[str] = []
    for name, function in RULES.items():
        if found and name not in _NAMES:
            break
        found += [f"{name}: {complaint}" for complaint in function(schedule)]
    if found:
        more = f" and {len(found) - 5} more" if len(found) > 5 else ""
        raise Bug("The schedule breaks a rule: " + "; ".join(found[:5]) + more)
    if schedule.load is not None:
        check(schedule.load)
    return schedule


_NAMES = ("named-once", "known-names", "calls")


@rule("named-once")
def named_once(schedule: Schedule) -> Iterator[str]:
    """Tensors and functions are listed under their own names; a tensor is made in one place only."""
    yield from (f"tensor {t.name!r} is listed as {k!r}" for k, t in schedule.tensors.items() if t.name != k)
    yield from (f"function {f.name!r} is listed as {k!r}" for k, f in schedule.functions.items() if f.name != k)
    if schedule.main.name in schedule.functions:
        yield f"two functions are called {schedule.main.name!r}"
    seen: set[str] = set()
    for function in schedule.all_functions():
        for name in function.parameters:
            if name in seen:
                yield f"{name!r} is made twice, again as a parameter of {function.name}"
            seen.add(name)
        for index, node in enumerate(function.nodes):
            for name in node.makes:
                if name in seen:
                    yield f"{name!r} is made twice, again by node {index} of {function.name}"
                seen.add(name)


@rule("known-names")
def known_names(schedule: Schedule) -> Iterator[str]:
    """Everything that is read or made is a tensor of the schedule, of a known kind."""
    for function in schedule.all_functions():
        names = [*function.parameters, *function.results]
        for node in function.nodes:
            names += [*node.reads, *node.makes]
        for name in dict.fromkeys(names):
            if name not in schedule.tensors:
                yield f"{name!r} in {function.name} is not a tensor of the schedule"
    for tensor in schedule.tensors.values():
        if tensor.kind not in TENSOR_KINDS:
            yield f"tensor {tensor.name!r} has the kind {tensor.kind!r}"


@rule("calls")
def calls(schedule: Schedule) -> Iterator[str]:
    """Calls and repeats name a function, bind by position and type or view, carry like types; no recursion."""
    for function in schedule.all_functions():
        for node in function.nodes:
            if isinstance(node, Step):
                continue
            callee = schedule.functions.get(node.function)
            if callee is None:
                yield f"{function.name} runs {node.function!r}, which is not a function"
                continue
            if _types(schedule, node.operands) != _types(schedule, callee.parameters):
                yield f"operands do not fit the parameters of {callee.name} in {function.name}"
            if _types(schedule, node.results) != _types(schedule, callee.results):
                yield f"results do not fit those of {callee.name} in {function.name}"
            if isinstance(node, Repeat):
                carried = node.operands[: len(node.results)]
                if _types(schedule, carried) != _types(schedule, node.results):
                    yield f"the repeat of {callee.name} changes the type of what it carries"
                if node.count < 0 or node.stages < 1:
                    yield f"the repeat of {callee.name} has count {node.count} and {node.stages} stages"
                if node.pipeline not in PIPELINES:
                    yield f"the repeat of {callee.name} is a {node.pipeline!r} pipeline"
    yield from _recursion(schedule)


def _recursion(schedule: Schedule) -> Iterator[str]:
    runs = {f.name: [n.function for n in f.nodes if not isinstance(n, Step)] for f in schedule.all_functions()}
    done: set[str] = set()
    while ready := [n for n in runs if n not in done and all(c in done or c not in runs for c in runs[n])]:
        done.update(ready)
    yield from (f"{name} runs itself" for name in runs if name not in done)


@rule("defined-before-use")
def defined_before_use(schedule: Schedule) -> Iterator[str]:
    """In every function nothing is read before it is made, and nothing of another function is read."""
    for function in schedule.all_functions():
        made = set(function.parameters)
        for index, node in enumerate(function.nodes):
            for name in node.reads:
                if name not in made:
                    yield f"node {index} of {function.name} reads {name!r}, which is not made yet ({node.origin.where})"
            made.update(node.makes)
        yield from (f"{function.name} returns {n!r}, which is never made" for n in function.results if n not in made)


@rule("beside")
def beside(schedule: Schedule) -> Iterator[str]:
    """Steps that start together do so in one place, with compute sets alone, and none reads what another makes."""
    for function in schedule.all_functions():
        for index, (first, _) in enumerate(abreast(function.nodes)):
            node = function.nodes[index]
            if not isinstance(node, Step) or not node.beside:
                continue
            others = [n for n in function.nodes[first:index] if isinstance(n, Step)]
            if not others:
                yield f"node {index} of {function.name} starts beside no step"
            for other in others:
                if not (node.plan.sets and other.plan.sets):
                    yield f"node {index} of {function.name} starts beside a step without compute sets, or has none"
                if place_of(node) != place_of(other):
                    yield f"node {index} of {function.name} starts beside a step of another place"
                if set(other.makes).intersection(node.reads):
                    yield f"node {index} of {function.name} reads what a step beside it makes"


@rule("collectives")
def collectives(schedule: Schedule) -> Iterator[str]:
    """The groups of a collective divide the replicas."""
    for function, step in schedule.steps():
        if not has(step.operation, "collective"):
            continue
        size, stride = step.group
        if schedule.replicas % ((size or schedule.replicas) * (stride if size > 1 else 1)):
            yield f"{step.operation} in {function.name} has groups of {size}, {stride} apart, of {schedule.replicas}"


@rule("ports")
def ports(schedule: Schedule) -> Iterator[str]:
    """Ports run parallel to the parameters and results of main; a state result has a state parameter of its type."""
    main, inputs, outputs = schedule.main, schedule.input_ports, schedule.output_ports
    if len(inputs) != len(main.parameters) or len(outputs) != len(main.results):
        yield "the ports of main differ in number from its parameters and results"
        return
    yield from (f"input kind {p.kind!r}" for p in inputs if p.kind not in INPUT_KINDS)
    yield from (f"output kind {p.kind!r}" for p in outputs if p.kind not in OUTPUT_KINDS)
    states = {p.name: n for p, n in zip(inputs, main.parameters, strict=True) if p.kind == "state"}
    for port, name in zip(outputs, main.results, strict=True):
        if port.kind == "state" and port.name not in states:
            yield f"state output {port.name!r} has no state input"
        elif port.kind == "state" and _types(schedule, [states[port.name]]) != _types(schedule, [name]):
            yield f"state {port.name!r} changes its type"


@rule("views")
def views(schedule: Schedule) -> Iterator[str]:
    """A step sees a tensor as a view of the same size and element type."""
    for function, step in schedule.steps():
        for use in (*step.operands, *step.results):
            own = schedule.tensors[use.tensor].type
            if own.size != use.type.size or own.dtype != use.type.dtype:
                yield f"{step.operation} in {function.name} sees {use.tensor!r}, a {own}, as {use.type}"


@rule("homes")
def homes(schedule: Schedule) -> Iterator[str]:
    """A tensor lies on the tiles of an IPU that exists, every element on one tile, where its step leaves it."""
    for tensor in schedule.tensors.values():
        if not 0 <= tensor.ipu < schedule.ipus:
            yield f"tensor {tensor.name!r} lies on IPU {tensor.ipu} of {schedule.ipus}"
        ill = list(_ill_formed(tensor.home, schedule.tiles, tensor.type))
        yield from (f"home of {tensor.name!r}: {complaint}" for complaint in ill)
        if not ill and not tensor.home.is_partition:
            yield f"the home of {tensor.name!r} is not a partition"
    for function, step in schedule.steps():
        if len(step.plan.homes) != len(step.results):
            numbers = f"{len(step.plan.homes)} homes for {len(step.results)} results"
            yield f"{step.operation} in {function.name} has {numbers}"
            continue
        for use, home in zip(step.results, step.plan.homes, strict=True):
            tensor = schedule.tensors[use.tensor]
            if tensor.home != home:
                yield f"{use.tensor!r} lies elsewhere than the plan of {step.operation} leaves it"
            if tensor.ipu != step.origin.ipu:
                yield f"{use.tensor!r} lies on IPU {tensor.ipu}, its step runs on IPU {step.origin.ipu}"


@rule("plans")
def plans(schedule: Schedule) -> Iterator[str]:
    """Every plan is well formed and fits the tiles; it writes each element of its results and temporaries exactly once,
    reads nothing that is not written by an earlier compute set, and what it calls resident lies there."""
    seen: set[tuple] = set()
    for function, step in schedule.steps():
        homes_ = tuple(schedule.tensors[use.tensor].home for use in step.operands)
        key = (id(step.plan), *(u.type for u in (*step.operands, *step.results)), *map(id, homes_))
        if key in seen:
            continue
        seen.add(key)
        place = f" at {step.origin.where}" if step.origin.where else ""
        for complaint in check_plan(step.plan, step.operands, step.results, homes_, schedule.tiles):
            yield f"{step.operation} in {function.name}{place}: {complaint}"


def check_plan(
    plan: Plan, operands: Sequence[Use], results: Sequence[Use], operand_homes: Sequence[Layout | None], tiles: int
) -> Iterator[str]:
    """Complaints about one plan; a home of ``None`` is not decided yet, and takes the layout of its resident read."""
    types = {f"in{i}": use.type for i, use in enumerate(operands)}
    types |= {f"out{i}": use.type for i, use in enumerate(results)}
    types |= {f"tmp{i}": type_ for i, type_ in enumerate(plan.temporaries)}
    shaped = list(_shapes(plan, types, tiles))
    yield from shaped
    if shaped or not plan.sets:
        return
    yield from _written_once(plan, types)
    yield from _written_before_read(plan)
    yield from _written_over(plan, types)
    yield from _resident(plan, operand_homes)


def _shapes(plan: Plan, types: dict[str, TensorType], tiles: int) -> Iterator[str]:
    """Names are known, layouts fit their tensors and the grid of their set, grids fit the tiles."""
    for index, cs in enumerate(plan.sets):
        for access in (*cs.reads, *cs.writes):
            label = f"{access.name} in set {index} ({cs.vertex})"
            if access.name not in types:
                yield f"{label} is no operand, result or temporary"
                continue
            yield from (f"{label}: {c}" for c in _ill_formed(access.layout, tiles, types[access.name]))
            if access.layout.grid != cs.grid:
                yield f"{label} is laid over another grid than its set"
        yield from (f"set {index} writes {a.name}, an operand" for a in cs.writes if a.name.startswith("in"))
        yield from (f"set {index} writes {a.name} as resident" for a in cs.writes if a.resident)


def _ill_formed(layout: Layout, tiles: int, type_: TensorType) -> Iterator[str]:
    if layout.grid.tiles != tiles:
        yield f"a grid of {layout.grid.tiles} tiles in a schedule of {tiles}"
    if layout.size != type_.size:
        yield f"a view {list(layout.shape)} of {type_}"
    for span in layout.spans:
        if span.axis is not None and not 0 <= span.axis < len(layout.grid.axes):
            yield f"a span names axis {span.axis} of {len(layout.grid.axes)}"


def _writes(plan: Plan) -> dict[str, list[tuple[int, Access]]]:
    """The first writes of all elements, by tensor."""
    found: dict[str, list[tuple[int, Access]]] = {}
    for index, cs in enumerate(plan.sets):
        for access in cs.writes:
            if not access.renews:
                found.setdefault(access.name, []).append((index, access))
    return found


def _written_once(plan: Plan, types: dict[str, TensorType]) -> Iterator[str]:
    """The writes of a tensor partition their windows, and the windows partition the tensor; a result lies where its
    home says."""
    writes = _writes(plan)
    for name, type_ in types.items():
        if name.startswith("in"):
            continue
        layouts = [access.layout for _, access in writes.get(name, [])]
        if not layouts:
            if type_.size:
                yield f"{name} is never written"
            continue
        yield from (f"blocks overlap in a write of {name}" for layout in layouts if not partitions_window(layout))
        if any(layout.shape != layouts[0].shape for layout in layouts):
            yield f"{name} is written through different views"
            continue
        why = tiles_view([window(layout) for layout in layouts], layouts[0].shape)
        if why:
            yield f"{name} is not written exactly once: {why}"
    for index, home in enumerate(plan.homes):
        for _, access in writes.get(f"out{index}", []):
            if not lies_in(access.layout, home):
                yield f"out{index} is written on other tiles than its home's"


def _written_over(plan: Plan, types: dict[str, TensorType]) -> Iterator[str]:
    """What is written anew is read there by its own vertex, and nobody reads the tensor in between; what is written
    over a temporary is no larger on any tile, and nobody reads later what it covers."""
    made = _writes(plan)
    last_renewed = {a.name: i for i, cs in enumerate(plan.sets) for a in cs.writes if a.renews}
    for index, cs in enumerate(plan.sets):
        for access in cs.reads:
            if index < last_renewed.get(access.name, -1) and not any(
                w.renews and w.name == access.name for w in cs.writes
            ):
                yield f"set {index} reads {access.name}, which a later set writes anew"
        for access in (a for a in cs.writes if a.over):
            label = f"set {index} writes {access.name} over {access.over}"
            reads = [a for a in cs.reads if a.name == access.over]
            if not reads:
                yield f"{label}, which it does not read"
            elif access.renews:
                if not any(a.resident and a.layout == access.layout for a in reads):
                    yield f"{label}, but does not read there what it writes"
            elif not access.over.startswith("tmp"):
                yield f"{label}, which is no temporary"
            else:
                room = sum(w.layout.elements_on_tiles() for _, w in made[access.over]) * types[access.over].dtype.bytes
                if (access.layout.elements_on_tiles() * types[access.name].dtype.bytes > room).any():
                    yield f"{label}, where there is less room"
                later = [a for other in plan.sets[index + 1 :] for a in other.reads if a.name == access.over]
                if any(
                    a.layout.shape != b.layout.shape or overlap(window(a.layout), window(b.layout))
                    for a in later
                    for b in reads
                ):
                    yield f"{label}, of which a later set reads the same"


def _written_before_read(plan: Plan) -> Iterator[str]:
    made = _writes(plan)
    windows: dict[str, Windows] = {}
    for name, writes in made.items():
        shape = writes[0][1].layout.shape
        if any(write.layout.shape != shape for _, write in writes):
            continue  # said by another rule
        windows[name] = Windows(len(shape))
        for _, write in writes:
            windows[name].add(window(write.layout))
    for index, cs in enumerate(plan.sets):
        for access in cs.reads:
            if access.name not in windows:
                continue
            writes = made[access.name]
            alike = access.layout.shape == writes[0][1].layout.shape
            for i in windows[access.name].overlapping(window(access.layout)) if alike else range(len(writes)):
                when = writes[i][0]
                if when == index:
                    yield f"set {index} reads {access.name}, which it writes"
                elif when > index:
                    yield f"set {index} reads {access.name}, which set {when} writes"


def _resident(plan: Plan, operand_homes: Sequence[Layout | None]) -> Iterator[str]:
    writes, decided = _writes(plan), list(operand_homes)
    for index, cs in enumerate(plan.sets):
        for access in cs.reads:
            if not access.resident:
                continue
            if access.name.startswith("in"):
                operand = int(access.name[2:])
                if decided[operand] is None and access.layout.is_partition:
                    decided[operand] = access.layout
                home = decided[operand]
                lies = [home] if home is not None else []
            else:
                lies = [write.layout for when, write in reversed(writes.get(access.name, [])) if when < index]
            if not lies_in_any(access.layout, lies):
                yield f"set {index} calls {access.name} resident, but it lies elsewhere"


def _types(schedule: Schedule, names: Sequence[str]) -> list[TensorType]:
    """Types of tensors as far as binding goes: a tensor may be bound to another view of it."""
    types = (schedule.tensors[name].type for name in names)
    return [type_.with_shape((type_.size,)) for type_ in types]
