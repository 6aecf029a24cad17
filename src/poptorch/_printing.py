"""The text of a module with its block annotations."""

from __future__ import annotations

import textwrap

import torch

from ._blocks import block_hook


def module_repr(m: torch.nn.Module) -> str:
    """The text of a module as PyTorch gives it, with ``BeginBlock(...)`` before each module that begins one."""
    lines = [f"({name}): {textwrap.indent(module_repr(part), '  ').lstrip()}" for name, part in m.named_children()]
    extra = m.extra_repr()
    own = m._get_name()
    if lines:
        body = "\n".join(textwrap.indent(line, "  ") for line in [*extra.splitlines(), *lines])
        text = f"{own}(\n{body}\n)"
    else:
        text = f"{own}({extra})"
    hook = block_hook(m)
    return f"{hook!r} {text}" if hook is not None else text
