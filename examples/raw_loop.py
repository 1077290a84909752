"""The loop to write by hand: two lines more than with torch.optim.SGD, and no learning-rate schedule."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from cmalight import CMALight, Objective


def main() -> None:
    torch.manual_seed(0)
    inputs = torch.randn(4000, 10)
    target = torch.tanh(inputs @ torch.randn(10, 1)) + 0.05 * torch.randn(4000, 1)
    loader = DataLoader(TensorDataset(inputs, target), batch_size=128, shuffle=True)
    model = nn.Sequential(nn.Linear(10, 40), nn.Tanh(), nn.Linear(40, 1))
    loss_fn = nn.MSELoss()

    optimizer = CMALight(model.parameters(), lr=1.0)
    objective = Objective(model, loss_fn, loader)
    for number in range(15):
        with optimizer.epoch(objective) as epoch:
            for x, y in epoch.batches(loader):
                optimizer.zero_grad()
                loss = loss_fn(model(x), y)
                loss.backward()
                epoch.observe(loss, len(y))
                optimizer.step()
        print(f"epoch {number}  {epoch.report}")
    print(f"final loss {objective():.5f}")


if __name__ == "__main__":
    main()
