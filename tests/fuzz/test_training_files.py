"""Checkpoints and model files that are wrong in any way, processes killed at any time, disks that fill at any byte."""

import io
import json
import logging
import multiprocessing
import os
import signal
import time
import zipfile

import pytest
import torch
import torch._dynamo  # the first optimizer of a process imports it: with it preloaded, a process starts in no time

from cmalight.sealed import SealError, seal, unseal
from cmalight.training import CheckpointError
from cmalight.training.checkpoints import checkpoint
from tests.fuzz.cases import cases, numbers
from tests.fuzz.plain import changed
from tests.helpers import copied_state, same_state, wait_for
from tests.training.checkpoints.test_checkpoint import batch_norm_model
from tests.training.common import data, model, train

pytestmark = pytest.mark.filterwarnings("ignore:.* has stalled", "ignore:Converting a tensor")

RUNS = {
    "auto": {},
    "cmalight": {},
    "ig": {},
    "adam": {"validation": data(20), "metrics": ("r2",), "restore_best": True},
    "sgd-momentum": {"measure_train_loss": True},
}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """A good one of every kind of run."""
    folder = tmp_path_factory.mktemp("checkpoints")
    for name, options in RUNS.items():
        train(batch_norm_model(), optimizer=name, max_epochs=3, checkpoint=folder / name, **options)
    return {name: checkpoint.load(folder / name) for name in RUNS}


def test_a_checkpoint_with_any_content_goes_on_or_is_refused_by_name(checkpoints, tmp_path):
    path = tmp_path / "run.pt"
    refused = 0
    for case in range(cases(40)):
        rng = numbers("checkpoint", case)
        name = rng.choice(sorted(RUNS))
        content, what = changed(checkpoints[name], rng)
        path.write_bytes(seal(content, kind=checkpoint.KIND, version=checkpoint.VERSION))
        network = batch_norm_model()
        before = copied_state(network)
        try:
            train(network, optimizer=name, max_epochs=4, engine="eager", checkpoint=path, **RUNS[name])
        except CheckpointError as error:
            refused += 1
            message = str(error)
        except Exception as error:
            raise AssertionError(f"case {case}: {what} in a checkpoint of {name}") from error
        else:
            assert all(bool(torch.isfinite(p).all()) for p in network.parameters()), (case, what)
            continue
        assert str(path) in message, (case, what)
        assert "emove" in message, (case, what)  # what to do
        assert same_state(copied_state(network), before), (case, what)
    assert refused > cases(40) // 3


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A table, and good models of both tasks."""
    from click.testing import CliRunner

    from cmalight.cli import command
    from cmalight.tabular.model_file import KIND, VERSION

    folder = tmp_path_factory.mktemp("models")
    table = folder / "table.csv"
    lines = [f"{i},{i * i % 7},{'xyz'[i % 3]},{3 * i + 1}.5" for i in range(40)]
    table.write_text("\n".join(["a,b,kind,price", *lines]))
    contents = []
    for target in ("price", "kind"):
        options = ["--target", target, "--max-epochs", "2", "--save", str(folder / target)]
        result = CliRunner().invoke(command, ["train", str(table), *options])
        assert result.exit_code == 0, result.output
        contents.append(unseal((folder / target).read_bytes(), kind=KIND, version=VERSION))
    return table, contents


def test_a_model_with_any_content_predicts_or_is_refused_by_name(models, tmp_path):
    from cmalight.tables.reading import Reading, read_table
    from cmalight.tabular.model_file import KIND, VERSION, load_model

    table, contents = models
    path = tmp_path / "model.pt"
    refused = 0
    for case in range(cases(150)):
        rng = numbers("model", case)
        content, what = changed(rng.choice(contents), rng)
        path.write_bytes(seal(content, kind=KIND, version=VERSION))
        try:
            loaded = load_model(path)
            loaded.predict(read_table(table, loaded.reading(Reading())))
        except ValueError as error:  # of the model, or of a table that does not go with it
            refused += 1
            message = str(error)
        except Exception as error:
            raise AssertionError(f"case {case}: {what}") from error
        else:
            continue
        assert str(path) in message or str(table) in message, (case, what)
    assert refused > cases(150) // 3


def test_bytes_that_were_changed_anywhere_are_refused_or_harmless(checkpoints):
    good = seal(checkpoints["adam"], kind="k", version=1)
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(good)) as source, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
        for part in source.infolist():
            target.writestr(part.filename, source.read(part))
    for case in range(cases(150)):
        rng = numbers("bytes", case)
        data = bytearray(rng.choice((good, good, packed.getvalue())))
        for _ in range(rng.randrange(4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < 0.3:
            del data[rng.randrange(len(data)) :]
        if rng.random() < 0.2:
            data[rng.randrange(len(data) + 1) : 0] = rng.randbytes(rng.randrange(100))
        try:
            content = unseal(bytes(data), kind="k", version=1)
        except SealError:
            continue
        assert content.keys() == checkpoints["adam"].keys(), case


def test_small_files_stay_small(tmp_path):
    """A file of a few hundred kB that would unpack to a gigabyte is refused before it takes any of it."""
    resource = pytest.importorskip("resource")
    zeros = io.BytesIO()
    with zipfile.ZipFile(zeros, "w", zipfile.ZIP_DEFLATED) as archive:
        torch_file = io.BytesIO()
        torch.save({"x": torch.zeros(1)}, torch_file)
        with zipfile.ZipFile(torch_file) as small:
            for part in small.infolist():
                if not part.filename.endswith("data/0"):
                    archive.writestr(part.filename, small.read(part))
            with archive.open("archive/data/0", "w", force_zip64=True) as large:
                for _ in range(1 << 6):
                    large.write(bytes(1 << 24))
    path = tmp_path / "run.pt"
    path.write_bytes(zeros.getvalue())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CheckpointError, match=r"run\.pt is damaged, or not a checkpoint"):
        checkpoint.load(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


def options_in(folder):
    return {
        "pair": data(40),
        "max_epochs": 200,
        "optimizer_options": {"lr": 3.0},
        "checkpoint": folder / "run.pt",
        "checkpoint_seconds": 0.0,
        "history_file": folder / "history.jsonl",
    }


def run_to_the_end(folder, started):
    """The body of the process that gets killed."""
    torch.set_num_threads(1)
    started.set()
    network, _ = train(batch_norm_model(), **options_in(folder))
    torch.save(network.state_dict(), folder / "done.pt")


@pytest.mark.slow
def test_a_process_killed_at_random_times_gives_the_run_that_was_not(tmp_path):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["cmalight", "tests.fuzz.test_training_files"])
    whole, unbroken = train(batch_norm_model(), **{**options_in(tmp_path), "checkpoint": None, "history_file": None})
    expected = [{**json.loads(record.to_json()), "seconds": 0} for record in unbroken.history]
    folder, runs = tmp_path / "0", 0
    folder.mkdir()
    for case in range(cases(6)):
        started = context.Event()
        process = context.Process(target=run_to_the_end, args=(folder, started), daemon=True)
        process.start()
        wait_for(started.is_set)
        time.sleep(numbers("kill", case).uniform(0.0, 2.0))
        process.kill()
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL), case
        if process.exitcode == 0:
            runs += 1
            folder = tmp_path / str(runs)
            folder.mkdir()
    started = context.Event()
    process = context.Process(target=run_to_the_end, args=(folder, started), daemon=True)
    process.start()
    process.join(600)
    assert process.exitcode == 0
    for number in range(runs + 1):
        assert same_state(torch.load(tmp_path / str(number) / "done.pt", weights_only=True), whole.state_dict())
        lines = (tmp_path / str(number) / "history.jsonl").read_text().splitlines()
        assert [{**json.loads(line), "seconds": 0} for line in lines] == expected
        assert not [name for name in os.listdir(tmp_path / str(number)) if name.endswith((".tmp", ".lock"))]


class Fills:
    """Lets files grow to another size after every epoch."""

    def __init__(self, limit, rng):
        self.limit, self.rng = limit, rng

    def on_epoch_end(self, record):
        self.limit(self.rng.choice((0, 1, 100, 5000, 10_000, 1 << 30, 1 << 30)))


def test_a_disk_that_fills_at_any_byte_ends_no_training_and_tears_no_line(tmp_path, monkeypatch):
    monkeypatch.setattr(logging.getLogger("cmalight"), "handlers", [])  # which may write to a file, too
    resource = pytest.importorskip("resource")
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    whole, unbroken = train(model(), max_epochs=6)
    try:
        for case in range(cases(12)):
            folder = tmp_path / str(case)
            folder.mkdir()
            options = {"checkpoint": folder / "run.pt", "history_file": folder / "run.jsonl", "checkpoint_seconds": 0}
            fills = Fills(lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1])), numbers("d", case))
            network, result = train(model(), max_epochs=6, callbacks=[fills], **options)
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            assert result.epochs == 6
            assert same_state(network.state_dict(), whole.state_dict()), case
            lines = (folder / "run.jsonl").read_text()
            assert lines == "" or lines.endswith("}\n"), case
            assert len([json.loads(line) for line in lines.splitlines()]) <= 6
            resumed, again = train(model(), max_epochs=6, **options)  # from whatever was saved last
            assert same_state(resumed.state_dict(), whole.state_dict()), case
            assert len((folder / "run.jsonl").read_text().splitlines()) == 6
            assert not [name for name in os.listdir(folder) if name.endswith((".tmp", ".lock"))], case
            assert again.epochs == unbroken.epochs
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
