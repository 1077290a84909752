"""A small training problem for fit."""

from dataclasses import replace

import torch
from torch import nn

from cmalight import fit
from tests.helpers import table

MSE = nn.MSELoss()


def data(samples=60):
    return table(samples, noise=0.1)


def model(seed=0, dropout=0.0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 5), nn.Sigmoid(), nn.Dropout(dropout), nn.Linear(5, 1)).double()


def batch_norm_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.3), nn.Sigmoid(), nn.Linear(6, 1)).double()


def mae(outputs, targets):
    return (outputs - targets).abs().mean()


def train(network=None, *, pair=None, loss_fn=MSE, **options):
    """fit with small defaults, quietly."""
    network = model() if network is None else network
    options = {"optimizer": "adam", "batch_size": 10, "max_epochs": 5, "progress": False, "engine": "eager", **options}
    if options["optimizer"] == "cmalight":
        options.setdefault("optimizer_options", {"lr": 0.1})
    return network, fit(network, loss_fn, data() if pair is None else pair, **options)


def without_times(history):
    return [replace(record, seconds=0.0) for record in history]


class AfterEpoch:
    """A callback: a function of the record; where it returns True the run stops."""

    def __init__(self, function):
        self.on_epoch_end = function


def stop_after(epoch):
    """A callback that stops after the epoch of that number."""
    return AfterEpoch(lambda record: record.epoch == epoch)


def does(epoch, action):
    """A callback that does something after the epoch of that number."""

    def callback(record):
        if record.epoch == epoch:
            action()

    return AfterEpoch(callback)


class FakeTime:
    """A clock that advances when it is told to."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr("time.perf_counter", lambda: self.now)


class Normalised(nn.Module):
    """A loss that divides by a running mean of itself, which is a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.ones((), dtype=torch.float64))

    def forward(self, output, target):
        loss = MSE(output, target)
        self.mean = 0.9 * self.mean + 0.1 * loss.detach()
        return loss / self.mean
