"""Where the published method stops too early or goes round in a circle, and what the certified search makes of it.

Noisy least squares: 200 samples, 5 unknowns, 20 batches that disagree at the solution. Prints, for both line
searches, the step size and the gradient norm that are left after some hundred epochs.

A parabola and a root: two batches of one unknown. Prints where it is after 100 epochs, and after 101.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

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


def parabola_and_root(
    line_search: str, *, start: float, lr: float = 0.5, epochs: int, reshuffle: bool
) -> tuple[EpochReport, list[float]]:
    """The last report, and w after every epoch on f_1 = w²/2 and f_2 = 12 (√(1+w²) − 1)."""
    w = nn.Parameter(torch.tensor(start, dtype=torch.float64))

    def loss(number: int) -> Tensor:
        return w.square() / 2 if number == 0 else 12 * ((1 + w.square()).sqrt() - 1)

    def objective() -> float:
        return (loss(0).item() + loss(1).item()) / 2

    optimizer = CMALight([w], lr=lr, line_search=line_search)
    generator = torch.Generator().manual_seed(0)
    path = []
    for _ in range(epochs):
        order = torch.randperm(2, generator=generator).tolist() if reshuffle else [0, 1]
        with optimizer.epoch(objective) as epoch:
            for number in epoch.batches(order):
                optimizer.zero_grad()
                batch_loss = loss(number)
                batch_loss.backward()
                epoch.observe(batch_loss, 1)
                optimizer.step()
        path.append(w.item())
    return epoch.report, path


def main() -> None:
    warnings.filterwarnings("ignore", message="Each of the last .* training has stalled")
    print("| line search | order | epochs | step size left | gradient norm left |")
    print("|---|---|---:|---:|---:|")
    for line_search in ("light", "certified"):
        for reshuffle in (False, True):
            for epochs in (50, 100, 400):
                report, gradient = noisy_least_squares(line_search, epochs=epochs, reshuffle=reshuffle)
                order = "reshuffled" if reshuffle else "fixed"
                print(f"| {line_search} | {order} | {epochs} | {report.next_lr:.1e} | {gradient:.1e} |")
    print()
    print("| line search | order | step size left | w after 100 epochs | after 101 |")
    print("|---|---|---:|---:|---:|")
    for line_search in ("light", "certified"):
        for reshuffle in (False, True):
            report, path = parabola_and_root(line_search, start=6.0, epochs=101, reshuffle=reshuffle)
            order = "reshuffled" if reshuffle else "fixed"
            print(f"| {line_search} | {order} | {report.next_lr:.1e} | {path[-2]:.2g} | {path[-1]:.2g} |")


if __name__ == "__main__":
    main()
