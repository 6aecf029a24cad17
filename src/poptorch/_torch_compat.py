"""Lets programs written for PyTorch 2.0 call what later versions of PyTorch have dropped."""

from __future__ import annotations

from typing import Any

import torch


def _accept_data_source(self: Any, data_source: Any = None) -> None:
    """``Sampler.__init__`` took the data source up to PyTorch 2.x and ignored it."""


def install() -> None:
    """Give ``torch.utils.data.Sampler`` its old constructor back where it has none of its own."""
    if "__init__" not in vars(torch.utils.data.Sampler):
        torch.utils.data.Sampler.__init__ = _accept_data_source
