"""Several starts at once: each is the run it would be by itself, and the model ends with the best."""

import pytest
import torch
from torch import nn

from cmalight import CMALight, Status, fit
from cmalight.training.multistart import draw_anew
from tests.helpers import copied_state, same_state
from tests.training.common import MSE, data, model, needs_compiler


def several(optimizer="cmalight", options=None, **more):
    network = model()
    more = {"max_epochs": 8, "batch_size": 10, "progress": False, "starts": 3, **more}
    return network, fit(network, MSE, data(64), optimizer=optimizer, optimizer_options=options, **more)


def alone(number, optimizer="cmalight", options=None, **more):
    network = model()
    if number:
        draw_anew(network, number)
    more = {"max_epochs": 8, "batch_size": 10, "progress": False, "engine": "eager", **more}
    return network, fit(network, MSE, data(64), optimizer=optimizer, optimizer_options=options, **more)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("engine", ["compiled", "eager"])
@pytest.mark.parametrize(("optimizer", "options"), [("cmalight", {"lr": 1.0}), ("adam", {"lr": 1e-2})])
def test_each_start_is_the_run_it_would_be_alone_and_the_best_is_in_the_model(optimizer, options, engine):
    seen = []

    class Watching:
        def on_epoch_end(self, record):
            seen.append((record.f_tilde, copied_state(network)))

    network = model()
    result = fit(
        network,
        MSE,
        data(64),
        optimizer=optimizer,
        optimizer_options=options,
        max_epochs=8,
        min_lr=0.35 if optimizer == "cmalight" else None,  # which not all of them reach at the same epoch
        batch_size=10,
        progress=False,
        starts=3,
        engine=engine,
        callbacks=[Watching()],
    )
    runs = [alone(number, optimizer, options, min_lr=0.35 if optimizer == "cmalight" else None) for number in range(3)]
    for start, (single, expected) in zip(result.starts, runs, strict=True):
        assert (start.status, start.evaluations) == (expected.status, expected.evaluations)
        assert [record.outcome for record in start.history] == [record.outcome for record in expected.history]
        for record, other in zip(start.history, expected.history, strict=True):
            assert record.f_tilde == pytest.approx(other.f_tilde, rel=1e-12)
        for name, p in single.named_parameters():
            torch.testing.assert_close(start.weights[name], p.detach(), rtol=1e-12, atol=1e-12)
    losses = [start.train_loss for start in result.starts]
    assert result.best_start == losses.index(min(losses))
    best = result.starts[result.best_start]
    assert same_state(network.state_dict(), best.weights)
    assert (result.status, result.reason) == (best.status, best.reason)
    assert list(result.history) == list(best.history)
    assert result.evaluations == sum(start.evaluations for start in result.starts)
    assert result.optimizer.param_groups[0]["params"][0] is next(network.parameters())
    assert len(seen) == max(len(start.history) for start in result.starts)
    assert result.engine == engine


def test_a_few_epochs_of_several_starts_are_not_worth_compiling(tmp_path, monkeypatch):
    monkeypatch.setenv("CMALIGHT_CACHE", str(tmp_path))  # where nothing was built before
    result = several(max_epochs=2)[1]
    assert (result.engine, result.compile_seconds) == ("eager", 0.0)
    assert result.engine_reason == "too little to do for compiling to pay"


class Stopping:
    def on_epoch_end(self, record):
        return True


@needs_compiler
@pytest.mark.slow
def test_a_callback_stops_all_starts():
    result = several(callbacks=[Stopping()])[1]
    assert [start.status for start in result.starts] == [Status.CALLBACK] * 3
    assert [len(start.history) for start in result.starts] == [1] * 3


@needs_compiler
@pytest.mark.slow
def test_a_start_that_diverges_ends_alone():
    network = model()
    with torch.no_grad():
        network[3].bias.fill_(1e200)  # its square is not finite
    result = fit(network, MSE, data(64), optimizer="sgd", starts=2, max_epochs=3, batch_size=10, progress=False)
    assert [start.status for start in result.starts] == [Status.DIVERGED, Status.MAX_EPOCHS]
    assert [len(start.history) for start in result.starts] == [1, 3]
    assert result.best_start == 1
    assert same_state(network.state_dict(), result.starts[1].weights)


def test_the_first_start_keeps_its_weights_and_the_others_depend_on_the_seed_alone():
    first, second, other = model(), model(seed=5), model()
    draw_anew(first, 1)
    draw_anew(second, 1)
    draw_anew(other, 2)
    assert same_state(first.state_dict(), second.state_dict())
    assert not same_state(first.state_dict(), other.state_dict())


class OwnWeights(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4, 1, dtype=torch.float64))

    def forward(self, x):
        return x @ self.weight


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"starts": 0}, "whole number"),
        ({"checkpoint": "run.pt"}, "checkpoint is for one start"),
        ({"restore_best": True}, "restore_best is for one start"),
        ({"optimizer": "rmsprop", "engine": "compiled"}, "RMSprop are not compiled"),
    ],
)
def test_what_several_starts_cannot_do_is_refused(options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        several(**options)


def test_weights_that_cannot_be_drawn_anew_are_refused():
    with pytest.raises(ValueError, match="OwnWeights has no reset_parameters"):
        fit(OwnWeights(), MSE, data(64), starts=2, progress=False)
    frozen = model()
    frozen[0].requires_grad_(False)
    with pytest.raises(ValueError, match="frozen"):
        fit(frozen, MSE, data(64), starts=2, progress=False)


def test_an_optimizer_that_has_taken_steps_is_refused():
    network = model()
    optimizer = CMALight(network.parameters(), lr=0.1)
    fit(network, MSE, data(64), optimizer=optimizer, max_epochs=1, progress=False)
    with pytest.raises(ValueError, match="pass a fresh one"):
        fit(network, MSE, data(64), optimizer=optimizer, starts=2, progress=False)
