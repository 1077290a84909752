"""kill -9 at any moment, and starting again, gives the run that was never stopped."""

import json
import multiprocessing
import random
import time

import pytest
import torch
import torch._dynamo  # the first optimizer of a process imports it: with it preloaded, a process starts in no time

from tests.helpers import same_state
from tests.training.test_checkpoint import batch_norm_model, data, train

EPOCHS = 1500
KILLS = 50


class Announce:
    """Says when the first epoch is over."""

    def __init__(self, event):
        self.event = event

    def on_epoch_end(self, record):
        self.event.set()


def run_to_the_end(folder, started, under_way):
    """The body of the process that gets killed."""
    torch.set_num_threads(1)
    started.set()
    network, _ = train(
        batch_norm_model(),
        pair=data(40),
        max_epochs=EPOCHS,
        optimizer_options={"lr": 3.0},
        checkpoint=folder / "run.pt",
        checkpoint_seconds=0.0,
        history_file=folder / "history.jsonl",
        callbacks=[Announce(under_way)],
    )
    torch.save(network.state_dict(), folder / "done.pt")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:CMALight has stalled")
def test_fifty_random_kills_change_neither_weights_nor_history(tmp_path):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["cmalight", "tests.training.test_kill"])
    moments = random.Random(0)
    kills, epochs_at_kills = 0, set()
    while kills < KILLS:
        started, under_way = context.Event(), context.Event()
        process = context.Process(target=run_to_the_end, args=(tmp_path, started, under_way))
        process.start()
        while_starting = moments.random() < 0.2
        assert (started if while_starting else under_way).wait(120)
        time.sleep(moments.uniform(0.0, 0.1))
        process.kill()
        process.join()
        if (tmp_path / "done.pt").exists():
            break
        kills += 1
        history = tmp_path / "history.jsonl"
        epochs_at_kills.add(len(history.read_text().splitlines()) if history.exists() else 0)
    assert kills == KILLS, f"the run was over after {kills} kills: give it more epochs"
    assert len(epochs_at_kills) > 10  # it really got on between the kills
    process = context.Process(target=run_to_the_end, args=(tmp_path, started, under_way))
    process.start()
    process.join(600)
    assert process.exitcode == 0

    whole, unbroken = train(batch_norm_model(), pair=data(40), max_epochs=EPOCHS, optimizer_options={"lr": 3.0})
    assert same_state(torch.load(tmp_path / "done.pt", weights_only=True), whole.state_dict())
    lines = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    expected = [json.loads(record.to_json()) for record in unbroken.history]
    assert [{**line, "seconds": 0} for line in lines] == [{**line, "seconds": 0} for line in expected]
