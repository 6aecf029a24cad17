"""A model's ``forward`` is called as the program wrote the call: by place, by name, or with defaults left out."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import poptorch

X, Y = torch.arange(3.0), torch.tensor([2.0, 3.0, 5.0])


def adds_a_name(forward: Any) -> Any:
    """A decorator that says ``scale`` where the call leaves it out, as those of today's transformers do."""

    @functools.wraps(forward)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs["scale"] = 10.0 if kwargs.get("scale") is None else kwargs["scale"]
        return forward(self, *args, **kwargs)

    return wrapper


class Decorated(nn.Module):
    @adds_a_name
    def forward(self, x: Any, y: Any = None, scale: Any = None, *, negated: bool = False, **names: Any) -> Any:
        result = x * scale + (0 if y is None else y) + sum(names.values())
        return -result if negated else result


CALLS: list[tuple[tuple, dict[str, Any]]] = [
    ((X,), {}),
    ((), {"x": X}),
    ((X, Y), {}),
    ((X,), {"y": Y}),
    ((), {"y": Y, "x": X}),
    ((X,), {"scale": 2.0}),
    ((X,), {"negated": True, "y": Y}),
    ((X,), {"more": Y, "y": X}),
]


@pytest.mark.parametrize(("args", "kwargs"), CALLS)
def test_a_decorator_sees_the_call_as_it_was_written(args: tuple, kwargs: dict[str, Any], tmp_path: Path) -> None:
    module = Decorated()
    expected = module(*args, **kwargs)
    model = poptorch.inferenceModel(module)
    assert torch.equal(model(*args, **kwargs), expected)
    model.save(str(tmp_path / "m.pt"))
    assert torch.equal(poptorch.load(str(tmp_path / "m.pt"))(*args, **kwargs), expected)


def test_calls_that_say_the_same_run_the_same_program() -> None:
    model = poptorch.inferenceModel(Decorated())
    program = None
    for args, kwargs in CALLS[2:5]:
        assert torch.equal(model(*args, **kwargs), 10 * X + Y)
        program = program or model._program
        assert model._program is program


def test_hooks_see_what_was_given_by_place() -> None:
    seen = []
    module = Decorated()
    module.register_forward_pre_hook(lambda _, args, kwargs: seen.append((len(args), set(kwargs))), with_kwargs=True)
    poptorch.inferenceModel(module).compile(X, Y, negated=True)
    assert seen == [(2, {"negated"})]


class Defaults(nn.Module):
    """A tensor and a number as defaults, and parameters that have no names for a caller."""

    def forward(self, x: Any, factor: Any = 2.0, /, y: Any = Y, *rest: Any) -> Any:
        return x * factor + y + sum(rest)


@pytest.mark.parametrize("args", [(X,), (X, 3.0), (X, 3.0, X), (X, 3.0, X, Y, Y)])
def test_defaults_with_and_without_tensors(args: tuple) -> None:
    assert torch.equal(poptorch.inferenceModel(Defaults())(*args), Defaults()(*args))


def test_base_models_of_transformers_take_their_defaults() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    module = transformers.BertModel(transformers.BertConfig(vocab_size=20, **sizes)).eval()
    ids = torch.arange(10).reshape(2, 5)
    expected = module(input_ids=ids)
    result = poptorch.inferenceModel(module)(input_ids=ids)
    torch.testing.assert_close(result.last_hidden_state, expected.last_hidden_state, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(result.pooler_output, expected.pooler_output, rtol=1e-4, atol=1e-5)
