"""
Reading a run when things go wrong
==================================

Two accidents, on purpose: a NaN in the data, and a bad batch. ``optimizer.on_report(listener)``
calls a function with one report per window of steps, which says what happened.
"""

# %%
# A problem, and a loop that collects the reports. `spoil` may change a batch.

import math

import matplotlib.pyplot as plt
import torch
from torch import nn

from cmalight import Controlled, Objective, TensorBatches
from cmalight.datasets.generated import teacher_network

x, y = teacher_network(2000, 8, noise=0.05)
loss_fn = nn.MSELoss()


def train(spoil, epochs=20):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 20), nn.Tanh(), nn.Linear(20, 1))
    loader = TensorBatches(x, y, batch_size=100)
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    objective = Objective(model, loss_fn, loader)
    optimizer = Controlled(
        base, model, objective=objective, total_steps=epochs * len(loader)
    )
    reports = []
    optimizer.on_report(reports.append)
    for _ in range(epochs):
        for inputs, target in loader:
            inputs, target = spoil(optimizer.steps, inputs, target)
            loss = loss_fn(model(inputs), target)
            loss.backward()
            optimizer.step(loss)
            optimizer.zero_grad()
    print(f"final loss {objective():.5f}")
    return reports


# %%
# A NaN in one batch
# ------------------
# Without the watchdog all weights would be NaN from step 150 on.

nan = train(
    lambda step, inputs, target: (inputs * math.nan if step == 150 else inputs, target)
)
for report in nan:
    if not report.outcome.keeps:
        print(report)

# %%
# A bad batch
# -----------
# Targets times 1,000, which SGD follows far off.

bad = train(
    lambda step, inputs, target: (inputs, target * 1000 if step == 150 else target)
)
for report in bad:
    if not report.outcome.keeps:
        print(report)

# %%
# Both bad windows were undone: weights, momentum and all. The first windows were undone, too: the
# momentum overshot, and the learning rate was scaled down for a while. Crosses are undone windows.

figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), sharey=True, layout="constrained")
for panel, (title, run) in zip(
    axes, {"NaN": nan, "a bad batch": bad}.items(), strict=True
):
    ends, step = [], 0
    for report in run:
        step += report.steps
        kept = report.outcome.keeps
        ends.append((step, report.loss, kept))
    panel.semilogy([end[0] for end in ends], [end[1] for end in ends])
    undone = [end for end in ends if not end[2]]
    panel.plot(
        [end[0] for end in undone], [end[1] for end in undone], "x", color="tab:red"
    )
    panel.set(title=title, xlabel="step")
axes[0].set_ylabel("mean loss of a window")
plt.show()

# %%
# Every outcome and what to do about it: :doc:`/reference/outcomes`.
