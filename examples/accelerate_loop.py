"""The loop of docs/guides/loop.md with Accelerate: `prepare`, `backward` and `accumulate` as with any other optimizer.

Run it as it is, or with `accelerate launch --cpu --num_processes 2 examples/accelerate_loop.py`.
"""

from __future__ import annotations

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from cmalight import Controlled, Objective
from cmalight.datasets.generated import teacher_network


def main() -> None:
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    loader = DataLoader(TensorDataset(*teacher_network(2048, 8, noise=0.05)), batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(8, 20), nn.Sigmoid(), nn.Linear(20, 1))
    loss_fn = nn.MSELoss()
    optimizer = Controlled(torch.optim.Adam(model.parameters(), lr=7e-3, eps=1e-15), max_epochs=10)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    objective = Objective(model, loss_fn, loader)

    for number in range(10):
        with optimizer.epoch(objective) as epoch:
            for x, y in epoch.batches(loader):
                with accelerator.accumulate(model):
                    loss = loss_fn(model(x), y)
                    accelerator.backward(loss)
                    epoch.observe(loss, len(y))
                    optimizer.step()
                    optimizer.zero_grad()
        accelerator.print(f"{number:3}  {epoch.report}")


if __name__ == "__main__":
    main()
