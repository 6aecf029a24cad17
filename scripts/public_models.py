"""Run the models of public packages through `poptorch.inferenceModel` and hold their results against plain PyTorch.

    python scripts/public_models.py [--packages DIR ...] [--only NAME ...] [--write docs/models.md]

Of `transformers` every base model, by its own configuration made small; of `timm` the smallest model of each of its
modules. Weights are random, drawn with a seed. What cannot be set up so, or does not run in plain PyTorch on the inputs
that are made up here, says nothing about Abele and is left out. --packages names folders with packages that are not
installed. Each model has a process of its own, with a limit for its memory.
"""

from __future__ import annotations

import argparse
import inspect
import multiprocessing
import resource
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree

NEAR = 1e-3
"""The largest difference of a result from PyTorch's, in parts of its largest element."""
SECONDS, BYTES, PARAMETERS = 180, 12 << 30, 60_000_000

SMALL = dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embedding_size", "word_embed_proj_dim"), 32)
SMALL |= dict.fromkeys(
    ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers"), 2
)
SMALL |= dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"), 4)
SMALL |= dict.fromkeys(("intermediate_size", "ffn_dim", "hidden_dim", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim"), 48)
SMALL |= dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "decoder_attention_heads"), 4)
SMALL |= dict.fromkeys(("d_kv", "head_dim", "rotary_dim", "patch_size"), 8)
SMALL |= {
    "vocab_size": 64,
    "num_decoder_layers": 2,
    "num_key_value_heads": 2,
    "num_experts_per_tok": 2,
    "image_size": 32,
}
SMALL |= {"moe_intermediate_size": 16, "max_position_embeddings": 64, "n_positions": 64, "use_cache": False}
SMALL |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
"""Sizes that a configuration of transformers is given, where it has them."""
SMALLEST = (
    "pico",
    "atto",
    "femto",
    "nano",
    "test_",
    "tiny",
    "mini",
    "xxs",
    "xs",
    "micro",
    "_s0",
    "small",
    "lite",
    "_s",
    "b0",
)
"""Parts of the names of timm's small models, the smallest first."""

NO_ANSWER = {
    "afmoe": "its router is made with zeros, so that all experts tie",
    "vit_mae": "it masks patches that it draws",
}
"""Models without a result to hold another against."""

Made = tuple[torch.nn.Module, dict[str, Any]]


def transformers_models() -> Iterator[tuple[str, Callable[[], Made]]]:
    """Each base model of transformers, by the name of its kind."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    for kind, name in sorted(MODEL_MAPPING_NAMES.items()):
        if kind in CONFIG_MAPPING_NAMES:
            names = (name if isinstance(name, str) else name[0]), CONFIG_MAPPING_NAMES[kind]
            yield kind, lambda names=names: _transformer(*names)


def _transformer(model: str, configuration: str) -> Made:
    import transformers

    transformers.logging.set_verbosity_error()
    kind = getattr(transformers, configuration)
    plain = kind()
    given = {k: v for k, v in SMALL.items() if isinstance(getattr(plain, k, None), int | float)}
    config = kind(**given)
    module = _made(lambda: getattr(transformers, model)(config))
    wanted = inspect.signature(module.forward).parameters
    inputs: dict[str, torch.Tensor] = {}
    for name in ("input_ids", "decoder_input_ids"):
        if name in wanted:
            inputs[name] = torch.randint(3, 60, (2, 8))
    if "input_ids" in wanted and "attention_mask" in wanted:
        inputs["attention_mask"] = torch.ones(2, 8, dtype=torch.int64)
    if "pixel_values" in wanted and "input_ids" not in wanted:
        size = getattr(config, "image_size", None) or 32
        side = size if isinstance(size, int) else size[0]
        inputs["pixel_values"] = torch.randn(1, getattr(config, "num_channels", 3), side, side)
    if "input_values" in wanted:
        inputs["input_values"] = torch.randn(1, 4000)
    return module, inputs


def timm_models() -> Iterator[tuple[str, Callable[[], Made]]]:
    """A small model of each module of timm."""
    import timm

    modules: dict[str, list[str]] = {}
    for name in timm.list_models():
        modules.setdefault(timm.models._registry._model_to_module[name], []).append(name)
    for names in (modules[m] for m in sorted(modules)):
        fitting = ([n for n in names if part in n] for part in (*SMALLEST, ""))
        name = min(next(f for f in fitting if f), key=len)
        yield name, lambda name=name: _image_model(name)


def _image_model(name: str) -> Made:
    import timm

    module = _made(lambda: timm.create_model(name, pretrained=False))
    wanted = list(inspect.signature(module.forward).parameters)
    return module, {wanted[0]: torch.randn(1, *module.default_cfg["input_size"])}


class _Large(Exception):
    pass


def _made(make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    """A module that is not too large, found out without its memory where it can be made so."""
    for device in ("meta", "cpu"):
        try:
            with torch.device(device):
                module = make()
        except Exception:
            if device == "cpu":
                raise
            continue
        if sum(p.numel() for p in module.parameters()) > PARAMETERS:
            raise _Large
    return module


def tensors(result: Any) -> list[torch.Tensor]:
    """The tensors of a result, in order."""
    found = tuple(result.values()) if isinstance(result, dict) else result
    return [t for t in _pytree.tree_leaves(found) if isinstance(t, torch.Tensor)]


def attempt(make: Callable[[], Made]) -> tuple[str, str]:
    """How one model went: ``runs``, ``fails`` or ``apart``, and what was found."""
    torch.manual_seed(0)
    try:
        module, inputs = make()
        module.eval()
        with torch.no_grad():
            expected = tensors(module(**inputs))
    except _Large:
        return "apart", "too large for this try"
    except Exception as error:
        return "apart", f"not set up: {type(error).__name__}: {str(error)[:300]}"
    import poptorch

    try:
        results = tensors(poptorch.inferenceModel(module)(**inputs))
    except Exception as error:
        return "fails", str(error).replace("\n", " ")
    if len(results) != len(expected):
        return "fails", f"{len(results)} results, PyTorch has {len(expected)}"
    worst = 0.0
    for result, wanted in zip(results, expected, strict=True):
        scale = wanted.float().abs().max().clamp_min(1e-9)
        worst = max(worst, float((result.float() - wanted.float()).abs().max() / scale)) if wanted.numel() else worst
    return ("runs" if worst <= NEAR else "fails"), f"differs by {worst:.1e}"


def _in_process(make: Callable[[], Made], answer: Any) -> None:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    answer.send(attempt(make))


def tried(make: Callable[[], Made]) -> tuple[str, str]:
    """The same in a process of its own, so that one model can neither end nor stop the rest."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_in_process, args=(make, sender))
    process.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(SECONDS) else ("apart", f"no answer in {SECONDS} s")
    except EOFError:
        process.join()
        return "fails", f"the process ended with {process.exitcode}"
    finally:
        process.kill()
        process.join()


def page(found: dict[str, dict[str, tuple[str, str]]]) -> str:
    """The results as a document."""
    lines = ["# Models of public packages", ""]
    lines += [
        "`python scripts/public_models.py --write docs/models.md` runs each through `poptorch.inferenceModel`, with",
        "random weights and made-up inputs, and holds the results against those of plain PyTorch: at most 0.1 % of the",
        "largest element apart. Models that are too large for a quick try, or that do not run in plain PyTorch on such",
        "inputs, are left out.",
        "",
    ]
    for package, models in found.items():
        runs = [name for name, (how, _) in models.items() if how == "runs"]
        fails = {name: what for name, (how, what) in models.items() if how == "fails"}
        version = sys.modules[package].__version__
        lines += [f"## {package} {version}: {len(runs)} of {len(runs) + len(fails)} give PyTorch's results", ""]
        lines += [", ".join(f"`{name}`" for name in runs) + ".", ""]
        if fails:
            lines += ["Not:", "", *(f"- `{name}`: {what}" for name, what in fails.items()), ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", nargs="*", default=[], help="folders with packages that are not installed")
    parser.add_argument("--only", nargs="*", help="names of models")
    parser.add_argument("--write", type=Path, help="the document to write")
    asked = parser.parse_args()
    sys.path += asked.packages
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for package, models in (("transformers", transformers_models), ("timm", timm_models)):
        for name, make in models():
            if asked.only and name not in asked.only:
                continue
            how, what = ("apart", NO_ANSWER[name]) if name in NO_ANSWER else tried(make)
            found.setdefault(package, {})[name] = how, what
            print(f"{package} {name}: {how}, {what}", flush=True)
    if asked.write is not None:
        asked.write.write_text(page(found))


if __name__ == "__main__":
    main()
