"""Controlled(base, objective, certified=True): any base, with the convergence theorem of the paper's method."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer
from torch.optim.sgd import sgd

from cmalight.errors import check_whole
from cmalight.evaluation.batches import TensorBatches
from cmalight.optim.controlled import Controlled
from cmalight.optim.host import is_zero
from cmalight.optim.reports import WindowReport
from cmalight.rules.certified import CertifiedMemory, CertifiedRule
from cmalight.rules.epochs import InnerCycle


class Certified(Controlled, certified=True):
    """Keeps an epoch of the base only if it lowers f; otherwise undoes it and runs one plain gradient epoch.

    `Controlled(base, objective, certified=True)` makes one. A window is an epoch, and f is `objective()`, the loss on
    all data. f does not include a weight decay of the base; to include it, add it to the loss. f(w^k) never
    increases, and ‖∇f(w^k)‖ → 0 under the assumptions of docs/understand/theory.md; among them: an epoch sees every
    sample once, and only its last batch may be short. Call `judge()` and `restart()` between epochs, or at the end of
    training.

    It costs one evaluation of all data per epoch. A plain epoch that extends its step costs a few more.

    Args:
        base: Any torch optimizer whose `step()` needs no closure.
        objective: An `Objective`, or any callable that returns the loss over all data at the current weights.
        certified: True.
        steps_per_epoch: Number of steps of an epoch; by default the number of batches of the objective's data.
        total_steps: As in `Controlled`, for the base's learning rate.
        progress: As in `Controlled`, for the base's learning rate.
        rule: The constants, such as `CertifiedRule(eta=0.1)`.

    Raises:
        ValueError: If the number of steps of an epoch is not known, the base cannot be watched, or an argument is
            out of its range.
    """

    rule: CertifiedRule  # type: ignore[assignment]
    _memory: CertifiedMemory | None  # type: ignore[assignment]

    def __init__(
        self,
        base: Optimizer,
        objective: Any,
        *,
        certified: bool = True,  # noqa: ARG002 - handed on by Controlled(..., certified=True)
        steps_per_epoch: int | None = None,
        total_steps: int | None = None,
        progress: Callable[[], float] | None = None,
        rule: CertifiedRule | None = None,
    ) -> None:
        super().__init__(base, objective, total_steps=total_steps, progress=progress)
        if any("train_mode" in group for group in base.param_groups):
            raise ValueError(
                f"certified=True cannot watch {type(base).__name__}: it trains at one point, judges another"
            )
        self.rule = CertifiedRule() if rule is None else rule
        self.steps_per_epoch, self._last_batch = _epoch_of(objective, steps_per_epoch)

    @property
    def eta(self) -> float:
        """η, the learning rate of the plain epochs; it never grows."""
        return self.rule.eta if self._memory is None else self._memory.eta

    @property
    def _step_supports_amp_scaling(self) -> bool:
        return False  # GradScaler unscales the gradients itself, for plain steps too

    @property
    def _memory_now(self) -> CertifiedMemory:  # type: ignore[override]
        if self._memory is None:
            batches = self.steps_per_epoch - 1 + self._last_batch
            position = self.steps % self.steps_per_epoch
            f_0 = self._evaluate()
            self._memory = self.rule.init(f_0, epoch=self.steps_per_epoch, batches=batches, position=position)
        return self._memory

    def advance(self, count: int, run: Callable[[list[float]], Tensor]) -> Tensor:  # noqa: ARG002
        """Refused: an engine that takes steps of the base cannot take plain ones.

        Args:
            count: As in `Controlled`.
            run: As in `Controlled`.

        Raises:
            RuntimeError: Always.
        """
        raise RuntimeError("certified=True takes plain gradient steps, too, which an engine cannot: train eagerly")

    @torch.no_grad()
    def judge(self) -> WindowReport | None:
        """Close the window now; call it between epochs, or at the end of training.

        Returns:
            The report on the window; the last report if no step was taken since.
        """
        window = self.window
        if window is None or not window.steps:
            return self.report
        before = self._memory_now
        line = _Line(self, before)
        end = InnerCycle(
            zeta=before.eta,
            f_tilde=0.0 if self.end_is_finite(window) else math.inf,
            direction_norm=self.run_state.distance_from(window.snapshot) / before.eta,
            batches=before.batches,
        )
        try:
            decision, self._memory = self.rule.decide(before, end, line, window.steps)
            line.go_to(decision.alpha)
        except BaseException:
            self.roll_back()
            raise
        f_end = decision.phi if decision.outcome.keeps else line.f_end
        bound, scale = self.rule.bound(before), self._memory.scale
        return self.close_window(WindowReport(window.steps, decision.outcome, before.f, f_end, bound, scale))

    @torch.no_grad()
    def _base_step(self, factor: float) -> None:
        memory = self._memory
        if memory is None or not memory.plain:
            super()._base_step(factor)
            return
        is_last = self.window is not None and self.window.steps == memory.epoch - 1
        self.last_lr = memory.eta * (self._last_batch if is_last else 1.0)
        moving = [group["params"] for group in self.param_groups if not is_zero(group["lr"])]
        params = [p for group in moving for p in group if p.grad is not None and p.requires_grad]
        sgd(
            params,
            [p.grad for p in params],
            [None] * len(params),
            has_sparse_grad=any(p.grad.is_sparse for p in params),
            weight_decay=0.0,
            momentum=0.0,
            lr=self.last_lr,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )

    def _evaluate(self) -> float:
        """F on all data, +inf where it is not finite."""
        value = float(self.objective())
        return value if math.isfinite(value) else math.inf

    def control_state(self) -> dict[str, Any]:
        """The rule's memory and the count of steps, as plain numbers."""
        memory = None if self._memory is None else asdict(self._memory)
        return {"certified": memory, "steps": self.steps, "total_steps": self.total_steps}

    def load_control_state(self, saved: dict[str, Any] | None) -> None:
        """Take what `control_state` gave; from the state of another control only the steps and the base are taken."""
        super().load_control_state(None if saved is None else {**saved, "memory": {}})
        memory = None if saved is None else saved.get("certified")
        self._memory = None if memory is None else CertifiedMemory(**memory)


class _Line:
    """f(w^k + alpha d), where w^k is the start of the window and w^k + eta d its end."""

    def __init__(self, optimizer: Certified, before: CertifiedMemory) -> None:
        self._optimizer = optimizer
        self._eta = before.eta
        self._f_start = before.f
        self._end: list[Tensor] | None = None  # once the weights have left it
        self.f_end = math.inf

    def f_start(self) -> float:
        """What is known of f(w^k)."""
        return self._f_start

    def f_at(self, alpha: float) -> float:
        """Evaluate f there; the weights stay there."""
        self.go_to(alpha)
        value = self._optimizer._evaluate()
        if alpha == self._eta:
            self.f_end = value
        return value

    def go_to(self, alpha: float) -> None:
        """Buffers and the base's state are those of the end of the window; at alpha = 0 all of its start is back."""
        optimizer = self._optimizer
        if alpha == 0.0:
            optimizer.roll_back()
            return
        if self._end is None and alpha != self._eta:
            self._end = optimizer.run_state.snapshot().weights
        if self._end is not None:
            start = optimizer.window.snapshot.weights  # type: ignore[union-attr]
            optimizer.run_state.go_to(self._end, alpha / self._eta, start)


def _epoch_of(objective: Any, steps: int | None) -> tuple[int, float]:
    """The steps of an epoch, and the size of its last batch over that of the others, as far as the data tell."""
    data = getattr(objective, "data", None)
    try:
        batches = len(data)  # type: ignore[arg-type]
    except TypeError:  # no data, or an iterable data set, whose length nobody knows
        batches = None
    if steps is None:
        steps = batches
    if steps is None:
        raise ValueError(
            "certified=True judges whole epochs, but the objective's data have no length: "
            "give steps_per_epoch, the number of steps of an epoch"
        )
    check_whole("steps_per_epoch", steps, least=1)
    size = getattr(data, "batch_size", None)
    if steps != batches or not size or getattr(data, "drop_last", False):
        return steps, 1.0
    rows = data.samples if isinstance(data, TensorBatches) else len(data.sampler)  # type: ignore[union-attr]
    return steps, min(1.0, rows / size - (steps - 1))
