"""What a capture knows: names, structure, types, origins, losses, random keys; and what it refuses."""

from __future__ import annotations

import collections
import dataclasses
import inspect
import warnings

import numpy as np
import pytest
import torch
from helpers import result, run, same
from torch import nn
from torch.nn import functional as F

from abele.errors import DataDependent, InvalidOperand, Unsupported
from abele.importers.torch import capture, origin
from abele.ir import check

X = torch.linspace(-2, 2, 12).reshape(3, 4)
Pair = collections.namedtuple("Pair", "left right")


@dataclasses.dataclass
class Record:
    value: torch.Tensor
    note: str


def line_of(program, text: str) -> int:
    """Line number of the first line of a program's source with this text."""
    lines, first = inspect.getsourcelines(program)
    return first + next(i for i, line in enumerate(lines) if text in line)


# Structure and names


def test_structure_of_arguments_and_results_is_kept():
    def program(x, rest, *more, flag, named=None):
        assert flag == "on"
        total = x + rest["a"] + rest["b"][1] + more[0] + named.left
        return {"t": (total, None, 3), "p": Pair(total * 2, [x]), "r": Record(total - 1, "hi")}

    args = (X, {"a": X, "b": [1.5, X]}, X)
    kwargs = {"flag": "on", "named": Pair(X, 7)}
    captured = capture(program, args, kwargs)
    assert list(captured.graph.inputs_of("data")) == ["x", "rest.a", "rest.b.1", "more.0", "named.left"]
    assert list(captured.graph.outputs_of("anchor")) == ["t.0", "p.left", "p.right.0", "r.value"]
    found = result(captured, args, kwargs)
    assert found["t"][1:] == (None, 3) and isinstance(found["p"], Pair) and found["r"].note == "hi"
    torch.testing.assert_close(found["r"].value, 5 * X - 1)
    with pytest.raises(InvalidOperand, match="differ in structure"):
        captured.arguments(args, kwargs | {"flag": "off"})
    with pytest.raises(InvalidOperand, match=r"Argument x is torch.float32 \[2\]"):
        captured.arguments((X[0, :2], *args[1:]), kwargs)


def test_host_types_become_machine_types_and_come_back():
    def program(i, d, b, h):
        return i + 1, d * 2, b + 1, h * 2.5, i.double() / 3

    args = (torch.arange(3), torch.ones(3, dtype=torch.float64), torch.ones(3, dtype=torch.bfloat16), X.half())
    captured = same(program, *args, rtol=1e-3)
    types = [str(v.dtype) for v in captured.graph.inputs]
    assert types == ["i32", "f32", "f32", "f16"]
    assert [str(v.dtype) for v in captured.graph.outputs] == ["i32", "f32", "f32", "f16", "f32"]


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.unused = nn.Linear(2, 2)
        self.decoder = nn.Linear(4, 5, bias=False)
        self.decoder.weight = self.embedding.weight

    def forward(self, tokens):
        return self.decoder(self.embedding(tokens))


def test_tied_weights_are_one_state_and_unused_ones_none():
    module = Tied()
    captured = same(module, torch.tensor([[0, 4], [2, 2]]))
    assert list(captured.graph.inputs_of("state")) == ["embedding.weight"]
    assert captured.parameters["embedding.weight"] is module.embedding.weight
    assert captured.aliases == {"decoder.weight": "embedding.weight"}


def test_constants_are_states_only_where_they_are_not_simple():
    table = torch.tensor([3.0, 1.0, 4.0, 1.0])

    def program(x):
        return x + table + torch.ones(4) + torch.arange(4) + torch.tensor([3.0, 1.0, 4.0, 1.0])

    captured = same(program, X)
    assert list(captured.constants) == ["constant.0"]


def test_large_creations_are_operations():
    captured = capture(
        lambda x: x + torch.zeros(1 << 10, 1 << 10) + torch.arange(1 << 20).reshape(1 << 10, -1), (X[:1, :1],)
    )
    assert not captured.constants
    assert {op.name for op in captured.graph.operations} >= {"fill", "iota"}


# Origins


def test_abele_among_installed_packages_is_not_the_users_while_others_are(monkeypatch):
    monkeypatch.setattr(origin, "_LIBRARIES", ("/lib/site-packages/abele/", "/lib/site-packages/torch/"))
    monkeypatch.setattr(origin, "_STANDARD", "/lib/")
    origins = origin.Origins(None, None)
    files = ("site-packages/abele/importers/torch/tensors.py", "site-packages/other/layer.py", "contextlib.py")
    assert [origins._shown(f"/lib/{file}") for file in files] == [None, "other/layer.py", None]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        y = self.fc(x)
        return y.relu()  # the line of the relu


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.ModuleList([Block(), Block()])

    def forward(self, x):
        for block in self.layer:
            x = block(x)
        return x * 2


def test_origin_names_line_module_and_place():
    module = Two()
    places = iter(range(100))
    captured = capture(module, (X,), placement=lambda target: (next(places), 1))
    origins = {(op.name, op.origin.module): op.origin for op in captured.graph.operations}
    relu = origins["relu", "layer.1"]
    assert relu.file.endswith("test_torch_capture.py") and relu.line == line_of(Block, "the line of the relu")
    assert origins["linear", "layer.0.fc"].line == line_of(Block, "self.fc(x)")
    assert ("mul", "") in origins
    assert relu.ipu == 1 and relu.stage > origins["linear", "layer.0.fc"].stage
    assert captured.graph.operations[0].origin.phase == "forward"


def test_layers_that_are_alike_make_like_operations():
    class Dropped(Two):
        def forward(self, x):
            for block in self.layer:
                x = F.dropout(block(x), 0.5, training=True)
            return x

    graph = capture(Dropped(), (X,)).graph
    assert [op.name for op in graph.operations] == ["random_key"] * 2 + ["linear", "relu", "dropout"] * 2
    assert list(graph.inputs_of("state"))[-1] == "seed"


# The module stays as it was


def test_the_module_is_put_back_even_after_an_error():
    class Careless(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(4))
            self.calls = 0
            self.last = None

        def forward(self, x, fail):
            self.calls += 1
            self.last = x * 2
            self.total = self.total + x
            if fail:
                raise KeyError("mine")
            return self.total

    module = Careless()
    total = module.total
    with pytest.raises(KeyError, match="mine"):
        capture(module, (X[0], True))
    captured = capture(module, (X[0], False))
    assert captured.reassigned == ["total"]
    assert module.calls == 0 and module.last is None and module.total is total
    assert not torch.nn.modules.module._global_forward_hooks
    assert not torch.nn.modules.module._global_forward_pre_hooks


# Refusals


def branch(x):
    y = x * 2
    if y.sum() > 0:  # asked here
        return y
    return -y


def item(x):
    return x * x.max().item()  # asked here


def as_integer(x):
    return x[: int(x[0, 0])]  # asked here


def to_list(x):
    return torch.tensor((x * 2).tolist())  # asked here


def to_numpy(x):
    return torch.from_numpy(np.asarray(x.numpy()))  # asked here


def positions(x):
    return torch.nonzero(x)  # asked here


def selected(x):
    return x[x > 0]  # asked here


def formatted(x):
    return f"{x.sum():.3f}"  # asked here


def counted(x):
    return torch.bincount(x.int())  # asked here


@pytest.mark.parametrize(
    "program",
    [branch, item, as_integer, to_list, to_numpy, positions, selected, formatted, counted],
    ids=lambda f: f.__name__,
)
def test_values_are_never_frozen(program):
    with pytest.raises(DataDependent) as raised:
        capture(program, (X,))
    assert raised.value.where.endswith(f"test_torch_capture.py:{line_of(program, 'asked here')}")
    assert raised.value.remedy


def test_the_values_of_weights_are_not_frozen_either():
    class Asks(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(3))

        def forward(self, x):
            return x * self.w.tolist()[0]

    with pytest.raises(DataDependent, match="tolist"):
        capture(Asks(), (X,))


def test_values_that_depend_on_nothing_may_be_read():
    def program(x):
        rates = [r.item() for r in torch.linspace(0, 1, 3)]
        return x * rates[1] if torch.arange(3).sum() == 3 else x

    same(program, X)


def test_an_operation_without_a_rule_is_named_with_its_line():
    def program(x):
        return torch.linalg.eigvals(x @ x.T).real  # here

    with pytest.raises(Unsupported, match=r"aten::linalg_eig .*test_torch_capture.py:\d+.*outside the model"):
        capture(program, (X,))


def test_autocast_and_scripted_modules_are_refused():
    def program(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x.relu() + 1

    with pytest.raises(Unsupported, match=r"autocast.*half\(\)"):
        capture(program, (X,))
    with pytest.raises(Unsupported, match="scripted"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        capture(torch.jit.script(nn.Sequential(nn.Linear(4, 2))), (X,))


def test_tensors_made_beside_another_are_constants():
    same(
        lambda x: x + torch.tensor([1.0, 2, 3, 4], device=x.device) + x.new_tensor([4, 3, 2, 1]) * x.new_full((4,), 2),
        X,
    )


def test_torch_says_what_is_wrong_with_shapes():
    with pytest.raises(RuntimeError, match="broadcast"):
        capture(lambda x: x + torch.ones(3), (X,))
    with pytest.raises(RuntimeError, match=r"reduction dim|cannot be multiplied"):
        capture(nn.Linear(5, 2), (X,))


def test_packed_sequences_are_refused():
    def program(x):
        return nn.LSTM(4, 2)(nn.utils.rnn.pack_padded_sequence(x, [3]))[0].data

    with pytest.raises(Unsupported, match="padded tensor"):
        capture(program, (X[:, None],))


# Losses and gradients


def test_known_losses_are_remembered_and_become_outputs_in_training():
    target = torch.tensor([0, 1, 2])

    def program(x, t):
        logp = F.log_softmax(x, -1)
        return logp, F.nll_loss(logp, t) + 0 * F.mse_loss(x, x * 2)

    captured = capture(program, (X, target), training=True)
    assert list(captured.graph.outputs_of("loss")) == ["loss.0", "loss.1"]
    assert captured.independent_losses() == [0, 1]
    values = run(captured, (X, target))
    torch.testing.assert_close(torch.tensor(values["loss loss.0"]), F.nll_loss(F.log_softmax(X, -1), target))
    assert not capture(program, (X, target)).graph.outputs_of("loss")


def test_a_loss_that_feeds_another_is_absorbed():
    def program(x, t):
        inner = F.l1_loss(x, t, reduction="none")
        return F.mse_loss(inner.mean(0), t[0])

    captured = capture(program, (X, X * 2), training=True)
    assert len(captured.losses) == 2 and captured.independent_losses() == [1]
    assert list(captured.graph.outputs_of("loss")) == ["loss.1"]


def count(captured, name):
    return sum(op.name == name for op in captured.graph.operations)


def test_detached_tensors_stop_gradients_in_training_only():
    def program(x):
        with torch.no_grad():
            scale = x.sum() * 2
        return x.detach() + scale * x + x.data

    # One for every result under no_grad, and for each of detach and data.
    assert count(capture(program, (X,), training=True), "stop_gradient") == 4
    assert count(same(program, X), "stop_gradient") == 0


def test_checkpointing_does_not_stop_gradients():
    from torch.utils.checkpoint import checkpoint

    linear = nn.Linear(4, 4)
    for reentrant in (False, True):
        program = nn.Module()
        program.fc = linear
        program.forward = lambda x, r=reentrant: checkpoint(linear, x, use_reentrant=r)
        captured = capture(program, (X.clone().requires_grad_(),), training=True)
        assert count(captured, "stop_gradient") == 0 and count(captured, "linear") == 1


# Random numbers


def test_random_operations_draw_with_keys_of_their_own():
    def program(x):
        return (
            torch.rand(4000),
            torch.randn(4000),
            F.dropout(torch.ones(4000) + x[0, 0] * 0, 0.25),
            torch.randint(2, 7, (4000,)),
            torch.empty(4000).uniform_(-1, 1),
            torch.bernoulli(torch.full((4000,), 0.3)),
            torch.randperm(100),
            x + torch.rand_like(x),
        )

    captured = capture(program, (X,))
    check(captured.graph)
    assert captured.random
    u, n, d, i, v, b, p, _ = result(captured, (X,))
    assert u.min() >= 0 and u.max() < 1 and abs(u.mean() - 0.5) < 0.03
    assert abs(n.mean()) < 0.06 and abs(n.std() - 1) < 0.05
    assert abs((d == 0).float().mean() - 0.25) < 0.04 and set(d.unique().tolist()) == {0.0, float(np.float32(1 / 0.75))}
    assert i.dtype == torch.int64 and sorted(i.unique().tolist()) == [2, 3, 4, 5, 6]
    assert -1 <= v.min() < -0.9 and abs(v.mean()) < 0.05 and abs(np.corrcoef(u, v)[0, 1]) < 0.06
    assert abs(b.mean() - 0.3) < 0.04
    assert sorted(p.tolist()) == list(range(100)) and p.tolist() != list(range(100))


def test_generators_of_the_host_are_said_to_have_no_effect():
    def program(x):
        drawn = torch.rand(4, generator=g)
        return x[0] + drawn.uniform_(generator=g)

    g = torch.Generator()
    with pytest.warns(UserWarning) as told:
        capture(program, (X,))
    assert len(told) == 1
    line = program.__code__.co_firstlineno + 1
    assert f"test_torch_capture.py:{line}: generator= of rand has no effect" in str(told[0].message)


def test_integers_that_do_not_fit_are_refused():
    captured = capture(lambda x: x + 1, (torch.tensor([1]),))
    (fits,) = captured.arguments((torch.tensor([2**31 - 1]),))
    assert fits.dtype == np.int32
    with pytest.raises(InvalidOperand, match=r"args.0|x.*holds 8589934595"):
        captured.arguments((torch.tensor([2**33 + 3]),))
