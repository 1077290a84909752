"""A compiled training loop: several steps in one call of the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from cmalight.compiled.interface import CannotCompile
from cmalight.compiled.network import Network
from cmalight.compiled.steps import Steps, scaled_lr
from cmalight.evaluation.batches import TensorBatches


def compile_training(model: nn.Module, loss_fn: Any, optimizer: Optimizer, batches: TensorBatches) -> Program:
    """Compile the training steps of a model.

    Args:
        model: A stack of layers on the white list.
        loss_fn: MSELoss, L1Loss, BCEWithLogitsLoss or CrossEntropyLoss.
        optimizer: SGD, Adam, AdamW, Adagrad, Adadelta, SOAP, CMALight, CMA, IG or COFF.
        batches: Inputs and targets.

    Returns:
        The program, which reads and writes the tensors of the model and the optimizer in place.

    Raises:
        CannotCompile: Something is not on the white list, or there is no kernel on this machine; the text says what.

    Example:
        >>> import torch
        >>> from cmalight import TensorBatches
        >>> from cmalight.compiled import compile_training
        >>> model = torch.nn.Linear(3, 1)
        >>> batches = TensorBatches(torch.randn(300, 3), torch.randn(300, 1))
        >>> program = compile_training(model, torch.nn.MSELoss(), torch.optim.SGD(model.parameters(), lr=0.1), batches)
        >>> program.begin_epoch(batches.permutation(0))
        >>> program.run([1.0, 1.0, 1.0]).shape
        torch.Size([3])
    """
    return Program(model, loss_fn, optimizer, batches)


class Program:
    """The compiled steps; made by `compile_training`, whose arguments these are.

    `begin_epoch` goes through the white list again, so it sees training flags, options, hooks and data as they are
    then. `run` reads the addresses of parameters, buffers and optimizer state, and the options of the optimizer, anew.
    """

    def __init__(self, model: nn.Module, loss_fn: Any, optimizer: Optimizer, batches: TensorBatches) -> None:
        self._model, self._loss_fn, self._optimizer, self._batches = model, loss_fn, optimizer, batches
        self._rows = torch.empty(0, dtype=torch.int64)
        self._next = 0
        self._lower()

    def begin_epoch(self, permutation: Tensor) -> None:
        """Start an epoch.

        Args:
            permutation: The rows of the epoch in their order.

        Raises:
            CannotCompile: The model, the loss, the optimizer or the data have changed, and are no longer on the list.
            IndexError: A row, a label or an index of an embedding is out of range.
        """
        self._lower()
        self._rows = permutation.to(device="cpu", dtype=torch.int64).contiguous().clone()
        self._next = 0
        job = self._network.job
        job.rows, job.rows_count = self._rows.data_ptr(), len(self._rows)
        job.first_step, job.steps = 0, self._remaining()
        self._network.check()

    def run(self, factors: Sequence[float]) -> Tensor:
        """Take the next batches as steps.

        Args:
            factors: One number per step, which multiplies the lr of every group in it.

        Returns:
            The mean loss of every batch, in double precision.

        Raises:
            ValueError: The epoch has fewer batches left.
            IndexError: A row, a label or an index of an embedding is out of range; no step of its call is taken.
        """
        if len(factors) > self._remaining():
            raise ValueError(f"{len(factors)} steps asked for, but the epoch has {self._remaining()} batches left")
        scales = torch.as_tensor(factors, dtype=torch.float64).contiguous()
        losses = torch.empty(len(factors), dtype=torch.float64)
        done = 0
        while done < len(factors):
            if self._steps.needs_eager_step:
                losses[done] = self._eager_step(float(scales[done]))
                count = 1
            else:
                count = min(self._network.steps_per_call, len(factors) - done)
                self._call(scales[done : done + count], losses[done : done + count])
            done += count
            self._next += count
        return losses

    def _remaining(self) -> int:
        return -(-len(self._rows) // self._batches.batch_size) - self._next

    def _call(self, scales: Tensor, losses: Tensor) -> None:
        network, steps, job = self._network, self._steps, self._network.job
        groups = steps.groups()
        steps.fill(network.parameters)
        network.point(min(job.batch_size, len(self._rows) - self._next * job.batch_size), keep_statistics=False)
        job.groups, job.factors, job.losses = groups, scales.data_ptr(), losses.data_ptr()
        job.first_step, job.steps = self._next, len(scales)
        network.run()
        steps.taken(len(scales))
        buffers = [buffer for of_layer in network.stack.buffers for buffer in of_layer]
        torch.autograd.graph.increment_version([*network.stack.parameters, *buffers, *steps.tensors()])

    def _eager_step(self, factor: float) -> float:
        begin = self._next * self._batches.batch_size
        rows = self._rows[begin : begin + self._batches.batch_size]
        inputs, targets = (t.index_select(0, rows) for t in self._batches.tensors)
        self._optimizer.zero_grad()
        with torch.enable_grad():
            loss = self._loss_fn(self._model(inputs), targets)
            loss.backward()
        with scaled_lr(self._optimizer, factor):
            self._optimizer.step()
        self._optimizer.zero_grad()
        return float(loss.detach())

    def _lower(self) -> None:
        """Go through the white list, and describe what is there to the kernel."""
        if not torch.is_grad_enabled():
            raise CannotCompile("gradients are off, as inside torch.no_grad()")
        self._network = network = Network(self._model, self._loss_fn, self._batches)
        self._steps = Steps(self._optimizer, network.stack.parameters)
        for one, group in zip(network.parameters, self._steps.group_of, strict=False):
            one.group = group
        network.job.method = self._steps.method
        if not self._steps.needs_eager_step:
            self._steps.fill(network.parameters)
