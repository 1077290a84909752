"""Plain loops on a small regression, alone and on ranks."""

import torch

from cmalight import CMALight, Controlled, Objective
from tests.helpers import MSE, run_epoch, split, table
from tests.optim.plain_loop import short_windows

GLOBAL_BATCH = 128


def states(module):
    return {name.removeprefix("module."): value.detach().clone() for name, value in module.state_dict().items()}


def global_batches():
    return split(*table(1000, noise=0.3), GLOBAL_BATCH)[:7]  # all of equal size


def rank_part(batches, rank, size=2):
    """Of each global batch the rows rank, rank + size, ..."""
    return [(x[rank::size], y[rank::size]) for x, y in batches]


def train_epochs(model, batches, *, epochs=10, make=CMALight, **options):
    """Reports and final weights of an optimizer of the paper."""
    optimizer, objective = make(model.parameters(), **options), Objective(model, MSE, batches)
    return [run_epoch(optimizer, objective, model, batches) for _ in range(epochs)], states(model)


def controlled(model, batches, *, base=None, **options):
    """Windows of five steps; f settles alarms."""
    base = torch.optim.Adam(model.parameters(), lr=0.02) if base is None else base
    objective = Objective(model, MSE, batches)
    optimizer = Controlled(base, model, objective=objective, **{"total_steps": 35, **options})
    return short_windows(optimizer, 5)


def train_watched(optimizer, model, batches, *, epochs=5, leaps=()):
    """Reports; after the steps in `leaps` somebody moves the weights far away."""
    reports, done = [], 0
    handle = optimizer.on_report(reports.append)
    for _ in range(epochs):
        for x, y in batches:
            optimizer.zero_grad()
            loss = MSE(model(x), y)
            loss.backward()
            if done in leaps:
                with torch.no_grad():
                    for p in model.parameters():
                        p.add_(100.0)
            optimizer.step(loss)
            done += 1
    handle.remove()
    return reports
