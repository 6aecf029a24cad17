"""The functions on tensors: what they compute in plain PyTorch, and what a capture sees of them."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import poptorch
from poptorch import _placement
from poptorch.testing import allclose


class Recorder(TorchDispatchMode):
    """The names of the operators that run."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("reduction, scale", [("sum", 1.0), ("mean", 1 / 6), ("none", 1.0)])
def test_identity_loss(reduction, scale):
    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    loss = poptorch.identity_loss(x, reduction)
    expected = {"sum": x.sum(), "mean": x.mean(), "none": x}[reduction]
    assert torch.equal(loss, expected)
    loss.sum().backward()
    torch.testing.assert_close(x.grad, torch.full((2, 3), scale))
    with pytest.raises(ValueError, match="Unsupported reduction"):
        poptorch.identity_loss(x, "median")


MARKS = {
    "nop": poptorch.nop,
    "recomputation_checkpoint": poptorch.recomputationCheckpoint,
    "set_available_memory": lambda x: poptorch.set_available_memory(x, 0.3),
    "ipu_print_tensor": lambda x: poptorch.ipu_print_tensor(x, "t"),
    "set_overlap_for_input": lambda x: poptorch.set_overlap_for_input(x, poptorch.OverlapMode.OverlapAccumulationLoop),
    "set_overlap_for_output": lambda x: poptorch.set_overlap_for_output(
        x, poptorch.OverlapMode.OverlapDeviceIterationLoop
    ),
    "identity_loss": lambda x: poptorch.identity_loss(x, "none"),
}


@pytest.mark.parametrize("name", MARKS)
def test_marks_pass_their_argument_on_and_are_seen(name):
    x = torch.arange(3.0, requires_grad=True)
    with Recorder() as recorder:
        y = MARKS[name](x)
    assert f"poptorch.{name}.default" in recorder.names
    assert torch.equal(x, y)
    y.sum().backward()
    assert torch.equal(x.grad, torch.ones(3))
    meta = MARKS[name](torch.empty(2, 3, device="meta"))
    assert meta.shape == (2, 3) and meta.device.type == "meta"


def test_marks_of_structures():
    a, b = torch.ones(1), torch.zeros(2)
    assert allclose(poptorch.recomputationCheckpoint(a, b), (a, b))
    assert allclose(poptorch.recomputationCheckpoint((a, [b])), (a, [b]))
    marked = poptorch.set_overlap_for_input({"a": a, "n": 3}, poptorch.OverlapMode.NoOverlap)
    assert allclose(marked, {"a": a, "n": 3})


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("dim", [0, 1])
def test_dynamic_slice(dim, step):
    x = torch.arange(48.0).reshape(8, 6)
    size = {0: 4, 1: 3}[dim]
    got = poptorch.dynamic_slice(x, dim, torch.tensor([2]), size, step)
    expected = x[2 : 2 + size : step] if dim == 0 else x[:, 2 : 2 + size : step]
    assert torch.equal(got, expected)
    x = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    start = torch.tensor([1])
    assert torch.autograd.gradcheck(lambda t: poptorch.dynamic_slice(t, 1, start, 3, step), x)


def test_dynamic_update():
    x, start = torch.zeros(2, 5), torch.tensor([3])
    expected = torch.tensor([[0, 0, 0, 1, 1]] * 2, dtype=torch.float)
    assert torch.equal(poptorch.dynamic_update(x, torch.ones(2, 2), 1, start, 2), expected)
    assert torch.equal(x, torch.zeros(2, 5))
    operands = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in ((2, 5), (2, 2))]
    assert torch.autograd.gradcheck(lambda a, b: poptorch.dynamic_update(a, b, 1, start, 2), operands)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda x, i: poptorch.dynamic_slice(x, 0, i, 0, 1), "start and end of a slice must be different"),
        (lambda x, i: poptorch.dynamic_slice(x, 0, i, -2, 1), "end less than the start"),
        (lambda x, i: poptorch.dynamic_slice(x, 0, i, 7, 1), r"slice \(7\) must be a factor .* \(8\)"),
        (lambda x, i: poptorch.dynamic_update(x, x[None], 0, i, 8), r"same dimensionality. \(1\) vs \(2\)"),
        (lambda x, i: poptorch.dynamic_update(x, i, 0, i, 1), r"torch.float32 vs torch.int32"),
    ],
)
def test_bad_slices(call, message):
    with pytest.raises(poptorch.Error, match=message):
        call(torch.zeros(8), torch.tensor([1]))


def test_for_loop():
    x, y = torch.ones(2), torch.zeros(2)

    def body(a, b):
        a += 1
        return a * 2, b + a

    got = poptorch.for_loop(3, body, [x, y])
    assert allclose(got, [torch.full((2,), 22.0), torch.full((2,), 2.0 + 5.0 + 11.0)])
    assert torch.equal(x, torch.ones(2))
    assert allclose(poptorch.for_loop(2, lambda a: a + 1, [x]), [x + 2])
    with pytest.raises(ValueError, match="Object is not list"):
        poptorch.for_loop(2, body, x)
    with pytest.raises(ValueError, match=r"at index 1 is not torch.tensor"):
        poptorch.for_loop(2, body, [x, 5])
    with pytest.raises(poptorch.Error, match="as many tensors as it takes"):
        poptorch.for_loop(2, lambda a: (a, a), [x])


@pytest.mark.parametrize("chosen", [True, False])
def test_cond(chosen):
    x, y, condition = torch.tensor([2.0]), torch.tensor([3.0]), torch.tensor([chosen])

    def run():
        return poptorch.cond(condition, lambda a, b: (a + b, a), [x, y], lambda a: (-a, a * a), [x])

    expected = [x + y, x] if chosen else [-x, x * x]
    assert allclose(run(), expected)
    with _placement.capture():
        assert allclose(run(), expected)
        with pytest.raises(poptorch.Error, match="same number, shapes and types"):
            poptorch.cond(condition, lambda a: a, [x], lambda: torch.zeros(3), [])


def test_control_flow_is_refused_in_training():
    x = torch.ones(1)
    with _placement.capture(training=True):
        with pytest.raises(poptorch.Error, match=r"poptorch.for_loop\(\) is only supported in inference"):
            poptorch.for_loop(1, torch.neg, [x])
        with pytest.raises(poptorch.Error, match=r"poptorch.cond\(\) is only supported in inference"):
            poptorch.cond(x, torch.neg, [x], torch.neg, [x])


def test_serialized_matmul():
    a, b = torch.randn(4, 6), torch.randn(6, 9)
    mode = poptorch.MatMulSerializationMode
    with _placement.capture():
        seen = []

        class Context(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                seen.append(_placement.on_operation(str(func)).attributes)
                return func(*args, **(kwargs or {}))

        with Context():
            got = poptorch.serializedMatMul(a, b, mode.OutputChannels, 3)
    torch.testing.assert_close(got, a @ b)
    assert seen == [{"serialize_matmul": ("output_channels", 3, False)}]
    assert torch.equal(poptorch.serializedMatMul(a, b, mode.Disabled), a @ b)
    with pytest.raises(AssertionError, match="factor 4 does not divide the dimension of 6"):
        poptorch.serializedMatMul(a, b, mode.ReducingDim, 4)


def test_what_cannot_be_captured_says_so():
    x = torch.ones(1)
    doubled = poptorch.CPU(lambda t: 2 * t, "double")
    assert torch.equal(doubled(x), 2 * x)
    assert allclose(poptorch.custom_op([x], "Cube", "custom.ops", 1, [x]), [x])
    with _placement.capture(training=True), pytest.raises(poptorch.Error, match=r"poptorch.CPU.*is not supported"):
        doubled(x)
    with _placement.capture():
        with pytest.raises(poptorch.Error, match=r"custom.ops.Cube \(version 1\) is not supported.*abele.ir.register"):
            poptorch.custom_op([x], "Cube", "custom.ops", 1, [x])
        with pytest.raises(poptorch.Error, match="of 1000 rounds is not supported"):
            poptorch.for_loop(1000, torch.neg, [x])


def test_hooks_run_in_order_and_can_be_removed():
    from poptorch import _hooks

    calls = []
    first = poptorch.registerPreCompileHook(lambda: calls.append(1))
    second = poptorch.registerPreCompileHook(lambda: calls.append(2))
    after = poptorch.registerPostCompileHook(lambda: calls.append(3))
    try:
        _hooks.run_pre_compile()
        _hooks.run_post_compile()
        assert calls == [1, 2, 3]
    finally:
        for handle in (first, second, after):
            handle.remove()
    _hooks.run_pre_compile()
    assert calls == [1, 2, 3]
    with pytest.raises(RuntimeError, match="must be callable"):
        poptorch.registerPreCompileHook(2)


def test_errors_carry_their_parts():
    error = poptorch.Error("it broke", type="popart", location="model.py:3")
    assert (error.message, error.type, error.location) == ("it broke", "popart", "model.py:3")
    assert str(error) == "it broke (at model.py:3)"
    kinds = poptorch.poptorch_core.TestErrorType
    with pytest.raises(poptorch.RecoverableError) as caught:
        poptorch.poptorch_core._throwTestError(kinds.PoplarRecoverableFullReset)
    assert caught.value.recovery_action == "FULL_RESET"
    with pytest.raises(poptorch.UnrecoverableError):
        poptorch.poptorch_core._throwTestError(kinds.PoplarUnrecoverable)


def test_trace_points(monkeypatch):
    from poptorch import profiling

    channel = profiling.Channel("mine")
    with channel.tracepoint("off"):
        pass
    monkeypatch.setenv("PVTI_OPTIONS", '{"enable":"true"}')
    model = torch.nn.ReLU()
    channel.instrument(model, "extra_repr")
    model.extra_repr()
    names = [e.name for e in profiling.events() if e.channel == "mine"]
    assert names == ["ReLU.extra_repr"]
    assert all(e.end_ns >= e.start_ns for e in profiling.events())


def test_an_unknown_name_is_suggested():
    with pytest.raises(AttributeError, match="'inferenceModel'"):
        _ = poptorch.inferenceModl
    assert poptorch.__version__ == "3.4.0"


def test_beam_search_finds_the_likeliest_labels_here_and_in_plain_torch():
    class Decoder(torch.nn.Module):
        def forward(self, logp, lengths):
            return poptorch.ctc_beam_search_decoder(logp, lengths, beam_width=5, top_paths=2)

    logp = torch.log(torch.tensor([[[0.6, 0.3, 0.1]], [[0.1, 0.8, 0.1]], [[0.8, 0.1, 0.1]], [[0.1, 0.1, 0.8]]]))
    model = poptorch.inferenceModel(Decoder())
    for scores, counts, paths in (model(logp, torch.tensor([4])), Decoder()(logp, torch.tensor([4]))):
        assert paths[0, 0].tolist() == [1, 2, 0, 0] and counts[0, 0] == 2 and scores[0, 0] > scores[0, 1]
    with pytest.raises(AssertionError, match="1 <= top_paths <= beam_width"):
        poptorch.ctc_beam_search_decoder(logp, torch.tensor([4]), beam_width=1, top_paths=2)


@pytest.fixture
def leaky():
    """An operation of a user's own, registered while a test runs."""
    from abele.ir import OPERATIONS, Arg, Composite, Sample, f32, register

    def expand(b, operands, attributes):
        (x,) = operands
        return [b.max(x, b.mul(x, b.constant(attributes["alpha"], x.dtype))), b.neg(x)]

    register(Composite("custom.ops.Leaky", {"alpha": 0.1}, expand, lambda: [Sample((Arg(f32(3)),), {})]))
    yield
    del OPERATIONS["custom.ops.Leaky"]


def test_an_operation_of_the_user_is_compiled_and_differentiated(leaky):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.tensor([-1.0, 2.0, -3.0]))

        def forward(self, x):
            y, minus = poptorch.custom_op([self.w * x], "Leaky", "custom.ops", 1, [x, x], {"alpha": 0.5})
            return minus, poptorch.identity_loss(y, "sum")

    x = torch.tensor([1.0, 2.0, 4.0])
    expected = torch.tensor([1.0, -4.0, 12.0]), torch.tensor(-0.5 + 4.0 - 6.0)
    for result in (Model()(x), poptorch.inferenceModel(Model())(x)):
        assert torch.equal(result[0], expected[0]) and torch.equal(result[1], expected[1])
    model = Model()
    poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0))(x)
    assert torch.equal(model.w.detach(), torch.tensor([-1.0 - 0.5, 2.0 - 2.0, -3.0 - 2.0]))
    with pytest.raises(poptorch.Error, match="the example outputs are"):
        poptorch.inferenceModel(Wrong())(x)


class Wrong(torch.nn.Module):
    def forward(self, x):
        return poptorch.custom_op([x], "Leaky", "custom.ops", 1, [x[:2], x])


def test_the_host_runs_functions_of_the_user_inside_a_model():
    seen = []

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.host = poptorch.CPU(self.on_host, "split")
            self.other = poptorch.CPU(torch.neg, "split")

        def on_host(self, x, n):
            seen.append(x.tolist())
            return {"less": x.half() - n.half(), "rest": (x.sum(dim=0, keepdim=True) > n, n * 2)}

        def forward(self, x, n):
            made = self.host(x + 1, n)
            return self.other(made["less"]) * 3, made["rest"]

    model, x, n = poptorch.inferenceModel(Model()), torch.tensor([1.0, 2.0]), torch.tensor([3])
    for scale in (1, 2):
        less, (more, twice) = model(scale * x, n)
        assert less.dtype is torch.float16 and torch.equal(less, -3 * (scale * x.half() + 1 - 3))
        assert more.tolist() == [scale * 3.0 + 2 > 3] and twice.tolist() == [6]
    assert seen == [[0, 0], [2, 3], [3, 5]]
    with pytest.raises(poptorch.Error, match=r"derivative"):
        poptorch.trainingModel(Loss(), optimizer=torch.optim.SGD([torch.zeros(1)], lr=1.0))(x)


class Loss(torch.nn.Module):
    def forward(self, x):
        return poptorch.identity_loss(poptorch.CPU(torch.neg, "minus")(x), "sum")
