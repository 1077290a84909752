"""The loop of the README on a small regression, alone and on ranks."""

from cmalight import CMALight, Objective
from tests.helpers import MSE, run_epoch

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
