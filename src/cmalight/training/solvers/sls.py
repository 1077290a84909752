"""SGD with an Armijo line search on each batch (Vaswani et al., 2019), for comparisons."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from cmalight.errors import check_fraction, check_least, check_positive

# After so many step sizes the search gives up and takes a step this small.
_TRIES, _LAST_RESORT = 100, 1e-6
_SMALLEST_GRADIENT = 1e-8
_BATCHES_OF_AN_EPOCH = 500  # where nobody says how many there are


class StochasticLineSearch(Optimizer):
    """The largest step along a batch's gradient, by backtracking, that lowers the loss of that batch enough.

    f(w − η g) ≤ f(w) − c η ‖g‖², both over the batch. A search begins at the last step size, which grows by `gamma`
    over an epoch. The constants are those of the paper's experiments, arXiv:1905.09997. All forward passes of a
    search are on the training clock.

    Attributes:
        budget: has `epochs`, the epochs that are done; `fit` sets it. Without it a batch counts as 1/500 of an epoch.
    """

    budget: Any  # a RunBudget, or what has its `epochs`

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1.0,
        *,
        c: float = 0.1,
        beta: float = 0.9,
        gamma: float = 2.0,
        eta_max: float = 10.0,
    ) -> None:
        """Make the optimizer.

        Args:
            params: of the model.
            lr: the first step size.
            c: the share of the predicted decrease that is enough.
            beta: by which a step that is too long is shortened.
            gamma: by which the first step size of a search grows over an epoch.
            eta_max: the largest first step size of a search after the first one.

        Raises:
            ValueError: where a constant is outside its range.
        """
        check_positive("lr", lr)
        check_positive("eta_max", eta_max)
        check_fraction("c", c)
        check_fraction("beta", beta)
        check_least("gamma", gamma, 1)
        super().__init__(params, {"lr": lr, "c": c, "beta": beta, "gamma": gamma, "eta_max": eta_max})
        if len(self.param_groups) > 1:
            raise ValueError("the line search has one step size for all parameters: pass one group")
        self.param_groups[0].setdefault("epochs", 0.0)
        self.budget = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.budget = getattr(self, "budget", None)

    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor:  # type: ignore[override]
        """One step, of the length that the search finds.

        Args:
            closure: evaluates the loss of the batch, and its gradient where torch.is_grad_enabled(); called for each
                step size that is tried.

        Returns:
            The loss of the batch before the step.

        Raises:
            RuntimeError: without a closure.
        """
        if closure is None:
            raise RuntimeError("The line search evaluates the loss at several points: call step(closure)")
        drawn = torch.get_rng_state()
        with torch.enable_grad():
            loss = closure()
        params = [p for p in self.param_groups[0]["params"] if p.grad is not None]
        start = [p.detach().clone() for p in params]
        gradients = [p.grad.detach().clone() for p in params]
        square = float(sum(g.double().square().sum() for g in gradients))
        eta = self._first_step_size()
        if square < _SMALLEST_GRADIENT**2:
            return loss

        def tried(step_size: float) -> float:
            torch.set_rng_state(drawn)  # the same dropout as at the start
            _put(params, start, gradients, step_size)
            with torch.no_grad():
                return float(closure())

        try:
            self._search(tried, eta, before=float(loss.detach()), square=square)
        except BaseException:  # a run that is stopped between two trials ends where the search began
            _put(params, start, gradients, 0.0)
            raise
        return loss

    def _search(self, tried: Callable[[float], float], eta: float, *, before: float, square: float) -> None:
        """Ends at the point that it takes."""
        group = self.param_groups[0]
        for _ in range(_TRIES):
            if tried(eta) <= before - group["c"] * eta * square:
                break
            eta *= group["beta"]
        else:
            tried(_LAST_RESORT)
        group["lr"] = eta

    def _first_step_size(self) -> float:
        """Of this batch's search: the last one, grown by as much as belongs to the batches since then."""
        group = self.param_groups[0]
        done = getattr(self.budget, "epochs", None)
        done = group["epochs"] + 1 / _BATCHES_OF_AN_EPOCH if done is None else done
        grown = group["gamma"] ** max(0.0, done - group["epochs"])
        group["epochs"] = done
        return float(min(group["lr"] * grown, group["eta_max"]))


def _put(params: list[Tensor], start: list[Tensor], gradients: list[Tensor], eta: float) -> None:
    """The point start − eta · gradient."""
    with torch.no_grad():
        for p, w, g in zip(params, start, gradients, strict=True):
            p.copy_(w).sub_(g, alpha=eta)
