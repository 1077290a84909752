"""Connects an epoch with its rule: evaluates the losses that the rule asks for, and carries out its decision."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import torch

from cmalight.evaluation.state import Snapshot
from cmalight.optim.host import refuse_unequal, refuse_unequal_loaders
from cmalight.optim.reports import EpochReport
from cmalight.optim.window import EpochWindow
from cmalight.rules.epochs import Decision, InnerCycle, Known, no_step

if TYPE_CHECKING:
    from cmalight.optim.epoch_optimizer import EpochOptimizer


class EpochJudge:
    """Judges one epoch.

    Args:
        optimizer: Whose epoch it is.
        objective: What is evaluated; None where nothing is.
    """

    def __init__(self, optimizer: EpochOptimizer, objective: Any) -> None:
        self._optimizer = optimizer
        self._objective = objective
        self._rule: Any = optimizer.rule()
        self._ranks = optimizer.ranks(objective)
        self._end: Snapshot | None = None  # w̃, once the weights have left it

    def begin(self) -> None:
        """Line 3, at w⁰: evaluate f(w⁰)."""
        optimizer = self._optimizer
        if not optimizer.zeta > 0.0:
            raise ValueError("lr of every parameter group is 0, so an epoch cannot move the weights")
        if not any(p.requires_grad for p in optimizer.run_state.parameters):
            raise ValueError("There is nothing to train: no parameter of the optimizer requires a gradient")
        optimizer.forget_if_changed()
        refuse_unequal_loaders(self._objective, self._ranks)
        if optimizer.known is None:
            f_0 = math.nan if self._objective is None else self._evaluate()
            if self._objective is not None and not math.isfinite(f_0):
                raise ValueError(f"The objective is {f_0} at the start: check data, loss and initial weights")
            optimizer.known = self._rule.init(f_0)
            optimizer.zeta_0 = optimizer.zeta
            if getattr(self._rule, "certified", False):
                optimizer.sample_first = self._look()
        optimizer.samples = self._samples_of_the_objective() or optimizer.samples

    def _samples_of_the_objective(self) -> float:
        """How many this rank sees in an epoch; 0 where the objective was not evaluated yet, or does not say.

        The objective counts the samples of all ranks, and by their class weights; so its rows are a bound, too.
        """
        samples, rows = (float(getattr(self._objective, name, 0.0)) for name in ("samples", "rows"))
        return min(samples / self._ranks.size, rows)

    def conclude(self, window: EpochWindow) -> EpochReport:
        """Decide, go where the decision leads, and write it down.

        Whatever fails or is interrupted on the way leaves the weights at w^k, not at a trial point.
        """
        optimizer = self._optimizer
        self._window = window
        self._zeta = optimizer.zeta
        try:
            inner = self._inner_cycle()
            known: Known = optimizer.known  # type: ignore[assignment]
            if not optimizer.epochs and known.f_0 > 0 and window.first_loss is not None:
                _warn_of_sum(float(window.first_loss) / known.f_0, window.counts.nominal)
            decision = self._rule.decide(known, inner, self) if window.taken() else self._no_step(inner, known)
            self._move_to(decision.alpha)  # line 20
        except BaseException:
            optimizer.roll_back()
            raise
        return self._write_down(inner, decision, known)

    def _inner_cycle(self) -> InnerCycle:
        """Line 5, over all ranks."""
        window, run_state = self._window, self._optimizer.run_state
        moved = run_state.distance_from(window.snapshot)
        loss = window.losses.value() if run_state.is_finite(window.snapshot) else math.inf
        rows = self._ranks.gather(window.steps, loss, window.counts.total)
        refuse_unequal(rows)
        _, loss, samples = (sum(column) for column in zip(*rows, strict=True))
        f_tilde = loss / samples
        return InnerCycle(
            zeta=self._zeta,
            f_tilde=f_tilde if math.isfinite(f_tilde) else math.inf,
            direction_norm=moved / self._zeta if self._zeta else math.inf,
            batches=samples / (window.counts.nominal * self._ranks.size),
        )

    def _no_step(self, inner: InnerCycle, known: Known) -> Decision:
        if inner.direction_norm > 0.0 and not self._window.steps:
            raise RuntimeError(
                f"The weights moved in this epoch, but not by step() of {type(self._optimizer).__name__}: call its "
                "step(), not that of another optimizer. The epoch was undone."
            )
        warnings.warn("No step() was taken in this epoch, so it says nothing: lr and weights stay.", stacklevel=4)
        return no_step(known)

    def _write_down(self, inner: InnerCycle, decision: Decision, known: Known) -> EpochReport:
        optimizer = self._optimizer
        optimizer.multiply_lr(decision.zeta_factor)
        optimizer.known = Known(known.f_0, decision.phi, decision.f_next)
        optimizer.epochs += 1
        optimizer.samples = self._samples_of_the_objective() or self._window.counts.total
        optimizer.unmoved = 0 if decision.outcome.keeps else optimizer.unmoved + 1
        stays = decision.phi == known.phi and decision.zeta_factor == 1.0
        optimizer.unchanged = optimizer.unchanged + 1 if stays else 0
        report = EpochReport(
            outcome=decision.outcome,
            lr=inner.zeta,
            next_lr=optimizer.zeta,
            alpha=decision.alpha,
            f_tilde=inner.f_tilde,
            phi=decision.phi,
            direction_norm=inner.direction_norm,
            evaluations=optimizer.evaluations - optimizer.reported,
        )
        optimizer.reported = optimizer.evaluations
        if optimizer.needs_objective:
            certified = getattr(self._rule, "certified", True)
            optimizer.warn_if_stalled(cycles=not certified, advice=_TRY_LR if certified else _TRY_CERTIFIED)
        return report

    # What a rule may ask for.

    def f_start(self) -> float:
        """f(w^k): what is known of it, or an evaluation."""
        known: Known = self._optimizer.known  # type: ignore[assignment]
        return known.f_current if known.f_current is not None else self.f_at(0.0)

    def f_at(self, alpha: float) -> float:
        """f(w^k + alpha d), evaluated; the weights stay there."""
        self._move_to(alpha)
        return self._evaluate()

    def sample_first(self) -> float:
        """The sample's loss at w⁰; -inf where the run began with a rule that takes none, so that f itself is asked."""
        first = self._optimizer.sample_first
        return -math.inf if first is None else first

    def sample_after(self) -> float:
        """The sample's loss at w̃."""
        self._move_to(self._zeta)
        return self._look()

    def _move_to(self, alpha: float) -> None:
        """To w^k + alpha d: 0 is w^k with its buffers, ζ is w̃ itself, anything else has the buffers of w̃."""
        run_state, start = self._optimizer.run_state, self._window.snapshot
        if alpha == self._zeta:
            if self._end is not None:
                run_state.restore(self._end)
            return
        if self._end is None:
            self._end = run_state.snapshot()
        if alpha == 0.0:
            run_state.restore(start)
            return
        self._end.modules.restore()
        run_state.go_to(self._end.weights, alpha / self._zeta, start.weights)

    @torch.no_grad()
    def _evaluate(self) -> float:
        self._optimizer.evaluations += 1
        value = self._objective()
        if value is None:
            raise ValueError("The objective gave None; expected it to return the mean loss")
        return self._with_penalty(float(value))

    @torch.no_grad()
    def _look(self) -> float:
        sample = getattr(self._objective, "sample", None)
        return self._with_penalty(float(self._objective() if sample is None else sample()()))

    def _with_penalty(self, value: float) -> float:
        penalty = self._optimizer.penalty()
        value += 0.0 if penalty is None else float(penalty)
        return value if math.isfinite(value) else math.inf


_TRY_LR = "Try optimizer.restart(objective, lr=...) with another lr."
_TRY_CERTIFIED = (
    "Where the batches disagree, the light line search cannot go on: try line_search='certified' "
    "(here: optimizer.line_search = 'certified'), or optimizer.restart(objective, lr=...) with another lr."
)


def _warn_of_sum(ratio: float, size: float) -> None:
    """A loss that is about the batch size times f(w⁰) is a sum over the batch, not a mean."""
    if size >= 8 and 0.5 * size <= ratio <= 2.0 * size:
        warnings.warn(
            f"The observed losses are about {ratio:.0f} times the objective, and a batch has {size:.0f} samples: "
            "epoch.observe() was probably given the sum of the batch's losses. Give it the mean.",
            stacklevel=5,
        )
