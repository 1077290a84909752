"""The engine of one run: chosen before its first epoch, given up where it cannot go on."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeVar

from torch.optim import Optimizer

from cmalight.compiled.engine import select
from cmalight.compiled.engine.checks import check, check_without_running
from cmalight.compiled.engine.evaluation import merged_size
from cmalight.compiled.layout import CannotCompile
from cmalight.compiled.native import library
from cmalight.compiled.native.library import NoCompiler
from cmalight.compiled.trust.canary import Differs
from cmalight.evaluation.batches import TensorBatches
from cmalight.training.epochs.loop import ModelAndData

if TYPE_CHECKING:
    from cmalight.compiled.engine.epochs import CompiledEngine
    from cmalight.compiled.engine.loop import BlockLoop

logger = logging.getLogger("cmalight")

# By how much the most that can be lost must be above what is to be paid, to be taken for certain.
_CERTAINLY = 3.0
_TOO_LITTLE = "too little to do for compiling to pay"

EngineName = Literal["auto", "eager", "compiled"]
_Engine = TypeVar("_Engine", bound="BlockLoop")


class ChosenEngine:
    """`compiled` is the engine, or None for eager epochs; `reason` says why, where that was a choice."""

    def __init__(self, wanted: EngineName, trained: ModelAndData, optimizer: Optimizer) -> None:
        self.compiled: CompiledEngine | None = None
        self.reason = ""
        self.compiler: BlockLoop | None = None  # what has compiled, used or not
        self._wanted = wanted
        self._trained = trained
        self._optimizer = optimizer
        self._remembered: bool | None = None
        self._saving: float | None = None  # in seconds, where "auto" predicted one
        self._work: select.Work | None = None  # where a saving is predicted only if something is to be built

    @property
    def compile_seconds(self) -> float:
        return 0.0 if self.compiler is None else self.compiler.compile_seconds

    def choice(self) -> tuple[bool, str]:
        """Whether epochs are compiled, and why; what `remember` takes."""
        return self.compiled is not None, self.reason

    def remember(self, compiled: bool, reason: str) -> None:
        """What a run that is gone on with had chosen: "auto" depends on time, and would choose otherwise now."""
        self._remembered, self.reason = compiled, reason

    def choose(
        self,
        *,
        epochs_left: float,
        seconds_left: Callable[[], float],
        has_callbacks: bool,
        note: Callable[[str], None],
    ) -> None:
        """Compile where that was asked for, or is predicted to pay; `note` is told what takes time."""
        from cmalight.compiled.engine.epochs import CompiledEngine

        trained = self._trained

        def make(feed: TensorBatches) -> CompiledEngine:
            return CompiledEngine(
                trained.model,
                trained.loss_fn,
                self._optimizer,
                feed,
                before_block=trained.before_batch,
                seconds_left=seconds_left,
                has_callbacks=has_callbacks,
            )

        self.compiled = self.chosen(make, epochs_left=epochs_left, seconds_left=seconds_left(), note=note)

    def chosen(
        self,
        make: Callable[[TensorBatches], _Engine],
        *,
        epochs_left: float,
        seconds_left: float,
        note: Callable[[str], None],
    ) -> _Engine | None:
        """An engine that is ready, or None for eager epochs.

        Args:
            make: gives the engine for data that is known to be in memory.
            epochs_left: of all starts together.
            seconds_left: of the time limit.
            note: is told what takes time.

        Raises:
            ValueError: compiling was asked for, and is not possible.
        """
        if self._wanted == "eager":
            return None
        trained = self._trained
        try:
            if self._wanted == "compiled" or self._might_pay(epochs_left, seconds_left):
                engine = make(check(trained.model, trained.loss_fn, self._optimizer, trained.feed))
                self.compiler = engine
                return engine if self._is_prepared(engine, note) else None
        except CannotCompile as reason:
            if self._wanted == "compiled":
                raise _not_possible(reason) from reason
            self._say(reason)
        return None

    def give_up(self, reason: CannotCompile) -> None:
        """Go on with eager epochs.

        Raises:
            ValueError: compiling was asked for, and what was compiled is not what is to be trained.
        """
        self.compiled = None
        if self._wanted == "compiled" and isinstance(reason, Differs):
            raise _not_possible(reason) from reason
        self._say(reason)

    def _say(self, reason: CannotCompile) -> None:
        self.reason = str(reason)
        say = _say_once if isinstance(reason, NoCompiler) else logger.warning
        say("Epochs are not compiled: %s.", self.reason)

    def _might_pay(self, epochs_left: float, seconds_left: float) -> bool:
        """Before anything is written or built."""
        trained = self._trained
        if self._remembered is not None:
            return self._remembered
        if not isinstance(trained.feed, TensorBatches):
            self.reason = "the data is not in memory"
            return False
        work = select.Work(epochs_left, seconds_left, len(trained.feed))
        expected = select.writing_seconds(trained.model)
        known = library.is_remembered(self._description(trained.feed))
        if known and select.might_pay(trained.model, work, _CERTAINLY * expected):  # measuring would cost, too
            self.reason, self._work = "it was built before", work
            return True
        if not known:
            expected += select.compile_seconds(trained.model, written=True)
        if not select.might_pay(trained.model, work, expected):
            self.reason = _TOO_LITTLE
            return False
        try:
            feed = check_without_running(trained.model, trained.loss_fn, self._optimizer, trained.feed)
        except CannotCompile as reason:  # it is not known whether it would pay, so nothing is said
            self.reason = str(reason)
            return False
        self._saving = select.predicted_saving(trained.model, trained.loss_fn, self._optimizer, feed, work)
        if not select.pays(self._saving, expected):
            self.reason = f"compiling would save about {self._saving:.1f} s, and take about {expected:.1f} s"
            return False
        return True

    def _description(self, feed: TensorBatches) -> str:
        """Of what the steps depend on, as far as it can be seen without running the model."""
        model = self._trained.model
        shapes = [(t.shape[1:], t.dtype) for t in feed.tensors]
        sizes = min(feed.batch_size, feed.samples), feed.samples % feed.batch_size, merged_size(model, feed)
        groups = self._optimizer.param_groups
        plain = [{k: v for k, v in group.items() if k not in ("params", "lr")} for group in groups]
        dtypes = {str(p.dtype) for p in model.parameters()}
        return f"{model} {self._trained.loss_fn} {shapes} {sizes} {dtypes} {type(self._optimizer).__name__} {plain}"

    def _is_prepared(self, engine: BlockLoop, note: Callable[[str], None]) -> bool:
        """Compiled, unless that takes too large a part of what "auto" hopes to save."""
        planned, trained, model = engine.plan(), self._trained, self._trained.model
        if planned.is_ready:
            engine.prepare()
        else:
            expected = select.compile_seconds(model, written=planned.program is not None)
            if self._work is not None and isinstance(trained.feed, TensorBatches):  # what was built before is another
                self._saving = select.predicted_saving(
                    model, trained.loss_fn, self._optimizer, trained.feed, self._work
                )
            if self._saving is not None and not select.pays(self._saving, expected):
                self.reason = f"compiling would save about {self._saving:.1f} s, and take about {expected:.1f} s"
                return False
            note(f"compiling the steps, about {expected:.1f} s")
            engine.prepare()
            note(f"compiled in {engine.compile_seconds:.1f} s")
        if planned.program is not None and isinstance(trained.feed, TensorBatches):
            library.remember(self._description(trained.feed))
        if self._saving is not None:
            self.reason = f"to save about {self._saving:.1f} s"
        return True


def _not_possible(reason: CannotCompile) -> ValueError:
    return ValueError(f"engine='compiled' is not possible here: {reason}; use engine='eager', or 'auto'")


@functools.cache
def _say_once(message: str, *arguments: object) -> None:
    logger.warning(message, *arguments)
