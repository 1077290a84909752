"""The naive twin of `Controlled`: deep copies, plain floats, no early rejection, no clever bookkeeping."""

import copy
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn


class Twin:
    """docs/controlled.md, lines 31 to 43, around an optimizer that `make` builds over a model's parameters."""

    def __init__(
        self,
        model: nn.Module,
        make: Callable[[Sequence[Tensor]], torch.optim.Optimizer],
        batches: list[tuple[Tensor, Tensor]],
        loss_fn: nn.Module,
        *,
        tolerance: float,
        patience: int,
        growth: float,
        theta: float,
        gamma: float = 1e-2,
    ) -> None:
        self.model, self.batches, self.loss_fn = model, batches, loss_fn
        self.base = make(list(model.parameters()))
        self.tolerance, self.patience, self.growth = tolerance, patience, growth
        self.theta, self.gamma = theta, gamma
        self.samples = sum(len(y) for _, y in batches)
        self.k = self.samples / len(batches[0][1])
        self.evaluations = 0
        self.f_0 = self.evaluate()
        self.best = self.f_0
        self.since = 0
        self.ramping = True
        self.accepted_one = False
        self.refusals = 0
        self.ceiling = math.inf
        self.grown_by = 1.0

    def evaluate(self) -> float:
        self.evaluations += 1
        with torch.no_grad():
            return sum(self.loss_fn(self.model(x), y).item() * len(y) for x, y in self.batches) / self.samples

    @property
    def zeta(self) -> float:
        return max(group["lr"] for group in self.base.param_groups)

    def scale(self, factor: float) -> None:
        for group in self.base.param_groups:
            group["lr"] *= factor

    def switch(self, mode: str) -> None:
        """Schedule-free optimizers train at one point and are judged at another."""
        getattr(self.base, mode, lambda: None)()

    def epoch(self) -> str:
        weights = copy.deepcopy(self.model.state_dict())
        state = copy.deepcopy(self.base.state_dict())
        zeta, total = self.zeta, 0.0
        self.switch("train")
        for x, y in self.batches:
            self.base.zero_grad()
            loss = self.loss_fn(self.model(x), y)
            loss.backward()
            total += loss.item() * len(y)
            self.base.step()
        f_tilde = total / self.samples
        self.switch("eval")
        if math.isfinite(f_tilde):
            if f_tilde <= min(self.bearable() * self.best, 2 * self.f_0):
                return self.accept(f_tilde, zeta)
            asks = self.refusals > 0 or not self.accepted_one
            if asks and f_tilde <= 2 * self.f_0 and self.true_loss_fell(weights, zeta):
                return self.certify(f_tilde)
        self.model.load_state_dict(weights)
        self.base.load_state_dict(state)
        self.ramping = False
        if self.grown_by > 1:
            self.scale(1 / self.grown_by)
            self.grown_by = 1.0
            return "growth_undone" if math.isfinite(f_tilde) else "diverged"
        self.refusals += 1
        self.ceiling = self.theta * zeta
        self.scale(self.theta)
        return "refused" if math.isfinite(f_tilde) else "diverged"

    def bearable(self) -> float:
        if self.grown_by == 1:
            return self.tolerance
        return min(self.tolerance, 1.0 if self.ramping else 1.2)

    def accept(self, f_tilde: float, zeta: float) -> str:
        self.accepted_one, self.refusals = True, 0
        if f_tilde <= self.best - self.gamma * zeta / self.k:
            self.best, self.since = f_tilde, 0
            grown = zeta * (3.0 if self.ramping else self.growth)
            self.grown_by = max(zeta, min(grown, self.ceiling)) / zeta
            self.scale(self.grown_by)
            return "new_best"
        self.grown_by = 1.0
        self.ramping = False
        self.since += 1
        if self.since == self.patience:
            self.since = 0
            self.scale(self.theta)
            return "stagnated"
        return "tolerated"

    def true_loss_fell(self, weights: dict[str, Tensor], zeta: float) -> bool:
        f_end = self.evaluate()
        other = copy.deepcopy(self.model)
        other.load_state_dict(weights)
        ours, self.model = self.model, other
        f_start = self.evaluate()
        self.model = ours
        return f_end <= f_start - self.gamma * zeta / self.k

    def certify(self, f_tilde: float) -> str:
        self.accepted_one, self.refusals = True, 0
        self.best = f_tilde
        self.ramping = False
        return "certified"
