"""CMA: the monotone baseline, which evaluates the whole objective after every epoch."""

from __future__ import annotations

from dataclasses import replace

from torch.optim.optimizer import ParamsT

from cmalight.optim.epoch import Epoch
from cmalight.optim.rules import constants, search_arguments
from cmalight.optim.watchdog import WatchdogOptimizer
from cmalight.rules import linesearch, paper


class CMA(WatchdogOptimizer):
    """Mini-batch gradient epochs judged by the true objective: at least one full evaluation each.

    `report.phi` is f(w^{k+1}), with which the next epoch is compared. The arguments are those of CMALight.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 0.5,
        *,
        theta: float = 0.75,
        tau: float = 1e-2,
        gamma: float = 1e-2,
        delta: float = 0.9,
        weight_decay: float = 0.0,
        max_extrapolations: int = 100,
        foreach: bool | None = None,
        fused: bool | None = None,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params,
            lr,
            theta=theta,
            tau=tau,
            gamma=gamma,
            delta=delta,
            weight_decay=weight_decay,
            max_extrapolations=max_extrapolations,
            foreach=foreach,
            fused=fused,
            maximize=maximize,
        )

    def _decide(self, inner: paper.InnerCycle, known: paper.Known, epoch: Epoch) -> paper.Decision:
        if not inner.is_finite:
            return paper.diverged(known, constants(self._control))
        f_end = epoch._f_at(inner.zeta)
        f_start = epoch._f_start()
        return paper.cma(
            inner,
            replace(known, f_current=f_start),
            constants(self._control),
            f_start=f_start,
            f_end=f_end,
            search=lambda: linesearch.edfl(
                epoch._f_at, f_start=f_start, f_end=f_end, **search_arguments(self._control, inner)
            ),
        )
