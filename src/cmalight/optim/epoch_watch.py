"""The paper's control at work: it collects the losses of an epoch, keeps its start, and lets the rule judge it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cmalight.errors import warn
from cmalight.evaluation.counting import batch_size
from cmalight.evaluation.objective import Objective, require_finite_start
from cmalight.evaluation.ranks import Ranks
from cmalight.evaluation.state import RunState, Snapshot
from cmalight.optim.line import Line, roll_back
from cmalight.optim.observed import BatchCounts, LossSum, as_count
from cmalight.optim.reports import EpochReport
from cmalight.optim.watched import missing_parameters, ranks_for, refuse_unequal, refuse_unequal_loaders
from cmalight.rules.decision import Decision
from cmalight.rules.paper import InnerCycle, Known, NoStep

if TYPE_CHECKING:
    from cmalight.optim.epoch_optimizer import EpochOptimizer

# After so many epochs that moved nothing, or that changed neither φ nor ζ, the user is told.
_STILL = 30
# The counts of samples may be sums of class weights, with rounding.
_ROUNDING = 1e-6


@dataclass
class OpenEpoch:
    """What is known of the steps that are not judged yet.

    Attributes:
        start: The state of the run where the epoch began.
        steps: Steps so far, including those that a fused step skipped.
        skipped: How many of them a fused step skipped, as a tensor on its device.
        losses: The sum of the losses.
        counts: The samples behind them.
        first_loss: The first loss that was observed.
        last_batch: What `Epoch.batches` gave last.
        is_abandoned: Whether it was undone already.
    """

    start: Snapshot
    steps: int = 0
    skipped: Tensor | None = None
    losses: LossSum = field(default_factory=LossSum)
    counts: BatchCounts = field(default_factory=BatchCounts)
    first_loss: Tensor | float | None = None
    last_batch: Any = None
    is_abandoned: bool = False

    def taken(self) -> int:
        """The steps that were really taken; waits for the device if a fused optimizer may have skipped some."""
        return self.steps - (0 if self.skipped is None else int(self.skipped.item()))


class EpochWatch:
    """One run under the paper's control.

    Args:
        optimizer: Whose run it is.

    Attributes:
        known: f(w⁰), φ^k and, if it is known, f(w^k); None before the first epoch.
        zeta_0: ζ⁰.
        epochs: Epochs so far.
        samples: Samples per epoch on this rank; 0 if unknown.
        evaluations: Full evaluations so far.
        unmoved: Epochs in a row that were undone.
        unchanged: Epochs in a row that changed neither φ nor ζ.
        open: The epoch under way, or one that a state_dict had.
    """

    _NUMBERS = ("zeta_0", "epochs", "samples", "evaluations", "unmoved", "unchanged")

    def __init__(self, optimizer: EpochOptimizer) -> None:
        self._optimizer = optimizer
        self.run_state = RunState(optimizer)
        self.known: Known | None = None
        self.zeta_0 = math.nan
        self.epochs = 0
        self.samples = 0.0
        self.evaluations = 0
        self.unmoved = 0
        self.unchanged = 0
        self.open: OpenEpoch | None = None
        self._packed: dict[str, Any] | None = None  # an open epoch of a state_dict, until its modules are known
        self._objective: Any = None
        self._evaluated_before = 0
        self._weights_seen: tuple[Any, ...] | None = None  # when f(w^k) was known

    def check_objective(self, objective: Any) -> None:
        """Refuse another objective than in the epoch before: f(w⁰) and φ do not belong to it."""
        before = self._objective
        if self.known is None or before is None or before is objective:
            return
        if not (isinstance(before, Objective) and before.is_like(objective)):
            raise RuntimeError(
                "This is another objective than that of the epoch before, so f(w⁰) and φ do not belong to it: "
                "call optimizer.restart(objective) first"
            )

    def restart(self, objective: Any) -> None:
        """The current weights are the new w⁰, for another objective or, by default, for that of the next epoch."""
        self._objective, self.known = objective, None
        self.zeta_0, self.samples, self.unmoved, self.unchanged = self._optimizer.zeta, 0.0, 0, 0

    def refuse_inside_epoch(self, call: str) -> None:
        """Refuse a call that belongs between epochs."""
        if self.open is not None:
            raise RuntimeError(f"{call} was called inside an epoch: leave its `with` block first")

    def forget_f(self) -> None:
        """F at the current weights is not known any more."""
        if self.known is not None:
            self.known = self.known.then(self.known.phi, None)

    def begin(self, objective: Any) -> None:
        """Open an epoch, or go on with one that a state_dict had; at w⁰, line 3: evaluate f(w⁰)."""
        optimizer, modules = self._optimizer, objective.modules if isinstance(objective, Objective) else ()
        self.run_state = RunState(optimizer, modules)
        if modules:
            missing_parameters(optimizer, modules[0])
        if not optimizer.zeta > 0.0:
            raise ValueError("lr of every parameter group is 0, so an epoch cannot move the weights")
        if not any(p.requires_grad for p in self.run_state.parameters):
            raise ValueError("There is nothing to train: no parameter of the optimizer requires a gradient")
        self._objective = objective
        if self._weights_seen not in (None, self._weights_now()):
            self.forget_f()
        self._unpack_open()
        refuse_unequal_loaders(objective, self._ranks)
        if self.known is None:
            f_0 = math.nan if objective is None else self._evaluate()
            if objective is not None:
                require_finite_start(f_0, objective)
            self.known = optimizer.rule().init(f_0)
            self.zeta_0 = optimizer.zeta
        self.samples = self._samples_of_the_objective() or self.samples
        if self.open is None:
            self.open = OpenEpoch(self.run_state.snapshot())

    @property
    def opened(self) -> OpenEpoch:
        """The epoch under way."""
        if self.open is None:
            raise RuntimeError("The epoch is not under way: use `with optimizer.epoch(objective) as epoch:`")
        if self.open.is_abandoned:
            raise RuntimeError("The epoch was abandoned: leave its `with` block")
        return self.open

    def observe(self, loss: Tensor | float, count: float) -> None:
        """Add the mean loss of a batch of `count` samples; it stays on its device."""
        epoch, samples = self.opened, as_count(count)
        if not epoch.counts.total:
            epoch.first_loss = loss.detach() if isinstance(loss, Tensor) else loss
        epoch.losses.add(loss, samples)
        if (penalty := self._optimizer.penalty()) is not None:
            epoch.losses.add(penalty, samples)
        epoch.counts.add(samples)

    def step_factor(self, closure_loss: Any, found_inf: Tensor | None) -> float:
        """A step is taken: in an epoch on what was observed, else by somebody who does not know f.

        Args:
            closure_loss: The loss of a closure, which is observed if nothing else was; or None.
            found_inf: Of GradScaler: 1 if a fused step is skipped.

        Returns:
            The factor of the step, n_p/n̄: a short batch takes a shorter one.
        """
        if self.open is None:
            self.forget_f()
            return 1.0
        epoch = self.opened
        if closure_loss is not None and not epoch.counts.pending:
            size = batch_size(epoch.last_batch)
            if size is None:
                raise RuntimeError("The size of the batch is not known: call epoch.observe(loss, count) in the closure")
            self.observe(closure_loss, size)
        factor = epoch.counts.take()
        if found_inf is not None:
            epoch.skipped = found_inf.clone() if epoch.skipped is None else epoch.skipped + found_inf
        epoch.steps += 1
        return factor

    def advance(self, sizes: Sequence[int], run: Callable[[list[float]], Tensor]) -> Tensor:
        """Take several steps by an engine, as `Epoch.advance` describes."""
        epoch = self.opened
        factors = []
        for size in sizes:
            epoch.counts.add(float(size))
            factors.append(epoch.counts.take())
        losses = run(factors)
        epoch.losses.add(torch.dot(losses, torch.tensor(sizes, dtype=losses.dtype)), 1.0)
        epoch.steps += len(sizes)
        return losses

    def abandon(self) -> None:
        """Go back to the start of the epoch, which is not judged."""
        epoch = self.opened
        roll_back(self.run_state, epoch.start)
        epoch.is_abandoned = True

    def close(self, *, failed: bool) -> None:
        """The epoch is over; if it was left by an error, nobody knows f here."""
        self.open = None
        if failed:
            self.forget_f()
        self._weights_seen = self._weights_now()

    def judge(self) -> EpochReport | None:
        """Lines 5 to 22: let the rule decide, go where it says, and write it down; not if it was abandoned."""
        epoch, known = self.open, self.known
        if epoch is None or known is None or epoch.is_abandoned:
            return None
        try:
            self._refuse_part_of_an_epoch(epoch)
            inner = self._inner_cycle(epoch)
            if not self.epochs and known.f_0 > 0 and epoch.first_loss is not None:
                _warn_of_sum(float(epoch.first_loss) / known.f_0, epoch.counts.nominal)
            has_moved = epoch.taken() > 0
            if not has_moved:
                self._refuse_foreign_steps(epoch, inner)
        except BaseException:
            roll_back(self.run_state, epoch.start)
            raise
        line = Line(self.run_state, epoch.start, inner.zeta, self._evaluate, known.f_current)
        rule: Any = self._optimizer.rule() if has_moved else NoStep()
        return self._write_down(inner, line.decide(rule, known, inner), known)  # line 20

    @property
    def _ranks(self) -> Ranks:
        return ranks_for(self.run_state, self._objective)

    def _inner_cycle(self, epoch: OpenEpoch) -> InnerCycle:
        """Line 5, over all ranks."""
        zeta, moved = self._optimizer.zeta, self.run_state.distance_from(epoch.start)
        loss = epoch.losses.value() if self.run_state.is_finite(epoch.start) else math.inf
        ranks = self._ranks
        steps, losses, counts = zip(*ranks.gather(epoch.steps, loss, epoch.counts.total), strict=True)
        refuse_unequal(steps)
        loss, samples = sum(losses), sum(counts)
        f_tilde = loss / samples
        return InnerCycle(
            zeta=zeta,
            f_tilde=f_tilde if math.isfinite(f_tilde) else math.inf,
            direction_norm=moved / zeta if zeta else math.inf,
            batches=samples / (epoch.counts.nominal * ranks.size),
        )

    def _write_down(self, inner: InnerCycle, decision: Decision[Known], known: Known) -> EpochReport:
        optimizer, after = self._optimizer, decision.memory
        optimizer.multiply_lr(decision.lr_factor)
        self.known = after
        self.epochs += 1
        self.samples = self._samples_of_the_objective() or self.opened.counts.total
        self.unmoved = 0 if decision.outcome.keeps else self.unmoved + 1
        stays = after.phi == known.phi and decision.lr_factor == 1.0
        self.unchanged = self.unchanged + 1 if stays else 0
        report = EpochReport(
            outcome=decision.outcome,
            lr=inner.zeta,
            next_lr=optimizer.zeta,
            alpha=decision.alpha,
            f_tilde=inner.f_tilde,
            phi=after.phi,
            direction_norm=inner.direction_norm,
            evaluations=self.evaluations - self._evaluated_before,
        )
        self._evaluated_before = self.evaluations
        if optimizer.needs_objective:
            self._warn_if_stalled()
        return report

    def _refuse_part_of_an_epoch(self, epoch: OpenEpoch) -> None:
        seen, whole = epoch.counts.total, self.samples
        if not seen:
            raise RuntimeError(
                "The epoch saw no batch: call epoch.observe(loss, len(target)) for each batch, "
                "and check that the loader is not empty"
            )
        if whole and whole - seen >= (1.0 - _ROUNDING) * epoch.counts.nominal:  # drop_last leaves less than a batch
            raise RuntimeError(
                f"The epoch was left after {seen:.0f} of {whole:.0f} samples, so it was not judged, and the weights "
                "were rolled back. Run through all data of the objective, or call epoch.abandon() before leaving early"
            )

    def _refuse_foreign_steps(self, epoch: OpenEpoch, inner: InnerCycle) -> None:
        if inner.direction_norm > 0.0 and not epoch.steps:
            raise RuntimeError(
                f"The weights moved in this epoch, but not by step() of {type(self._optimizer).__name__}: call its "
                "step(), not that of another optimizer. The epoch was undone."
            )
        warn("No step() was taken in this epoch, so it says nothing: lr and weights stay.")

    def _warn_if_stalled(self) -> None:
        """Say once that epochs move nothing, or go round in a circle."""
        light = self._optimizer.settings.get("line_search") == "light"
        if self.unmoved == _STILL or (light and self.unchanged == _STILL):
            what = "was undone" if self.unmoved == _STILL else "changed neither the loss to beat nor the learning rate"
            advice = _TRY_CERTIFIED if light else _TRY_LR
            warn(f"Each of the last {_STILL} epochs {what}: training has stalled. {advice}")

    def _samples_of_the_objective(self) -> float:
        """How many this rank sees in an epoch; 0 if the objective was not evaluated yet, or does not say.

        The objective counts the samples of all ranks, and by their class weights; so its rows are a bound, too.
        """
        if not isinstance(self._objective, Objective):
            return 0.0
        return min(self._objective.samples / self._ranks.size, float(self._objective.rows))

    @torch.no_grad()
    def _evaluate(self) -> float:
        self.evaluations += 1
        value = self._objective()
        if value is None:
            raise ValueError("The objective gave None; expected it to return the mean loss")
        penalty = self._optimizer.penalty()
        value = float(value) + (0.0 if penalty is None else float(penalty))
        return value if math.isfinite(value) else math.inf

    def _weights_now(self) -> tuple[Any, ...]:
        """Changes with the weights and with the weight decay: f(w^k) belongs to them."""
        modules = self.run_state.modules
        weights = [*self.run_state.parameters, *(p for module in modules for p in module.parameters())]
        return sum(p._version for p in weights), *(group["weight_decay"] for group in self._optimizer.param_groups)

    def state_dict(self) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """What is known between epochs, as plain numbers; and the open epoch, as tensors and plain values."""
        known = None if self.known is None else [self.known.f_0, self.known.phi, self.known.f_current]
        numbers = {name: getattr(self, name) for name in self._NUMBERS}
        numbers = {"known": known, "evaluated_before": self._evaluated_before, **numbers}
        if self._packed is not None or self.open is None:
            return numbers, self._packed
        epoch, counts = self.open, self.open.counts
        return numbers, {
            "start": self.run_state.pack(epoch.start),
            "steps": epoch.taken(),
            "loss": epoch.losses.value(),
            "counts": [counts.total, counts.nominal, float(counts.first)],
        }

    def load_state_dict(self, numbers: dict[str, Any], packed: dict[str, Any] | None) -> None:
        """Take what `state_dict` gave; the open epoch is opened with the next one, when the modules are known."""
        self.known = None if numbers["known"] is None else Known(*numbers["known"])
        self._evaluated_before = numbers["evaluated_before"]
        for name in self._NUMBERS:
            setattr(self, name, numbers[name])
        self._packed = packed if packed is not None and "counts" in packed else None

    def _unpack_open(self) -> None:
        if (packed := self._packed) is not None:
            self._packed = None
            total, nominal, first = packed["counts"]
            self.open = OpenEpoch(
                self.run_state.unpack(packed["start"]),
                steps=int(packed["steps"]),
                losses=LossSum(float(packed["loss"])),
                counts=BatchCounts(float(total), float(nominal), bool(first)),
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "open": None, "_objective": None, "_weights_seen": None}


_TRY_LR = "Try optimizer.restart(objective, lr=...) with another lr."
_TRY_CERTIFIED = (
    "If the batches disagree, the light line search cannot go on: try line_search='certified' "
    "(here: optimizer.line_search = 'certified'), or optimizer.restart(objective, lr=...) with another lr."
)


def _warn_of_sum(ratio: float, size: float) -> None:
    """A loss that is about the batch size times f(w⁰) is a sum over the batch, not a mean."""
    if size >= 8 and 0.5 * size <= ratio <= 2.0 * size:
        warn(
            f"The observed losses are about {ratio:.0f} times the objective, and a batch has {size:.0f} samples: "
            "epoch.observe() was probably given the sum of the batch's losses. Give it the mean."
        )
