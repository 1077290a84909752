"""kill -9 at any moment, and starting again, gives the run that was never stopped."""

import json
import multiprocessing
import random
import signal
import time

import pytest
import torch
import torch._dynamo  # the first optimizer of a process imports it: with it preloaded, a process starts in no time

from cmalight.training import checkpoint
from tests.helpers import same_state, wait_for
from tests.training.common import batch_norm_model, data, train

EPOCHS = 150
KILLS = 8


class Announce:
    """Says when the second epoch is over: the checkpoint of the first is then written."""

    def __init__(self, event):
        self.event, self.epochs = event, 0

    def on_epoch_end(self, record):
        self.epochs += 1
        if self.epochs == 2:
            self.event.set()


def run_to_the_end(folder, optimizer, started, under_way):
    """The body of the process that gets killed."""
    torch.set_num_threads(1)
    checkpoint.SECONDS_BETWEEN_SAVES, checkpoint.TIME_FOR_SAVES = 0.0, 1e9
    started.set()
    files = {"checkpoint": folder / "run.pt", "history_file": folder / "history.jsonl"}
    options = {"optimizer": optimizer, "max_epochs": EPOCHS, "callbacks": [Announce(under_way)]}
    network, _ = train(batch_norm_model(), pair=data(40), **options, **files)
    torch.save(network.state_dict(), folder / "done.pt")


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["auto", "cmalight"])
@pytest.mark.filterwarnings("ignore:Each of the last")
def test_random_kills_change_neither_weights_nor_history(tmp_path, optimizer):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["cmalight", "tests.training.test_kill"])

    def process_in(folder):
        events = context.Event(), context.Event()
        process = context.Process(target=run_to_the_end, args=(folder, optimizer, *events), daemon=True)
        process.start()
        return process, *events

    moments = random.Random(0)
    kills, epochs_at_kills, folders = 0, set(), [tmp_path / "0"]
    folders[0].mkdir()
    while kills < KILLS:
        if (folders[-1] / "done.pt").exists():  # the machine is fast, or the kills were late: another run
            folders.append(tmp_path / str(len(folders)))
            folders[-1].mkdir()
        process, started, under_way = process_in(folders[-1])
        awaited = started if moments.random() < 0.2 else under_way
        wait_for(lambda: awaited.is_set() or process.exitcode is not None)  # noqa: B023
        time.sleep(moments.uniform(0.0, 0.1))
        process.kill()
        process.join()
        if process.exitcode == 0:
            continue
        assert process.exitcode == -signal.SIGKILL
        kills += 1
        history = folders[-1] / "history.jsonl"
        epochs_at_kills.add(len(history.read_text().splitlines()) if history.exists() else 0)
    assert len(epochs_at_kills) > 3  # it really got on between the kills
    process, *_ = process_in(folders[-1])
    process.join(600)
    assert process.exitcode == 0

    whole, unbroken = train(batch_norm_model(), pair=data(40), optimizer=optimizer, max_epochs=EPOCHS)
    expected = [json.loads(record.to_json()) for record in unbroken.history]
    for folder in folders:
        assert same_state(torch.load(folder / "done.pt", weights_only=True), whole.state_dict())
        lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
        assert [{**line, "seconds": 0} for line in lines] == [{**line, "seconds": 0} for line in expected]
