"""Cut anywhere and gone on with, a training is the one that was never stopped; or it says what differs."""

import copy
import logging
import multiprocessing
import os
import signal
import threading

import pytest
import torch
from torch import nn

from cmalight import Status, fit
from cmalight.training import CheckpointError
from cmalight.training.checkpoints import checkpoint
from tests.evaluation.places import KINDS, PLACES, place
from tests.helpers import MSE, same_state, wait_for
from tests.training.checkpoints.test_checkpoint import StopAfter, batch_norm_model, dropout_model
from tests.training.common import data, model, needs_compiler, train, without_times

EPOCHS = 6


def same_runs(run, path, cuts=range(EPOCHS - 1)):
    """Whether runs that are cut after those epochs end as one that is not; `run` takes options of fit."""
    whole, unbroken = run(max_epochs=EPOCHS)
    for number, cut in enumerate(cuts):
        one = path / f"{number}.pt"
        run(max_epochs=EPOCHS, checkpoint=one, callbacks=[StopAfter(cut)])
        resumed, result = run(max_epochs=EPOCHS, checkpoint=one)
        assert result.epochs == EPOCHS
        assert same_state(resumed.state_dict(), whole.state_dict()), cut
        assert without_times(result.history) == without_times(unbroken.history), cut


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", PLACES)
def test_a_generator_goes_on_wherever_it_is(tmp_path, where, kind):
    def run(**options):
        loader, loss_fn, _ = place(where, kind)
        network = model()
        return network, fit(network, loss_fn, loader, progress=False, measure_train_loss=True, **options)

    same_runs(run, tmp_path, cuts=(0, 3))


@pytest.mark.parametrize("optimizer", ["auto", "cmalight", "adam"])
def test_every_cut_of_a_noisy_pipeline_gives_the_same_run(tmp_path, optimizer):
    def run(**options):
        loader, loss_fn, _ = place("in_a_pipeline")
        network = dropout_model()
        return network, fit(network, loss_fn, loader, optimizer=optimizer, progress=False, **options)

    same_runs(run, tmp_path)


def test_measuring_leaves_no_trace_on_generators_of_loss_and_pipeline():
    for where in ("in_a_pipeline", "in_the_loss"):
        ends = []
        for measured in (False, True):
            loader, loss_fn, _ = place(where)
            network = model()
            more = {"validation": place(where)[0], "measure_train_loss": True} if measured else {}
            fit(network, loss_fn, loader, max_epochs=4, progress=False, **more)
            ends.append(network.state_dict())
        assert same_state(*ends)


class Counting(nn.Module):
    """Extra state and a buffer that grows; both decide what it computes."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 1).double()
        self.calls = 0
        self.register_buffer("seen", torch.zeros(0, dtype=torch.float64))
        self.register_buffer("lazily", None, persistent=False)

    def forward(self, x):
        if self.training and torch.is_grad_enabled():
            self.calls += 1
            self.seen = torch.cat([self.seen, x.detach().mean().reshape(1)])[-9:]
            self.lazily = self.seen * 2
        extra = 0.0 if self.lazily is None else self.lazily.sum() / 100
        return self.linear(x) * (1 + self.calls / 1000) + self.seen.sum() / 100 + extra

    def get_extra_state(self):
        return torch.tensor(self.calls)

    def set_extra_state(self, state):
        self.calls = int(state)


@pytest.mark.parametrize("optimizer", ["auto", "cmalight", "adam"])
def test_extra_state_and_growing_buffers_go_on(tmp_path, optimizer):
    def run(**options):
        return train(Counting(), optimizer=optimizer, **options)

    same_runs(run, tmp_path)


def test_extra_state_that_a_file_cannot_hold_is_refused_before_the_training(tmp_path):
    class Odd(nn.Linear):
        def get_extra_state(self):
            return threading.Thread

        def set_extra_state(self, state): ...

    with pytest.raises(CheckpointError, match="extra state hold more than plain values"):
        train(Odd(4, 1).double(), checkpoint=tmp_path / "run.pt")
    assert list(tmp_path.iterdir()) == []


def test_an_iterator_under_way_is_named(caplog):
    stream = iter(range(10**6))

    def loss(output, target):
        return MSE(output, target) + next(stream)

    fit(model(), loss, data(), max_epochs=1, optimizer="adam", progress=False)
    assert "loss_fn.stream (range_iterator): what measuring draws from it is not put back" in caplog.text


def test_generators_that_are_not_there_any_more_are_named(tmp_path, caplog):
    def run(kind, **options):
        loader, loss_fn, _ = place("in_a_closure", kind)
        return fit(model(), loss_fn, loader, progress=False, checkpoint=tmp_path / "run.pt", **options)

    run("torch_generator", max_epochs=2)
    loader, loss_fn, _ = place("in_a_partial", "torch_generator")
    fit(model(), loss_fn, loader, progress=False, checkpoint=tmp_path / "run.pt", max_epochs=3)
    assert "do not have the same random number generators (loader.collate_fn" in caplog.text


class Centred(nn.Module):
    """Looks across the batch from the third epoch on: a trial before merges batches, one right then does not."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 1).double()
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, x):
        self.steps += torch.is_grad_enabled()
        return self.linear(x - x.mean(0) if self.steps > 14 else x)


def test_merging_is_not_decided_anew(tmp_path):
    def run(**options):
        return train(Centred(), optimizer="adam", measure_train_loss=True, **options)

    run(max_epochs=EPOCHS, checkpoint=tmp_path / "run.pt", callbacks=[StopAfter(1)])
    assert checkpoint.load(tmp_path / "run.pt")["objectives"][1] == {"merge": True, "tried": True, "passes": 2}
    same_runs(run, tmp_path)


@needs_compiler
@pytest.mark.slow
def test_the_engine_goes_on_that_a_run_began_with(tmp_path):
    """Left to "auto", so short a run would not be compiled."""
    options = {"optimizer": "adam", "max_epochs": EPOCHS, "checkpoint": tmp_path / "run.pt"}
    whole, _ = train(optimizer="adam", max_epochs=EPOCHS, engine="compiled")
    train(**options, engine="compiled", callbacks=[StopAfter(2)])
    resumed, result = train(model(), **options)
    assert result.engine == "compiled"
    assert same_state(resumed.state_dict(), whole.state_dict())


def test_with_other_limits_the_engine_is_chosen_anew(tmp_path, monkeypatch):
    monkeypatch.setenv("CMALIGHT_CACHE", str(tmp_path / "cache"))  # where nothing was built before
    train(max_epochs=2, checkpoint=tmp_path / "run.pt")
    content = checkpoint.load(tmp_path / "run.pt")
    assert content["engine"] == {
        "compiled": False,
        "reason": "too little to do for compiling to pay",
        "limits": [2, None],
    }
    _, result = train(model(), max_epochs=4, checkpoint=tmp_path / "run.pt")
    assert result.engine_reason == "too little to do for compiling to pay"


class Waits:
    """Lets the first training go on once the second has begun, or waits in vain for it."""

    def __init__(self, here, there):
        self.here, self.there = here, there

    def on_epoch_end(self, record):
        self.here.set()
        self.there.wait(0.2)


def test_trainings_in_two_threads_do_not_disturb_each_other():
    torch.manual_seed(5)
    callers = torch.rand(3)
    alone = [train(dropout_model(), seed=seed)[0].state_dict() for seed in (1, 2)]
    torch.manual_seed(5)
    here, there, ends = threading.Event(), threading.Event(), {}

    def run(seed, *events):
        network = copy.deepcopy(networks[seed])
        train(network, seed=seed, callbacks=[Waits(*events)])
        ends[seed] = network.state_dict()

    networks = {1: dropout_model(), 2: dropout_model()}
    torch.manual_seed(5)
    threads = [threading.Thread(target=run, args=(1, here, there)), threading.Thread(target=run, args=(2, there, here))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(torch.rand(3), callers)
    assert same_state(ends[1], alone[0])
    assert same_state(ends[2], alone[1])


def test_a_training_inside_a_callback_does_not_wait_for_itself():
    inner = dropout_model()

    class Inner:
        def on_epoch_end(self, record):
            train(inner, max_epochs=1)

    whole, _ = train(dropout_model())
    network, result = train(dropout_model(), callbacks=[Inner()])
    assert result.epochs == 5
    assert same_state(network.state_dict(), whole.state_dict())


def hold(path, ready, release):
    with checkpoint.owned(path):
        ready.set()
        release.wait(600)


def test_a_checkpoint_that_another_process_has_is_refused_by_name(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready, release = context.Event(), context.Event()
    process = context.Process(target=hold, args=(tmp_path / "run.pt", ready, release))
    process.start()
    try:
        wait_for(ready.is_set)
        with pytest.raises(CheckpointError, match=rf"run\.pt is the checkpoint of a run.*process {process.pid} on"):
            train(checkpoint=tmp_path / "run.pt")
    finally:
        release.set()
        process.join()
    train(checkpoint=tmp_path / "run.pt")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run.pt"]


def test_what_a_killed_run_left_half_written_goes(tmp_path):
    (tmp_path / ".run.pt.123.0a0b0c0d.tmp").write_bytes(b"half")
    (tmp_path / ".other.pt.123.0a0b0c0d.tmp").write_bytes(b"not ours")
    train(checkpoint=tmp_path / "run.pt")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".other.pt.123.0a0b0c0d.tmp", "run.pt"]


class Converged(torch.optim.SGD):
    """An optimizer that says so after three epochs of six batches."""

    steps = 0

    def step(self, closure=None):
        self.steps += 1
        return super().step(closure)

    @property
    def has_converged(self):
        return self.steps >= 18


def test_a_run_ends_where_its_optimizer_has_converged(tmp_path):
    network = model()
    optimizer = Converged(network.parameters(), lr=0.1)
    _, result = train(network, optimizer=optimizer, max_epochs=10, checkpoint=tmp_path / "run.pt")
    assert (result.status, result.epochs) == (Status.CONVERGED, 3)
    assert result.reason == "converged: the step size is below rounding"
    assert len(checkpoint.load(tmp_path / "run.pt")["history"]) == 3


@pytest.fixture
def small_disk(monkeypatch):
    """Sets how large files may grow, as if the disk were full there."""
    monkeypatch.setattr(logging.getLogger("cmalight"), "handlers", [])  # which may write to a file, too
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def limit(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))

    yield limit
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


class FillsUp:
    """The disk is full from the second epoch on."""

    def __init__(self, limit, *, sizes):
        self.limit, self.sizes = limit, sizes

    def on_epoch_end(self, record):
        if record.epoch in self.sizes:
            self.limit(self.sizes[record.epoch])


def test_a_full_disk_does_not_end_the_training(tmp_path, small_disk, caplog):
    path, lines = tmp_path / "run.pt", tmp_path / "run.jsonl"
    options = {"checkpoint": path, "history_file": lines, "checkpoint_seconds": 0}
    network, result = train(callbacks=[FillsUp(small_disk, sizes={1: 700})], **options)
    small_disk(1 << 30)
    assert result.epochs == 5
    assert same_state(network.state_dict(), train()[0].state_dict())
    assert "run.pt could not be written (File too large); it holds epoch 1" in result.reason
    assert "lines of" in result.reason
    assert caplog.text.count("could not be written") == 2  # each file once
    assert len(checkpoint.load(path)["history"]) == 1
    text = lines.read_text()
    assert text.endswith("}\n")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run.jsonl", "run.pt"]


def test_a_disk_that_has_room_again_gets_what_was_missing(tmp_path, small_disk):
    path, lines = tmp_path / "run.pt", tmp_path / "run.jsonl"
    options = {"checkpoint": path, "history_file": lines, "checkpoint_seconds": 0}
    _, result = train(callbacks=[FillsUp(small_disk, sizes={1: 300, 3: 1 << 30})], **options)
    assert result.reason == "5 epochs done"
    assert len(checkpoint.load(path)["history"]) == 5
    assert len(lines.read_text().splitlines()) == 5


def test_a_diverged_epoch_does_not_replace_a_good_checkpoint(tmp_path):
    """The loss of the epoch is still finite when its last step makes the weights infinite."""
    network = model()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)

    class Breaks:
        def on_epoch_end(self, record):
            if record.epoch == 2:
                with torch.no_grad():
                    network[0].weight[0, 0] = float("nan")

    options = {"checkpoint": tmp_path / "run.pt", "checkpoint_seconds": 0, "max_epochs": 3}
    train(network, optimizer=optimizer, callbacks=[Breaks()], **options)
    content = checkpoint.load(tmp_path / "run.pt")
    assert len(content["history"]) == 2
    assert all(bool(torch.isfinite(p).all()) for p in content["model"]["parameters"].values())


def test_batch_norm_goes_on_at_every_cut_of_auto(tmp_path):
    same_runs(lambda **options: train(batch_norm_model(), optimizer="auto", **options), tmp_path)
    assert os.listdir(tmp_path)
