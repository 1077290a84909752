"""Auto: the recommended optimizer, SOAP under the watchdog."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import ParamsT

from cmalight.optim.controlled import Controlled
from cmalight.optim.soap import SOAP


class Auto(Controlled):
    """SOAP under the watchdog: `Controlled(SOAP(model.parameters(), ...), model, ...)`.

    Args:
        model_or_params: The model, or its parameters or parameter groups. The model's buffers are rolled back with the
            weights; given parameters only, a buffer that is no longer finite stays so.
        objective: As in `Controlled`: settles an alarm.
        total_steps: Number of `step()` calls of the whole run, for warm-up and linear decay.
        progress: Instead of `total_steps`, a callable that returns how much of the run is done, 0 to 1.
        lr: The peak learning rate.
        betas: As in `SOAP`.
        eps: As in `SOAP`.
        weight_decay: Decoupled, as in AdamW.
        max_side: As in `SOAP`.
        snapshot_device: As in `Controlled`: device of the two copies of weights and state.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from cmalight import Auto, TensorBatches
        >>> _ = torch.manual_seed(0)
        >>> x = torch.rand(1000, 8)
        >>> loader = TensorBatches(x, x.sum(1, keepdim=True).sin(), batch_size=50)
        >>> model, loss_fn = nn.Sequential(nn.Linear(8, 20), nn.Tanh(), nn.Linear(20, 1)), nn.MSELoss()
        >>> optimizer = Auto(model, total_steps=5 * len(loader))
        >>> for _ in range(5):
        ...     for inputs, target in loader:
        ...         loss = loss_fn(model(inputs), target)
        ...         loss.backward()
        ...         _ = optimizer.step(loss)
        ...         optimizer.zero_grad()
        >>> print(optimizer.report.outcome.name)
        KEPT
    """

    def __init__(
        self,
        model_or_params: nn.Module | ParamsT,
        *,
        objective: Callable[[], Any] | None = None,
        total_steps: int | None = None,
        progress: Callable[[], float] | None = None,
        lr: float = 1e-2,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-15,
        weight_decay: float = 0.0,
        max_side: int = 256,
        snapshot_device: torch.device | str | None = None,
    ) -> None:
        given = model_or_params
        if not isinstance(given, nn.Module | Iterable):
            raise TypeError(
                f"Auto takes the model, or its parameters, first, but got {given!r}; pass an objective as objective="
            )
        module = given if isinstance(given, nn.Module) else None
        params: Any = given.parameters() if isinstance(given, nn.Module) else given
        super().__init__(
            SOAP(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, max_side=max_side),
            module,
            objective=objective,
            total_steps=total_steps,
            progress=progress,
            snapshot_device=snapshot_device,
        )
