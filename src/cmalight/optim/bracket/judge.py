"""Between the bracket and the rule: has evaluated what the rule asks for, and carries out what it decides."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

from cmalight.optim.bracket.window import Window
from cmalight.optim.control.control import Control
from cmalight.optim.control.report import EpochReport
from cmalight.optim.control.state import UNKNOWN, ControlState, finite_or_unknown
from cmalight.optim.inner.settling import GradientWeights, Totals
from cmalight.parallel.ranks import Ranks
from cmalight.rules.outcome import Outcome
from cmalight.rules.rule import Decision, InnerCycle, Known, Rule, no_step

logger = logging.getLogger("cmalight")


class Judge:
    """Judges the windows of one epoch.

    Args:
        control: What is remembered.
        rule: By what is judged.
        objective: What is evaluated.
        ranks: Who share the epoch.
        begun: What was known when the epoch began.
    """

    def __init__(self, control: Control, rule: Rule, objective: Any, ranks: Ranks, begun: ControlState) -> None:
        self.rule = rule
        self._control = control
        self._objective = objective
        self._ranks = ranks
        self._known = Known(begun.f_0, begun.phi, None if begun.f_current == UNKNOWN else begun.f_current)
        self._sample_first = begun.sample_first
        self._sample_before = begun.sample_current
        self._sample_after = UNKNOWN
        self._zeta = begun.height

    @property
    def f_current(self) -> float | None:
        """f(w^k), where it is known."""
        return self._known.f_current

    @property
    def sample_current(self) -> float:
        """The sample's mean loss at w^k, where it is known."""
        return self._sample_before

    def open(self, window: Window) -> None:
        """From here on this is what is judged."""
        self._window = window
        self._zeta = self._control.state.height
        if window.earlier.samples:
            self._sample_before = window.sample_before

    _window: Window

    def let_go(self) -> None:
        """Of the window, with its copy of the weights: before another is made, and where the epoch ends."""
        self.__dict__.pop("_window", None)

    def conclude(
        self, window: Window, weights: GradientWeights | None, *, share: float | None, may_wait: bool
    ) -> tuple[EpochReport, float]:
        """Decide, go where the decision leads, and write it down; with the report come the samples it is of.

        Whatever fails or is interrupted on the way leaves the weights at w^k, not at a trial point. `may_wait` where
        the epoch is over, so that the next one may go on with its window.
        """
        try:
            of_epoch = _totals(window, weights)
            totals = window.earlier.and_then(of_epoch)
            self._refuse_strange_steps(window, totals)
            inner = InnerCycle(  # line 5
                zeta=self._zeta,
                f_tilde=finite_or_unknown(totals.loss / totals.samples),
                direction_norm=totals.displacement / self._zeta,
                batches=totals.samples / totals.nominal,
                share=share,
            )
            if of_epoch.samples:  # what is reported is the epoch's, not that of all in its window
                reported = replace(inner, f_tilde=finite_or_unknown(of_epoch.loss / of_epoch.samples))
            else:
                reported = inner
            if may_wait and self.rule.judges_parts and self._waits(inner, reported.f_tilde, of_epoch, totals):
                window.leave_open(totals, self._sample_before)
                waiting = Decision(Outcome.OPEN, self._zeta, 1.0, self._known.phi, None)
                return self._control.commit(reported, waiting, sample=UNKNOWN), of_epoch.samples
            if totals.steps:
                memory = self._control.memory(self.rule)
                decision, memory = self.rule.decide(inner, self._known, memory, self)
                self._control.remember(memory)
            else:
                decision = no_step(self._known)
            self._go(window, decision)
        except BaseException:
            window.go_back()
            raise
        return self._commit(reported, decision), of_epoch.samples

    def _waits(self, inner: InnerCycle, f_tilde: float, of_epoch: Totals, totals: Totals) -> bool:
        """Only if all ranks would: each may know another share of the budget, and nothing else."""

        def waits(share: float | None) -> bool:
            return self.rule.waits(
                self._known,
                self._control.memory(self.rule),
                batches=inner.batches,
                of_epoch=of_epoch.samples / totals.nominal,
                f_tilde=f_tilde,
                share=share,
            )

        if not totals.steps or not inner.is_finite or not waits(None if inner.share is None else 0.0):
            return False  # on every rank, without asking the others
        return all(row[0] for row in self._ranks.gather(waits(inner.share)))

    def conclude_early(self, window: Window, lower_bound: float) -> EpochReport:
        """Of an epoch that is lost."""
        inner = InnerCycle(self._zeta, finite_or_unknown(lower_bound), math.nan, math.nan)
        decision = self.rule.decide_early(inner, self._known)
        window.go_back()
        return self._commit(inner, decision)

    def _refuse_strange_steps(self, window: Window, totals: Totals) -> None:
        if totals.steps:
            return
        if totals.displacement > 0.0 and not window.steps_taken:
            name = self._control.name
            raise RuntimeError(
                f"The weights moved in this epoch, but not by step() of {name}: call its step(), not that of another "
                "optimizer or of the one inside it. The epoch was undone."
            )
        logger.warning("No step() was taken in this epoch, so it says nothing: lr and weights stay as they are.")

    def _go(self, window: Window, decision: Decision) -> None:
        if decision.alpha:
            window.snapshot.move(decision.alpha / self._zeta)  # line 20
        else:
            window.go_back()

    def _commit(self, inner: InnerCycle, decision: Decision) -> EpochReport:
        if not decision.alpha:
            sample = self._sample_before
        else:
            sample = self._sample_after if decision.alpha == inner.zeta else UNKNOWN
        self._sample_before, self._sample_after = sample, UNKNOWN
        self._known = Known(self._known.f_0, decision.phi, decision.f_next)
        return self._control.commit(inner, decision, sample=sample)

    # What a rule may ask for.

    def f_start(self) -> float:
        """f(w^k): what is known of it, or an evaluation."""
        return self._known.f_current if self._known.f_current is not None else self.f_at(0.0)

    def f_at(self, alpha: float) -> float:
        """f(w^k + alpha d), evaluated; the weights stay there."""
        self._move_to(alpha)
        return self._control.evaluator.full(self._objective, self._ranks)

    def sample_first(self) -> float:
        """At w⁰; of a run from before samples were kept, f(w⁰)."""
        return self._sample_first if self._sample_first != UNKNOWN else self._known.f_0

    def sample_before(self) -> float:
        """At w^k."""
        if self._sample_before == UNKNOWN:
            self._move_to(0.0)
            self._sample_before = self._control.evaluator.of_sample(self._objective, self._ranks)
        return self._sample_before

    def sample_after(self) -> float:
        """At w̃."""
        if self._sample_after == UNKNOWN:
            self._move_to(self._zeta)
            self._sample_after = self._control.evaluator.of_sample(self._objective, self._ranks)
        return self._sample_after

    def _move_to(self, alpha: float) -> None:
        if alpha != self._zeta:
            self._window.snapshot.set_aside()
        self._window.snapshot.move(alpha / self._zeta)

    # What the lookout asks.

    @property
    def doubtful_above(self) -> float:
        """Up to here a lower bound of f̃ leaves no doubt."""
        return self.rule.doubtful_above(self._known)

    def is_lost(self, lower_bound: float, asked_once: Callable[[], None]) -> bool:
        """Whether that bound rules out success; `asked_once` is called where f(w^k) had to be evaluated for it."""

        def f_start_in_mid_epoch() -> float:
            asked_once()
            try:
                f_start = self.f_start()
            finally:
                self._window.snapshot.move(1.0)
                self._window.snapshot.release_tentative()
            self._known = replace(self._known, f_current=f_start)
            return f_start

        return self.rule.is_lost(lower_bound, self._known, f_start_in_mid_epoch)

    def saw_a_negative_loss(self) -> None:
        """No epoch of the run is rejected early from now on."""
        self._control.update(negative_loss_seen=1)


def _totals(window: Window, weights: GradientWeights | None) -> Totals:
    """What was collected in the epoch, on all ranks together."""
    own = Totals(
        loss=window.losses.value(),
        samples=window.counts.total,
        nominal=window.counts.nominal,
        steps=window.steps_taken - int(window.skipped),
        displacement=window.displacement_norm(),
    )
    totals = own if weights is None else weights.agreed(own)
    if not totals.samples and not window.earlier.samples:
        refuse_empty_epoch()
    return totals


def refuse_empty_epoch() -> NoReturn:
    """Somebody has forgotten something."""
    raise RuntimeError(
        "The epoch saw no batch: call epoch.observe(loss, len(target)) for each batch, "
        "and check that the loader is not empty"
    )
