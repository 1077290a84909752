"""Which engine takes the steps, compiled for what is on the white list, eager for the rest; and on how many threads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from cmalight.compiled import CannotCompile, Evaluator, Program, compile_training
from cmalight.evaluation.batches import TensorBatches
from cmalight.evaluation.objective import Objective
from cmalight.training.data import counts_rows
from cmalight.training.measuring import native
from cmalight.training.steps import PlainSteps, Run

logger = logging.getLogger("cmalight")

EngineName = Literal["auto", "compiled", "eager"]

_PRODUCTS_WORTH_THREADS = 4_000_000  # multiplications in a step


class Engine:
    """The engine of one run, and the `reason` if its epochs are not compiled.

    It is never the reason why a run fails: whatever goes wrong here, eager steps follow.
    """

    def __init__(self, wanted: EngineName, objective: Objective) -> None:
        self.wanted = wanted
        self.reason = "asked for" if wanted == "eager" else ""
        self.sizes: list[int] = []  # batch sizes of a compiled epoch
        self._objective, self._batches = objective, objective.data
        self._program: Program | None = None
        self._evaluator: Evaluator | None = None

    @property
    def name(self) -> str:
        """The engine that runs the epochs now, "eager" or "compiled"."""
        return "eager" if self._program is None else "compiled"

    def compile(self, steps: PlainSteps) -> None:
        """Run the steps natively from now on, if that can be done: model, loss, optimizer and machine decide."""
        if self.reason:
            return
        objective, batches = self._objective, self._batches
        try:
            if type(batches) is not TensorBatches:
                raise CannotCompile("the data are not tensors in memory")
            if not counts_rows(objective.loss_fn, batches):
                raise CannotCompile("the loss weights classes, or ignores some targets")
            self._program = compile_training(objective.model, objective.loss_fn, steps.compilable, batches)
        except Exception as error:
            self._fall_back(error)
            return
        whole, rest = divmod(batches.samples, batches.batch_size)
        self.sizes = [batches.batch_size] * whole + [rest] * (rest > 0)
        self._evaluator = None if steps.objective is None else native(objective, batches, "train")

    def begin_epoch(self) -> Run | None:
        """Give the program the rows of the next epoch; what takes its steps, or None for an eager epoch."""
        if self._program is None:
            return None
        batches = self._batches
        rows = batches.permutation(batches.epoch)
        try:
            self._program.begin_epoch(rows)
            if self._evaluator is not None:
                self._evaluator.refresh()
        except Exception as error:  # a callback may have changed anything; eager steps say what is wrong with data
            self._fall_back(error)
            return None
        batches.set_epoch(batches.epoch + 1)
        return self._program.run

    def fast(self) -> Callable[[], float] | None:
        """What evaluates the training loss in this epoch natively; None if nothing does."""
        return None if self._evaluator is None else self._evaluator.loss

    def _fall_back(self, error: Exception) -> None:
        self._program = self._evaluator = None
        if isinstance(error, CannotCompile):
            self.reason = str(error)
            logger.info("Not compiled, training eagerly: %s", self.reason)
            return
        said = (str(error).strip().splitlines() or [""])[0]
        self.reason = f"the engine failed with {type(error).__name__}: {said}"
        logger.warning("Not compiled, training eagerly: %s", self.reason)


@contextmanager
def limited_threads(threads: int | None, model: nn.Module, batches: Any) -> Iterator[None]:
    """Sets the number of torch's threads for a training; at the end there are as many as before.

    None takes one for small steps over a table, because threads that wait for each other after every small product
    cost more than they bring; else as many as torch has.
    """
    before = torch.get_num_threads()
    if threads is None and _has_small_steps(model, batches):
        threads = 1
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _has_small_steps(model: nn.Module, batches: Any) -> bool:
    """Only if the work can be counted: rows of numbers, and no weight that is used more than once for a row."""
    source = batches.dataset if isinstance(batches, DataLoader) else batches
    if not isinstance(source, TensorBatches | TensorDataset) or source.tensors[0].dim() != 2:
        return False
    if not isinstance(batches.batch_size, int) or any(p.dim() > 2 for p in model.parameters()):
        return False
    return batches.batch_size * sum(p.numel() for p in model.parameters()) < _PRODUCTS_WORTH_THREADS
