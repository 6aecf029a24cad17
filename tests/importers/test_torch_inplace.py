"""In-place operations and views: every tensor that shares elements sees what was written."""

from __future__ import annotations

import pytest
import torch
from helpers import run, same
from torch import nn

from abele.errors import Unsupported
from abele.importers.torch import capture

X = torch.arange(24, dtype=torch.float32).reshape(4, 6) / 8 - 1


def select(x):
    y = x + 0
    y[1] += 10
    return y


def slices(x):
    y = x.clone()
    y[1:3, 2:5] = 7
    y[:, 0].mul_(2)
    return y, y[1:, ::2]


def step(x):
    y = x.clone()
    y[::2, 1::3] = y[1::2, ::3] * 2
    return y


def other_view(x):
    y = x.clone()
    flat, column = y.view(-1), y.t()[2]
    y[0, 2] = 100
    flat[3:5].zero_()
    column.add_(1)
    return y, flat, column


def view_of_view(x):
    y = x.clone()
    inner = y.view(2, 2, 6).transpose(0, 2)[1:3, 0]
    inner.copy_(torch.ones(2, 2) * 5, True)
    return y


def diagonal(x):
    y = x.clone()
    y.diagonal().fill_(3)
    y.unfold(1, 2, 2)[0, 1] = -1
    y.as_strided((2, 2), (6, 1), 13).sub_(1)
    return y


def unbound(x):
    y = x.clone()
    a, b, c, d = y.unbind(0)
    a.add_(b)
    for part in y.split(4, dim=1):
        part *= 2
    return y, d, c


def masked(x):
    y = x.clone()
    y[y < 0] = 0.5
    y.masked_fill_(y > 1, 2)
    return y


def by_index(x):
    y = x.clone()
    i, j = torch.tensor([0, -1]), torch.tensor([1, 2])
    y[i, j] = torch.tensor([5.0, 6.0])
    y[[1, 2], :2] = 9
    y.index_put_((i,), torch.ones(6), accumulate=True)
    y.index_add_(1, j, torch.ones(4, 2))
    return y[:, [3, 0]], y


def out_argument(x):
    y = torch.empty(4, 6)
    torch.mul(x, 2, out=y)
    values, indices = torch.empty(4), torch.empty(4, dtype=torch.int64)
    torch.max(x, 1, out=(values, indices))
    return y, values, indices


def from_constant(x):
    y = torch.zeros(4, 8)
    y[:, 1:7] = x
    z = torch.ones(3)
    z += 1
    z[1] = x[0, 0]
    return y, z


def reshaped_in_place(x):
    y = x.clone()
    y.unsqueeze_(0)
    y.transpose_(1, 2)
    y.squeeze_()
    y[1] = 0
    return y


def aliased(x):
    y = x.clone()
    y.detach()[0] = 1
    y.data[1] = 2
    z = y.contiguous()
    z[2] = 3
    return y


def expanded(x):
    y = x[:1].clone().expand(3, 6)
    z = y.contiguous()
    z += torch.arange(3.0)[:, None]
    return y, z


def loop(x):
    state = torch.zeros(6)
    outputs = []
    for row in x:
        state = state * 0.5 + row
        outputs.append(state)
        state.clamp_(max=1)
    return torch.stack(outputs)


@pytest.mark.parametrize(
    "program",
    [
        select,
        slices,
        step,
        other_view,
        view_of_view,
        diagonal,
        unbound,
        masked,
        by_index,
        out_argument,
        from_constant,
        reshaped_in_place,
        aliased,
        expanded,
        loop,
    ],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("grad", [False, True])
def test_matches_torch(program, grad):
    with torch.set_grad_enabled(grad):
        same(program, X)


def test_written_inputs_come_back():
    def program(x, y):
        x[0].add_(1)
        return x.sum() + y.sum()

    captured = capture(program, (X.clone(), X.clone()))
    assert captured.updated_inputs == {0: "updated.0"}
    updated = run(captured, (X, X))["anchor updated.0"]
    expected = X.clone()
    expected[0] += 1
    torch.testing.assert_close(torch.from_numpy(updated), expected)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((3,), 2.0))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(3))
        self.plain = torch.ones(3)

    def forward(self, x):
        self.count += 1
        self.mean.mul_(0.5).add_(x.mean(0) * 0.5)
        self.plain.add_(1)
        return x * self.scale + self.mean + self.plain


def test_buffers_are_state():
    module = Counter()
    captured = capture(module, (torch.ones(2, 3),))
    values = run(captured, (torch.ones(2, 3),))
    assert values["state count"] == 1 and values["state count"].dtype == "int32"
    assert values["state mean"].tolist() == [0.5] * 3
    assert values["anchor"].tolist() == [[4.5] * 3] * 2
    assert set(captured.buffers) == {"count", "mean"} and set(captured.parameters) == {"scale"}
    # The capture itself wrote nothing.
    assert module.count == 0 and module.mean.tolist() == [0] * 3 and module.plain.tolist() == [1] * 3


def test_written_state_that_is_never_read_is_an_input_too():
    class Recorder(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("last", torch.zeros(3))

        def forward(self, x):
            self.last.copy_(x)
            return x + 1

    captured = capture(Recorder(), (torch.ones(3),))
    assert list(captured.graph.inputs_of("state")) == ["last"]
    assert run(captured, (torch.ones(3),))["state last"].tolist() == [1, 1, 1]


def test_out_of_another_shape_is_refused():
    with pytest.raises(Unsupported, match=r"out= has shape \[2\].*test_torch_inplace"):
        capture(lambda x: torch.add(x, 1, out=torch.empty(2)), (X,))
