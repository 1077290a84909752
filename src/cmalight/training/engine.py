"""The engine of one run: chosen before its first epoch, given up where it cannot go on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from torch.optim import Optimizer

from cmalight.compiled import select
from cmalight.compiled.layout import CannotCompile
from cmalight.evaluation.batches import TensorBatches
from cmalight.training.loop import Problem

if TYPE_CHECKING:
    from cmalight.compiled.epochs import CompiledEngine
    from cmalight.compiled.loop import BlockLoop

logger = logging.getLogger("cmalight")

EngineName = Literal["auto", "eager", "compiled"]


class ChosenEngine:
    """`compiled` is the engine, or None for eager epochs; `reason` says why, where that was a choice."""

    def __init__(self, wanted: EngineName, problem: Problem, optimizer: Optimizer) -> None:
        self.compiled: CompiledEngine | None = None
        self.reason = ""
        self.compiler: BlockLoop | None = None  # what has compiled, used or not
        self._wanted = wanted
        self._problem = problem
        self._optimizer = optimizer
        self._remembered: bool | None = None

    @property
    def compile_seconds(self) -> float:
        return 0.0 if self.compiler is None else self.compiler.compile_seconds

    def choice(self) -> tuple[bool, str]:
        """Whether epochs are compiled, and why; what `remember` takes."""
        return self.compiled is not None, self.reason

    def remember(self, compiled: bool, reason: str) -> None:
        """What a run that is gone on with had chosen: "auto" depends on time, and would choose otherwise now."""
        self._remembered, self.reason = compiled, reason

    def choose(self, *, epochs_left: float, seconds_left: Callable[[], float]) -> None:
        """Compile where that was asked for, or is predicted to pay."""
        if self._wanted == "eager":
            return
        try:
            if self._wanted == "compiled" or self._is_chosen(epochs_left, seconds_left):
                self._compile(seconds_left)
        except CannotCompile as reason:
            if self._wanted == "compiled":
                raise ValueError(
                    f"engine='compiled' is not possible here: {reason}; use engine='eager', or 'auto'"
                ) from reason
            self._say(reason)

    def _is_chosen(self, epochs_left: float, seconds_left: Callable[[], float]) -> bool:
        return self._pays(epochs_left, seconds_left()) if self._remembered is None else self._remembered

    def give_up(self, reason: CannotCompile) -> None:
        """Go on with eager epochs."""
        self.compiled = None
        self._say(reason)

    def _say(self, reason: CannotCompile) -> None:
        self.reason = str(reason)
        logger.warning("Epochs are not compiled: %s.", reason)

    def _pays(self, epochs_left: float, seconds_left: float) -> bool:
        from cmalight.compiled.checks import check_without_running

        problem = self._problem
        if not isinstance(problem.feed, TensorBatches):
            self.reason = "the data is not in memory"
            return False
        work = select.Work(epochs_left, seconds_left, len(problem.feed))
        if not select.might_pay(problem.model, work):
            self.reason = "too little to do for compiling to pay"
            return False
        try:
            feed = check_without_running(problem.model, problem.loss_fn, self._optimizer, problem.feed)
        except CannotCompile as reason:  # it is not known whether it would pay, so nothing is said
            self.reason = str(reason)
            return False
        saving = select.predicted_saving(problem.model, problem.loss_fn, self._optimizer, feed, work)
        if not select.pays(saving, problem.model):
            self.reason = f"compiling would save about {saving:.0f} s, and take too large a part of that"
            return False
        expected = select.compile_seconds(problem.model)
        self.reason = f"to save about {saving:.0f} s"
        logger.warning("Epochs are compiled, in about %.0f s, %s.", expected, self.reason)
        return True

    def _compile(self, seconds_left: Callable[[], float]) -> None:
        from cmalight.compiled.checks import check
        from cmalight.compiled.epochs import CompiledEngine

        problem = self._problem
        engine = CompiledEngine(
            problem.model,
            problem.loss_fn,
            self._optimizer,
            check(problem.model, problem.loss_fn, self._optimizer, problem.feed),
            before_block=problem.before_batch,
            seconds_left=seconds_left,
        )
        self.compiler = engine
        engine.prepare()
        self.compiled = engine
