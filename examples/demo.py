"""Trains a small network on generated data, far too boldly at first, and shows what the control does about it."""

from __future__ import annotations

import torch
from torch import nn

from cmalight import CMALight, Objective

EPOCHS = 40


def teacher_data(samples: int = 6000, features: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs, and the outputs of a random network with a little noise."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(samples, features, generator=generator)
    teacher = nn.Sequential(nn.Linear(features, 20), nn.Tanh(), nn.Linear(20, 1))
    with torch.no_grad():
        for p in teacher.parameters():
            p.normal_(generator=generator)
        y = teacher(x)
    return x, (y - y.mean()) / y.std() + 0.05 * torch.randn(samples, 1, generator=generator)


def main() -> None:
    torch.manual_seed(0)
    x, y = teacher_data()
    model = nn.Sequential(nn.Linear(8, 50), nn.Sigmoid(), nn.Linear(50, 1))
    loss_fn = nn.MSELoss()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=128, shuffle=True)

    optimizer = CMALight(model.parameters(), lr=1.0)
    objective = Objective(model, loss_fn, loader)
    print(f"{EPOCHS} epochs of {len(loader)} batches, lr=1 on purpose far too large; true loss {objective():.4f}\n")
    for number in range(EPOCHS):
        with optimizer.epoch(objective) as epoch:
            for inputs, target in epoch.batches(loader):
                optimizer.zero_grad()
                loss = loss_fn(model(inputs), target)
                loss.backward()
                epoch.observe(loss, len(target))
                optimizer.step()
        print(f"{number:3}  {epoch.report}")
    print(
        f"\ntrue loss {objective():.4f} after {EPOCHS} epochs, "
        f"{optimizer.evaluations} full evaluations and no divergence"
    )


if __name__ == "__main__":
    main()
