"""A training loop of one's own: the bracket around an epoch is the only thing that is new."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from cmalight import Controlled, Objective
from cmalight.datasets.generated import teacher_network


def main() -> None:
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(*teacher_network(2000, 8, noise=0.05)), batch_size=64, shuffle=True)
    model = nn.Sequential(nn.Linear(8, 20), nn.Sigmoid(), nn.Linear(20, 1))
    loss_fn = nn.MSELoss()
    optimizer = Controlled(torch.optim.Adam(model.parameters(), lr=7e-3, eps=1e-15), max_epochs=10)
    objective = Objective(model, loss_fn, loader)

    for number in range(10):
        with optimizer.epoch(objective) as epoch:
            for x, y in epoch.batches(loader):
                optimizer.zero_grad()
                loss = loss_fn(model(x), y)
                loss.backward()
                epoch.observe(loss, len(y))
                optimizer.step()
        print(f"{number:3}  {epoch.report}")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "raw_loop.pt")


if __name__ == "__main__":
    main()
