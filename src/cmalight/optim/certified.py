"""Certified: epochs of any base, with the convergence theorem of the paper's method."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer
from torch.utils.data import DataLoader

from cmalight.errors import check_whole, warn
from cmalight.evaluation.batches import TensorBatches
from cmalight.evaluation.objective import Objective, evaluated, require_finite_start
from cmalight.evaluation.state import RunState, Snapshot
from cmalight.optim.line import Line, or_infinite
from cmalight.optim.plain import gradient_step
from cmalight.optim.reports import WindowReport
from cmalight.optim.steps import BaseSteps, warn_of_missing_parameters
from cmalight.optim.watched import is_zero, refuse_unequal
from cmalight.rules.certified import CertifiedMemory, CertifiedRule
from cmalight.rules.paper import InnerCycle

_STALLED = 20  # epochs undone in a row, after which a warning says so


class Certified(BaseSteps):
    """Keeps an epoch of the base only if it lowers f; otherwise undoes it and runs one plain gradient epoch.

    f is `objective()`, the loss on all data, with the same random numbers every time. It does not include a weight
    decay of the base; to include it, add it to the loss. f(w^k) never increases, and ‖∇f(w^k)‖ comes as close to 0 as
    you like under the assumptions of docs/understand/any-base.md; among them: an epoch sees every sample once, and only
    its last batch may be short. Call `restart()` between epochs.

    It costs one evaluation of all data per epoch. A plain epoch that extends its step costs a few more.

    Args:
        base: Any torch optimizer whose `step()` needs no closure.
        objective: An `Objective`, or any callable that returns the loss over all data at the current weights, a
            function of the weights alone.
        steps_per_epoch: Number of steps of an epoch; by default the number of batches of the objective's data.
        total_steps: As in `Controlled`, for the base's learning rate.
        progress: As in `Controlled`, for the base's learning rate.
        eta: The first learning rate of the plain epochs.

    Attributes:
        base: The optimizer that is watched.
        objective: What is minimised.
        report: The report on the last epoch; None before the first one ends.
        last_lr: The learning rate that the last step used in the first parameter group.
        steps: Steps so far, undone ones included.

    Raises:
        ValueError: If the number of steps of an epoch is not known, the base cannot be watched, or an argument is
            out of its range.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from cmalight import Certified, Objective, TensorBatches
        >>> _ = torch.manual_seed(0)
        >>> x = torch.rand(1000, 8)
        >>> loader = TensorBatches(x, x.sum(1, keepdim=True).sin(), batch_size=50)
        >>> model, loss_fn = nn.Sequential(nn.Linear(8, 20), nn.Tanh(), nn.Linear(20, 1)), nn.MSELoss()
        >>> base = torch.optim.AdamW(model.parameters(), lr=1e-2)
        >>> optimizer = Certified(base, Objective(model, loss_fn, loader), total_steps=5 * len(loader))
        >>> for _ in range(5):
        ...     for inputs, target in loader:
        ...         loss_fn(model(inputs), target).backward()
        ...         optimizer.step()
        ...         optimizer.zero_grad()
        >>> print(optimizer.report.outcome.name)
        KEPT
    """

    def __init__(
        self,
        base: Optimizer,
        objective: Callable[[], Any],
        *,
        steps_per_epoch: int | None = None,
        total_steps: int | None = None,
        progress: Callable[[], float] | None = None,
        eta: float = 0.5,
    ) -> None:
        super().__init__(base, total_steps, progress)
        if not callable(objective):
            raise TypeError(f"Certified needs an Objective, or a callable that gives the loss, but got {objective!r}")
        if any("train_mode" in group for group in base.param_groups):
            raise ValueError(f"Certified cannot watch {type(base).__name__}: it trains at one point and judges another")
        modules = objective.modules if isinstance(objective, Objective) else ()
        if isinstance(objective, Objective):
            warn_of_missing_parameters(self, objective.model)
        self.objective = objective
        self.steps_per_epoch, self._last_batch = _epoch_of(objective, steps_per_epoch)
        self.steps = 0
        self._rule = CertifiedRule(eta=eta)
        self._memory: CertifiedMemory | None = None
        self._start: Snapshot | None = None
        self._steps_since = 0  # the start
        self._run_state = RunState(base, modules)

    @property
    def scale(self) -> float:
        """The factor of the base's learning rate, in (0, 1]."""
        return 1.0 if self._memory is None else self._memory.scale

    @property
    def eta(self) -> float:
        """η, the learning rate of the plain epochs; it never grows."""
        return self._rule.eta if self._memory is None else self._memory.eta

    @property
    def _step_supports_amp_scaling(self) -> bool:
        return False  # GradScaler unscales the gradients itself, for plain steps too

    def _watched_step(self, _: Tensor | float | None) -> None:
        """One step of the base, or a plain gradient step; after the last step of an epoch f decides."""
        memory = self._begun()
        if memory.plain:
            self._plain_step(memory.eta)
        else:
            self._base_step(self._factor(self.steps))
        self.steps += 1
        self._steps_since += 1
        if self._steps_since >= self.steps_per_epoch:
            self._close_epoch(memory)

    def restart(self) -> None:
        """Take the current weights as the new start, between epochs; scale and η are as at the beginning.

        Raises:
            ValueError: If the weights or the optimizer's state are not finite.
        """
        if not self._run_state.is_finite(None):
            raise ValueError("restart() found weights or optimizer state that are not finite: load finite ones first")
        self._memory = self._start = None
        self._steps_since = 0

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters to the base, between steps; an undo takes them as they are now.

        Args:
            param_group: As in torch.
        """
        super().add_param_group(param_group)
        if self._start is not None:
            self._run_state.extend(self._start)

    @torch.no_grad()
    def _begun(self) -> CertifiedMemory:
        """The memory for this step; the first step of a run copies the state."""
        if self._memory is None:
            f_0 = self._evaluate()
            require_finite_start(f_0, self.objective)
            self._memory = self._rule.init(f_0, self.steps_per_epoch - 1 + self._last_batch)
        if self._start is None:
            self._start = self._run_state.snapshot()
        return self._memory

    def _evaluate(self) -> float:
        return evaluated(self.objective, self._run_state.modules)

    def _plain_step(self, eta: float) -> None:
        is_last = self._steps_since == self.steps_per_epoch - 1
        self.last_lr = eta * (self._last_batch if is_last else 1.0)
        for group in self.param_groups:
            if not is_zero(group["lr"]):
                gradient_step(group["params"], self.last_lr)

    def _close_epoch(self, before: CertifiedMemory) -> None:
        start: Snapshot = self._start  # type: ignore[assignment]
        is_finite = self._run_state.is_finite(start)
        if not (ranks := self._ranks).alone:
            steps, finite = zip(*ranks.gather(self.steps, float(is_finite)), strict=True)
            refuse_unequal(steps)
            is_finite = all(finite)
        seen = InnerCycle(
            zeta=before.eta,
            f_tilde=0.0 if is_finite else math.inf,
            direction_norm=self._run_state.distance_from(start) / before.eta,
            batches=before.batches,
        )
        line = Line(self._run_state, start, before.eta, self._evaluate, before.f)
        self._steps_since = 0
        decision = line.decide(self._rule, before, seen)
        after: CertifiedMemory = decision.memory
        self._memory = after
        if decision.outcome.keeps:
            self._start = None  # never go back to memory that is being written
            self._start = self._run_state.refresh(start)
        self._agreed = None
        self.report = WindowReport(
            steps=self.steps_per_epoch,
            outcome=decision.outcome,
            loss=after.f if decision.outcome.keeps else or_infinite(line.f_end),
            bound=decision.bound,
            scale=after.scale,
            evaluations=line.evaluations,
            f_end=line.f_end,
            f_confirmed=before.f,
        )
        self._warn_about_schedules()
        if after.undone == _STALLED:
            warn(
                f"Certified has undone {_STALLED} epochs in a row: training has stalled at f = {after.f:.6g}. Likely "
                "causes: the objective is not a function of the weights alone, or not the loss the steps minimise; or "
                "this is the end: f cannot be lowered any more in this precision."
            )

    def _saved_control(self) -> tuple[dict[str, Any], dict[str, Any] | None]:
        # The same keys at all times: torch.distributed.checkpoint loads those that it finds in a fresh optimizer.
        memory: dict[str, Any] = dict.fromkeys(field.name for field in fields(CertifiedMemory))
        if self._memory is not None:
            memory = asdict(self._memory)
        counts = {"steps": self.steps, "steps_since": self._steps_since, "total_steps": self.total_steps}
        packed = None if self._start is None else {"start": self._run_state.pack(self._start)}
        return {"memory": memory, **counts}, packed

    def _load_control(self, numbers: dict[str, Any] | None, snapshots: dict[str, Any] | None) -> None:
        saved, packed = numbers or {}, (snapshots or {}).get("start")
        memory = saved.get("memory") or {}
        is_of_this = memory.keys() == {field.name for field in fields(CertifiedMemory)} and memory["f"] is not None
        self._memory = CertifiedMemory(**memory) if is_of_this else None
        self.steps, self._steps_since = int(saved.get("steps", 0)), int(saved.get("steps_since", 0))
        self._take_total_steps(saved)
        self._start = None if packed is None else self._run_state.unpack(packed)
        if self._start is None and self._memory is not None:
            # As from torch.distributed.checkpoint: an epoch begins here, and f is known only between two.
            self._memory = None if self._steps_since else self._memory
            self._steps_since = 0


def _epoch_of(objective: Any, steps: int | None) -> tuple[int, float]:
    """The steps of an epoch, and the size of its last batch over that of the others, as far as the data tell."""
    data = objective.data if isinstance(objective, Objective) else None
    try:
        batches = len(data)  # type: ignore[arg-type]
    except TypeError:  # no data, or an iterable data set, whose length nobody knows
        batches = None
    if steps is None:
        steps = batches
    if steps is None:
        raise ValueError(
            "Certified judges whole epochs, but the objective's data have no length: "
            "give steps_per_epoch, the number of steps of an epoch"
        )
    check_whole("steps_per_epoch", steps, least=1)
    if steps == batches and isinstance(data, TensorBatches):
        return steps, min(1.0, data.samples / data.batch_size - (steps - 1))
    if steps == batches and isinstance(data, DataLoader) and data.batch_size and not data.drop_last:
        return steps, min(1.0, len(data.sampler) / data.batch_size - (steps - 1))  # type: ignore[arg-type]
    return steps, 1.0
