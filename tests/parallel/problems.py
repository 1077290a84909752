"""The loop of docs/guides/loop.md on a small regression, alone and on ranks."""

from cmalight import CMALight, Objective
from tests.helpers import MSE, run_epoch, split, table

GLOBAL_BATCH = 128


def states(module):
    return {name.removeprefix("module."): value.detach().clone() for name, value in module.state_dict().items()}


def rank_part(batches, rank, size):
    """Of each global batch the rows rank, rank + size, ..."""
    return [(x[rank::size], y[rank::size]) for x, y in batches]


def train(model, batches, *, epochs, early=True, wrap=lambda model: model, make=None, **options):
    """Reports and final weights."""
    wrapped = wrap(model)
    optimizer = (make or CMALight)(wrapped.parameters(), **options)
    objective = Objective(wrapped, MSE, batches)
    reports = [run_epoch(optimizer, objective, wrapped, batches, early=early) for _ in range(epochs)]
    return reports, states(wrapped), optimizer


def global_batches():
    return split(*table(1000, noise=0.3), GLOBAL_BATCH)


def uneven_part(batches, rank):
    """Rank 0 gets three eighths of each batch."""
    return [
        (x[: len(x) * 3 // 8], y[: len(x) * 3 // 8]) if rank == 0 else (x[len(x) * 3 // 8 :], y[len(x) * 3 // 8 :])
        for x, y in batches
    ]
