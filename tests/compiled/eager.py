"""The oracle: the same steps by torch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from cmalight.compiled import Program, compile_training
from cmalight.evaluation.batches import TensorBatches

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-11}
Make = Callable[[Any], Optimizer]


def eager_steps(
    model: nn.Module,
    loss_fn: nn.Module,
    optimizer: Optimizer,
    batches: TensorBatches,
    permutation: Tensor,
    factors: Sequence[float],
) -> Tensor:
    """What `Program.run` does, step by step."""
    losses = []
    for number, factor in enumerate(factors):
        rows = permutation[number * batches.batch_size : (number + 1) * batches.batch_size]
        inputs, targets = (t[rows] for t in batches.tensors)
        optimizer.zero_grad()
        loss = loss_fn(model(inputs), targets)
        loss.backward()
        losses.append(loss.item())
        before = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] *= factor
        optimizer.step()
        for group, lr in zip(optimizer.param_groups, before, strict=True):
            group["lr"] = lr
    return torch.tensor(losses, dtype=torch.float64)


class Pair:
    """Two equal runs, one by torch and one compiled."""

    def __init__(self, model: nn.Module, loss_fn: nn.Module, make: Make, batches: TensorBatches) -> None:
        self.model, self.twin = model, copy.deepcopy(model)
        self.loss_fn, self.batches = loss_fn, batches
        self.optimizer, self.twin_optimizer = make(model.parameters()), make(self.twin.parameters())
        self.program: Program = compile_training(model, loss_fn, self.optimizer, batches)
        self.dtype = next(model.parameters()).dtype

    def epoch(self, number: int, factors: Sequence[float] | None = None, tolerance: float | None = None) -> None:
        """One epoch of both, in two calls; the losses have to agree."""
        permutation = self.batches.permutation(number)
        factors = factors or [1 / (1 + i) for i in range(len(self.batches))]
        torch.manual_seed(number)
        self.program.begin_epoch(permutation)
        losses = torch.cat([self.program.run(factors[:1]), self.program.run(factors[1:])])
        after = torch.get_rng_state()
        torch.manual_seed(number)
        expected = eager_steps(self.twin, self.loss_fn, self.twin_optimizer, self.batches, permutation, factors)
        close(losses, expected, tolerance or TOLERANCE[self.dtype])
        assert torch.equal(torch.get_rng_state(), after)

    def check(self, *, state: bool = True, tolerance: float | None = None) -> None:
        """Parameters, buffers and, where it is unique, optimizer state agree."""
        tolerance = tolerance or TOLERANCE[self.dtype]
        for (name, ours), theirs in zip(self.model.state_dict().items(), self.twin.state_dict().values(), strict=True):
            close(ours, theirs, tolerance, name)
        if state:
            mine, other = self.optimizer.state_dict()["state"], self.twin_optimizer.state_dict()["state"]
            assert mine.keys() == other.keys()
            for key in mine:
                assert mine[key].keys() == other[key].keys()
                for name in mine[key]:
                    close(torch.as_tensor(mine[key][name]), torch.as_tensor(other[key][name]), tolerance, name)


def close(ours: Tensor, theirs: Tensor, tolerance: float, name: str = "") -> None:
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance, msg=lambda text: f"{name}: {text}")
