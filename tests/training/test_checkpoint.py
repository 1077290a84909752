"""Cut anywhere and resumed, a training is the one that was never stopped; or the message says what differs."""

import functools
import itertools
import logging
import math
import multiprocessing
import os
import signal
import time

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from cmalight import CMALight, Controlled, Objective, Status, TensorBatches
from cmalight.training import CheckpointError
from cmalight.training.checkpoint import KIND, VERSION, CheckpointFile
from tests.helpers import copied_state, same_state, wait_for
from tests.training.common import (
    MSE,
    Normalised,
    batch_norm_model,
    data,
    does,
    mae,
    model,
    stop_after,
    train,
    without_times,
)

RUNS = {
    "auto": {"optimizer": "auto"},
    "auto by the clock": {"optimizer": "auto", "time_limit": 1e9},
    "light": {"optimizer": "cmalight", "optimizer_options": {"lr": 3.0}},
    "certified": {"optimizer": "cmalight-certified", "optimizer_options": {"lr": 3.0}},
    "cma": {"optimizer": "cma"},
    "adam": {"optimizer": "adam"},
}


def saved_epochs(path):
    return len(torch.load(path, weights_only=True)["history"])


def assert_resumes(path, run, cuts, epochs=8):
    """Runs that are cut after those epochs end as one that is not; `run` takes options of fit."""
    whole, unbroken = run(max_epochs=epochs)
    for cut in cuts:
        file = path / f"{cut}.pt"
        run(max_epochs=epochs, checkpoint=file, callbacks=[stop_after(cut)])
        resumed, result = run(max_epochs=epochs, checkpoint=file)
        assert (result.resumed_at, result.epochs) == (cut + 1, epochs)
        assert same_state(resumed.state_dict(), whole.state_dict()), cut
        assert without_times(result.history) == without_times(unbroken.history), cut
        assert result.evaluations == unbroken.evaluations


@pytest.mark.parametrize("make", [model, batch_norm_model], ids=["plain", "batchnorm and dropout"])
@pytest.mark.parametrize("name", RUNS)
def test_resuming_is_bit_identical_to_never_having_stopped(tmp_path, name, make):
    options = {**RUNS[name], "validation": data(20), "metrics": (mae,), "measure_train_loss": True}
    assert_resumes(tmp_path, lambda **more: train(make(), **options, **more), cuts=(0, 3, 6))


class Counting(nn.Linear):
    """Extra state that decides what it computes."""

    calls = 0

    def forward(self, x):
        self.calls += self.training and torch.is_grad_enabled()
        return super().forward(x) * (1 + self.calls / 1000)

    def get_extra_state(self):
        return torch.tensor(self.calls)

    def set_extra_state(self, state):
        self.calls = int(state)


def loader(**options):
    data_loader = DataLoader(TensorDataset(*data()), batch_size=10, shuffle=True)
    return train(batch_norm_model(), pair=data_loader, **options)


def loss_with_a_buffer(**options):
    return train(loss_fn=Normalised(), measure_train_loss=True, validation=data(20), restore_best=False, **options)


def extra_state(**options):
    return train(nn.Sequential(model(), Counting(1, 1).double()), **options)


def ready(*, optimizer, **options):
    network, batches = model(), TensorBatches(*data(), batch_size=10)
    if optimizer == "cmalight":
        made = CMALight(network.parameters(), lr=3.0)
    else:
        made = Controlled(
            torch.optim.Adam(network.parameters()), network, objective=Objective(network, MSE, batches), total_steps=48
        )
    return train(network, pair=batches, optimizer=made, **options)


@pytest.mark.parametrize("optimizer", ["auto", "cmalight", "adam"])
@pytest.mark.parametrize("run", [loader, loss_with_a_buffer, extra_state, ready])
def test_so_is_resuming_with_other_parts(tmp_path, run, optimizer):
    assert_resumes(tmp_path, lambda **options: run(optimizer=optimizer, **options), cuts=(0, 3))


@pytest.mark.parametrize("optimizer", ["auto", "cmalight", "adam"])
def test_ctrl_c_inside_an_epoch_keeps_what_is_finished(tmp_path, optimizer):
    """The epoch that was broken off begins anew, with the random numbers it had."""
    options = {"max_epochs": 8, "optimizer": optimizer}
    whole, unbroken = train(batch_norm_model(), **options)
    network, calls = batch_norm_model(), itertools.count()
    network.register_forward_hook(lambda *_: os.kill(os.getpid(), signal.SIGINT) if next(calls) == 39 else None)
    _, result = train(network, **options, checkpoint=tmp_path / "run.pt")
    assert result.status is Status.INTERRUPTED
    assert 0 < result.epochs < 8
    resumed, again = train(batch_norm_model(), **options, checkpoint=tmp_path / "run.pt")
    assert again.resumed_at == result.epochs
    assert same_state(resumed.state_dict(), whole.state_dict())
    assert without_times(again.history) == without_times(unbroken.history)


def test_an_error_and_weights_that_are_not_finite_leave_the_last_good_checkpoint(tmp_path):
    path, network = tmp_path / "run.pt", model()
    with pytest.raises(ZeroDivisionError):
        train(max_epochs=8, checkpoint=path, callbacks=[does(3, lambda: 1 / 0)])
    assert saved_epochs(path) == 3
    path.unlink()
    train(network, callbacks=[does(2, lambda: network[0].weight.data.fill_(math.nan))], checkpoint=path, max_epochs=3)
    assert saved_epochs(path) == 2


def test_a_finished_run_goes_on_with_a_larger_limit_and_its_new_schedule(tmp_path):
    options = {"optimizer": "auto", "checkpoint": tmp_path / "run.pt"}
    _, first = train(max_epochs=5, **options)
    _, second = train(max_epochs=20, **options)
    lrs = [record.lr for record in second.history]
    assert second.optimizer.total_steps == second.optimizer.steps == 120
    assert first.history[-1].lr == lrs[4] < 0.2 * max(lrs[5:])
    assert lrs[-1] < 0.05 * max(lrs)
    assert second.history[4].seconds == first.history[4].seconds < second.history[5].seconds


def test_a_run_says_where_it_resumes_and_when_there_is_nothing_left(tmp_path, capsys):
    path = tmp_path / "run.pt"
    train(max_epochs=3, checkpoint=path)
    _, longer = train(max_epochs=4, checkpoint=path, progress=True)
    assert capsys.readouterr().err.splitlines()[0] == f"resumed from {path} at epoch 3"
    assert longer.resumed_at == 3
    network, again = train(max_epochs=4, checkpoint=path)
    assert (again.status, again.resumed_at) == (Status.MAX_EPOCHS, 4)
    assert again.reason == "nothing left to train: 4 epochs done"
    assert same_state(network.state_dict(), train(max_epochs=4, checkpoint=path)[0].state_dict())


def test_patience_and_best_weights_are_resumed(tmp_path):
    x, y = data()
    options = {"max_epochs": 30, "validation": (x[:20], -y[:20]), "patience": 5}
    whole, unbroken = train(**options)
    train(checkpoint=tmp_path / "run.pt", callbacks=[stop_after(2)], **options)
    resumed, result = train(checkpoint=tmp_path / "run.pt", **options)
    assert (result.status, result.epochs, result.best_epoch) == (Status.PATIENCE, unbroken.epochs, unbroken.best_epoch)
    assert same_state(resumed.state_dict(), whole.state_dict())


def scaled(factor):
    def loss(output, target):
        return factor * MSE(output, target)

    return loss


class Weighs:
    """A loss that is no module."""

    def __init__(self, **weights):
        self.weights = weights

    def __call__(self, output, target):
        return self.weights["w"] * MSE(output, target)


LABELS = (torch.arange(240.0).reshape(60, 4).cos(), torch.arange(60) % 3)


def weighted(*weights):
    return nn.CrossEntropyLoss(weight=torch.tensor(weights))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (scaled(1.0), scaled(2.0)),
        (lambda o, t: MSE(o, t), lambda o, t: 3 * MSE(o, t)),
        (
            functools.partial(nn.functional.huber_loss, delta=1.0),
            functools.partial(nn.functional.huber_loss, delta=2.0),
        ),
        (nn.HuberLoss(delta=1.0), nn.HuberLoss(delta=2.0)),
        (Weighs(w=1.0), Weighs(w=2.0)),
        (weighted(1.0, 1.0, 1.0), weighted(1.0, 2.0, 1.0)),
    ],
    ids=["closure", "number in the code", "partial", "torch's", "object", "class weights"],
)
def test_a_loss_with_other_constants_is_another_loss(tmp_path, before, after):
    options = {"checkpoint": tmp_path / "run.pt", "max_epochs": 1}
    if isinstance(before, nn.CrossEntropyLoss):
        options |= {"pair": LABELS, "network": nn.Linear(4, 3)}
    train(loss_fn=before, **options)
    assert train(loss_fn=before, **options)[1].resumed_at == 1
    with pytest.raises(CheckpointError, match="another run: loss has other contents"):
        train(loss_fn=after, **options)


def test_a_loss_that_holds_the_model_resumes(tmp_path):
    network = batch_norm_model()
    weights = list(network.parameters())

    def loss(output, target):
        return MSE(output, target) + 1e-3 * sum(w.square().sum() for w in weights) + 0 * network.training

    options = {"checkpoint": tmp_path / "run.pt", "loss_fn": loss, "max_epochs": 1}
    train(network, **options)
    assert train(network, **options)[1].resumed_at == 1


def test_saves_take_a_small_part_of_the_time_however_long_one_takes(tmp_path, monkeypatch):
    """A save of one second is followed by twenty seconds without one."""
    now = [100.0]
    monkeypatch.setattr("cmalight.training.checkpoint.time.monotonic", lambda: now[0])
    written = []

    def slowly(path, content):
        written.append(now[0])
        now[0] += 1.0

    monkeypatch.setattr("cmalight.training.checkpoint.write_atomically", slowly)

    def wait():
        now[0] += 6.0

    train(max_epochs=10, checkpoint=tmp_path / "run.pt", callbacks=[does(epoch, wait) for epoch in range(10)])
    assert written == [106.0, 131.0, 156.0, 163.0]  # the last one at the end of the run


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 20}, "batches was 10, reshuffle, seed 0, now 20, reshuffle, seed 0"),
        ({"seed": 1}, "seed was 0, now 1"),
        ({"optimizer_options": {"lr": 0.2}}, "option lr was 0.001, now 0.2"),
        ({"optimizer": "adamw"}, "optimizer was Adam, now AdamW"),
        ({"loss_fn": nn.L1Loss()}, r"loss was MSELoss\(\), now L1Loss\(\)"),
        ({"loss_fn": scaled(2.0)}, r"loss was MSELoss\(\), now scaled.<locals>.loss"),
        ({"pair": data(50)}, "data was"),
        ({"pair": (data()[0] + 1, data()[1])}, "data has other contents"),
        ({"network": model()[:1]}, "model was 31 parameters, now 25 parameters"),
        ({"network": nn.Sequential(*model()[:1], nn.Tanh(), *model()[2:])}, "model has other contents"),
        ({"pair": DataLoader(TensorDataset(*data()), batch_size=20)}, "batches was"),
        ({"validation": data(20)}, "validation data was none"),
        ({"measure_train_loss": True}, "measure_train_loss was False, now True"),
    ],
)
def test_the_checkpoint_of_another_run_is_refused_by_what_differs(tmp_path, change, message):
    path, half_written = tmp_path / "run.pt", tmp_path / ".run.pt.0a0b0c0d.tmp"  # by a killed run
    half_written.write_bytes(b"half")
    train(checkpoint=path)
    assert not half_written.exists()
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match=f"another run: .*{message}"):
        train(checkpoint=path, **change)
    assert path.read_bytes() == before


class Exploit:
    def __reduce__(self):
        return (os.system, ("touch exploited",))


def foreign_files():
    torch.save({"model": torch.ones(2)}, "foreign.pt")
    torch.save({"format": KIND, "version": 99}, "version.pt")
    torch.save({"format": KIND, "version": VERSION, "state": Exploit()}, "exploit.pt")
    torch.save([1, 2], "list.pt")
    for name, content in {"empty.pt": b"", "text.pt": b"hello", "zip.pt": b"PK\x03\x04nonsense"}.items():
        with open(name, "wb") as file:
            file.write(content)
    return ["foreign.pt", "version.pt", "exploit.pt", "list.pt", "empty.pt", "text.pt", "zip.pt"]


def test_foreign_files_are_refused_left_alone_and_run_no_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in foreign_files():
        before = (tmp_path / name).read_bytes()
        with pytest.raises(CheckpointError, match="Remove it to start again, or give another path"):
            train(checkpoint=name)
        assert (tmp_path / name).read_bytes() == before
    assert not (tmp_path / "exploited").exists()


def test_a_truncated_file_or_a_flipped_bit_is_refused_or_harmless(tmp_path):
    path = tmp_path / "run.pt"
    whole, _ = train(checkpoint=path)
    good = path.read_bytes()
    refused = 0
    for number in range(60):
        damaged = bytearray(good)
        if number % 6 == 0:
            del damaged[number * len(good) // 60 :]
        else:
            damaged[number * len(good) // 60] ^= 1
        path.write_bytes(bytes(damaged))
        try:
            network, _ = train(checkpoint=path)
        except CheckpointError:
            refused += 1
            assert path.read_bytes() == bytes(damaged)
        else:  # the bit was in padding or in a date
            assert same_state(network.state_dict(), whole.state_dict())
    assert refused > 30


@pytest.mark.parametrize("harm", ["history", "weights", "optimizer", "random"])
def test_content_that_does_not_fit_is_refused_and_changes_nothing(tmp_path, harm):
    path = tmp_path / "run.pt"
    train(checkpoint=path, optimizer="auto")
    content = torch.load(path, weights_only=True)
    state = content["state"]
    if harm == "history":
        content["history"][0]["surprise"] = 1
    elif harm == "weights":
        state["modules"]["parameters"][0]["0.weight"] = torch.zeros(2)
    elif harm == "optimizer":
        del state["optimizer"]["param_groups"]
    else:
        state["random"]["torch"] = torch.zeros(3, dtype=torch.uint8)
    torch.save(content, path)
    network = model()
    before = copied_state(network)
    with pytest.raises(CheckpointError, match=rf"Cannot resume from {path}: "):
        train(network, checkpoint=path, optimizer="auto")
    assert same_state(network.state_dict(), before)


@pytest.mark.parametrize("option", ["checkpoint", "history_file"])
def test_a_place_that_cannot_be_written_to_is_refused_before_anything_runs(tmp_path, option):
    with pytest.raises(FileNotFoundError, match="there is no directory"):
        train(**{option: tmp_path / "no" / "run.pt"})
    with pytest.raises(IsADirectoryError, match="is a directory"):
        train(**{option: tmp_path})
    with pytest.raises(ValueError, match="are both"):
        train(checkpoint=tmp_path / "same", history_file=tmp_path / "same")


def test_a_lock_file_that_is_a_link_is_refused_and_its_target_stays(tmp_path):
    precious = tmp_path / "precious.txt"
    precious.write_text("keep me")
    (tmp_path / "run.pt.lock").symlink_to(precious)
    with pytest.raises(CheckpointError, match=r"run\.pt\.lock is not a regular file"):
        train(checkpoint=tmp_path / "run.pt")
    assert precious.read_text() == "keep me"


def hold(path, ready, release):
    with CheckpointFile(path, {}):
        ready.set()
        release.wait(600)


def test_a_checkpoint_that_another_process_has_is_refused(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready, release = context.Event(), context.Event()
    process = context.Process(target=hold, args=(tmp_path / "run.pt", ready, release))
    process.start()
    try:
        wait_for(ready.is_set)
        with pytest.raises(CheckpointError, match=r"run\.pt is the checkpoint of a run that is under way"):
            train(checkpoint=tmp_path / "run.pt")
    finally:
        release.set()
        process.join()
    train(checkpoint=tmp_path / "run.pt")


def test_a_history_file_survives_resuming_and_truncation(tmp_path):
    lines, options = tmp_path / "run.jsonl", {"checkpoint": tmp_path / "run.pt", "history_file": tmp_path / "run.jsonl"}
    train(max_epochs=6, callbacks=[stop_after(2)], **options)
    lines.write_bytes(lines.read_bytes()[:-7])
    _, result = train(max_epochs=6, **options)
    assert lines.read_text() == "".join(record.to_json() + "\n" for record in result.history)


def test_extra_state_that_a_file_cannot_hold_is_refused_before_the_training(tmp_path):
    class Odd(nn.Linear):
        def get_extra_state(self):
            return time.struct_time

        def set_extra_state(self, state): ...

    with pytest.raises(CheckpointError, match="extra state of model or loss, holds more than tensors and plain values"):
        train(Odd(4, 1).double(), checkpoint=tmp_path / "run.pt")
    assert not (tmp_path / "run.pt").exists()


@pytest.fixture
def small_disk(monkeypatch):
    """Sets how large files may grow, as if the disk were full there."""
    monkeypatch.setattr(logging.getLogger("cmalight"), "handlers", [])  # which may write to a file, too
    monkeypatch.setattr("cmalight.training.checkpoint.SECONDS_BETWEEN_SAVES", 0.0)
    monkeypatch.setattr("cmalight.training.checkpoint.TIME_FOR_SAVES", math.inf)
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("has_room_again", [False, True])
def test_a_full_disk_does_not_end_the_training(tmp_path, small_disk, caplog, has_room_again):
    path, lines = tmp_path / "run.pt", tmp_path / "run.jsonl"
    sizes = {1: 300, 3: 1 << 30} if has_room_again else {1: 700}
    callbacks = [does(epoch, functools.partial(small_disk, size)) for epoch, size in sizes.items()]
    network, result = train(callbacks=callbacks, checkpoint=path, history_file=lines)
    small_disk(1 << 30)
    assert result.epochs == 5
    assert same_state(network.state_dict(), train()[0].state_dict())
    assert caplog.text.count("could not be written") == 2  # each file once
    assert lines.read_text().endswith("}\n")
    assert saved_epochs(path) == (5 if has_room_again else 1)
    if has_room_again:
        assert result.reason == "5 epochs done"
        assert len(lines.read_text().splitlines()) == 5
    else:
        assert f"the checkpoint {path} could not be written: File too large" in result.reason
        assert f"lines of {lines} could not be written: File too large" in result.reason
    assert "enforce fail" not in caplog.text
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run.jsonl", "run.pt", "run.pt.lock"]
