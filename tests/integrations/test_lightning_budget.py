"""Lightning's limits are the budget of a control, and long epochs are judged on the way, as in a loop of one's own."""

import itertools

import pytest
import torch
from lightning.pytorch.callbacks import Callback, LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, IterableDataset

from cmalight import Controlled, Objective, Outcome
from cmalight.integrations.lightning import WatchdogCallback
from tests.helpers import MSE, run_epoch
from tests.integrations.lightning_modules import QUIETLY, Regression, SteadyRegression, batches, fitted, flat, trainer
from tests.optim.steady import line

pytestmark = QUIETLY


class ControlledRegression(Regression):
    """Its steps' lr are remembered."""

    def configure_optimizers(self):
        adam = torch.optim.Adam(self.parameters(), lr=0.01)
        self.rates = []
        adam.register_step_pre_hook(lambda base, *_: self.rates.append(base.param_groups[0]["lr"]))
        return Controlled(adam, **{name: value for name, value in self.options.items() if name != "lr"})


@pytest.mark.parametrize("limit", [{"max_epochs": 8}, {"max_steps": 56, "max_epochs": -1}], ids=str)
def test_the_step_size_ends_at_almost_nothing(limit):
    module = ControlledRegression()
    fitted(module, **limit)
    assert len(module.rates) == 56
    last = module.rates[-7:]
    assert last == sorted(last, reverse=True)
    assert 0.0 < last[-1] < 0.05 * max(module.rates)


@pytest.mark.parametrize("options", [{}, {"window": 3}], ids=["epochs", "windows"])
def test_the_trainer_does_what_the_loop_does(options):
    module, twin = ControlledRegression(**options), ControlledRegression(**options, max_epochs=6)
    reports = fitted(module, max_epochs=6).reports
    data = batches()
    optimizer = twin.configure_optimizers()
    objective = Objective(twin, None, data, forward=lambda m, b: (MSE(m.net(b[0]), b[1]), len(b[0])))
    expected = [run_epoch(optimizer, objective, twin.net, data, early=True) for _ in range(6)]
    assert module.rates == pytest.approx(twin.rates)
    assert [r.outcome for r in reports] == [r.outcome for r in expected]
    assert [r.f_tilde for r in reports] == pytest.approx([r.f_tilde for r in expected])
    torch.testing.assert_close(flat(module), flat(twin), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("limit", [4, 0.6])
def test_batches_that_the_trainer_leaves_out_are_not_waited_for(limit, parts):
    module = SteadyRegression()
    fitted(module, max_epochs=3, limit_train_batches=limit, accumulate_grad_batches=parts)
    assert module.rates == pytest.approx(line(12, begins=6)[parts - 1 :: parts])


def test_the_monitor_of_the_learning_rate_sees_the_last_steps(tmp_path):
    module, monitor = SteadyRegression(), LearningRateMonitor("epoch")
    trainer(WatchdogCallback(), monitor, logger=CSVLogger(tmp_path), log_every_n_steps=1, max_epochs=4).fit(
        module, batches()
    )
    assert monitor.lrs["lr-Steady"] == pytest.approx([0.01, *module.rates[6:21:7]])


class Stream(IterableDataset):
    """Never ends."""

    def __iter__(self):
        return itertools.cycle(batches().dataset)


@pytest.mark.parametrize("limits", [{"max_steps": 12}, {"max_epochs": 3, "limit_train_batches": 4}], ids=str)
def test_a_stream_has_a_budget_too(limits):
    module = SteadyRegression()
    fitted(module, data=DataLoader(Stream(), batch_size=16), **{"max_epochs": -1, **limits})
    assert module.rates == pytest.approx(line(12, begins=6))


class Reused(SteadyRegression):
    """Every trainer gets the same optimizer."""

    optimizer = None

    def configure_optimizers(self):
        self.optimizer = self.optimizer or super().configure_optimizers()
        return self.optimizer


BY_EPOCHS, BY_STEPS = {"max_epochs": 2}, {"max_epochs": -1, "max_steps": 14}


@pytest.mark.parametrize("first", [BY_EPOCHS, BY_STEPS], ids=str)
@pytest.mark.parametrize("second", [BY_EPOCHS, BY_STEPS], ids=str)
def test_a_second_trainer_has_a_budget_of_its_own(first, second):
    module = Reused()
    fitted(module, **first)
    before = len(module.rates)
    fitted(module, **second)
    assert module.rates[before:] == pytest.approx(line(14, begins=7))


def test_a_budget_that_its_user_gave_is_left_alone():
    module = Reused(max_epochs=4)
    fitted(module, **BY_EPOCHS)
    fitted(module, **BY_EPOCHS)
    assert module.rates == pytest.approx(line(28, begins=14))


class Clock:
    """In place of the module `time`, for Lightning's Timer."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_a_time_limit_is_a_budget_too(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("lightning.pytorch.callbacks.timer.time", clock)

    class ASecondPerStep(SteadyRegression):
        def optimizer_step(self, *arguments, **options):
            super().optimizer_step(*arguments, **options)
            clock.now += 1.0

    module = ASecondPerStep()
    fitted(module, max_epochs=-1, max_time={"seconds": 40})
    assert module.rates == pytest.approx([0.01 * min(1.0, (40 - step) / 20) for step in range(40)])


class Stops(Callback):
    """After the second epoch."""

    def on_train_epoch_end(self, trainer, pl_module):
        trainer.should_stop = trainer.current_epoch == 1


def test_epochs_that_were_left_open_are_judged_where_training_ends():
    module, watchdog = ControlledRegression(), WatchdogCallback()
    running = trainer(watchdog, Stops(), max_epochs=40)
    running.fit(module, batches())
    assert len(module.rates) == 14
    assert watchdog.report.outcome is Outcome.KEPT
    optimizer = running.optimizers[0]
    assert optimizer.held_window is None
    assert optimizer.control.memory(optimizer.rule()).batches_judged > 12
