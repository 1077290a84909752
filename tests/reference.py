"""The naive oracle: CMALight, COFF, CMA and IG on one flat float64 vector, straight from the listings.

Everything inside an epoch is in SUM units, f = sum_p (n_p/nbar) l_p = K * (mean loss per sample). What is carried from
one epoch to the next, and what a `Record` shows, is in mean units, because K may differ between epochs.

    zeta   step size, the largest learning rate     d       (w_tilde - w) / zeta
    alpha  step taken along d, 0 is a rejection     K       batches of nominal size in the epoch, fractional
    phi    best value seen so far                   f_tilde sum of the batch losses, each where its batch was met
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

Orders = Iterable[list[Tensor]]


@dataclass(frozen=True)
class Problem:
    """A data loss over `samples` samples; `batch_loss(w, indices)` is its mean over a batch, without regularisation."""

    batch_loss: Callable[[Tensor, Tensor], Tensor]
    samples: int

    def loss(self, w: Tensor) -> float:
        """Return the mean loss over all samples."""
        return self.batch_loss(w, torch.arange(self.samples)).item()

    def gradient(self, w: Tensor, indices: Tensor) -> Tensor:
        """Return the gradient of the mean loss over a batch."""
        point = w.detach().clone().requires_grad_()
        return torch.autograd.grad(self.batch_loss(point, indices), point)[0]


@dataclass(frozen=True)
class Record:
    """One epoch; values in mean units with the regularisation, `alpha` and `direction_norm` as in the paper."""

    w: Tensor
    lr: float
    next_lr: float
    alpha: float
    f_tilde: float
    phi: float
    direction_norm: float
    evaluations: int
    line: int | None
    moved: bool
    f_current: float | None


@dataclass
class Objective:
    """The problem with its weight decay; counts the full evaluations, and those before the present epoch."""

    problem: Problem
    weight_decay: float | Tensor
    evaluations: int = 0
    before: int = 0

    def penalty(self, w: Tensor) -> float:
        """Return the regularisation term per sample."""
        return (self.weight_decay / 2 * w**2).sum().item()

    def batch(self, w: Tensor, indices: Tensor) -> float:
        """Return the mean objective of a batch."""
        return self.problem.batch_loss(w, indices).item() + self.penalty(w)

    def gradient(self, w: Tensor, indices: Tensor) -> Tensor:
        """Return the gradient of the mean objective of a batch."""
        return self.problem.gradient(w, indices) + self.weight_decay * w

    def full(self, w: Tensor) -> float:
        """Evaluate the mean objective over all samples; a non-finite value is +inf."""
        self.evaluations += 1
        value = self.problem.loss(w) + self.penalty(w)
        return value if math.isfinite(value) else math.inf


@dataclass(frozen=True)
class Cycle:
    """What Inner_Cycle returns, with what it started from."""

    w: Tensor
    zeta: float
    w_tilde: Tensor
    d: Tensor
    norm: float
    f_tilde: float
    K: float

    @property
    def diverged(self) -> bool:
        return not (math.isfinite(self.f_tilde) and math.isfinite(self.norm))

    def point(self, alpha: float) -> Tensor:
        """Return w + alpha d; w and w_tilde themselves where that is what it means."""
        if alpha == 0:
            return self.w
        return self.w_tilde if alpha == self.zeta else self.w + alpha * self.d

    def f(self, objective: Objective, alpha: float) -> float:
        """Evaluate f(w + alpha d)."""
        return self.K * objective.full(self.point(alpha))


@dataclass(frozen=True)
class Search:
    """What a line search returns; `guarded` if max_extrapolations ended it."""

    alpha: float
    f_hat: float
    guarded: bool = False


@dataclass(frozen=True)
class Decision:
    """Line of the listing that decided, its step and whether zeta shrinks."""

    line: int | None
    alpha: float
    shrink: bool


def inner_cycle(objective: Objective, w: Tensor, lr: Tensor, batches: list[Tensor]) -> Cycle:
    """Run one epoch of incremental gradient."""
    zeta, nominal = lr.max().item(), len(batches[0])
    w_tilde, f_tilde = w, 0.0
    for indices in batches:
        weight = len(indices) / nominal
        f_tilde += weight * objective.batch(w_tilde, indices)
        w_tilde = w_tilde - lr * weight * objective.gradient(w_tilde, indices)
    d = (w_tilde - w) / zeta
    K = sum(len(indices) for indices in batches) / nominal
    return Cycle(w, zeta, w_tilde, d, d.norm().item(), f_tilde, K)


def edfl(
    objective: Objective, cycle: Cycle, *, f_w: float, f_start: float, f_zeta: float | None,
    gamma: float, delta: float, max_extrapolations: int, bound_at_trial: bool = False,
) -> Search:  # fmt: skip
    """Extrapolate from alpha = zeta; `f_start` stands for f(w + zeta d), whose true value is `f_zeta` where known."""
    alpha, f_j, f_hat = cycle.zeta, f_start, f_zeta  # line 2
    if not (math.isfinite(f_start) and f_start <= f_w - gamma * alpha * cycle.norm**2):  # line 3
        return Search(0.0, f_w)
    guarded = True
    for _ in range(max_extrapolations):
        trial = cycle.f(objective, alpha / delta)
        step = alpha / delta if bound_at_trial else alpha
        if not trial <= min(f_w - gamma * step * cycle.norm**2, f_j):  # line 6
            guarded = False
            break
        f_j = f_hat = trial  # line 7
        alpha = alpha / delta
    if f_hat is None:
        f_hat = cycle.f(objective, alpha)
    return Search(alpha, f_hat, guarded)  # line 10


def up_to_rounding(f_0: float) -> float:
    """f_0, for a comparison with f_tilde, which is summed in another way; in single precision."""
    return f_0 + 1e-6 * abs(f_0)


def after_search(
    cycle: Cycle, search: Search, *, end_is_low: bool, f_0: float, tau: float,
    certified: bool = False, shrink_on_line_17: bool = True,
) -> Decision:  # fmt: skip
    """Lines 14 to 17; `end_is_low` is what line 15 says of w_tilde."""
    accepted = search.alpha > 0 and (certified or search.f_hat <= f_0)
    if search.alpha * cycle.norm**2 <= tau * cycle.zeta and not search.guarded:  # line 14
        to_w_tilde = search.alpha == 0 and end_is_low
        return Decision(15, search.alpha if accepted else cycle.zeta if to_w_tilde else 0.0, True)  # line 15
    if accepted:
        return Decision(17, search.alpha, False)  # line 17
    return Decision(17, 0.0, shrink_on_line_17)  # line 17, second half


def start(w0: Tensor, lr: float | Tensor) -> tuple[Tensor, Tensor]:
    """Return the starting point and the learning rate of each coordinate."""
    w = w0.detach().clone().double()
    return w, torch.as_tensor(lr, dtype=torch.float64).expand_as(w)


def record(
    objective: Objective, cycle: Cycle, decision: Decision, lr: Tensor, phi: float, f_current: float | None
) -> Record:
    """Put an epoch on record, in mean units; `lr` is that of the next epoch."""
    made, objective.before = objective.evaluations - objective.before, objective.evaluations
    return Record(
        w=cycle.point(decision.alpha), lr=cycle.zeta, next_lr=lr.max().item(), alpha=decision.alpha,
        f_tilde=cycle.f_tilde / cycle.K, phi=phi, direction_norm=cycle.norm, evaluations=made,
        line=decision.line, moved=decision.alpha > 0, f_current=f_current,
    )  # fmt: skip


def cmalight(
    problem: Problem, w0: Tensor, orders: Orders, *, lr: float | Tensor = 0.5, theta: float = 0.75, tau: float = 1e-2,
    gamma: float = 1e-2, delta: float = 0.9, line_search: str = "light", weight_decay: float | Tensor = 0.0,
    max_extrapolations: int = 100, shrink_on_line_17: bool = True,
) -> list[Record]:  # fmt: skip
    """Run CMALight; `shrink_on_line_17=False` is line 17 as the paper prints it."""
    certified = line_search == "certified"
    objective = Objective(problem, weight_decay)
    w, lr = start(w0, lr)
    f_first = f_current = phi = objective.full(w)  # line 3
    records = []
    for batches in orders:
        cycle = inner_cycle(objective, w, lr, batches)  # line 5
        K, zeta, f_tilde, f_0 = cycle.K, cycle.zeta, cycle.f_tilde, cycle.K * f_first
        ceiling = up_to_rounding(f_0)
        f_new = None  # f(w^{k+1}) where this epoch evaluates it
        phi_before, searched = phi, False
        if cycle.diverged:
            decision = Decision(None, 0.0, True)
        elif f_tilde <= min(K * phi - gamma * zeta, ceiling):  # line 6
            decision, phi = Decision(7, zeta, False), f_tilde / K  # line 7
        elif cycle.norm <= tau * zeta:  # line 8
            decision = Decision(10, zeta if f_tilde <= ceiling else 0.0, True)  # lines 10 and 11
        else:
            if f_current is None:
                f_current = objective.full(w)
            f_zeta = cycle.f(objective, zeta) if certified else None
            search = edfl(
                objective, cycle, f_w=K * f_current, f_start=f_zeta if certified else f_tilde, f_zeta=f_zeta,
                gamma=gamma, delta=delta, max_extrapolations=max_extrapolations,
            )  # line 13  # fmt: skip
            decision = after_search(
                cycle, search, end_is_low=f_tilde <= ceiling, f_0=f_0, tau=tau,
                certified=certified, shrink_on_line_17=shrink_on_line_17,
            )  # lines 14 to 17  # fmt: skip
            phi = min(search.f_hat / K, f_tilde / K, phi)  # line 18
            f_new, searched = (search.f_hat if search.alpha > 0 else f_zeta), search.alpha > 0
        if decision.alpha == zeta and not searched:  # line 21: so far f_tilde alone speaks for w_tilde
            if f_new is None and (certified or K <= 1):
                f_new = cycle.f(objective, zeta)
            if f_new is not None and not f_new <= f_0:
                decision, phi = Decision(22, 0.0, True), phi_before  # line 22
        w = cycle.point(decision.alpha)  # line 20
        lr = theta * lr if decision.shrink else lr
        if decision.alpha > 0:
            f_current = None if f_new is None else f_new / K
        records.append(record(objective, cycle, decision, lr, phi, f_current))
    return records


def coff(
    problem: Problem, w0: Tensor, orders: Orders, *, lr: float | Tensor = 0.05, theta: float = 0.5, tau: float = 1e-2,
    gamma: float = 1e-6, delta: float = 0.9, weight_decay: float | Tensor = 0.0, max_extrapolations: int = 100,
) -> list[Record]:  # fmt: skip
    """Run COFF_IG, whose zeta may grow."""
    objective = Objective(problem, weight_decay)
    w, lr = start(w0, lr)
    f_first = f_current = phi = objective.full(w)
    records = []
    for batches in orders:
        cycle = inner_cycle(objective, w, lr, batches)
        K, zeta, f_tilde, f_0, norm2 = cycle.K, cycle.zeta, cycle.f_tilde, cycle.K * f_first, cycle.norm**2
        ceiling, f_after, factor, f_new = up_to_rounding(f_0), math.inf, 1.0, None
        if cycle.diverged:
            decision, factor = Decision(None, 0.0, True), theta
        elif f_tilde <= min(K * phi - gamma * zeta, ceiling):
            decision = Decision(7, zeta, False)
        elif cycle.norm <= tau * zeta:
            decision, factor = Decision(10, zeta if f_tilde <= ceiling else 0.0, True), theta
        else:
            if f_current is None:
                f_current = objective.full(w)
            alpha, f_j, guarded = 0.0, math.inf, False
            if f_tilde <= min(K * f_current, ceiling):
                alpha, f_j, guarded = zeta, f_tilde, True
                for _ in range(max_extrapolations):
                    trial = cycle.f(objective, alpha / delta)
                    if not trial <= min(K * f_current - gamma * alpha * norm2, f_j):
                        guarded = False
                        break
                    alpha, f_j = alpha / delta, trial
                    f_new = trial
            f_after = f_j
            if alpha * norm2 > tau * zeta or guarded:
                decision, factor = Decision(17, alpha, False), alpha / zeta
            elif alpha > 0:
                decision, factor = Decision(15, alpha, True), theta
            else:
                decision, factor = Decision(15, zeta if f_tilde <= ceiling else 0.0, True), theta
        if not cycle.diverged:
            phi = min(f_tilde / K, f_after / K, phi)
        w, lr = cycle.point(decision.alpha), factor * lr
        if decision.alpha > 0:
            f_current = None if f_new is None else f_new / K
        records.append(record(objective, cycle, decision, lr, phi, f_current))
    return records


def monotone(
    objective: Objective, cycle: Cycle, f_w: float, f_0: float, *, tau: float, gamma: float, delta: float,
    max_extrapolations: int,
) -> tuple[Decision, float]:  # fmt: skip
    """An epoch of CMA, which always evaluates f(w_tilde): the decision and the last value of f; `f_0` bounds both."""
    if cycle.diverged:
        return Decision(None, 0.0, True), math.nan
    f_zeta = cycle.f(objective, cycle.zeta)
    if f_zeta <= f_w - gamma * cycle.zeta:
        return Decision(7, cycle.zeta, False), f_zeta
    if cycle.norm <= tau * cycle.zeta:
        return Decision(10, cycle.zeta if f_zeta <= f_0 else 0.0, True), f_zeta
    search = edfl(
        objective, cycle, f_w=f_w, f_start=f_zeta, f_zeta=f_zeta, gamma=gamma, delta=delta,
        max_extrapolations=max_extrapolations, bound_at_trial=True,
    )  # fmt: skip
    decision = after_search(cycle, search, end_is_low=f_zeta <= f_0, f_0=f_0, tau=tau)
    return decision, search.f_hat if search.alpha > 0 else f_zeta


def cma(
    problem: Problem, w0: Tensor, orders: Orders, *, lr: float | Tensor = 0.5, theta: float = 0.75, tau: float = 1e-2,
    gamma: float = 1e-2, delta: float = 0.9, weight_decay: float | Tensor = 0.0, max_extrapolations: int = 100,
) -> list[Record]:  # fmt: skip
    """Run monotone CMA; phi is f(w^{k+1})."""
    objective = Objective(problem, weight_decay)
    w, lr = start(w0, lr)
    f_first = f_current = objective.full(w)
    records = []
    for batches in orders:
        cycle = inner_cycle(objective, w, lr, batches)
        decision, f_new = monotone(
            objective, cycle, cycle.K * f_current, cycle.K * f_first, tau=tau, gamma=gamma, delta=delta,
            max_extrapolations=max_extrapolations,
        )  # fmt: skip
        w = cycle.point(decision.alpha)
        lr = theta * lr if decision.shrink else lr
        if decision.alpha > 0:
            f_current = f_new / cycle.K
        records.append(record(objective, cycle, decision, lr, f_current, f_current))
    return records


def certified(
    problem: Problem, w0: Tensor, orders: Orders, base: Callable[..., tuple[Tensor, object]],
    *, eta: float = 0.5, theta: float = 0.5, tau: float = 1e-2, gamma: float = 1e-2, delta: float = 0.5,
    max_extrapolations: int = 100, shrink: float = 0.5, grow: float = 1.2,
) -> list[Record]:  # fmt: skip
    """Keep epochs of any base that lower f, else run a plain one; `base(objective, w, state, scale, batches)` gives
    the next w and state."""
    objective = Objective(problem, 0.0)
    w, state, scale, plain = w0.detach().clone().double(), None, 1.0, False
    f_current = objective.full(w)
    records = []
    for batches in orders:
        cycle = inner_cycle(objective, w, torch.full_like(w, eta), batches)
        K, f_w, decision = cycle.K, cycle.K * f_current, Decision(None, 0.0, False)
        if plain:
            plain = False
            decision, f_new = monotone(
                objective, cycle, f_w, f_w, tau=tau, gamma=gamma, delta=delta, max_extrapolations=max_extrapolations
            )
            w = cycle.point(decision.alpha)
            eta = theta * eta if decision.shrink else eta
            if decision.alpha > 0:
                f_current = f_new / K
        else:
            end, next_state = base(objective, w, state, scale, batches)
            f_end = K * objective.full(end) if torch.isfinite(end).all() else math.inf
            if f_end <= f_w - gamma * eta:
                w, state, f_current, scale = end, next_state, f_end / K, min(1.0, grow * scale)
            else:
                scale, plain = shrink * scale, True
        entry = record(objective, cycle, decision, torch.full_like(w, eta), f_current, f_current)
        records.append(replace(entry, w=w))
    return records


def ig(
    problem: Problem, w0: Tensor, orders: Orders, *, lr: float | Tensor = 0.5, decay: float = 0.5,
    weight_decay: float | Tensor = 0.0,
) -> list[Record]:  # fmt: skip
    """Run incremental gradient: every epoch moves to w_tilde, whatever came of it, and shrinks zeta."""
    objective = Objective(problem, weight_decay)
    w, lr = start(w0, lr)
    records = []
    for batches in orders:
        cycle = inner_cycle(objective, w, lr, batches)
        w, lr = cycle.w_tilde, (1 - decay) * lr
        decision = Decision(None, cycle.zeta, True)
        records.append(record(objective, cycle, decision, lr, math.nan, None))
    return records
