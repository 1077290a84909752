"""Checkpoint files: whole or refused, the last two kept; going on from one gives the run that never stopped."""

import errno
import os
import random
import stat

import numpy
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from cmalight import CMALight, Status, TensorBatches, fit
from cmalight.training import CheckpointError
from cmalight.training.checkpoints import checkpoint
from tests.helpers import copied_state, same_state
from tests.training.common import data, model, train, without_times


def test_the_last_two_are_kept_and_load_without_pickles_of_ours(tmp_path):
    path = tmp_path / "run.pt"
    for number in range(3):
        checkpoint.save({"number": number}, path)
    assert checkpoint.load(path) == {"number": 2}
    assert checkpoint.load(checkpoint.previous_of(path)) == {"number": 1}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run.pt", "run.pt.previous"]
    assert torch.load(path, weights_only=True)["format"] == "cmalight-checkpoint"


def test_a_crash_between_the_renames_leaves_the_previous_one_to_go_on_from(tmp_path):
    path = tmp_path / "run.pt"
    checkpoint.save({"number": 1}, path)
    path.replace(checkpoint.previous_of(path))
    assert checkpoint.load_latest(path) == {"number": 1}


def flip_a_bit(path, position):
    content = bytearray(path.read_bytes())
    content[int(position * len(content))] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_truncated_file_is_refused_and_the_previous_one_offered(tmp_path, share):
    path = tmp_path / "run.pt"
    checkpoint.save({"weights": torch.ones(1000)}, path)
    checkpoint.save({"weights": torch.ones(1000)}, path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(CheckpointError, match=r"damaged.*run\.pt\.previous, is intact: move it"):
        checkpoint.load_latest(path)


def test_no_flipped_bit_goes_unnoticed(tmp_path):
    """Either the file is refused, or the bit was in padding and the content is what was saved."""
    path = tmp_path / "run.pt"
    content = {"weights": torch.arange(300, dtype=torch.float64), "epoch": 7}
    refused = 0
    for number in range(120):
        checkpoint.save(content, path)
        flip_a_bit(path, number / 120)
        try:
            loaded = checkpoint.load(path)
        except CheckpointError:
            refused += 1
        else:
            assert torch.equal(loaded["weights"], content["weights"])
            assert loaded["epoch"] == 7
    assert refused > 60


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04nonsense"])
def test_a_foreign_file_is_refused(tmp_path, content):
    path = tmp_path / "run.pt"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="Remove it to begin anew"):
        checkpoint.load_latest(path)


def test_a_torch_file_of_somebody_else_is_refused(tmp_path):
    path = tmp_path / "run.pt"
    torch.save({"model": torch.ones(2)}, path)
    with pytest.raises(CheckpointError, match="not a checkpoint of cmalight"):
        checkpoint.load(path)


class Exploit:
    def __reduce__(self):
        return (os.system, ("touch exploited",))


def test_no_code_from_a_file_is_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"format": "cmalight-checkpoint", "content": Exploit()}, tmp_path / "run.pt")
    with pytest.raises(CheckpointError):
        checkpoint.load(tmp_path / "run.pt")
    assert not (tmp_path / "exploited").exists()


def test_an_unknown_version_is_refused_with_advice(tmp_path):
    path = tmp_path / "run.pt"
    torch.save({"format": "cmalight-checkpoint", "version": 99}, path)
    with pytest.raises(CheckpointError, match=r"format 99.*update cmalight"):
        checkpoint.load(path)


def test_a_full_disk_leaves_the_last_checkpoint_whole(tmp_path, monkeypatch):
    path = tmp_path / "run.pt"
    checkpoint.save({"number": 1}, path)

    def full(_handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        checkpoint.save({"number": 2}, path)
    assert checkpoint.load_latest(path) == {"number": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["run.pt"]


class StopAfter:
    def __init__(self, epoch):
        self.epoch = epoch

    def on_epoch_end(self, record):
        return record.epoch == self.epoch


def batch_norm_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.3), nn.Sigmoid(), nn.Linear(6, 1)).double()


OPTIONS = {
    "light": {"optimizer_options": {"lr": 3.0}},
    "certified": {"optimizer_options": {"lr": 3.0, "line_search": "certified"}},
    "cma": {"optimizer": "cma"},
    "ig": {"optimizer": "ig"},
    "adam": {"optimizer": "adam"},
    "momentum": {"optimizer": "sgd-momentum"},
}


@pytest.mark.parametrize("make", [model, batch_norm_model], ids=["plain", "batchnorm and dropout"])
@pytest.mark.parametrize("name", OPTIONS)
def test_resuming_is_bit_identical_to_never_having_stopped(tmp_path, name, make):
    options = {**OPTIONS[name], "validation": data(20), "metrics": ("r2",), "measure_train_loss": True}
    whole, unbroken = train(make(), max_epochs=12, **options)
    for epoch in (0, 4, 9):
        path = tmp_path / f"{epoch}.pt"
        first = make()
        train(first, max_epochs=12, checkpoint=path, callbacks=[StopAfter(epoch)], **options)
        resumed, result = train(make(), max_epochs=12, checkpoint=path, **options)
        assert result.epochs == 12
        assert same_state(resumed.state_dict(), whole.state_dict())
        assert without_times(result.history) == without_times(unbroken.history)
        assert result.evaluations == unbroken.evaluations


def dropout_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.3), nn.Sigmoid(), nn.Linear(6, 1)).double()


@pytest.mark.parametrize("kind", ["fixed", "loader"])
@pytest.mark.parametrize("name", ["light", "certified", "cma"])
def test_dropout_and_evaluations_resume_bit_identically(tmp_path, name, kind):
    """Evaluations draw random numbers, too, and the first one of a process tries whether batches can be merged."""

    def feed():
        if kind == "fixed":
            return TensorBatches(*data(), batch_size=10, order="fixed")
        return DataLoader(TensorDataset(*data()), batch_size=10, shuffle=True)

    whole, unbroken = train(dropout_model(), pair=feed(), max_epochs=9, **OPTIONS[name])
    for epochs in (2, 3, 7, 9):
        path = tmp_path / "run.pt"
        resumed, result = train(dropout_model(), pair=feed(), max_epochs=epochs, checkpoint=path, **OPTIONS[name])
    assert same_state(resumed.state_dict(), whole.state_dict())
    assert without_times(result.history) == without_times(unbroken.history)


@pytest.mark.parametrize("with_generators", [False, True])
def test_a_data_loader_in_one_process_resumes_bit_identically(tmp_path, with_generators):
    def loader():
        dataset = TensorDataset(*data())
        generator = torch.Generator().manual_seed(5) if with_generators else None
        sampler = RandomSampler(dataset, generator=generator)
        return DataLoader(dataset, batch_size=10, sampler=sampler, generator=generator)

    whole, unbroken = train(batch_norm_model(), pair=loader(), max_epochs=10)
    path = tmp_path / "run.pt"
    train(batch_norm_model(), pair=loader(), max_epochs=10, checkpoint=path, callbacks=[StopAfter(3)])
    resumed, result = train(batch_norm_model(), pair=loader(), max_epochs=10, checkpoint=path)
    assert same_state(resumed.state_dict(), whole.state_dict())
    assert without_times(result.history) == without_times(unbroken.history)


class NonPersistent(nn.Module):
    """A buffer that state_dict leaves out but that decides what the model computes."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 1).double()
        self.register_buffer("calls", torch.zeros((), dtype=torch.float64), persistent=False)

    def forward(self, x):
        if self.training:
            self.calls += 1
        return self.linear(x) * (1 + self.calls / 1000)


def test_buffers_that_state_dict_leaves_out_are_resumed_too(tmp_path):
    def make():
        torch.manual_seed(0)
        return NonPersistent()

    whole, _ = train(make(), max_epochs=8)
    train(make(), max_epochs=8, checkpoint=tmp_path / "run.pt", callbacks=[StopAfter(2)])
    resumed, _ = train(make(), max_epochs=8, checkpoint=tmp_path / "run.pt")
    assert same_state(resumed.state_dict(), whole.state_dict())
    assert torch.equal(resumed.calls, whole.calls)


def test_a_finished_run_is_not_run_again_and_a_longer_one_goes_on(tmp_path):
    path = tmp_path / "run.pt"
    first, _ = train(max_epochs=4, checkpoint=path)
    again, result = train(model(), max_epochs=4, checkpoint=path)
    assert (result.status, result.epochs) == (Status.MAX_EPOCHS, 4)
    assert same_state(again.state_dict(), first.state_dict())
    longer, result = train(model(), max_epochs=7, checkpoint=path)
    assert result.epochs == 7
    assert same_state(longer.state_dict(), train(max_epochs=7)[0].state_dict())


def test_a_run_that_reached_its_target_is_not_run_again(tmp_path):
    path = tmp_path / "run.pt"
    _, first = train(max_epochs=500, target_loss=0.05, checkpoint=path)
    _, again = train(model(), max_epochs=500, target_loss=0.05, checkpoint=path)
    assert (again.status, again.epochs) == (Status.TARGET_LOSS, first.epochs)


def test_patience_and_best_weights_are_resumed(tmp_path):
    x, y = data()
    options = {"max_epochs": 30, "validation": (x[:20], -y[:20]), "patience": 5, "restore_best": True}
    whole, unbroken = train(**options)
    train(checkpoint=tmp_path / "run.pt", callbacks=[StopAfter(2)], **options)
    resumed, result = train(model(), checkpoint=tmp_path / "run.pt", **options)
    assert (result.status, result.epochs, result.best_epoch) == (Status.PATIENCE, unbroken.epochs, unbroken.best_epoch)
    assert same_state(resumed.state_dict(), whole.state_dict())


def test_the_training_time_goes_on_where_it_stopped(tmp_path):
    _, first = train(max_epochs=20, checkpoint=tmp_path / "run.pt")
    _, second = train(model(), max_epochs=25, checkpoint=tmp_path / "run.pt")
    assert second.history[20].seconds > second.history[19].seconds
    assert second.history[19].seconds == first.history[19].seconds


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 20}, "batches was 10, reshuffle, seed 0, now 20, reshuffle, seed 0"),
        ({"seed": 1}, "seed was 0, now 1"),
        ({"optimizer_options": {"lr": 0.2}}, "lr was 0.1, now 0.2. Give"),
        ({"optimizer": "cma"}, "optimizer was CMALight, now CMA"),
        ({"pair": data(50)}, "data was"),
        ({"pair": (data()[0] + 1, data()[1])}, "same shape, and other values"),
        ({"network": model()[:1]}, "the model has other parameters: it had 4, now 2"),
        (
            {"network": nn.Sequential(*model()[:1], nn.Tanh(), *model()[2:])},
            "the model has other layers",
        ),
        (
            {"pair": (data()[0].index_fill(0, torch.tensor([7]), 0.5), data()[1])},
            "same shape, and other values",
        ),
        ({"pair": TensorBatches(*data(), batch_size=10, order="fixed")}, "batches was"),
        ({"pair": DataLoader(TensorDataset(*data()), batch_size=10)}, "batches was"),
        ({"validation": data(20)}, "validation data was none"),
    ],
)
def test_the_checkpoint_of_another_run_is_refused(tmp_path, change, message):
    train(checkpoint=tmp_path / "run.pt")
    with pytest.raises(CheckpointError, match=message):
        train(checkpoint=tmp_path / "run.pt", **change)


def test_another_loader_is_another_run(tmp_path):
    train(pair=DataLoader(TensorDataset(*data()), batch_size=10), checkpoint=tmp_path / "run.pt")
    with pytest.raises(CheckpointError, match="batches was 10, SequentialSampler"):
        other = DataLoader(TensorDataset(*data()), batch_size=20, shuffle=True)
        train(pair=other, checkpoint=tmp_path / "run.pt")


@pytest.mark.parametrize("option", ["checkpoint", "history_file"])
def test_a_place_that_cannot_be_written_to_is_refused_before_anything_runs(tmp_path, option):
    with pytest.raises(FileNotFoundError, match="there is no directory"):
        train(**{option: tmp_path / "no" / "run.pt"})
    with pytest.raises(IsADirectoryError, match="is a directory"):
        train(**{option: tmp_path})


def test_devices_are_not_taken_for_files():
    with pytest.raises(CheckpointError, match="not a regular file"):
        train(checkpoint="/dev/null")
    train(history_file="/dev/null")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_diverged_state_is_not_saved(tmp_path):
    network = model()
    optimizer = torch.optim.SGD(network.parameters(), lr=1e200)
    _, result = train(network, optimizer=optimizer, max_epochs=9, checkpoint=tmp_path / "run.pt", checkpoint_seconds=0)
    assert result.status is Status.DIVERGED
    assert not (tmp_path / "run.pt").exists()


def test_a_stop_inside_an_epoch_is_resumed_bit_identically(tmp_path):
    """The interruption comes in mid-epoch; the epoch begins anew, with the random numbers it had."""
    make = batch_norm_model
    # Eager throughout: epochs with a hook are never compiled, and those without may be, with other roundings.
    options = {"max_epochs": 8, "optimizer_options": {"lr": 3.0}, "engine": "eager"}
    whole, unbroken = train(make(), **options)
    network = make()
    calls = []

    def interrupt(*_):
        calls.append(1)
        if len(calls) == 20:
            os.kill(os.getpid(), 2)

    handle = network.register_forward_hook(interrupt)
    _, result = train(network, **options, checkpoint=tmp_path / "run.pt")
    handle.remove()
    assert result.status is Status.INTERRUPTED
    assert 0 < result.epochs < 8
    resumed, result = train(make(), **options, checkpoint=tmp_path / "run.pt")
    assert same_state(resumed.state_dict(), whole.state_dict())
    assert without_times(result.history) == without_times(unbroken.history)


def test_the_callers_random_numbers_go_on_as_if_nothing_had_been_drawn():
    torch.manual_seed(1)
    random.seed(1)
    numpy.random.seed(1)
    expected = torch.rand(()).item(), random.random(), numpy.random.rand()
    torch.manual_seed(1)
    random.seed(1)
    numpy.random.seed(1)
    network = batch_norm_model()
    torch.manual_seed(1)
    train(network)
    assert (torch.rand(()).item(), random.random(), numpy.random.rand()) == expected


def test_the_seed_determines_the_run():
    first, _ = train(batch_norm_model(), seed=3)
    torch.manual_seed(77)
    second, _ = train(batch_norm_model(), seed=3)
    other, _ = train(batch_norm_model(), seed=4)
    assert same_state(first.state_dict(), second.state_dict())
    assert not same_state(first.state_dict(), other.state_dict())


def test_measuring_leaves_no_trace_on_training():
    plain, _ = train(batch_norm_model(), max_epochs=8)
    measured, _ = train(
        batch_norm_model(), max_epochs=8, measure_train_loss=True, validation=data(20), metrics=("r2", "mse")
    )
    assert same_state(plain.state_dict(), measured.state_dict())


def test_restore_best_ends_on_the_best_weights_seen():
    x, y = data()
    states = []

    class Keep:
        def __init__(self, network):
            self.network = network

        def on_epoch_end(self, record):
            states.append((record.validation_loss, copied_state(self.network)))

    network = batch_norm_model()
    _, result = train(
        network, max_epochs=15, validation=(x[:20], -y[:20]), restore_best=True, callbacks=[Keep(network)]
    )
    best = min(range(15), key=lambda k: states[k][0])
    assert result.best_epoch == best < 14
    assert same_state(network.state_dict(), states[best][1])


def test_restore_best_without_validation_looks_at_the_true_training_loss():
    network = model()
    _, result = train(
        network, optimizer=torch.optim.SGD(network.parameters(), lr=20.0), max_epochs=10, restore_best=True
    )
    losses = [record.train_loss for record in result.history]
    x, y = data()
    assert nn.MSELoss()(network(x), y).item() == pytest.approx(min(losses), rel=1e-12)


def test_a_ready_cmalight_is_resumed_too(tmp_path):
    def run(**options):
        network = model()
        return train(network, optimizer=CMALight(network.parameters(), lr=3.0), max_epochs=9, **options)

    whole, _ = run()
    run(checkpoint=tmp_path / "run.pt", callbacks=[StopAfter(4)])
    resumed, _ = run(checkpoint=tmp_path / "run.pt")
    assert same_state(resumed.state_dict(), whole.state_dict())


def test_a_model_of_another_shape_is_refused_by_its_shape(tmp_path):
    def run(features):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(features, 5), nn.Sigmoid(), nn.Linear(5, 1))
        return fit(
            network,
            nn.MSELoss(),
            (torch.ones(20, features), torch.ones(20, 1)),
            max_epochs=1,
            progress=False,
            checkpoint=tmp_path / "run.pt",
        )

    run(8)
    message = r"another run: the model has another shape: 8 -> 10 inputs of 0\.weight; data was \[\(20, 8\), .*, now"
    with pytest.raises(CheckpointError, match=message) as caught:
        run(10)
    assert len(str(caught.value)) < 300 + len(str(tmp_path))


def test_a_run_says_where_it_goes_on_and_when_there_is_nothing_left(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CI", "true")
    path = tmp_path / "run.pt"
    train(max_epochs=3, checkpoint=path)
    _, longer = train(model(), max_epochs=4, checkpoint=path, progress=True)
    assert capsys.readouterr().err.splitlines()[0] == f"resumed from {path} at epoch 3"
    assert longer.resumed_at == 3
    _, again = train(model(), max_epochs=4, checkpoint=path)
    assert again.reason == "nothing left to train: 4 epochs done"
    assert (again.status, again.resumed_at) == (Status.MAX_EPOCHS, 4)
