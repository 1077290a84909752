"""A plain training loop with `Auto`, and the same loop with `Controlled` around AdamW and a scheduler."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from cmalight import Auto, Controlled, Objective
from cmalight.datasets.generated import teacher_network

EPOCHS = 10


def main() -> None:
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(*teacher_network(2000, 8, noise=0.05)), batch_size=64, shuffle=True)
    loss_fn = nn.MSELoss()
    for name in ("auto", "controlled"):
        model = nn.Sequential(nn.Linear(8, 20), nn.Sigmoid(), nn.Linear(20, 1))
        objective = Objective(model, loss_fn, loader)
        steps = EPOCHS * len(loader)
        scheduler = None
        if name == "auto":
            optimizer: Controlled = Auto(model, objective=objective, total_steps=steps)
        else:
            optimizer = Controlled(torch.optim.AdamW(model.parameters(), lr=1e-2), model, objective=objective)
            scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=steps)
        for number in range(EPOCHS):
            for x, y in loader:
                loss = loss_fn(model(x), y)
                loss.backward()
                optimizer.step(loss)
                optimizer.zero_grad()
                if scheduler is not None:
                    scheduler.step()
            print(f"{name} {number:3}  lr {optimizer.last_lr:.2g}  {optimizer.report}")
        print(f"{name}: final loss {objective():.5f}")
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, f"{name}.pt")


if __name__ == "__main__":
    main()
