"""A model, a loss and data as the kernel sees them, and calls of the kernel."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor, nn

from cmalight.compiled import interface, library
from cmalight.compiled.interface import CannotCompile, Kind
from cmalight.compiled.layers import lower, lower_loss
from cmalight.evaluation.batches import TensorBatches

# Multiplications per call of the kernel, so that Ctrl-C is honoured within about a tenth of a second.
_WORK_PER_CALL = 2e9
_OUT_OF_RANGE = {
    1: "a row of the permutation is out of range",
    2: "a target is out of bounds: labels must be below the number of logits",
    3: "index out of range in the Embedding",
}


class Network:
    """The structures of `interface` for one model, loss and data, as they are now; CannotCompile if there are none.

    `training` stands for the training flag of every module; None takes each one's own. `parameters` has one structure
    per parameter of the `stack` of layers, and `job` is what the kernel is called with.
    """

    def __init__(self, model: nn.Module, loss_fn: Any, batches: TensorBatches, training: bool | None = None) -> None:
        inputs, targets = _data(batches)
        if torch.is_autocast_enabled("cpu"):
            raise CannotCompile("autocast is on")
        self.stack = stack = lower(model, inputs, training)
        if stack.batch_norm and (batches.batch_size == 1 or len(inputs) % batches.batch_size == 1):
            raise CannotCompile("BatchNorm1d needs more than one row, and a batch has one")
        self._layers = (interface.Layer * len(stack.layers))(*stack.layers)
        self.parameters = (interface.Parameter * max(1, len(stack.parameters)))()
        for one, p in zip(self.parameters, stack.parameters, strict=False):
            one.count, one.rows, one.columns, one.group = p.numel(), len(p), p.numel() // len(p), -1
        self.job = job = interface.Job(is_double=stack.dtype == torch.float64, samples=len(inputs))
        job.layers, job.layers_count = self._layers, len(stack.layers)
        job.parameters, job.parameters_count = self.parameters, len(stack.parameters)
        job.inputs, job.input_size, job.targets = inputs.data_ptr(), inputs[0].numel(), targets.data_ptr()
        job.batch_size = batches.batch_size
        self._kept = inputs, targets, lower_loss(loss_fn, stack, targets, job)  # their addresses are in the job
        self._masks: list[Tensor] = []
        self._kernel = library.kernel()
        self._workspace = torch.empty(0, dtype=torch.uint8)

    @property
    def steps_per_call(self) -> int:
        """Batches that one call of the kernel may take."""
        if any(layer.kind == Kind.DROPOUT for layer in self.stack.layers):
            return 1  # the masks are those of one batch
        work = 3 * self.job.batch_size * sum(p.numel() for p in self.stack.parameters)
        return max(1, int(_WORK_PER_CALL / max(1, work)))

    def point(self, rows: int, *, keep_statistics: bool) -> None:
        """Put the addresses of parameters and buffers as they are now into the structures.

        The masks of dropouts are drawn for that many rows, in the order of torch. Batch norms that normalise by the
        batch leave their running statistics alone under `keep_statistics`.
        """
        for one, p in zip(self.parameters, self.stack.parameters, strict=False):
            one.value = p.data_ptr()
        self._masks = []  # which have to live as long as the call
        for layer, buffers in zip(self._layers, self.stack.buffers, strict=True):
            if buffers and not (layer.flag and keep_statistics):
                layer.mean, layer.variance, layer.tracked = (buffer.data_ptr() for buffer in buffers)
            elif layer.kind == Kind.DROPOUT:
                self._masks.append(torch.empty((rows, layer.outputs), dtype=self.stack.dtype).bernoulli_(layer.b))
                layer.mask = self._masks[-1].data_ptr()

    def check(self) -> None:
        """Raise IndexError if a row, a label or an index of an embedding is out of range."""
        _raise_for(self._kernel.cmalight_check(ctypes.byref(self.job)))

    def run(self) -> None:
        """Run the job; IndexError as in `check`, before anything is written."""
        needed = self._kernel.cmalight_workspace(ctypes.byref(self.job)) + 64
        if needed > len(self._workspace):
            self._workspace = torch.empty(needed, dtype=torch.uint8)
        self.job.workspace = (self._workspace.data_ptr() + 63) // 64 * 64
        _raise_for(self._kernel.cmalight_run(ctypes.byref(self.job)))


def _raise_for(code: int) -> None:
    if code:
        raise IndexError(_OUT_OF_RANGE[code])


def _data(batches: TensorBatches) -> tuple[Tensor, Tensor]:
    if type(batches) is not TensorBatches:  # a subclass may give other batches
        raise CannotCompile(f"the data are {type(batches).__name__}; expected TensorBatches")
    if len(batches.tensors) != 2:
        raise CannotCompile(f"the data have {len(batches.tensors)} tensors; expected inputs and targets")
    inputs, targets = batches.tensors
    if len(inputs) != len(targets):
        raise CannotCompile(f"there are {len(inputs)} inputs and {len(targets)} targets")
    for tensor in (inputs, targets):
        if type(tensor) is not Tensor or tensor.device.type != "cpu" or not tensor.is_contiguous():
            raise CannotCompile("the data are not plain contiguous tensors on the CPU")
        if tensor.requires_grad or tensor.numel() == 0:
            raise CannotCompile("the data require gradients or are empty")
    return inputs, targets
