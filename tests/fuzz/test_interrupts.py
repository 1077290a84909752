"""Ctrl-C at every line of the optimizers: training can go on, and no weights are left at a trial point."""

import contextlib
import os
import random
import sys
from pathlib import Path

import pytest
import torch

import cmalight
from cmalight import CMA, CMALight, Controlled
from tests.helpers import MSE, copied_state, run_epoch, same_state, small_problem
from tests.optim.plain_loop import short_windows

ROOM = Path(cmalight.__file__).parent / "optim"
# Few lines in a normal run, thousands if asked for: `make fuzz`.
CASES = int(os.environ.get("CMALIGHT_FUZZ_CASES") or 40)
SEED = int(os.environ.get("CMALIGHT_FUZZ_SEED") or 0)
FILES = {str(path) for path in ROOM.glob("*.py") if path.name != "soap.py"}


class CtrlC:
    """Interrupts at the line number `at` that runs in one of the files; counts the lines if it is None."""

    def __init__(self, at: int | None) -> None:
        self.at = at
        self.lines = 0
        self.where = ""

    def __enter__(self):
        self._before = sys.gettrace()
        sys.settrace(self._call)
        return self

    def __exit__(self, *_) -> None:
        sys.settrace(self._before)

    def _call(self, frame, _event, _argument):
        return self._line if frame.f_code.co_filename in FILES else None

    def _line(self, frame, event, _argument):
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                self.where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} in {frame.f_code.co_name}"
                raise KeyboardInterrupt
        return self._line


def light(params):
    return CMALight(params, lr=0.1)


def certified(params):
    return CMALight(params, lr=0.1, line_search="certified")


def cma(params):
    return CMA(params, lr=2.0)


def adam(params, objective):
    return Controlled(torch.optim.Adam(params, lr=0.02), objective=objective, total_steps=100)


def wild(params, objective):
    optimizer = Controlled(torch.optim.SGD(params, lr=5.0), objective=objective, total_steps=100)
    return short_windows(optimizer, 3)


class Scenario:
    """A run whose next epoch is interrupted; `points` are the weights after each step and each epoch so far."""

    def __init__(self, make, *, epochs_before: int) -> None:
        self.model, self.batches, self.objective = small_problem(size=10)
        self.watches = make in (adam, wild)
        self.optimizer = make(self.model.parameters(), *([self.objective] if self.watches else []))
        stepping = self.optimizer.base if self.watches else self.optimizer
        stepping.register_step_post_hook(lambda *_: self.remember())  # also steps that an undo takes back
        self.points = []
        self.remember()
        for _ in range(epochs_before):  # an undo may lead back into an earlier epoch
            self.epoch()

    def remember(self) -> None:
        self.points.append(copied_state(self.model))

    def epoch(self) -> None:
        if not self.watches:
            run_epoch(self.optimizer, self.objective, self.model, self.batches)
        else:
            for x, y in self.batches:
                self.optimizer.zero_grad()
                loss = MSE(self.model(x), y)
                loss.backward()
                self.optimizer.step(loss)
        self.remember()


@pytest.mark.slow
@pytest.mark.parametrize("epochs_before", [0, 1])
@pytest.mark.parametrize("make", [light, certified, cma, adam, wild], ids=lambda make: make.__name__)
def test_ctrl_c_at_a_line_of_the_optimizers(make, epochs_before):
    whole = Scenario(make, epochs_before=epochs_before)
    with CtrlC(None) as counting:
        whole.epoch()
    assert counting.lines > 200
    draw = random.Random(f"{make.__name__} {epochs_before} {SEED}")
    for at in draw.sample(range(1, counting.lines + 1), min(CASES, counting.lines)):
        scenario = Scenario(make, epochs_before=epochs_before)
        ctrl_c = CtrlC(at)
        with contextlib.suppress(KeyboardInterrupt), ctrl_c:
            scenario.epoch()
        assert ctrl_c.where, at
        case = f"line event {at}, {ctrl_c.where}"
        assert any(same_state(copied_state(scenario.model), point) for point in whole.points), case
        if scenario.watches:
            assert scenario.optimizer.param_groups[0]["lr"] in (0.02, 5.0), case
        scenario.epoch()
        assert torch.isfinite(torch.cat([p.flatten() for p in scenario.model.parameters()])).all(), case
