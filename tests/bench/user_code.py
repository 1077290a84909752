"""A user's own solvers, most of which misbehave in one way, and a network, a data set and a workload."""

import os
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from cmalight import Controlled
from cmalight.bench import Problem


class Good(torch.optim.SGD):
    def __init__(self, params, lr=0.1, momentum=0.0):
        super().__init__(params, lr=lr, momentum=momentum)


class Raises(Good):
    def step(self, closure=None):
        return {}["momentum"]


class Exits(Good):
    def step(self, closure=None):
        raise SystemExit("enough")


class Aborts(Good):
    def step(self, closure=None):
        os.abort()


class Hangs(Good):
    def step(self, closure=None):
        time.sleep(600)


class Explodes(Good):
    factor = 1e3

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data.mul_(self.factor)


class TurnsIntoNaN(Explodes):
    factor = float("nan")


class Prints(Good):
    def step(self, closure=None):
        print("a word from the solver")  # noqa: T201
        return super().step(closure)


class Waits(Good):
    """Writes its process into the file `at` in its first step, and goes on once at + ".go" is there."""

    def __init__(self, params, at):
        super().__init__(params)
        self.at = Path(at)

    def step(self, closure=None):
        go = self.at.with_suffix(".go")
        if not go.exists():
            self.at.with_suffix(".tmp").write_text(str(os.getpid()))
            self.at.with_suffix(".tmp").replace(self.at)
        while not go.exists():
            time.sleep(0.05)
        return super().step(closure)


def watched(params, objective, total_steps, lr=0.1):
    return Controlled(torch.optim.SGD(params, lr=lr), objective=objective, total_steps=total_steps)


def not_an_optimizer(params):
    return 3


class Network(nn.Module):
    """Keeps its first weights and the sum of every batch that it is trained on; `made` has all there were."""

    made: list["Network"] = []  # noqa: RUF012

    def __init__(self, features, outputs, width=3):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(features, width), nn.Tanh(), nn.Linear(width, outputs))
        self.first = self.layers[0].weight.detach().clone()
        self.seen = []
        self.made.append(self)

    def forward(self, x):
        if torch.is_grad_enabled():
            self.seen.append(float(x.double().sum()))
        return self.layers(x)


def classes():
    x = np.random.default_rng(0).standard_normal((200, 4))
    return x, np.where(x[:, 0] > 0, "above", "below")


def workload():
    x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    return Problem(lambda: nn.Linear(3, 1), nn.MSELoss(), (x, x.sum(1, keepdim=True)))
