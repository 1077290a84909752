"""A compiled training loop: several steps in one call of the kernel."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from cmalight.compiled import interface, library
from cmalight.compiled.interface import CannotCompile, Kind
from cmalight.compiled.layers import LayerSpec, Stack, lower
from cmalight.compiled.losses import LossSpec, lower_loss
from cmalight.compiled.steps import Steps
from cmalight.evaluation.batches import TensorBatches

# Multiplications per call of the kernel, so that Ctrl-C is honoured within about a tenth of a second.
_WORK_PER_CALL = 2e9
_OUT_OF_RANGE = {
    1: "a row of the permutation is out of range",
    2: "a target is out of bounds: labels must be below the number of logits",
    3: "index out of range in the Embedding",
}


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
        self._workspace = torch.empty(0, dtype=torch.uint8)
        self._lower()
        if self._stack.batch_norm and batches.samples % batches.batch_size == 1:
            raise CannotCompile("BatchNorm1d needs more than one row, and the last batch has one")
        self._kernel = library.kernel()

    def begin_epoch(self, permutation: Tensor) -> None:
        """Start an epoch.

        Args:
            permutation: The rows of the epoch in their order.

        Raises:
            CannotCompile: The model, the loss, the optimizer or the data have changed, and are no longer on the list.
            IndexError: A row, a label or an index of an embedding is out of range.
            ValueError: A batch of one row under BatchNorm1d.
        """
        self._lower()
        self._rows = permutation.to(device="cpu", dtype=torch.int64).contiguous().clone()
        self._next = 0
        job = self._job
        job.rows, job.rows_count = self._rows.data_ptr(), len(self._rows)
        job.first_step, job.steps = 0, self._remaining()
        if self._stack.batch_norm and job.rows_count % job.batch_size == 1:
            raise ValueError("Expected more than 1 value per channel when training; the last batch has one row")
        self._raise_for(self._kernel.cmalight_check(ctypes.byref(job)))

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
                count = min(self._steps_per_call, len(factors) - done)
                self._call(scales[done : done + count], losses[done : done + count])
            done += count
            self._next += count
        return losses

    def _remaining(self) -> int:
        return -(-len(self._rows) // self._batches.batch_size) - self._next

    def _call(self, scales: Tensor, losses: Tensor) -> None:
        job, steps = self._job, self._steps
        groups = steps.groups()
        steps.fill(self._parameters)
        masks = self._fill_layers()
        job.groups, job.factors, job.losses = groups, scales.data_ptr(), losses.data_ptr()
        job.first_step, job.steps = self._next, len(scales)
        needed = self._kernel.cmalight_workspace(ctypes.byref(job)) + 64
        if needed > len(self._workspace):
            self._workspace = torch.empty(needed, dtype=torch.uint8)
        job.workspace = (self._workspace.data_ptr() + 63) // 64 * 64
        self._raise_for(self._kernel.cmalight_run(ctypes.byref(job)))
        steps.taken(len(scales))
        del masks
        buffers = [buffer for spec in self._stack.layers for buffer in spec.buffers]
        torch.autograd.graph.increment_version([*self._stack.parameters, *buffers, *steps.tensors()])

    def _fill_layers(self) -> list[Tensor]:
        """Addresses of buffers, and the masks of dropouts, drawn in the order of the layers as torch draws them."""
        masks = []
        rows = min(self._job.batch_size, len(self._rows) - self._next * self._job.batch_size)
        for one, spec in zip(self._layers, self._stack.layers, strict=True):
            if spec.buffers:
                one.mean, one.variance, one.tracked = (buffer.data_ptr() for buffer in spec.buffers)
            elif spec.kind is Kind.DROPOUT:
                masks.append(torch.empty((rows, spec.outputs), dtype=self._stack.dtype).bernoulli_(spec.keeps))
                one.mask = masks[-1].data_ptr()
        return masks

    def _eager_step(self, factor: float) -> float:
        begin = self._next * self._batches.batch_size
        rows = self._rows[begin : begin + self._batches.batch_size]
        inputs, targets = (t.index_select(0, rows) for t in self._batches.tensors)
        before = [group["lr"] for group in self._optimizer.param_groups]
        self._optimizer.zero_grad()
        try:
            with torch.enable_grad():
                loss = self._loss_fn(self._model(inputs), targets)
                loss.backward()
            for group, lr in zip(self._optimizer.param_groups, before, strict=True):
                group["lr"] = lr * factor
            self._optimizer.step()
        finally:
            for group, lr in zip(self._optimizer.param_groups, before, strict=True):
                group["lr"] = lr
        self._optimizer.zero_grad()
        return float(loss.detach())

    def _raise_for(self, code: int) -> None:
        if code:
            raise IndexError(_OUT_OF_RANGE[code])

    def _lower(self) -> None:
        """Go through the white list, and describe what is there to the kernel."""
        inputs, targets = _data(self._batches)
        if torch.is_autocast_enabled("cpu"):
            raise CannotCompile("autocast is on")
        stack = lower(self._model, inputs)
        loss = lower_loss(self._loss_fn, stack.shape, stack.dtype, targets)
        self._steps = Steps(self._optimizer, stack.parameters)
        self._stack, self._loss, self._tensors = stack, loss, (inputs, targets)
        place_of = {id(p): place for place, p in enumerate(stack.parameters)}
        self._layers = (interface.Layer * len(stack.layers))(*(_layer(spec, place_of) for spec in stack.layers))
        self._parameters = (interface.Parameter * max(1, len(stack.parameters)))()
        for one, p, group in zip(self._parameters, stack.parameters, self._steps.group_of, strict=False):
            one.count, one.rows, one.columns, one.group = p.numel(), len(p), p.numel() // len(p), group
        self._job = _job(stack, loss, inputs, targets, self._batches.batch_size)
        self._job.layers, self._job.parameters, self._job.method = self._layers, self._parameters, self._steps.method
        work = 3 * self._batches.batch_size * sum(p.numel() for p in stack.parameters)
        has_masks = any(spec.kind is Kind.DROPOUT for spec in stack.layers)
        self._steps_per_call = 1 if has_masks else max(1, int(_WORK_PER_CALL / work))


def _data(batches: TensorBatches) -> tuple[Tensor, Tensor]:
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


def _job(stack: Stack, loss: LossSpec, inputs: Tensor, targets: Tensor, batch_size: int) -> interface.Job:
    job = interface.Job(is_double=stack.dtype == torch.float64, samples=len(inputs), batch_size=batch_size)
    job.layers_count, job.parameters_count = len(stack.layers), len(stack.parameters)
    job.inputs, job.input_size = inputs.data_ptr(), inputs[0].numel()
    job.targets, job.target_size = targets.data_ptr(), loss.size
    job.loss, job.ignored, job.smoothing = loss.kind, loss.ignored, loss.smoothing
    job.loss_weight, job.positive_weight = (
        None if one is None else one.data_ptr() for one in (loss.weight, loss.positive_weight)
    )
    return job
