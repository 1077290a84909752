"""A small training problem for fit."""

import pytest
import torch
from torch import nn

from cmalight import fit
from cmalight.compiled.layout import CannotCompile
from cmalight.compiled.native.library import compiler
from tests.helpers import table

MSE = nn.MSELoss()


def data(samples=60):
    return table(samples, noise=0.1)


def model(seed=0, dropout=0.0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 5), nn.Sigmoid(), nn.Dropout(dropout), nn.Linear(5, 1)).double()


def train(network=None, *, pair=None, **options):
    """fit with small defaults, quietly."""
    network = model() if network is None else network
    pair = data() if pair is None else pair
    options = {
        "optimizer": "cmalight",
        "batch_size": 10,
        "max_epochs": 5,
        "progress": False,
        "optimizer_options": {"lr": 0.1},
        **options,
    }
    if options["optimizer"] not in ("cmalight", "cma", "ig", "cmalite"):
        options["optimizer_options"] = None
    return network, fit(network, MSE, pair, **options)


def without_times(history):
    return [{**record, "seconds": None} for record in history.to_plain()]


def has_compiler():
    try:
        compiler()
    except CannotCompile:
        return False
    return True


needs_compiler = pytest.mark.skipif(not has_compiler(), reason="there is no C++ compiler")
