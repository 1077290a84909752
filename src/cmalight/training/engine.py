"""Which engine takes the steps: compiled for what is on the white list, eager for the rest."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Literal

from torch import nn

from cmalight.compiled import CannotCompile, Evaluator, Program, compile_training
from cmalight.evaluation.batches import TensorBatches
from cmalight.training.data import counts_rows
from cmalight.training.measuring import Loss
from cmalight.training.steps import PlainSteps, Run

logger = logging.getLogger("cmalight")

EngineName = Literal["auto", "compiled", "eager"]


class Engine:
    """The engine of one run, and the `reason` if its epochs are not compiled.

    It is never the reason why a run fails: whatever goes wrong here, eager steps follow.
    """

    def __init__(self, wanted: EngineName, model: nn.Module, loss_fn: Loss, batches: Any) -> None:
        self.wanted = wanted
        self.reason = "asked for" if wanted == "eager" else ""
        self.sizes: list[int] = []  # of the batches of a compiled epoch
        self._model, self._loss_fn, self._batches = model, loss_fn, batches
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
        batches = self._batches
        try:
            if type(batches) is not TensorBatches:
                raise CannotCompile("the data are not tensors in memory")
            if not counts_rows(self._loss_fn, batches):
                raise CannotCompile("the loss weights classes, or ignores some targets")
            self._program = compile_training(self._model, self._loss_fn, steps.compilable(), batches)
        except Exception as error:
            self._fall_back(error)
            return
        self._evaluator = None if steps.objective is None else self.evaluator(batches, "train")
        rest = batches.samples % batches.batch_size
        self.sizes = [batches.batch_size] * (batches.samples // batches.batch_size) + [rest] * (rest > 0)

    def begin_epoch(self) -> Run | None:
        """Give the program the rows of the next epoch; what takes its steps, or None for an eager epoch."""
        if self._program is None:
            return None
        batches = self._batches
        try:
            self._program.begin_epoch(batches.permutation(batches.epoch))
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

    def evaluator(self, data: Any, mode: Literal["train", "eval"]) -> Evaluator | None:
        """The kernel's evaluation of data in that mode; None if it has none."""
        if self.wanted == "eager" or type(data) is not TensorBatches:
            return None
        try:
            return Evaluator(self._model, self._loss_fn, data, mode=mode)
        except Exception:  # the eager evaluation needs no reason
            return None

    def _fall_back(self, error: Exception) -> None:
        self._program = self._evaluator = None
        if isinstance(error, CannotCompile):
            self.reason = str(error)
            logger.info("Not compiled, training eagerly: %s", self.reason)
            return
        said = (str(error).strip().splitlines() or [""])[0]
        self.reason = f"the engine failed with {type(error).__name__}: {said}"
        logger.warning("Not compiled, training eagerly: %s", self.reason)
