"""
From Adam with a scheduler to Controlled
========================================

A training loop with Adam and a schedule has three numbers to get right: the step size, the
warm-up, and how it falls. Here is such a loop, and the same loop with
:class:`cmalight.Controlled` around Adam, which is told how long the run is and nothing else.
"""

# %%
# A regression to train on: 4,000 rows, 8 features, noise in the targets.

import matplotlib.pyplot as plt
import torch
from torch import nn

from cmalight import Controlled, Objective, TensorBatches
from cmalight.datasets.generated import teacher_network

EPOCHS = 20
x, y = teacher_network(4000, 8, noise=0.05)
loader = TensorBatches(x, y, batch_size=64)
loss_fn = nn.MSELoss()


def new_model():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(8, 30), nn.Tanh(), nn.Linear(30, 30), nn.Tanh(), nn.Linear(30, 1)
    )


# %%
# The loop as it was
# ------------------
# Adam, and a cosine that ends at zero.


def with_scheduler(lr):
    model = new_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, T_max=EPOCHS * len(loader)
    )
    losses = []
    loader.set_epoch(0)
    for _ in range(EPOCHS):
        total = 0.0
        for inputs, target in loader:
            optimizer.zero_grad()
            loss = loss_fn(model(inputs), target)
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.item() * len(target)
        losses.append(total / len(x))
    return losses


# %%
# The loop with Controlled
# ------------------------
# The scheduler goes. The optimizer is wrapped and told ``max_epochs``. The batches come from
# ``epoch.batches``, inside ``with optimizer.epoch(objective)``, and each loss is observed before
# the step. ``epoch.report`` says how the epoch ended.


def with_control(lr):
    model = new_model()
    optimizer = Controlled(
        torch.optim.Adam(model.parameters(), lr=lr, eps=1e-15), max_epochs=EPOCHS
    )
    objective = Objective(model, loss_fn, loader)
    reports = []
    loader.set_epoch(0)
    for _ in range(EPOCHS):
        with optimizer.epoch(objective) as epoch:
            for inputs, target in epoch.batches(loader):
                optimizer.zero_grad()
                loss = loss_fn(model(inputs), target)
                loss.backward()
                epoch.observe(loss, len(target))
                optimizer.step()
        reports.append(epoch.report)
    return reports


for report in with_control(lr=7e-3)[::5]:
    print(report)

# %%
# One line for every fifth epoch: the mean loss that it saw, the lowest loss so far of the sample
# by which it is judged, the step size of its last step and of the next, how many full passes over
# the data the control needed, and what became of the epoch. The numbers of lines are those of
# :doc:`the rule </understand/controlled>`.

# %%
# What it changes
# ---------------
# Three first step sizes, from far too small to far too large. With the scheduler the result is
# that of the step size; with the control they come out nearly alike, because a small one rises to
# what is usual for Adam and a large one begins there.

figure, axes = plt.subplots(1, 2, figsize=(8, 3.4), sharey=True, layout="constrained")
for lr, style in ((1e-5, "-"), (1.0, "-"), (7e-3, "--")):
    scheduled = with_scheduler(lr)
    controlled = [report.f_tilde for report in with_control(lr)]
    axes[0].semilogy(scheduled, style, label=f"lr {lr:g}")
    axes[1].semilogy(controlled, style, label=f"lr {lr:g}")
    print(f"lr {lr:g}: scheduler {scheduled[-1]:.5f}, Controlled {controlled[-1]:.5f}")
axes[0].set(title="Adam, cosine", xlabel="epoch", ylabel="training loss of the epoch")
axes[1].set(title="Controlled(Adam)", xlabel="epoch")
axes[1].legend()
plt.show()

# %%
# The control is worth most where the right step size is not known, or something goes wrong. What
# it is worth where nothing does was measured, and it is not always ahead:
# :doc:`/studies/control`.
#
# What else a loop may contain (clipping, accumulation, mixed precision, schedulers beside it):
# :doc:`/guides/loop`.
