"""Compiled epochs give what eager ones give, and everything around them stays as it is."""

import copy
import math
import shutil

import pytest
import torch
from torch import nn

from cmalight import CMA, IG, CMALight, Controlled, TensorBatches, fit
from cmalight.compiled import pace
from cmalight.compiled.engine import select
from cmalight.compiled.engine.epochs import CompiledEngine
from cmalight.compiled.native import library
from cmalight.evaluation import larger_batches
from cmalight.training.epochs.loop import ModelAndData, watched_epoch
from cmalight.training.records.stopping import Status, Stop, StopTraining
from tests.helpers import copied_state, same_state
from tests.training.common import MSE, data, model, needs_compiler

pytestmark = [needs_compiler, pytest.mark.slow]


def run(optimizer, *, engine, network=None, pair=None, **options):
    """64 samples are six batches of 10 and one of 4."""
    network = model() if network is None else network
    pair = data(64) if pair is None else pair
    options = {"max_epochs": 10, "batch_size": 10, "progress": False, **options}
    return network, fit(network, MSE, pair, optimizer=optimizer(network), engine=engine, **options)


def assert_same_run(eager, compiled, tolerance=1e-12):
    (eager_model, eager_result), (compiled_model, compiled_result) = eager, compiled
    for mine, other in zip(compiled_model.parameters(), eager_model.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance)
    assert len(compiled_result.history) == len(eager_result.history)
    for mine, other in zip(compiled_result.history, eager_result.history, strict=True):
        assert (mine.outcome, mine.evaluations) == (other.outcome, other.evaluations)
        for name in ("lr", "alpha", "f_tilde", "train_loss", "validation_loss"):
            expected = getattr(other, name)
            assert getattr(mine, name) == (expected and pytest.approx(expected, rel=tolerance)), name


def light(network):
    return CMALight(network.parameters(), lr=1.0)


def two_groups(network):
    groups = [
        {"params": network[0].parameters(), "lr": 0.5, "weight_decay": 1e-2},
        {"params": network[3].parameters()},
    ]
    return CMALight(groups, lr=1.0, line_search="certified")


def momentum(network):
    return torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-2)


def adam(network):
    return torch.optim.Adam(network.parameters(), lr=1e-2, weight_decay=1e-2, amsgrad=True)


def controlled(network):
    """From a small step size, which grows, and with little tolerance."""
    return Controlled(torch.optim.Adam(network.parameters(), weight_decay=1e-2), tolerance=0.01)


OPTIMIZERS = {
    "light": light,
    "certified, two groups": two_groups,
    "cma": lambda network: CMA(network.parameters(), lr=1.0),
    "ig": lambda network: IG(network.parameters(), lr=0.5, weight_decay=1e-2),
    "momentum": momentum,
    "adam": adam,
    "adagrad": lambda network: torch.optim.Adagrad(network.parameters(), lr_decay=0.1, weight_decay=1e-2),
    "adadelta": lambda network: torch.optim.Adadelta(network.parameters()),
    "controlled adam": controlled,
}


class Undone:
    """A callback: for each epoch that was undone, whether the weights are bit for bit those before it."""

    def __init__(self, network):
        self.network = network
        self.before = copied_state(network)
        self.exact = []

    def on_epoch_end(self, record):
        now = copied_state(self.network)
        if record.alpha == 0.0:
            self.exact.append(same_state(now, self.before))
        self.before = now


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_ten_epochs_in_double_precision_are_the_eager_ones(name, monkeypatch):
    monkeypatch.setattr(larger_batches, "_SAMPLES", 20)  # full evaluations are three such chunks and one of 4
    measured = {"validation": data(20), "measure_train_loss": True}
    eager = run(OPTIMIZERS[name], engine="eager", **measured)
    network = model()
    undone = Undone(network)
    result = run(OPTIMIZERS[name], engine="compiled", network=network, callbacks=[undone], **measured)[1]
    assert_same_run(eager, (network, result))
    assert all(undone.exact)
    assert undone.exact or name != "light"
    assert (eager[1].engine, result.engine) == ("eager", "compiled")
    assert result.seconds >= result.compile_seconds > 0.0
    outcomes = {record.outcome for record in result.history}
    if name == "light":
        assert outcomes >= {"rejected_early", "search_failed_rejected", "search_failed_kept", "accepted"}
    if name in ("certified, two groups", "cma"):
        assert len(outcomes) > 2
    for p in network.parameters():  # nothing is left of the flat vector
        assert p.is_leaf
        assert p.untyped_storage().nbytes() == p.numel() * p.element_size()


def test_an_epoch_in_single_precision_ends_alike_and_in_small_blocks_too(monkeypatch):
    monkeypatch.setattr(pace, "_FIRST", 4)
    monkeypatch.setattr(pace, "_SECONDS", 0.0)  # one batch per call
    pair = tuple(t.float() for t in data(64))
    runs = [run(light, engine=engine, network=model().float(), pair=pair) for engine in ("eager", "compiled")]
    assert_same_run(*[(network, result) for network, result in runs], tolerance=1e-4)


def test_a_run_goes_on_from_a_checkpoint_in_either_engine(tmp_path):
    whole = run(adam, engine="compiled", max_epochs=6)
    run(adam, engine="compiled", max_epochs=3, checkpoint=tmp_path / "first.pt")
    shutil.copy(tmp_path / "first.pt", tmp_path / "second.pt")
    resumed = run(adam, engine="compiled", max_epochs=6, checkpoint=tmp_path / "first.pt")
    switched = run(adam, engine="eager", max_epochs=6, checkpoint=tmp_path / "second.pt")
    assert same_state(resumed[0].state_dict(), whole[0].state_dict())
    assert_same_run(switched, whole)
    for p, other in zip(whole[0].parameters(), switched[0].parameters(), strict=True):
        mine, others = whole[1].optimizer.state[p], switched[1].optimizer.state[other]
        assert mine.keys() == others.keys()
        for name in mine:
            assert mine[name].dtype == others[name].dtype
            torch.testing.assert_close(mine[name], others[name], rtol=1e-12, atol=1e-12)


def test_an_eager_run_goes_on_compiled(tmp_path):
    whole = run(light, engine="eager", max_epochs=6)
    run(light, engine="eager", max_epochs=3, checkpoint=tmp_path / "run.pt")
    switched = run(light, engine="compiled", max_epochs=6, checkpoint=tmp_path / "run.pt")
    assert switched[1].engine == "compiled"
    assert_same_run(whole, switched)


class Changing:
    """A callback that changes everything that may be changed while epochs stay compiled."""

    def __init__(self, network):
        self.network = network
        self.optimizer = light(network)

    def on_epoch_end(self, record):
        group = self.optimizer.param_groups[0]
        if record.epoch == 0:
            group["lr"] = 0.2
            self.saved = copy.deepcopy((self.network, self.optimizer))
        if record.epoch == 2:
            with torch.no_grad():
                self.network[0].weight.add_(0.1)
            group["weight_decay"] = 0.1
        if record.epoch == 4:
            for mine, saved in zip((self.network, self.optimizer), self.saved, strict=True):
                mine.load_state_dict(saved.state_dict())


def test_a_callback_may_change_weights_options_and_states_between_epochs():
    runs = []
    for engine in ("eager", "compiled"):
        network = model()
        changing = Changing(network)
        runs.append(
            run(
                lambda _, own=changing: own.optimizer,
                engine=engine,
                network=network,
                max_epochs=7,
                callbacks=[changing],
            )
        )
    assert_same_run(*runs)
    assert runs[1][1].engine == "compiled"
    assert len({record.f_tilde for record in runs[1][1].history}) == 7


def test_a_stop_between_two_blocks_goes_back_to_the_start_of_the_epoch(monkeypatch):
    monkeypatch.setattr(pace, "_FIRST", 3)
    network, feed = model(), TensorBatches(*data(64), batch_size=10)
    optimizer = CMALight(network.parameters(), lr=0.1)
    seen = []

    def before_block(number):
        seen.append(number)
        if number:
            moved.append(not same_state(copied_state(network), before))
            raise StopTraining(Stop(Status.TIME_LIMIT, "enough"))

    moved, before = [], copied_state(network)
    engine = CompiledEngine(network, MSE, optimizer, feed, before_block=before_block, seconds_left=lambda: math.inf)
    engine.prepare()
    trained = ModelAndData(network, MSE, feed, torch.device("cpu"), lambda target, _: len(target), before_block)
    with pytest.raises(StopTraining):
        watched_epoch(trained, optimizer, engine.objective(), engine.inner_cycle)
    assert (seen, moved) == ([0, 3], [True])
    assert same_state(copied_state(network), before)


class Freezing:
    """A callback that freezes the first layer after an epoch."""

    def __init__(self, network):
        self.network = network

    def on_epoch_end(self, record):
        self.network[0].requires_grad_(False)


def test_a_callback_that_changes_what_is_trained_makes_the_epochs_eager(caplog):
    runs = []
    for engine in ("eager", "compiled"):
        network = model()
        runs.append(run(adam, engine=engine, network=network, max_epochs=3, callbacks=[Freezing(network)]))
    assert_same_run(*runs)
    assert runs[1][1].engine == "eager"
    assert "are not those it began with" in runs[1][1].engine_reason


def test_auto_compiles_where_it_pays_and_gives_the_reason(monkeypatch, caplog, tmp_path):
    monkeypatch.setenv("CMALIGHT_CACHE", str(tmp_path))
    monkeypatch.setattr(select, "pays", lambda *_: True)
    result = run(light, engine="auto", max_epochs=2)[1]
    assert result.engine == "compiled"
    assert result.engine_reason.startswith("to save about")
    assert not [record for record in caplog.records if record.name == "cmalight"]


def test_the_progress_says_that_it_compiles_and_how_long_that_took(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("CI", "1")
    monkeypatch.setenv("CMALIGHT_CACHE", str(tmp_path))
    monkeypatch.setattr(library, "_loaded", {})
    run(light, engine="compiled", max_epochs=1, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("compiling the steps, about ")
    assert lines[1].startswith("compiled in ")
    run(light, engine="compiled", max_epochs=1, progress=True)
    assert not [line for line in capsys.readouterr().err.splitlines() if "compil" in line]


class Branching(nn.Module):
    """Goes another way for other data, which no graph can."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1).double()

    def forward(self, x):
        return self.layer(x) if float(x.sum()) > 0 else -self.layer(x)


def test_a_model_that_does_not_compile_trains_eagerly_under_auto(monkeypatch, caplog):
    monkeypatch.setattr(select, "pays", lambda *_: True)
    result = run(light, engine="auto", network=Branching(), max_epochs=2)[1]
    assert (result.engine, result.epochs) == ("eager", 2)
    assert "looks at the values of its tensors" in result.engine_reason
    said = [record.message for record in caplog.records if record.name == "cmalight"]
    assert [message.split(":")[0] for message in said] == ["Epochs are not compiled"]
