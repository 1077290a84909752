"""Results folders with runs that were made up, so that everything a report says of them can be told beforehand."""

import hashlib
import json

from cmalight.bench.spec.study import Solver
from cmalight.bench.store.results import runs_folder, write_result
from cmalight.bench.store.schema import COLUMNS

RULES = {
    "time_limit": 10.0,
    "max_epochs": None,
    "batch_size": 128,
    "order": "reshuffle",
    "measure_every": 1,
    "measure_test": False,
    "threads": 1,
    "split_seed": 0,
    "test_share": 0.25,
    "memory_limit": None,
    "wall_limit": None,
}
ENVIRONMENT = {
    "host": "somewhere",
    "cpu": "a processor",
    "cores": 2,
    "threads": 1,
    "concurrency": 1,
    "load": 0.5,
    "versions": {"python": "3.11", "torch": "2.13"},
}
_clock = iter(range(10_000_000))


def run(
    solver,
    losses,
    *,
    dataset="data",
    network="1x5",
    seed=0,
    options=None,
    network_options=None,
    status="done",
    start=1.0,
    seconds=None,
    evaluations=None,
    outcomes=None,
    steps=None,
    test=None,
    accuracy=None,
    final=None,
    ended_by="time_limit",
    total=None,
    error=None,
    data="a" * 64,
    **rules,
):
    """The content of a run's file: `losses` after each epoch (None: not measured), one second per epoch."""
    count = len(losses)
    seconds = [float(n + 1) for n in range(count)] if seconds is None else seconds
    evaluations = [0] * count if evaluations is None else evaluations
    nothing = [None] * count
    columns = {
        "epoch": list(range(count)),
        "seconds": seconds,
        "train_loss": losses,
        "test_loss": test or nothing,
        "test_accuracy": accuracy or nothing,
        "f_tilde": losses,
        "lr": steps or [0.5] * count,
        "alpha": nothing,
        "outcome": outcomes or ["uncontrolled"] * count,
        "evaluations": evaluations,
    }
    assert set(columns) == set(COLUMNS)
    measured = [loss for loss in losses if loss is not None]
    definition = {
        "dataset": dataset,
        "data_files": None,
        "network": {"network": network, "name": network, "options": network_options or {}},
        "seed": seed,
        "solver": vars(Solver(solver, solver, options or {}, full_batch=False)),
        **RULES,
        **rules,
    }
    begun = next(_clock)
    figures = {
        "initial_loss": start,
        "final_loss": final if final is not None else (measured[-1] if measured else start),
        "final_test_loss": test[-1] if test else None,
        "final_test_accuracy": accuracy[-1] if accuracy else None,
        "seconds": total if total is not None else (seconds[-1] if seconds else 0.0),
        "evaluations": evaluations[-1] if evaluations else 0,
        "ended_by": ended_by,
        "error": None,
    }
    if status != "done":
        figures = {"error": {"type": status, "message": error or f"it {status}", "traceback": ""}}
        figures["initial_loss"] = start
    return {
        "key": hashlib.sha256(json.dumps([definition, begun]).encode()).hexdigest()[:40],
        "run": definition,
        "status": status,
        "started": float(2 * begun),
        "finished": float(2 * begun + 1),
        "environment": ENVIRONMENT,
        "epochs": columns,
        "attempts": 1,
        "data_sha256": data,
        **figures,
    }


def write(folder, runs):
    runs_folder(folder).mkdir(parents=True)
    for content in runs:
        write_result(folder, content["key"], content)
    return folder
