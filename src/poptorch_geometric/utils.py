"""Helpers for models of message passing, and a comparison of their training here and in plain PyTorch."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch_geometric.nn import MessagePassing

import poptorch

__all__ = ["TrainingStepper", "set_aggregation_dim_size"]


def set_aggregation_dim_size(model: torch.nn.Module, dim_size: int) -> None:
    """Tell every message passing layer of a model to aggregate into ``dim_size`` nodes.

    A compiled program must know how many there are: with batches of fixed size, their number of nodes.
    """

    def set_size(_: torch.nn.Module, inputs: tuple[Any, ...]) -> dict[str, Any]:
        return {**inputs[-1], "dim_size": dim_size}

    for module in model.modules():
        if isinstance(module, MessagePassing):
            module.register_aggregate_forward_pre_hook(set_size)


class TrainingStepper:
    """Trains two copies of a model, one wrapped and one in plain PyTorch, and compares them at every step.

    Args:
        model: its forward returns the result and the loss; in evaluation its result may come alone.
        lr, optimizer: of both copies.
        options: of the wrapped copy.
        rtol, atol, equal_nan: of the comparison (see :func:`torch.testing.assert_close`).
        enable_fp_exception: stop the wrapped copy at a value that is not finite.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        lr: float = 0.001,
        optimizer: Callable[..., Any] = poptorch.optim.Adam,
        options: poptorch.Options | None = None,
        rtol: float | None = None,
        atol: float | None = None,
        enable_fp_exception: bool = True,
        equal_nan: bool = False,
    ) -> None:
        model.train()
        self.rtol, self.atol, self.equal_nan = rtol, atol, equal_nan
        self.options = poptorch.Options() if options is None else options
        if enable_fp_exception:
            self.options.Precision.enableFloatingPointExceptions(True)
        self.cpu_model, self.ipu_model = copy.deepcopy(model), copy.deepcopy(model)
        self.training_model: Any = None
        if any(True for _ in model.parameters()):
            self.optimizer = optimizer(list(self.cpu_model.parameters()), lr=lr)
            self.training_model = poptorch.trainingModel(
                self.ipu_model, options=self.options, optimizer=optimizer(list(self.ipu_model.parameters()), lr=lr)
            )
        self.inference_model = poptorch.inferenceModel(self.ipu_model, options=self.options)
        self.check_parameters()

    def check_parameters(self) -> None:
        """Compare the parameters of the copies."""
        ours = dict(self.ipu_model.named_parameters())
        for name, expected in self.cpu_model.named_parameters():
            self.assert_close(ours[name], expected, name)

    def cpu_step(self, batch: Sequence[Any]) -> tuple[Any, Any]:
        """One step of the copy in plain PyTorch: result and loss."""
        self.optimizer.zero_grad()
        result, loss = self.cpu_model(*batch)
        loss.backward()
        self.optimizer.step()
        return result, loss

    def ipu_step(self, batch: Sequence[Any], copy_weights: bool = True) -> tuple[Any, Any]:
        """One step of the wrapped copy: result and loss."""
        result, loss = self.training_model(*batch)
        if copy_weights:
            self.training_model.copyWeightsToHost()
        return result, loss

    def run(self, num_steps: int, batch: Sequence[Any], ipu_batch: Sequence[Any] | None = None) -> None:
        """Train both copies and compare results, losses and parameters.

        Args:
            num_steps: how many steps on the batch.
            batch: arguments of the model.
            ipu_batch: other arguments for the wrapped copy, such as the same with padding; of the results only the
                rows that both have are compared then.
        """
        if self.training_model is None:
            raise AssertionError("There is nothing to train: the model has no parameters.")
        self.cpu_model.train()
        losses, expected = [], []
        for _ in range(num_steps):
            theirs, loss = self.cpu_step(batch)
            expected.append(loss.detach())
            ours, loss = self.ipu_step(batch if ipu_batch is None else ipu_batch)
            losses.append(loss)
            if ipu_batch is not None:
                rows = min(len(theirs), len(ours))
                theirs, ours = theirs[:rows], ours[:rows]
            self.assert_close(ours, theirs, "Output")
            self.check_parameters()
        self.assert_close(torch.stack(losses), torch.stack(expected), "loss")

    def run_inference(self, batch: Sequence[Any]) -> None:
        """Compare the results in evaluation."""
        self.cpu_model.eval()
        with torch.no_grad():
            expected = self.cpu_model(*batch)
        actual, _ = self.inference_model(*batch)
        self.assert_close(actual, expected, "inference")

    def assert_close(self, actual: Any, expected: Any, id: str) -> None:
        """Raise an AssertionError that names what differs."""
        torch.testing.assert_close(
            actual,
            expected,
            rtol=self.rtol,
            atol=self.atol,
            equal_nan=self.equal_nan,
            msg=lambda message: f"{id} was not equal:\n\n{message}\n",
        )

    def benchmark(self, num_steps: int, batch: Sequence[Any], devices: Sequence[str] = ("ipu",)) -> dict[str, float]:
        """Seconds of ``num_steps`` steps after a first one: ``ipu_time`` wrapped, ``cpu_time`` in plain PyTorch."""
        steps = {"ipu": lambda: self.ipu_step(batch, copy_weights=False), "cpu": lambda: self.cpu_step(batch)}
        unknown = sorted(set(devices) - set(steps))
        if unknown:
            raise NotImplementedError(f"There is no benchmark for {', '.join(unknown)}: ask for ipu or cpu.")
        results = {}
        for device in devices:
            steps[device]()
            started = time.perf_counter()
            for _ in range(num_steps):
                steps[device]()
            results[f"{device}_time"] = time.perf_counter() - started
        return results
