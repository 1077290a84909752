"""The mean loss and the outputs of a model over all data, by forward passes of the kernel."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from cmalight.compiled.interface import CannotCompile, Kind
from cmalight.compiled.network import Network
from cmalight.errors import check_choice
from cmalight.evaluation.batches import TensorBatches

# Rows that are evaluated at once if no layer works across the batch: enough that packing the weights costs little, few
# enough that the values of a layer stay in the cache.
_ROWS = 256


class Evaluator:
    """Evaluates a model on data, without a trace: running statistics, gradients and modes stay as they are.

    Agrees with `Objective` of the same arguments up to rounding. The current weights and buffers are read in place at
    every call; `refresh` goes through the white list again.

    Args:
        model: A stack of layers on the white list.
        loss_fn: A loss on the white list.
        data: Inputs and targets. The rows are taken in their order, in batches of `data.batch_size` if a layer works
            across the batch.
        mode: "train": as the model trains, but a dropout is refused, because its random numbers are the
            `Objective`'s. "eval": as after `model.eval()`.

    Raises:
        CannotCompile: Something is not on the white list, or there is no kernel on this machine; the text says what.

    Example:
        >>> import torch
        >>> from cmalight import TensorBatches
        >>> from cmalight.compiled import Evaluator
        >>> model = torch.nn.Linear(3, 1)
        >>> x = torch.randn(300, 3)
        >>> evaluator = Evaluator(model, torch.nn.MSELoss(), TensorBatches(x, model(x).detach() + 2), mode="eval")
        >>> round(evaluator.loss(), 5)
        4.0
    """

    def __init__(
        self, model: nn.Module, loss_fn: Any, data: TensorBatches, *, mode: Literal["train", "eval"] = "train"
    ) -> None:
        check_choice("mode", mode, ("train", "eval"))
        self._model, self._loss_fn, self._data, self._mode = model, loss_fn, data, mode
        self.refresh()

    def refresh(self) -> None:
        """Go through the white list again: modules, training flags, options, hooks and data as they are now.

        Raises:
            CannotCompile: Something is no longer on the list.
        """
        training = False if self._mode == "eval" else None if self._model.training else True
        network = Network(self._model, self._loss_fn, self._data, training)
        if any(layer.kind == Kind.DROPOUT for layer in network.stack.layers):
            raise CannotCompile("Dropout draws random numbers in training mode")
        network.job.rows_count = network.job.samples
        if not network.stack.batch_norm:
            network.job.batch_size = _ROWS
        self._network = network

    def loss(self) -> float:
        """The mean loss per sample at the current weights, as `Objective` defines it.

        Returns:
            f.

        Raises:
            IndexError: A label or an index of an embedding is out of range.
            ValueError: The loss ignores every target.
        """
        return self._run(None)

    def measure(self) -> tuple[float, Tensor]:
        """The mean loss per sample and the outputs at the current weights.

        Returns:
            The loss, and the outputs of all samples in their order.

        Raises:
            IndexError: A label or an index of an embedding is out of range.
            ValueError: The loss ignores every target.
        """
        stack = self._network.stack
        outputs = torch.empty((self._network.job.samples, *stack.shape), dtype=stack.dtype)
        return self._run(outputs), outputs

    def _run(self, outputs: Tensor | None) -> float:
        network, job = self._network, self._network.job
        steps = -(-job.samples // job.batch_size)
        losses, counts = torch.empty(2, steps, dtype=torch.float64)
        network.point(0, keep_statistics=True)
        job.outputs = None if outputs is None else outputs.data_ptr()
        for first in range(0, steps, network.steps_per_call):
            job.first_step, job.steps = first, min(network.steps_per_call, steps - first)
            job.losses, job.counts = losses[first:].data_ptr(), counts[first:].data_ptr()
            network.run()
        counted = counts != 0  # the mean over no target is NaN
        if not counted.any():
            raise ValueError("The loss ignores every target of the data; expected at least one that counts")
        return float(losses[counted] @ counts[counted] / counts.sum())
