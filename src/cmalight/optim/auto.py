"""Auto: the recommended optimizer, SOAP under the watchdog."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.optim.optimizer import ParamsT

from cmalight.optim.controlled import Controlled
from cmalight.optim.soap import SOAP


class Auto(Controlled):
    """SOAP under the watchdog: `Controlled(SOAP(params, ...), objective, ...)`.

    Args:
        params: Parameters or parameter groups, as for any torch optimizer.
        objective: An `Objective`, or any callable that returns the loss at the current weights.
        total_steps: Number of `step()` calls of the whole run, for warm-up and linear decay.
        progress: Instead of `total_steps`, a callable that returns how much of the run is done, 0 to 1.
        lr: The peak learning rate.
        betas: As in `SOAP`.
        eps: As in `SOAP`.
        weight_decay: Decoupled, as in AdamW.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from cmalight import Auto, Objective, TensorBatches
        >>> _ = torch.manual_seed(0)
        >>> x = torch.rand(1000, 8)
        >>> loader = TensorBatches(x, x.sum(1, keepdim=True).sin(), batch_size=50)
        >>> model, loss_fn = nn.Sequential(nn.Linear(8, 20), nn.Tanh(), nn.Linear(20, 1)), nn.MSELoss()
        >>> optimizer = Auto(model.parameters(), Objective(model, loss_fn, loader), total_steps=5 * len(loader))
        >>> for _ in range(5):
        ...     for inputs, target in loader:
        ...         loss = loss_fn(model(inputs), target)
        ...         loss.backward()
        ...         optimizer.step()
        ...         optimizer.zero_grad()
        >>> print(optimizer.judge().outcome.name)
        KEPT
    """

    def __init__(
        self,
        params: ParamsT,
        objective: Any,
        *,
        total_steps: int | None = None,
        progress: Callable[[], float] | None = None,
        lr: float = 1e-2,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-15,
        weight_decay: float = 0.0,
    ) -> None:
        base = SOAP(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        super().__init__(base, objective, total_steps=total_steps, progress=progress)
