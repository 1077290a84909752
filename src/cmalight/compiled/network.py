"""A model, a loss and data as the kernel sees them, and calls of the kernel."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor, nn

from cmalight.compiled import interface, library
from cmalight.compiled.interface import CannotCompile, Kind
from cmalight.compiled.layers import LayerSpec, lower
from cmalight.compiled.losses import lower_loss
from cmalight.evaluation.batches import TensorBatches

# Multiplications per call of the kernel, so that Ctrl-C is honoured within about a tenth of a second.
_WORK_PER_CALL = 2e9
_OUT_OF_RANGE = {
    1: "a row of the permutation is out of range",
    2: "a target is out of bounds: labels must be below the number of logits",
    3: "index out of range in the Embedding",
}


class Network:
    """The structures of `interface` for one model, loss and data, as they are now.

    Args:
        model: A stack of layers on the white list.
        loss_fn: A loss on the white list.
        batches: Inputs and targets.
        training: Stands for the training flag of every module; None takes each one's own.

    Attributes:
        stack: The layers.
        parameters: One structure per parameter of the stack.
        job: What the kernel is called with.

    Raises:
        CannotCompile: Something is not on the white list.
    """

    def __init__(self, model: nn.Module, loss_fn: Any, batches: TensorBatches, training: bool | None = None) -> None:
        inputs, targets = _data(batches)
        if torch.is_autocast_enabled("cpu"):
            raise CannotCompile("autocast is on")
        self.stack = stack = lower(model, inputs, training)
        loss = lower_loss(loss_fn, stack.shape, stack.dtype, targets)
        self._kept = inputs, targets, loss  # their addresses are in the job
        place_of = {id(p): place for place, p in enumerate(stack.parameters)}
        self._layers = (interface.Layer * len(stack.layers))(*(_layer(spec, place_of) for spec in stack.layers))
        self.parameters = (interface.Parameter * max(1, len(stack.parameters)))()
        for one, p in zip(self.parameters, stack.parameters, strict=False):
            one.count, one.rows, one.columns, one.group = p.numel(), len(p), p.numel() // len(p), -1
        self.job = job = interface.Job(is_double=stack.dtype == torch.float64, samples=len(inputs))
        job.layers, job.layers_count = self._layers, len(stack.layers)
        job.parameters, job.parameters_count = self.parameters, len(stack.parameters)
        job.inputs, job.input_size = inputs.data_ptr(), inputs[0].numel()
        job.targets, job.target_size = targets.data_ptr(), loss.size
        job.loss, job.ignored, job.smoothing = loss.kind, loss.ignored, loss.smoothing
        job.loss_weight, job.positive_weight = (
            None if one is None else one.data_ptr() for one in (loss.weight, loss.positive_weight)
        )
        job.batch_size = batches.batch_size
        if stack.batch_norm and has_batch_of_one_row(len(inputs), batches.batch_size):
            raise CannotCompile("BatchNorm1d needs more than one row, and a batch has one")

    @property
    def steps_per_call(self) -> int:
        """Batches that one call of the kernel may take."""
        if any(spec.kind is Kind.DROPOUT for spec in self.stack.layers):
            return 1  # the masks are those of one batch
        work = 3 * self.job.batch_size * sum(p.numel() for p in self.stack.parameters)
        return max(1, int(_WORK_PER_CALL / max(1, work)))

    def point(self, rows: int, *, keep_statistics: bool) -> list[Tensor]:
        """Put the addresses of parameters and buffers as they are now into the structures.

        Args:
            rows: Of the next batch, for the masks of dropouts, which are drawn in the order of torch.
            keep_statistics: Do not update the running statistics of batch norms that normalise by the batch.

        Returns:
            The masks, which have to live as long as the call.
        """
        for one, p in zip(self.parameters, self.stack.parameters, strict=False):
            one.value = p.data_ptr()
        masks = []
        for layer, spec in zip(self._layers, self.stack.layers, strict=True):
            if spec.buffers and not (spec.flag and keep_statistics):
                layer.mean, layer.variance, layer.tracked = (buffer.data_ptr() for buffer in spec.buffers)
            elif spec.kind is Kind.DROPOUT:
                masks.append(torch.empty((rows, spec.outputs), dtype=self.stack.dtype).bernoulli_(spec.keeps))
                layer.mask = masks[-1].data_ptr()
        return masks


class Caller:
    """Calls the kernel, with a workspace that grows as needed."""

    def __init__(self) -> None:
        self._kernel = library.kernel()
        self._workspace = torch.empty(0, dtype=torch.uint8)

    def check(self, job: interface.Job) -> None:
        """Raise IndexError if a row, a label or an index of an embedding is out of range."""
        _raise_for(self._kernel.cmalight_check(ctypes.byref(job)))

    def run(self, job: interface.Job) -> None:
        """Run the job; IndexError as in `check`, before anything is written."""
        needed = self._kernel.cmalight_workspace(ctypes.byref(job)) + 64
        if needed > len(self._workspace):
            self._workspace = torch.empty(needed, dtype=torch.uint8)
        job.workspace = (self._workspace.data_ptr() + 63) // 64 * 64
        _raise_for(self._kernel.cmalight_run(ctypes.byref(job)))


def has_batch_of_one_row(rows: int, batch_size: int) -> bool:
    """Whether one of the batches has a single row, which BatchNorm1d cannot normalise."""
    return batch_size == 1 or rows % batch_size == 1


def _raise_for(code: int) -> None:
    if code:
        raise IndexError(_OUT_OF_RANGE[code])


def _data(batches: TensorBatches) -> tuple[Tensor, Tensor]:
    if type(batches) is not TensorBatches:  # a subclass may give other batches
        raise CannotCompile(f"the data are {type(batches).__name__}; expected TensorBatches")
    if len(batches.tensors) != 2:
        raise CannotCompile(f"the data have {len(batches.tensors)} tensors; expected inputs and targets")
    for tensor in batches.tensors:
        if type(tensor) is not Tensor or tensor.device.type != "cpu" or not tensor.is_contiguous():
            raise CannotCompile("the data are not plain contiguous tensors on the CPU")
        if tensor.requires_grad or tensor.numel() == 0:
            raise CannotCompile("the data require gradients or are empty")
    inputs, targets = batches.tensors
    if len(inputs) != len(targets):
        raise CannotCompile(f"there are {len(inputs)} inputs and {len(targets)} targets")
    return inputs, targets


def _layer(spec: LayerSpec, place_of: dict[int, int]) -> interface.Layer:
    places = (-1 if p is None else place_of[id(p)] for p in (spec.weight, spec.bias))
    sizes = spec.rows, spec.inputs, spec.outputs
    return interface.Layer(spec.kind, spec.function, *sizes, *places, spec.flag, spec.a, spec.b)
