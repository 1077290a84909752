"""
Reading a run when things go wrong
==================================

Three accidents, on purpose: a NaN in the data, one bad batch, and a step size that is far too
large. After every epoch ``epoch.report`` says what happened and what was done about it.
"""

# %%
# A problem, and a loop that collects the reports.

import logging
import math

import matplotlib.pyplot as plt
import torch
from torch import nn

from cmalight import CMALight, Controlled, Objective
from cmalight.datasets.generated import teacher_network

logging.getLogger("cmalight").setLevel(logging.ERROR)  # the reports below say the same
x, y = teacher_network(2000, 8, noise=0.05)
batches = list(zip(x.split(100), y.split(100), strict=True))
loss_fn = nn.MSELoss()


def new_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 20), nn.Tanh(), nn.Linear(20, 1))


def train(model, optimizer, epochs=12, spoil=lambda _: batches):
    """The loop; `spoil` gives the batches of an epoch, and may change them."""
    objective = Objective(model, loss_fn, batches)
    reports = []
    for number in range(epochs):
        with optimizer.epoch(objective) as epoch:
            for inputs, target in epoch.batches(spoil(number)):
                optimizer.zero_grad()
                loss = loss_fn(model(inputs), target)
                loss.backward()
                epoch.observe(loss, len(target))
                optimizer.step()
        reports.append(epoch.report)
    return reports


# %%
# A NaN in one batch
# ------------------
# In epochs 5 and 6 one batch is NaN. Adam alone would have NaN in all its weights from then on.


def with_nan(number):
    if number not in (5, 6):
        return batches
    inputs, target = batches[10]
    return [*batches[:10], (inputs * math.nan, target), *batches[11:]]


model = new_model()
optimizer = Controlled(
    torch.optim.Adam(model.parameters(), lr=7e-3, eps=1e-15), max_epochs=12
)
reports = train(model, optimizer, spoil=with_nan)
for report in reports[3:9]:
    print(report)

# %%
# Twice *not finite* (the outcome ``diverged``): the epoch was undone, weights and Adam's moments
# bit for bit, and the step size halved, which is the second number after ``lr``. Then training
# goes on. If you see this in every epoch, at ever smaller step sizes, look for NaN in the data.
#
# One bad batch
# -------------
# In epoch 5 a sensor fails, and one batch has inputs and targets times 1,000. The optimizer is
# SGD, which such a gradient throws far off.


def with_bad_batch(number):
    if number != 5:
        return batches
    inputs, target = batches[18]
    return [*batches[:18], (inputs * 1000, target * 1000), *batches[19:]]


model = new_model()
optimizer = Controlled(torch.optim.SGD(model.parameters(), lr=0.1), max_epochs=12)
bad = train(model, optimizer, spoil=with_bad_batch)
for report in bad[4:8]:
    print(report)

# %%
# The loss of that epoch is huge, because the bad batch is in its mean. What is judged is where the
# steps led, by a sample of the good data: they ended too high, so the epoch was undone, and the
# next one begins where this one began. Adam, whose steps are of bounded length, may survive such
# a batch: then the epoch is kept, whatever its loss was on the way.
#
# Too large a step
# ----------------
# ``CMALight`` with a first step size a hundred times too large. Epochs are undone and the step
# size shrinks by θ until one is accepted.

model = new_model()
large = train(model, CMALight(model.parameters(), lr=50.0), epochs=24)
for report in large[::4]:
    print(report)

# %%
# Everything in one picture
# -------------------------
# Crosses are epochs that were undone.

figure, axes = plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained")
runs = {"NaN": reports, "a bad batch": bad, "CMALight, lr 50": large}
for panel, (title, run) in zip(axes, runs.items(), strict=True):
    sizes = [report.next_lr for report in run]
    undone = [k for k, report in enumerate(run) if report.alpha == 0]
    panel.semilogy(sizes, color="tab:orange", label="step size after it")
    panel.semilogy([report.phi for report in run], label="loss to beat")
    panel.plot(undone, [sizes[k] for k in undone], "x", color="tab:red", label="undone")
    panel.set(title=title, xlabel="epoch")
axes[0].legend()
plt.show()

# %%
# Every outcome, what it means and what to do about it: :doc:`/guides/reading`.
