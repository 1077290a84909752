"""fit with compiled steps: the same results up to rounding, or eager ones and the reason."""

import copy
import functools
import io
import os
import signal

import pytest
import torch
from torch import nn

from cmalight import Status
from cmalight.compiled import CannotCompile, Program, library
from cmalight.training import engine
from tests.helpers import copied_state, same_state
from tests.training.common import MSE, FakeTime, data, does, model, stop_after, train, without_times


@pytest.fixture(autouse=True)
def _needs_a_kernel():
    try:
        library.kernel()
    except CannotCompile as reason:
        pytest.skip(f"the kernel cannot be built here: {reason}")


SOLVERS = {
    "auto": {"optimizer": "auto"},
    "auto by the clock": {"optimizer": "auto", "time_limit": 1e9},
    "cmalight": {"optimizer": "cmalight"},
    "cmalight with undone epochs": {"optimizer": "cmalight", "optimizer_options": {"lr": 3.0, "weight_decay": 0.01}},
    "ig": {"optimizer": "ig", "optimizer_options": {"lr": 0.1}},
    "adam": {"optimizer": "adam"},
    "soap-wsd": {"optimizer": "soap-wsd"},
    "sgd-momentum-cosine": {"optimizer": "sgd-momentum-cosine"},
}


def compiled(network=None, **options):
    network, result = train(network, **{"engine": "compiled", **options})
    assert result.engine == "compiled", result.engine_reason
    return network, result


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("order", ["fixed", "reshuffle"])
def test_compiled_and_eager_epochs_agree_to_rounding(name, order):
    options = {**SOLVERS[name], "pair": data(64), "order": order, "max_epochs": 8, "measure_train_loss": True}
    slow, expected = train(engine="eager", **options)
    quick, result = compiled(**options)
    torch.testing.assert_close(quick.state_dict(), slow.state_dict(), rtol=1e-7, atol=1e-9)
    for one, other in zip(result.history, expected.history, strict=True):
        assert one.batch_loss == pytest.approx(other.batch_loss, rel=1e-7)
        assert one.lr == pytest.approx(other.lr, rel=1e-12)
        work = [(record.outcome, record.evaluations, record.evaluated_rows) for record in (one, other)]
        assert work[0] == work[1]


@pytest.mark.parametrize("name", SOLVERS)
def test_a_compiled_run_resumes_bit_for_bit(name, tmp_path):
    options = {**SOLVERS[name], "max_epochs": 8}
    whole, unbroken = compiled(**options)
    compiled(checkpoint=tmp_path / "run.pt", callbacks=[stop_after(3)], **options)
    resumed, result = compiled(checkpoint=tmp_path / "run.pt", **options)
    assert same_state(resumed.state_dict(), whole.state_dict())
    assert without_times(result.history) == without_times(unbroken.history)


def test_auto_compiles_what_is_on_the_list_and_says_why_not_otherwise(capsys):
    class Own(nn.Linear):
        pass

    _, result = train(engine="auto")
    assert (result.engine, result.engine_reason) == ("compiled", "")
    _, result = train(Own(4, 1).double(), engine="auto", progress=True, max_epochs=1)
    assert result.engine == "eager"
    assert "Own" in result.engine_reason
    assert "not compiled" not in capsys.readouterr().err
    _, result = train(Own(4, 1).double(), engine="compiled", progress=True, max_epochs=1)
    assert capsys.readouterr().err.splitlines()[0] == f"not compiled: {result.engine_reason}"
    assert train(engine="eager", max_epochs=1)[1].engine_reason == "asked for"
    _, result = train(pair=[data()], engine="compiled", max_epochs=1)
    assert result.engine_reason == "the data are not tensors in memory"


@pytest.mark.parametrize(
    "error", [OSError("failed to map segment"), RuntimeError("Could not determine home directory."), KeyError("weight")]
)
def test_whatever_goes_wrong_while_the_kernel_is_made_a_run_is_eager_with_one_line(monkeypatch, caplog, error):
    def fails(*_):
        raise error

    monkeypatch.setattr(engine, "compile_training", fails)
    network, result = train(engine="auto")
    assert result.engine == "eager"
    assert type(error).__name__ in result.engine_reason
    assert caplog.messages == [f"Not compiled, training eagerly: {result.engine_reason}"]
    assert same_state(network.state_dict(), train()[0].state_dict())


@pytest.mark.parametrize("wanted", ["eager", "compiled"])
def test_if_the_first_window_is_undone_no_statistics_of_batch_norm_stay(wanted):
    network = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 1)).double()
    before = copied_state(network)
    options = {"optimizer": "auto", "optimizer_options": {"lr": 1e300}, "max_epochs": 1, "engine": wanted}
    _, result = train(network, pair=data(50), **options)
    assert (result.engine, result.history[0].outcome, result.optimizer.steps) == (wanted, "diverged", 5)
    assert same_state(network.state_dict(), before)


def test_a_label_out_of_range_is_reported_as_in_eager_epochs():
    x, y = torch.randn(60, 4), torch.randint(0, 4, (60,))
    with pytest.raises(IndexError, match="out of bounds"):
        train(nn.Linear(4, 3), pair=(x, y), loss_fn=nn.CrossEntropyLoss(), engine="auto")


def test_a_loss_that_ignores_targets_is_not_compiled():
    x, y = torch.randn(60, 4), torch.randint(0, 3, (60,))
    y[::7] = -100
    _, result = train(nn.Linear(4, 3), pair=(x, y), loss_fn=nn.CrossEntropyLoss(), engine="auto", max_epochs=1)
    assert "ignores some targets" in result.engine_reason


def test_a_hook_that_a_callback_brings_ends_compiled_epochs():
    ends = []
    for wanted in ("auto", "eager"):
        network = model()
        hooks = functools.partial(network[0].register_forward_hook, lambda module, inputs, output: 2 * output)
        callbacks = [does(2, hooks)]
        _, result = train(network, engine=wanted, optimizer="auto", max_epochs=6, callbacks=callbacks)
        assert result.engine == "eager"
        assert ("hook" in result.engine_reason) == (wanted == "auto")
        ends.append(network.state_dict())
    torch.testing.assert_close(*ends, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("optimizer", ["auto", "cmalight", "adam-cosine"])
@pytest.mark.parametrize("status", [Status.TIME_LIMIT, Status.INTERRUPTED])
def test_a_time_limit_and_ctrl_c_are_honoured_between_the_chunks_of_a_compiled_epoch(monkeypatch, optimizer, status):
    """The second chunk of 100 steps is where the time runs out, or where somebody presses Ctrl-C."""
    run, clock, steps = Program.run, FakeTime(monkeypatch), []

    def noted(self, factors):
        steps.append(len(factors))
        if len(steps) == 2:
            clock.now += 1000.0
            if status is Status.INTERRUPTED:
                os.kill(os.getpid(), signal.SIGINT)
        return run(self, factors)

    monkeypatch.setattr(Program, "run", noted)
    limit = {"time_limit": 500.0} if status is Status.TIME_LIMIT else {}
    _, result = train(pair=data(200), optimizer=optimizer, engine="compiled", batch_size=2, max_epochs=3, **limit)
    assert (result.status, result.epochs, result.engine) == (status, 0, "compiled")
    assert sum(steps) < 100


def test_after_a_compiled_run_nothing_of_the_kernel_is_left_in_the_optimizer():
    """Its pointers cannot be copied, and the model may be changed now."""
    network, result = compiled(optimizer="auto")
    assert result.engine == "compiled"
    copy.deepcopy(result.optimizer)
    torch.save(result.optimizer, io.BytesIO())
    with torch.no_grad():
        network[0].weight.data = 2 * network[0].weight
    x, y = data()
    assert result.optimizer.objective() == pytest.approx(MSE(network(x), y).item())
