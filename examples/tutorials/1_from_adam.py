"""
From AdamW with a scheduler to Controlled and Auto
==================================================

A training loop with AdamW and a schedule; the same loop with :class:`cmalight.Controlled` around
it; and with :class:`cmalight.Auto`, which brings its own schedule.
"""

# %%
# A regression to train on: 4,000 rows, 8 features, noise in the targets.

import matplotlib.pyplot as plt
import torch
from torch import nn

from cmalight import Auto, Controlled, Objective, TensorBatches
from cmalight.datasets.generated import teacher_network

EPOCHS = 20
x, y = teacher_network(4000, 8, noise=0.05)
loss_fn = nn.MSELoss()


def new_problem():
    torch.manual_seed(0)
    layers = [nn.Linear(8, 30), nn.Tanh(), nn.Linear(30, 30), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(30, 1)), TensorBatches(x, y, batch_size=64)


# %%
# The loop is the same for all three, but for the loss that `step` gets. `make` gives an optimizer
# and, or not, a scheduler.


def train(make):
    model, loader = new_problem()
    objective = Objective(model, loss_fn, loader)
    optimizer, scheduler = make(model, objective, EPOCHS * len(loader))
    losses = []
    for _ in range(EPOCHS):
        for inputs, target in loader:
            loss = loss_fn(model(inputs), target)
            loss.backward()
            optimizer.step(loss) if isinstance(
                optimizer, Controlled
            ) else optimizer.step()
            optimizer.zero_grad()
            if scheduler is not None:
                scheduler.step()
        losses.append(objective())
    return losses


def adamw(lr):
    def make(model, _, steps):
        optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    return make


def controlled(lr):
    def make(model, objective, steps):
        base = torch.optim.AdamW(model.parameters(), lr=lr)
        optimizer = Controlled(base, model, objective=objective)
        return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    return make


def auto(lr):
    def make(model, objective, steps):
        return Auto(model, objective=objective, total_steps=steps, lr=lr), None

    return make


# %%
# Three learning rates each: a usual one, ten times and a hundred times too large.

figure, axes = plt.subplots(1, 3, figsize=(9, 3.2), sharey=True, layout="constrained")
makers = {"AdamW, cosine": adamw, "Controlled(AdamW)": controlled, "Auto": auto}
for panel, (name, maker) in zip(axes, makers.items(), strict=True):
    for lr in (1e-2, 1e-1, 1.0):
        losses = train(maker(lr))
        panel.semilogy(losses, label=f"lr {lr:g}")
        print(f"{name}, lr {lr:g}: {losses[-1]:.5f}")
    panel.set(title=name, xlabel="epoch")
axes[0].set_ylabel("training loss")
axes[0].legend()
plt.show()

# %%
# If nothing is undone, a watched run is that of the optimizer alone. If the learning rate is so
# large that f rises, windows of steps are undone and the learning rate is scaled down.
# Accumulation, clipping, mixed precision: :doc:`/guides/loop`.
