"""Plain loops on a small regression, alone and on ranks."""

import torch

from cmalight import CMALight, Controlled, Objective
from cmalight.rules.watchdog import Watchdog
from tests.helpers import MSE, run_epoch, split, table

GLOBAL_BATCH = 128
SHORT = Watchdog(first_window=5, last_window=5)


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


def controlled(model, batches, *, base=None, rule=SHORT, **options):
    base = torch.optim.Adam(model.parameters(), lr=0.02) if base is None else base
    return Controlled(base, Objective(model, MSE, batches), rule=rule, **{"total_steps": 35, **options})


def train_watched(optimizer, model, batches, *, epochs=5, leaps=()):
    """Reports; after the steps in `leaps` somebody moves the weights far away."""
    reports, done = [], 0
    optimizer.on_report = reports.append
    for _ in range(epochs):
        for x, y in batches:
            optimizer.zero_grad()
            MSE(model(x), y).backward()
            if done in leaps:
                with torch.no_grad():
                    for p in model.parameters():
                        p.add_(100.0)
            optimizer.step()
            done += 1
    return reports
