"""fit: each stop rule has its status, the clocks, Ctrl-C, random numbers, threads, and the best weights."""

import functools
import os
import random
import signal
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest
import torch
from torch import nn

from cmalight import CMALight, Controlled, Objective, Status, TensorBatches
from cmalight.optim.certified import Certified
from tests.helpers import copied_state, same_state
from tests.training.common import MSE, AfterEpoch, FakeTime, batch_norm_model, data, does, mae, model, stop_after, train


@pytest.mark.parametrize("optimizer", ["auto", "cmalight", "adam-cosine"])
def test_no_epochs_at_all_is_allowed(optimizer):
    network = model()
    before = copied_state(network)
    _, result = train(network, max_epochs=0, optimizer=optimizer)
    assert (result.status, result.epochs, result.evaluations) == (Status.MAX_EPOCHS, 0, 0)
    assert same_state(network.state_dict(), before)


@pytest.mark.parametrize(("loss", "measured"), [("batch_loss", False), ("train_loss", True)])
def test_target_loss_by_the_batches_or_by_the_true_loss(loss, measured):
    _, result = train(max_epochs=500, target_loss=0.05, measure_train_loss=measured)
    assert result.status is Status.TARGET_LOSS
    assert getattr(result.history[-1], loss) <= 0.05 < getattr(result.history[-2], loss)


def test_patience_on_the_validation_loss_and_on_a_metric():
    x, y = data()
    spoilt = (x[:20], -y[:20])  # the better the training, the worse this
    _, result = train(max_epochs=500, validation=spoilt, patience=3)
    assert result.status is Status.PATIENCE
    assert result.epochs == result.best_epoch + 4
    _, result = train(max_epochs=500, validation=(x, y), metrics=(mae,), monitor="mae", patience=2)
    assert (result.epochs, result.best_epoch) == (3, 0)  # of a metric larger values are better


def test_a_callback_may_stop_and_is_closed():
    callbacks, closed = [stop_after(2), stop_after(2)], []
    for number, callback in enumerate(callbacks):
        callback.close = functools.partial(closed.append, number)
    _, result = train(max_epochs=10, callbacks=callbacks)
    assert (result.status, result.epochs, closed) == (Status.CALLBACK, 3, [0, 1])


def test_an_optimizer_that_cannot_go_back_and_diverges_is_stopped():
    network = model()
    _, result = train(network, optimizer=torch.optim.SGD(network.parameters(), lr=1e200), max_epochs=50)
    assert result.status is Status.DIVERGED
    assert result.epochs < 50


def test_a_step_size_below_rounding_has_converged():
    network = model()
    optimizer = CMALight(network.parameters(), lr=1.0)
    train(network, optimizer=optimizer, max_epochs=1)
    optimizer.param_groups[0]["lr"] = 1e-30
    _, result = train(network, optimizer=optimizer, max_epochs=9)
    assert (result.status, result.epochs) == (Status.CONVERGED, 0)


class Slow(nn.Module):
    """A model whose every forward pass takes a second of fake time."""

    def __init__(self, inner, time_):
        super().__init__()
        self.inner, self.time = inner, time_

    def forward(self, x):
        self.time.now += 1.0
        return self.inner(x)


def test_the_processors_clock_does_not_run_while_others_have_the_processor(monkeypatch):
    slow = Slow(model(), FakeTime(monkeypatch))
    monkeypatch.setattr("cmalight.training.stopping.processor_seconds", lambda: slow.time.now / 10)
    _, result = train(slow, time_limit=0.95, max_epochs=None, clock="processor")
    assert result.status is Status.TIME_LIMIT
    assert 0.95 <= result.seconds <= 1.05  # ten batches


@pytest.mark.parametrize("optimizer", ["auto", "adam"])
def test_the_time_limit_is_checked_before_every_batch_and_steps_before_it_stand(monkeypatch, optimizer):
    slow = Slow(model(), FakeTime(monkeypatch))
    before = copied_state(slow)
    _, result = train(slow, optimizer=optimizer, time_limit=40.5, max_epochs=None)
    assert result.status is Status.TIME_LIMIT
    steps = result.optimizer.steps if optimizer == "auto" else result.position.steps
    assert 6 * result.epochs < steps  # it ends inside an epoch
    assert optimizer == "auto" or (steps, result.seconds) == (41, 41.0)
    assert not same_state(slow.state_dict(), before)


@pytest.mark.parametrize(
    ("optimizer", "limit", "ends"),
    [("cmalight", 9.5, 10.0), ("cma", 2.5, 3.0), ("cma", 14.5, 15.0)],
    ids=["a step", "f(w⁰)", "f(w̃)"],
)
def test_an_epoch_of_the_paper_that_the_time_limit_breaks_off_is_undone(monkeypatch, optimizer, limit, ends):
    """f(w⁰), the steps and f(w̃) take six seconds each."""
    slow = Slow(model(), FakeTime(monkeypatch))
    before = copied_state(slow)
    options = {"optimizer": optimizer, "optimizer_options": {"lr": 0.01}}
    _, result = train(slow, time_limit=limit, max_epochs=None, **options)
    assert (result.status, result.epochs, result.seconds) == (Status.TIME_LIMIT, 0, ends)
    assert same_state(slow.state_dict(), before)


def test_after_a_run_its_time_limit_does_not_end_evaluations(monkeypatch):
    slow = Slow(model(), FakeTime(monkeypatch))
    objective = Objective(slow, MSE, TensorBatches(*data(), batch_size=10))
    optimizer = Controlled(torch.optim.Adam(slow.parameters()), slow, objective=objective)
    train(slow, optimizer=optimizer, time_limit=2.5)
    assert objective() > 0


def test_by_the_clock_the_learning_rate_ends_at_almost_nothing(monkeypatch):
    for optimizer in ("auto", "adam-wsd"):
        slow = Slow(model(), FakeTime(monkeypatch))
        _, result = train(slow, optimizer=optimizer, time_limit=200.0, max_epochs=None, batch_size=30)
        lrs = [record.lr for record in result.history]
        assert max(lrs) == 1e-2
        assert 0.0 < lrs[-1] < 0.05 * max(lrs)


def test_measuring_is_not_on_the_training_clock_and_the_optimizers_evaluations_are(monkeypatch):
    slow = Slow(model(), FakeTime(monkeypatch))
    _, result = train(slow, max_epochs=2, validation=data(), measure_train_loss=True)
    assert [record.seconds for record in result.history] == [6.0, 12.0]
    assert slow.time.now > 12.0
    slow = Slow(model(), FakeTime(monkeypatch))
    _, result = train(slow, max_epochs=1, optimizer="cma", optimizer_options={"lr": 0.01}, pair=data(10))
    assert result.history[0].seconds == 3.0  # one batch, f(w⁰), f(w̃)
    assert (result.evaluations, result.history[0].evaluations, result.history[0].evaluated_rows) == (2, 2, 20)


def ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_stops_at_the_next_batch_and_the_handler_is_put_back():
    handler = signal.getsignal(signal.SIGINT)
    _, result = train(max_epochs=50, callbacks=[does(3, ctrl_c)])
    assert (result.status, result.epochs) == (Status.INTERRUPTED, 4)
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_second_ctrl_c_interrupts_at_once():
    callbacks, closed = [does(2, ctrl_c), does(2, ctrl_c)], []
    callbacks[0].close = lambda: closed.append(True)
    with pytest.raises(KeyboardInterrupt):
        train(max_epochs=50, callbacks=callbacks)
    assert closed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_epochs": None}, "A run needs an end"),
        ({"max_epochs": -1}, "max_epochs"),
        ({"time_limit": 0}, "time_limit"),
        ({"target_loss": "low"}, "target_loss"),
        ({"patience": 0, "validation": data()}, "patience"),
        ({"patience": 2}, "pass validation"),
        ({"metrics": (mae,)}, "pass validation"),
        ({"metrics": ("mae",), "validation": data()}, "a list of functions"),
        ({"monitor": "accuracy", "validation": data()}, "number to monitor"),
        ({"engine": "fast"}, "engine"),
        ({"clock": "sun"}, "Invalid clock value: 'sun'; expected one of wall, processor"),
        ({"order": "random"}, "order"),
        ({"batch_size": 0}, "batch_size"),
        ({"seed": -1}, "seed"),
        ({"threads": 0}, "threads"),
        ({"callbacks": stop_after(1)}, "a list of callbacks"),
        ({"callbacks": [AfterEpoch]}, "an object with on_epoch_end"),
        ({"metrics": MSE, "validation": data()}, "a list of functions"),
        ({"metrics": (mae, mae), "validation": data()}, "need different names"),
        ({"optimizer_options": 3}, "optimizer_options value: 3; expected a dict"),
        ({"loss_fn": nn.MSELoss}, "loss_fn.*expected a function or an object"),
        ({"network": nn.Linear}, "model.*of a class pass an object"),
        ({"network": model().requires_grad_(False)}, "Nothing to train"),
        ({"progress": "no"}, "progress.*True or False"),
    ],
)
def test_bad_arguments_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        train(**options)


def test_auto_is_given_the_objective_and_the_length_of_the_run():
    _, result = train(optimizer="auto")
    assert isinstance(result.optimizer.objective, Objective)
    assert result.optimizer.total_steps == result.optimizer.steps == 30


def test_a_ready_controlled_stays_without_an_objective_and_keeps_its_budget_and_its_listeners():
    network = model()
    optimizer = Controlled(torch.optim.Adam(network.parameters()), network, total_steps=40)
    reports = []
    optimizer.on_report(reports.append)
    _, result = train(network, optimizer=optimizer)
    assert result.optimizer is optimizer
    assert optimizer.objective is None
    assert (optimizer.total_steps, optimizer.steps, result.evaluations) == (40, 30, 0)
    assert reports
    assert {record.outcome for record in result.history} <= {"kept", "open"}


def test_a_second_run_of_a_ready_optimizer_counts_its_evaluations_alone():
    network, (x, y) = model(), data()
    objective = Objective(network, MSE, TensorBatches(x, y, batch_size=10))
    optimizer = Certified(torch.optim.Adam(network.parameters()), objective, total_steps=60)
    counts = [train(network, optimizer=optimizer)[1].evaluations for _ in range(2)]
    assert sum(counts) == objective.evaluations
    assert all(counts)


def test_l_bfgs_gets_the_closure_that_it_needs():
    network = model()
    first = MSE(network(data()[0]), data()[1]).item()
    optimizer = torch.optim.LBFGS(network.parameters(), line_search_fn="strong_wolfe")
    _, result = train(network, optimizer=optimizer, batch_size=60, max_epochs=3, measure_train_loss=True)
    assert result.history[-1].train_loss < 0.5 * first


def test_the_callers_random_numbers_go_on_as_if_nothing_had_been_drawn():
    def seed():
        torch.manual_seed(1)
        random.seed(1)
        numpy.random.seed(1)

    network = batch_norm_model()
    seed()
    expected = torch.rand(()).item(), random.random(), numpy.random.rand()
    seed()
    train(network, optimizer="auto", validation=data())
    assert (torch.rand(()).item(), random.random(), numpy.random.rand()) == expected


@pytest.mark.parametrize("optimizer", ["auto", "cmalight", "adam"])
def test_the_seed_determines_the_run_and_measuring_leaves_no_trace(optimizer):
    def run(seed, **options):
        torch.manual_seed(77 + seed)
        return train(batch_norm_model(), seed=seed, optimizer=optimizer, **options)[0].state_dict()

    first = run(3)
    measured = run(3, measure_train_loss=True, validation=data(20), metrics=(mae,), restore_best=False)
    assert same_state(first, run(3))
    assert same_state(first, measured)
    assert not same_state(first, run(4))


def test_with_validation_data_a_run_ends_on_the_best_weights_seen():
    x, y = data()
    states = []
    keep = AfterEpoch(lambda record: states.append((record.validation_loss, copied_state(network))))
    network = batch_norm_model()
    options = {"max_epochs": 15, "validation": (x[:20], -y[:20]), "callbacks": [keep]}
    _, result = train(network, **options)
    best = min(range(15), key=lambda k: states[k][0])
    assert result.best_epoch == best < 14
    assert same_state(network.state_dict(), states[best][1])
    states.clear()
    train(network := batch_norm_model(), restore_best=False, **options)
    assert same_state(network.state_dict(), states[-1][1])
    network = model()  # without validation data the true training loss decides
    optimizer = torch.optim.SGD(network.parameters(), lr=20.0)
    _, result = train(network, optimizer=optimizer, max_epochs=10, restore_best=True)
    losses = [record.train_loss for record in result.history]
    assert MSE(network(x), y).item() == pytest.approx(min(losses), rel=1e-12)


def test_small_steps_over_a_table_take_one_thread_and_the_callers_come_back():
    seen = []
    look = AfterEpoch(lambda record: seen.append(torch.get_num_threads()))
    x, y = torch.ones(40, 4), torch.ones(40, 1)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for inputs, network, threads in (
            (x, nn.Linear(4, 1), None),
            (x, nn.Linear(4, 1), 2),
            (torch.ones(40, 3, 4), nn.Sequential(nn.Linear(4, 1), nn.Flatten(), nn.Linear(3, 1)), None),
            (x, nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 1, 4), nn.Flatten()), None),
        ):
            train(network, pair=(inputs, y), max_epochs=1, callbacks=[look], threads=threads)
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == [1, 2, 2, 2]


def test_two_runs_in_two_threads_do_not_disturb_each_other():
    alone = [train(model(dropout=0.3), seed=seed)[0].state_dict() for seed in (1, 2)]
    networks = [model(dropout=0.3) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(train, network, seed=seed) for network, seed in zip(networks, (1, 2), strict=True)]
    assert all(same_state(run.result()[0].state_dict(), state) for run, state in zip(runs, alone, strict=True))


def test_a_model_that_several_processes_train_is_refused():
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        with pytest.raises(ValueError, match="fit trains in one process"):
            train(nn.parallel.DistributedDataParallel(model()))
    finally:
        torch.distributed.destroy_process_group()
