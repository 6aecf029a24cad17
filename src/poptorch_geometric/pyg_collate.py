"""PyTorch Geometric's collater, which needs no data set here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch_geometric.loader.dataloader import Collater as _Collater

__all__ = ["Collater"]


class Collater(_Collater):
    """Joins graphs into a batch.

    Args:
        follow_batch: attributes for which the batch says to which graph each element belongs.
        exclude_keys: attributes to leave out.
    """

    def __init__(self, follow_batch: Sequence[str] | None = None, exclude_keys: Sequence[str] | None = None) -> None:
        arguments: dict[str, Any] = {"follow_batch": list(follow_batch or ()), "exclude_keys": list(exclude_keys or ())}
        super().__init__(None, **arguments)  # type: ignore[arg-type]
