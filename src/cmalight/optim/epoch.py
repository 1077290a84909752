"""The bracket around an epoch: remembers w^k, collects the losses, and at the end lets the control decide."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from cmalight.evaluation.counting import batch_size
from cmalight.evaluation.randomness import sources
from cmalight.evaluation.snapshot import Snapshot
from cmalight.optim.probe import Probe, first_batches
from cmalight.optim.report import EpochReport
from cmalight.optim.settling import GradientWeights, Totals
from cmalight.optim.tally import BatchCounts, Gathered, LossSum
from cmalight.parallel.ranks import Rows, ranks_for
from cmalight.rules import paper

if TYPE_CHECKING:
    from cmalight.optim.base import EpochOptimizer

logger = logging.getLogger("cmalight")

# The shares of an epoch after which it is asked whether it can still succeed.
_CHECKPOINTS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4)


class _State(Enum):
    NEW = "has not begun: use it as `with optimizer.epoch(objective) as epoch:`"
    OPEN = "is under way"
    REJECTED = "was rejected before its end: leave the loop over its batches"
    ABANDONED = "was abandoned"
    CLOSED = "is over: begin another with `with optimizer.epoch(objective) as epoch:`"


class Epoch:
    """One epoch under control; made by `optimizer.epoch(objective)` and used in a `with` statement."""

    report: EpochReport | None

    def __init__(
        self, optimizer: EpochOptimizer, objective: Any, model: nn.Module | None, process_group: Any = None
    ) -> None:
        self.report = None
        self._optimizer = optimizer
        self._objective = objective
        self._model = model if model is not None else getattr(objective, "model", None)
        self._ranks = ranks_for(objective, self._model, process_group)
        self._weights = None if self._ranks.alone else GradientWeights(self._ranks, self._model)
        self._state = _State.NEW
        self._losses = LossSum()
        self._counts = BatchCounts()
        self._regularisation: list[tuple[float, Tensor]] | None = None
        self._steps = 0
        self._skipped: Tensor | int = 0  # on the device: fused steps that GradScaler's found_inf made no steps
        self._checkpoints: list[float] = []  # in samples; on several ranks in batches
        self._batches_given = 0
        self._check: Callable[[], Rows] | None = None  # under way
        self._lower_bound = -math.inf
        self._last_batch: Any = None  # that `batches` gave
        self._displacement: float | None = None  # ‖w̃ − w^k‖ where an engine has taken it
        self._announced = 0.0  # the samples in all the batches that `batches` gave
        self._probe: Probe | None = None
        self._left_in_a_trial = False

    def __enter__(self) -> Epoch:
        if self._state is not _State.NEW:
            raise RuntimeError(f"This epoch cannot be entered again: it {self._state.value}")
        self._zeta, self._known = self._optimizer._begin(self._objective, self._model, self._ranks)
        self._lrs = self._optimizer._lrs()
        self._samples = self._optimizer._control["samples"]
        self._is_first = not self._optimizer._control["epochs"]
        self._is_regularised = any(map(self._optimizer._weight_decay_of, self._optimizer.param_groups))
        if self._optimizer._rejects_early():
            self._checkpoints = [share * self._samples for share in _CHECKPOINTS]
        self._snapshot = Snapshot(self._optimizer._parameters(), self._model)
        self._inner = self._optimizer._inner_state()
        self._optimizer._to_training_point()
        self._state = _State.OPEN
        self._optimizer._epoch = self  # last, so that an epoch that could not begin is not in the way of another
        return self

    def observe(self, loss: Tensor | float, count: float) -> None:
        """Take the mean loss of a batch, at the weights as they are now, and its size; waits for nothing.

        Several observations before one `step()` are gradient accumulation: together they are one batch.
        """
        if self._state is not _State.OPEN:
            if self._state is _State.REJECTED:
                return
            self._require_open("observe()")
        count = _as_count(count)
        self._losses.add(loss, count)
        if self._is_regularised:
            self._add_regularisation(count)
        self._counts.add(count, None if self._weights is None else self._weights.observed(loss, count, self._counts))

    def _add_regularisation(self, count: float) -> None:
        if self._regularisation is None:
            self._regularisation = self._optimizer._regularisation_terms()
        for weight, squared_norm in self._regularisation:
            self._losses.add_term(squared_norm, weight * count)

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The batches of `loader`, ending early once the epoch is certain to be rejected.

        An optimizer that looks for its first step size is given the first batches several times.
        """
        iterator = iter(loader)
        self.expect(loader)
        first: list[Any] = []
        if self._state is _State.OPEN and self._weights is None and self._optimizer._wants_probe():
            first = first_batches(iterator)
            yield from self._probed(first, loader)
            if self._has_ended():
                return
        for batch in itertools.chain(first, iterator):
            self.announce(batch)
            yield batch
            if self._state is not _State.OPEN:
                return
            if self.is_lost():
                _exhaust_sampler(loader, iterator)
                return

    # What `batches` does, step by step, for a loop that is somebody else's: Lightning's.

    def expect(self, loader: Iterable[Any]) -> None:
        """Before the first batch several ranks settle how much is to come, and when to ask whether the epoch is lost.

        They ask after the same batch, and not after one that only some of them have: else somebody would wait.
        """
        if self._weights is None:
            return
        coming = self._weights.begin(loader)
        self._samples = max(self._samples, coming.samples or 0.0)
        known = self._checkpoints and (coming.samples is not None or not self._is_first)
        moments = [math.ceil(share * coming.batches) for share in _CHECKPOINTS] if known else []
        self._checkpoints = sorted({float(moment) for moment in moments if moment < coming.batches})

    def announce(self, batch: Any) -> None:
        """The batch that comes next."""
        if self._state is not _State.OPEN:
            self._require_open("batches()")
        if self._weights is not None:
            self._weights.announce(batch)
        self._last_batch = batch
        if self._is_first:
            self._announced += batch_size(batch) or 0.0
        self._batches_given += 1

    def is_lost(self) -> bool:
        """After a step: whether the epoch is certain to be rejected, so that the rest of its batches can go.

        Not asked between the parts of an accumulated gradient, which would be left over for the next epoch. Several
        ranks hear the answer to a check a batch later, so that they need not wait for each other.
        """
        if self._state is not _State.OPEN:
            return self._state is _State.REJECTED
        if self._counts.pending:
            return False
        if self._check is not None and self._cannot_succeed(self._check()):
            return True
        self._check = None
        if not (self._checkpoints and self._progress() >= self._checkpoints[0]):
            return False
        self._checkpoints = [checkpoint for checkpoint in self._checkpoints if self._progress() < checkpoint]
        self._check = self._ranks.begin_gather(
            self._counts.total, self._counts_agree_with_the_objective(), *self._losses.value_and_lowest()
        )
        return self._weights is None and self.is_lost()

    def _progress(self) -> float:
        return self._counts.total if self._weights is None else self._batches_given

    def _probed(self, first: list[Any], loader: object) -> Iterator[Any]:
        """The batches of the trials; whatever a trial changed is as before when the next one begins."""
        if not first:
            return
        randomness = [(source, source.get()) for source in sources(self._model, loader)]
        usual = self._optimizer._usual_lr()
        self._probe = probe = Probe(first, zeta=self._zeta, f_0=self._known.f_0, usual=usual)
        while probe.zeta is not None:
            self._optimizer._scale_lr_to(probe.zeta)
            probe.begin_trial()
            self._counts = probe.counts
            for batch in probe.trial():
                self._losses = probe.losses
                self._last_batch = batch
                yield batch
                if self._probe is not probe:  # abandoned
                    return
            probe.end_trial()
            self._go_back()
            self._optimizer._to_training_point()
            self._optimizer._drop_gradients()  # of a window of accumulation that the trial cut in half
            for source, state in randomness:
                source.put(state)
        self._end_probe(probe.choice())
        self._optimizer._to_training_point()

    def _end_probe(self, zeta: float | None) -> None:
        """Begin the epoch itself, as if nothing had been tried; None leaves the step size and the search for later."""
        self._probe = None
        self._go_back()
        self._optimizer._scale_lr_to(self._zeta if zeta is None else zeta)
        if zeta is not None:
            self._zeta = zeta
            self._lrs = self._optimizer._lrs()
            self._optimizer._control.update({"probed": 1, "zeta_0": zeta})
        self._losses, self._counts = LossSum(), BatchCounts()
        self._regularisation = None
        self._steps, self._skipped = 0, 0

    def abandon(self) -> None:
        """Go back to w^k; the rest of the bracket runs no control and `report` stays None."""
        if self._state is not _State.REJECTED:
            self._require_open("abandon()")
        if self._probe is not None:
            self._end_probe(None)
        self._go_back()
        self._state = _State.ABANDONED

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        state, self._state = self._state, _State.CLOSED
        lr_changed = False
        try:
            if self._probe is not None:  # the loop was left in the middle of a trial
                self._left_in_a_trial = kind is None
                self._end_probe(self._probe.choice() if kind is None else None)
            lr_changed = kind is None and self._optimizer._lrs() != self._lrs
            if kind is None and state is not _State.ABANDONED:
                self._conclude(early=state is _State.REJECTED)
        finally:
            f_current = self._known.f_current if state is _State.ABANDONED else None
            if self._weights is not None:
                self._weights.end()
            self._optimizer._end(self._model, f_current=f_current, decided=self.report is not None)
            del self._snapshot, self._inner
        if lr_changed:
            self._optimizer._warn_about_lr("was changed inside an epoch", stacklevel=3)
        self._optimizer._warn_if_stalled()

    def _conclude(self, *, early: bool) -> None:
        try:
            if early:
                samples, (inner, decision) = self._counts.total, self._early_decision()
            else:
                self._optimizer._to_judged_point()
                totals = self._totals()
                samples, (inner, decision) = totals.samples, self._decision(totals)
            if decision.alpha:
                self._snapshot.move(decision.alpha / self._zeta)  # line 20
            else:
                self._go_back()
        except BaseException:
            # An evaluation that fails or is interrupted must not leave the weights at a trial point.
            self._go_back()
            raise
        self.report = self._optimizer._commit(inner, decision, samples=samples)

    def _go_back(self) -> None:
        """To w^k, in everything."""
        self._snapshot.move(0.0)
        if self._inner is not None:
            self._inner.restore()

    def _totals(self) -> Totals:
        own = Totals(
            loss=self._losses.value(),
            samples=self._counts.total,
            nominal=self._counts.nominal,
            steps=self._steps - int(self._skipped),
            displacement=self._displacement_norm(),
        )
        totals = own if self._weights is None else self._weights.agreed(own)
        if not totals.samples and not self._left_in_a_trial:
            raise RuntimeError(
                "The epoch saw no batch: call epoch.observe(loss, len(target)) for each batch, "
                "and check that the loader is not empty"
            )
        return totals

    def _decision(self, totals: Totals) -> tuple[paper.InnerCycle, paper.Decision]:
        if not totals.samples:
            logger.warning("The epoch was left while step sizes were tried: it says nothing, and the weights stay.")
            return paper.InnerCycle(self._zeta, math.nan, 0.0, math.nan), paper.no_step(self._known)
        inner = paper.InnerCycle(  # line 5
            zeta=self._zeta,
            f_tilde=_finite_or_inf(totals.loss / totals.samples),
            direction_norm=totals.displacement / self._zeta,
            batches=totals.samples / totals.nominal,
        )
        if not totals.steps:
            if totals.displacement > 0.0 and not self._steps:
                raise RuntimeError(
                    f"The weights moved in this epoch, but not by step() of {type(self._optimizer).__name__}: call its "
                    "step(), not that of another optimizer or of the one inside it. The epoch was undone."
                )
            logger.warning("No step() was taken in this epoch, so it says nothing: lr and weights stay as they are.")
            return inner, paper.no_step(self._known)
        return inner, self._optimizer._decide(inner, self._known, self)

    def _displacement_norm(self) -> float:
        return self._snapshot.displacement_norm() if self._displacement is None else self._displacement

    def _f_start(self) -> float:
        """f(w^k): what is known of it, or an evaluation."""
        if self._known.f_current is not None:
            return self._known.f_current
        return self._f_at(0.0)

    def _f_at(self, alpha: float) -> float:
        """f(w^k + alpha d), evaluated; the weights stay there."""
        if alpha != self._zeta:
            self._snapshot.set_aside()
        self._snapshot.move(alpha / self._zeta)
        return self._optimizer._evaluate(self._objective, self._ranks)

    def _counts_agree_with_the_objective(self) -> bool:
        """In the first epoch N is the objective's: comparable only with counts that are plain batch sizes."""
        return not self._is_first or self._counts.total == self._announced

    def _doubtful_above(self) -> float:
        """For such an engine: what the mean so far has to exceed for the epoch to be possibly lost."""
        return self._optimizer._rule().doubtful_above(self._known) if self._checkpoints else math.inf

    def _progressed(
        self, *, total: float, lowest: float, samples: float, nominal: float, steps: int, displacement: float
    ) -> bool:
        """For an engine that runs many batches in one call: what `observe` and `step` would have led to by now.

        The engine comes back after every batch after which the epoch may be lost. True if it is; the weights must
        be where the steps led.
        """
        self._checkpoints = [c for c in self._checkpoints if c > samples - nominal]  # those before gave no doubt
        self._losses = Gathered(total, lowest)
        self._counts.total, self._counts.nominal = samples, nominal
        self._announced = samples
        self._steps = steps
        self._displacement = displacement
        return self.is_lost()

    def _cannot_succeed(self, rows: Rows) -> bool:
        """Losses are not negative, so the sum so far bounds f̃ from below: does it already rule out success?

        Asked a few times in an epoch, while the number of samples still to come is known.
        """
        if not (sum(row[0] for row in rows) < self._samples and all(row[1] for row in rows)):
            return False
        if min(row[3] for row in rows) < 0.0:
            self._optimizer._stop_rejecting_early()
            self._checkpoints.clear()
            return False
        self._lower_bound = sum(row[2] for row in rows) / self._samples
        if not math.isfinite(self._lower_bound):
            self._state = _State.REJECTED
            return True
        if not self._optimizer._rule().is_lost(self._lower_bound, self._known, self._f_start_in_mid_epoch):
            return False
        self._state = _State.REJECTED
        return True

    def _f_start_in_mid_epoch(self) -> float:
        """f(w^k), evaluated at most once in an epoch: if it does not settle the matter, the epoch goes on unchecked."""
        self._checkpoints.clear()
        try:
            f_start = self._f_start()
        finally:
            self._snapshot.move(1.0)
            self._snapshot.release_tentative()
        self._known = paper.Known(self._known.f_0, self._known.phi, f_start)
        return f_start

    def _early_decision(self) -> tuple[paper.InnerCycle, paper.Decision]:
        inner = paper.InnerCycle(self._zeta, _finite_or_inf(self._lower_bound), math.nan, math.nan)
        return inner, self._optimizer._rule().decide_early(inner, self._known)

    def _take_step(self, found_inf: Tensor | None) -> float | None:
        """What `step()` asks: n_p/n̄ of the batch it is about to use; after an early rejection None, for no step."""
        if self._state is _State.REJECTED:
            return None
        if self._state is _State.OPEN and self._optimizer._cannot_move():
            return 1.0  # torch.distributed.checkpoint calls step() with lr=0 to make an optimizer build its state
        self._require_open("step()")
        self._regularisation = None
        self._steps += 1
        if found_inf is not None:
            self._skipped = self._skipped + (found_inf > 0)
        scale = self._counts.take()
        if self._weights is not None:
            self._weights.stepped(scale)
        return scale

    def _observe_closure(self, closure: Callable[[], Any]) -> Any:
        """The closure's loss is one observation, unless the closure made its own."""
        before = self._counts.observations
        loss = closure()
        if loss is not None and self._counts.observations == before:
            self.observe(loss, batch_size(self._last_batch) or self._counts.nominal)
        return loss

    def _is_waiting(self) -> bool:
        """Nothing was observed since the last step."""
        return self._state is _State.OPEN

    def _gradients_cleared(self) -> None:
        self._counts.cut()

    def _has_ended(self) -> bool:
        return self._state is not _State.OPEN

    def _require_open(self, call: str) -> None:
        if self._state is not _State.OPEN:
            raise RuntimeError(f"{call} was called for an epoch that {self._state.value}")


def _exhaust_sampler(loader: object, iterator: Any) -> None:
    """Let a DataLoader's sampler draw the random numbers it would have drawn, so that the next epoch's order stays."""
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return  # the "sampler" of an IterableDataset never ends
    try:
        batches = len(loader)
    except TypeError:
        return
    for _ in itertools.islice(getattr(iterator, "_sampler_iter", ()), batches + 1):
        pass


def _as_count(count: Any) -> float:
    if type(count) is int and count > 0:  # the usual case, on the path of every batch
        return float(count)
    try:
        value = float(count)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"Invalid count value: {count!r}; expected a number, the samples behind the loss") from error
    if not 0.0 < value < math.inf:
        raise ValueError(f"Invalid count value: {value}; expected the number of samples behind the mean loss")
    return value


def _finite_or_inf(value: float) -> float:
    return value if math.isfinite(value) else math.inf
