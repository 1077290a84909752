"""Solvers that misbehave, one way each, and a network that keeps what it sees."""

import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn


class Misbehaving(torch.optim.SGD):
    def __init__(self, params, **options):
        super().__init__(params, lr=0.1, **options)

    def step(self, closure=None):
        loss = super().step(closure)
        self.misbehave()
        return loss

    def misbehave(self):
        raise NotImplementedError


class Raises(Misbehaving):
    def misbehave(self):
        raise ZeroDivisionError("the solver divided by zero")


class Exits(Misbehaving):
    def misbehave(self):
        raise SystemExit("the solver has had enough")


class Hangs(Misbehaving):
    def misbehave(self):
        time.sleep(600)


class Converges(Misbehaving):
    """Says after a few steps that its step size is below rounding."""

    has_converged = False

    def misbehave(self):
        self.steps = getattr(self, "steps", 0) + 1
        self.has_converged = self.steps >= 5


class TurnsIntoNaN(Misbehaving):
    def misbehave(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data.fill_(float("nan"))


class EatsMemory(Misbehaving):
    def misbehave(self):
        self.eaten = [torch.ones(1 << 24) for _ in range(1 << 10)]  # 64 MB at a time, up to 64 GB


class Dies(Misbehaving):
    def misbehave(self):
        os.kill(os.getpid(), signal.SIGKILL)


class KillsItsNursery(Misbehaving):
    """The process that it was forked from."""

    def misbehave(self):
        if "nursery" in Path(f"/proc/{os.getppid()}/cmdline").read_text():  # once it is dead, another is the parent
            os.kill(os.getppid(), signal.SIGKILL)


class KillsItsWorker(Misbehaving):
    """The process that asked for it."""

    def __init__(self, params, **options):
        super().__init__(params, **options)
        self.worker = int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])

    def misbehave(self):
        os.kill(self.worker, signal.SIGKILL)
        time.sleep(600)


class DiesOnce(Misbehaving):
    """Kills its process, but only if the file named in the environment is not there yet."""

    def misbehave(self):
        flag = Path(os.environ["CMALIGHT_TEST_FLAG"])
        if not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)


class Waits(Misbehaving):
    """After so many steps it writes its process into the file `at`, and goes on once the file at + ".go" is there."""

    def __init__(self, params, at, steps=5):
        super().__init__(params)
        self.at, self.steps = Path(at), steps

    def misbehave(self):
        self.steps -= 1
        go = self.at.with_suffix(".go")
        if self.steps == 0 and not go.exists():
            self.at.with_suffix(".tmp").write_text(str(os.getpid()))
            self.at.with_suffix(".tmp").replace(self.at)
            for _ in range(6000):
                if go.exists():
                    return
                time.sleep(0.1)


class Prints(Misbehaving):
    def misbehave(self):
        sys.stdout.write('{"content": "not a result"}\n')
        sys.stdout.flush()


class PrintsAndDies(Misbehaving):
    def misbehave(self):
        sys.stderr.write("x" * (1 << 22) + "the last words\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGKILL)


class Slow(Misbehaving):
    def misbehave(self):
        time.sleep(0.02)


def not_an_optimizer(params):
    return 3


class Witness(nn.Module):
    """Keeps the sum of every batch that it is trained on, and its first weights; `made` has all there were."""

    made: list["Witness"] = []  # noqa: RUF012

    def __init__(self, features, outputs):
        super().__init__()
        self.layer = nn.Linear(features, outputs)
        self.seen = []
        self.start = self.layer.weight.detach().clone()
        self.made.append(self)

    def forward(self, x):
        if torch.is_grad_enabled():
            self.seen.append(float(x.double().sum()))
        return self.layer(x)
