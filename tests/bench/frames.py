"""Results made up as frames, with few enough numbers to check what is said of them by hand."""

import numpy as np
import pandas

from cmalight.bench import Results

INF, NAN = float("inf"), float("nan")
CONDITIONS = {
    **dict.fromkeys(("budget_seconds", "budget_batches"), NAN),
    **dict.fromkeys(("threads", "workers", "cores"), 1),
    **dict.fromkeys(("version_cmalight", "version_torch", "version_numpy", "version_python"), "1.0"),
    "budget_epochs": 9.0,
    "batch_size": 128,
    "order": "reshuffle",
    "clock": "wall",
    "engine_used": "eager",
    "host": "here",
    "cpu": "a processor",
    "code": "0123456789abcdef",
}


def run(solver, losses, *, problem="data 1x5", seed=0, status="done", validation=None, accuracy=None, **more):
    """One run: `losses` at the start and after each step; a step is an epoch and takes a second.

    `evaluations` are in passes over the data.
    """
    count = len(losses)
    columns = {
        "step": list(range(count)),
        "epoch": [float(n) for n in range(count)],
        "seconds": more.pop("seconds", [float(n) for n in range(count)]),
        "work": more.pop("work", [float(n) for n in range(count)]),
        "train_loss": losses,
        "validation_loss": validation or [NAN] * count,
        "accuracy": accuracy or [NAN] * count,
        "lr": more.pop("lr", [0.1] * count),
        "evaluated_passes": more.pop("evaluations", [0.0] * count),
    }
    row = {
        "key": f"{problem}/{seed}/{solver}",
        "problem": problem,
        "source": str(problem).partition(" ")[0],
        "group": "",
        "grid": "",
        "solver": solver,
        "seed": seed,
        "status": status,
        "error": None if status == "done" else more.pop("error", f"it {status}"),
        "epochs": count - 1,
        "seconds": columns["seconds"][-1],
        "evaluations": columns["evaluated_passes"][-1],
        "evaluated_passes": columns["evaluated_passes"][-1],
        "final_loss": losses[-1],
        "best_loss": np.fmin.reduce(losses),
        "final_validation_loss": columns["validation_loss"][-1],
        "final_accuracy": columns["accuracy"][-1],
        "accepted": NAN,
        **CONDITIONS,
        **more,
    }
    return row, pandas.DataFrame(columns).assign(key=row["key"])


def results(*made):
    """What `cmalight.bench.load` gives, of these runs."""
    runs = pandas.DataFrame([row for row, _ in made])
    return Results(runs, pandas.concat([points for _, points in made], ignore_index=True))
