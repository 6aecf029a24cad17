"""What a model of the zoo is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from abele.errors import InvalidOption, suggest

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Model:
    """A model of the zoo.

    Attributes:
        name: as on the command line.
        description: one line: kind, size, data.
        make: ``make(small, training)`` builds the module. With ``training`` its forward takes ``labels`` too and
            returns (output, loss); without it, the output.
        draw: ``draw(batch, small, generator)`` gives the keyword arguments of the forward, ``labels`` among them.
    """

    name: str
    description: str
    make: Callable[[bool, bool], torch.nn.Module]
    draw: Callable[[int, bool, torch.Generator], dict[str, torch.Tensor]]

    def build(
        self, small: bool = False, *, training: bool = False, device: str = "cpu", seed: int = 0
    ) -> torch.nn.Module:
        """The module with random weights.

        Args:
            small: a tiny configuration of the same shape, for tests.
            training: in training mode, with a forward that returns (output, loss); else in evaluation mode.
            device: ``meta`` builds it without weights, which is quick: enough to compile and to profile.
            seed: of the weights. The generator of the program is left as it was.
        """
        import torch

        with torch.random.fork_rng(devices=[]), torch.device(device):
            torch.manual_seed(seed)
            module = self.make(small, training)
        return module.train(training)

    def inputs(
        self, batch: int = 1, *, small: bool = False, training: bool = False, seed: int = 0
    ) -> dict[str, torch.Tensor]:
        """Random arguments of the forward, by name; ``labels`` only with ``training``."""
        import torch

        drawn = self.draw(batch, small, torch.Generator().manual_seed(seed))
        return {k: v for k, v in drawn.items() if training or k != "labels"}


def find(zoo: Mapping[str, Model], name: str) -> Model:
    """The model of this name, or ``InvalidOption`` with the closest names."""
    if name not in zoo:
        raise InvalidOption(f"There is no model {name!r} in the zoo", remedy=suggest(name, zoo))
    return zoo[name]
