"""Where the published method stops too early, and what the certified line search makes of it.

Noisy least squares: 200 samples, 5 unknowns, 20 batches that disagree at the solution. Prints, for both line
searches, the step size and the gradient norm that are left after some hundred epochs.
"""

from __future__ import annotations

import warnings

import torch
from torch import nn

from cmalight import CMALight, EpochReport, Objective


def noisy_least_squares(line_search: str, *, epochs: int, reshuffle: bool) -> tuple[EpochReport, float]:
    """The last report, and ‖∇f‖ of the sum over batches at the last weights."""
    generator = torch.Generator().manual_seed(3)
    a = torch.randn(200, 5, generator=generator, dtype=torch.float64)
    b = a.sum(1, keepdim=True) + 3 * torch.randn(200, 1, generator=generator, dtype=torch.float64)
    model = nn.Linear(5, 1, bias=False).double()
    nn.init.zeros_(model.weight)
    loss_fn = nn.MSELoss()
    optimizer = CMALight(model.parameters(), lr=0.05, line_search=line_search)
    objective = Objective(model, loss_fn, list(zip(a.split(10), b.split(10), strict=True)))
    for _ in range(epochs):
        order = torch.randperm(200, generator=generator) if reshuffle else torch.arange(200)
        with optimizer.epoch(objective) as epoch:
            for i in epoch.batches(order.split(10)):
                optimizer.zero_grad()
                loss = loss_fn(model(a[i]), b[i])
                loss.backward()
                epoch.observe(loss, len(i))
                optimizer.step()
    optimizer.zero_grad()
    (20 * loss_fn(model(a), b)).backward()
    return epoch.report, model.weight.grad.norm().item()


def main() -> None:
    warnings.filterwarnings("ignore", message="CMALight has stalled")
    print("| line search | order | epochs | step size left | gradient norm left |")
    print("|---|---|---|---|---|")
    for line_search in ("light", "certified"):
        for reshuffle in (False, True):
            for epochs in (50, 100, 400):
                report, gradient = noisy_least_squares(line_search, epochs=epochs, reshuffle=reshuffle)
                order = "reshuffled" if reshuffle else "fixed"
                print(f"| {line_search} | {order} | {epochs} | {report.next_lr:.1e} | {gradient:.1e} |")


if __name__ == "__main__":
    main()
