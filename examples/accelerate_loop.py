"""Accelerate: `prepare`, `backward` and `accumulate` as with any other optimizer; `step` gets the loss.

Run it as it is, or with `accelerate launch --cpu --num_processes 2 examples/accelerate_loop.py`.
"""

from __future__ import annotations

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from cmalight import Controlled, Objective


def main() -> None:
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    x = torch.randn(2048, 8)
    y = torch.tanh(x @ torch.randn(8, 1)) + 0.05 * torch.randn(2048, 1)
    loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(8, 20), nn.Tanh(), nn.Linear(20, 1))
    loss_fn = nn.MSELoss()
    epochs = 10
    model, loader = accelerator.prepare(model, loader)
    controlled = Controlled(
        torch.optim.AdamW(model.parameters(), lr=1e-2),
        model,
        total_steps=epochs * len(loader) // accelerator.gradient_accumulation_steps,
    )
    optimizer = accelerator.prepare(controlled)

    for epoch in range(epochs):
        for inputs, target in loader:
            with accelerator.accumulate(model):
                loss = loss_fn(model(inputs), target)
                accelerator.backward(loss)
                controlled.observe(loss)
                optimizer.step()
                optimizer.zero_grad()
        accelerator.print(f"epoch {epoch}  {controlled.report}")
    final = Objective(model, loss_fn, loader)()  # on every process
    accelerator.print(f"final loss {final:.5f}")


if __name__ == "__main__":
    main()
