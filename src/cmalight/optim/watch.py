"""The watchdog at work: it collects losses, keeps two points to go back to, and lets the rule judge each window."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

from torch.optim import Optimizer

from cmalight.evaluation.objective import Objective, evaluated
from cmalight.evaluation.ranks import Ranks
from cmalight.evaluation.state import ModuleState, RunState, Snapshot
from cmalight.optim.line import Line
from cmalight.optim.observed import LossList
from cmalight.optim.reports import WindowReport
from cmalight.optim.watched import refuse_unequal
from cmalight.rules.watchdog import END, Memory, Watchdog, Window, mean_of, reason

_LOG = logging.getLogger("cmalight")


class Watch:
    """One run under the watchdog.

    Two points are kept. The mean of a window says nothing about its last steps, so the end of a window is confirmed
    only by the next one. `confirmed` is where the last confirmed window began, `current` where the open one began.
    Without f an undo leads to the first; f is evaluated at both, and the undo leads to the lower one.

    Args:
        base: The optimizer that is watched.
        run_state: What is rolled back.
        objective: Gives f; None if nobody knows it.

    Attributes:
        rule: The watchdog and its constants.
        memory: What the rule remembers.
        losses: Of the steps of the open window.
        steps: Steps so far, undone ones included.
    """

    def __init__(self, base: Optimizer, run_state: RunState, objective: Any) -> None:
        self._base = base
        self._run_state = run_state
        self._objective = objective
        self._confirmed: Snapshot | None = None
        self._current: Snapshot | None = None  # None while it is the confirmed point
        self._spare: Snapshot | None = None  # memory for the next snapshot
        # The first window opens after a forward pass, which may already have spoilt running statistics.
        self._modules_at_start: ModuleState | None = ModuleState(*run_state.modules)
        self.rule = Watchdog()
        self.memory = self.rule.init()
        self.losses = LossList()
        self.steps = 0

    def begin(self) -> None:
        """Copy the state before the first step of a run; does nothing afterwards."""
        if self._confirmed is None:
            self._confirmed = self._run_state.snapshot()
            if self._modules_at_start is not None:
                self._confirmed.modules.take_finite_from(self._modules_at_start)
                self._modules_at_start = None

    def restart(self) -> None:
        """Take the state as it is now as a new start, if it is finite."""
        if not (self._run_state.is_finite(None) and self._run_state.is_finite(self._confirmed)):
            raise ValueError("restart() found weights or optimizer state that are not finite: load finite ones first")
        self.memory = self.rule.init()
        self.losses = LossList()
        self._confirmed = self._current = self._spare = self._modules_at_start = None
        self.begin()

    def close(self, ranks: Ranks, progress: float | None) -> WindowReport:
        """Judge the open window at this fraction of the run, go where the rule says, and open the next one."""
        losses, is_finite = self._seen(ranks)
        points = [point for point in (self._confirmed, self._current) if point is not None]
        line = _WatchedLine(self._run_state, points, self._objective, self._evaluate)
        try:
            decision = line.decide(self.rule, self.memory, Window(losses, is_finite, self.steps, progress))
        except BaseException:
            self._begin_at(line.start)
            raise
        before, self.memory = self.memory, decision.memory
        self.losses.clear()
        if not decision.outcome.keeps:
            self._begin_at(line.start)
        elif not self.memory.is_alarmed:
            self._confirm()
        report = WindowReport(
            steps=len(losses),
            outcome=decision.outcome,
            loss=mean_of(losses),
            bound=decision.bound,
            scale=self.memory.scale,
            evaluations=line.evaluations,
            f_end=line.f_end,
            f_confirmed=None if line.f_end is None else line.f_start(),
            reason=", ".join(filter(None, (_not_finite(losses), reason(before, self.memory)))),
        )
        if not decision.outcome.keeps:
            _LOG.info("%s", report)
        return report

    def _seen(self, ranks: Ranks) -> tuple[tuple[float, ...], bool]:
        """The losses of the window, as means over all ranks, and whether the state is finite on all of them."""
        losses, is_finite = self.losses.values(), self._run_state.is_finite(self._confirmed)
        if ranks.alone:
            return tuple(losses), is_finite
        refuse_unequal(count for (count,) in ranks.gather(len(losses)))
        finite, *columns = zip(*ranks.gather(float(is_finite), *losses), strict=True)
        return tuple(sum(column) / ranks.size for column in columns), all(finite)

    def _confirm(self) -> None:
        """The window confirms where it began; the next one begins here."""
        if self._current is not None:
            self._spare, self._confirmed = self._confirmed, self._current
        spare, self._spare, self._current = self._spare, None, None  # never go back to memory that is being written
        self._current = self._run_state.snapshot() if spare is None else self._run_state.refresh(spare)

    def _begin_at(self, point: Snapshot) -> None:
        """The run is at one of the two points. It is the confirmed one now, and the next window begins there."""
        other = self._current if point is self._confirmed else self._confirmed
        self._confirmed, self._current, self._spare = point, None, other or self._spare
        self.losses.clear()

    def _evaluate(self) -> float:
        """F where the base is judged: a schedule-free base trains at another point."""
        switches = self._base.param_groups[0].get("train_mode") is True
        if switches:
            self._base.eval()  # type: ignore[attr-defined]
        try:
            return evaluated(self._objective, self._run_state.modules)
        finally:
            if switches:
                self._base.train()  # type: ignore[attr-defined]

    def add_param_group(self) -> None:
        """The base has a new group, which both points take as it is now."""
        for snapshot in (self._confirmed, self._current):
            if snapshot is not None:
                self._run_state.extend(snapshot)
        self._spare = None

    def state_dict(self) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """The numbers, always under the same keys; and both points, as tensors and plain values."""
        memory = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self.memory).items()}
        points = {"confirmed": self._confirmed, "current": self._current}
        packed = {name: self._run_state.pack(point) for name, point in points.items() if point is not None}
        return {"memory": memory, **self.losses.state_dict(), "steps": self.steps}, packed or None

    def load_state_dict(self, saved: dict[str, Any] | None, packed: dict[str, Any] | None) -> None:
        """Take what `state_dict` gave; without numbers the run begins again, without points the window does."""
        self.memory, self.losses, self.steps = self.rule.init(), LossList(), 0
        if saved is not None:
            if saved.get("memory", {}).keys() != vars(self.memory).keys():
                raise ValueError(
                    "This state_dict is of another class of optimizers, or of another version of cmalight: load it "
                    "into that one, or start the run again"
                )
            numbers: dict[str, Any] = {
                name: tuple(v) if isinstance(v, list) else v for name, v in saved["memory"].items()
            }
            self.memory, self.losses = Memory(**numbers), LossList(saved["losses"], saved["skipped"])
            self.steps = int(saved["steps"])
        if packed is None:  # as from torch.distributed.checkpoint
            self.losses.clear()
        points = {name: self._run_state.unpack(point) for name, point in (packed or {}).items()}
        self._confirmed, self._current, self._spare = points.get("confirmed"), points.get("current"), None


def _not_finite(losses: Sequence[float]) -> str:
    """Which loss of a window was the first to be NaN or infinite; empty if none was."""
    for place, loss in enumerate(losses, 1):
        if not math.isfinite(loss):
            return f"loss {place} of {len(losses)} was {'NaN' if math.isnan(loss) else 'infinite'}"
    return ""


class _WatchedLine(Line):
    """The line of a window, with what else the watchdog asks for.

    Args:
        run_state: What moves.
        points: The confirmed point, and where the window began, if that is another point.
        objective: Gives f and the probe; None if nobody knows them.
        evaluate: Gives f at the current weights.
    """

    def __init__(
        self, run_state: RunState, points: Sequence[Snapshot], objective: Any, evaluate: Callable[[], float]
    ) -> None:
        super().__init__(run_state, points[0], END, evaluate)
        self._points = points
        self._objective = objective

    @property
    def has_f(self) -> bool:
        """Whether there is an objective."""
        return self._objective is not None

    def f_start(self) -> float:
        """F at the lower one of the points, which is the start from here on."""
        if self._f_start is None:
            values = [self.f_of(point) for point in self._points]
            self._f_start = min(values)
            self.start = self._points[values.index(self._f_start)]
        return self._f_start

    def probe(self) -> float:
        """The objective's probe; NaN if it is a plain callable."""
        return self._objective.probe() if isinstance(self._objective, Objective) else math.nan
