"""Small specs, results that nothing was trained for, and the command as a process."""

import os
import subprocess
import sys
from pathlib import Path

import cmalight
from cmalight.bench import Result, plan, read_spec
from cmalight.bench.models import Machine, Points
from cmalight.bench.store import begin, locked, write_result

USER_CODE = Path(__file__).with_name("user_code.py")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(cmalight.__file__).parents[1]), "OMP_NUM_THREADS": "1"}


def spec(**changes):
    """Adam on a small network and 331 rows, two epochs."""
    return read_spec({"datasets": ["diabetes"], "networks": ["1x5"], "solvers": ["adam"], "epochs": 2, **changes})


def result_of(run, losses=(1.0, 0.5, 0.25), **changes):
    """A result that nothing was trained for."""
    count = len(losses)
    points = Points(
        step=list(range(count)),
        epoch=[float(number) for number in range(count)],
        seconds=[float(number) for number in range(count)],
        work=[1.5 * number for number in range(count)],
        train_loss=list(losses),
        lr=[0.1] * count,
        **{name: [None] * count for name in ("validation_loss", "accuracy")},
        **{name: [0] * count for name in ("evaluations", "evaluated_rows")},
    )
    machine = Machine(host="here", cores=2, load=0.1, versions={"torch": "2"})
    facts = {"run": run, "status": "done", "points": points, "epochs": count - 1, "machine": machine}
    return Result(**{**facts, **changes})


def folder_of(path, study, results=None):
    """A results folder of the study with these results; by default one for each run."""
    runs = plan(study)
    with locked(path):
        begin(path, study, [run.key for run in runs])
        for result in map(result_of, runs) if results is None else results:
            write_result(path, result)
    return path


def user_code(name):
    """A solver, network, data set or workload of user_code.py."""
    return f"{USER_CODE}:{name}"


def write_toml(path, *lines):
    """The same spec as a file, with further lines."""
    start = ['datasets = ["diabetes"]', 'networks = ["1x5"]', "epochs = 2"]
    path.write_text("\n".join([*start, *lines]))
    return path


def waits(at):
    """The solver, in TOML, that says in the file `at` that it has begun, and waits."""
    return f'{{ solver = "{user_code("Waits")}", options = {{ at = "{at}" }} }}'


def start(*arguments, **options):
    """`cmalight ...` as a process in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "cmalight", *map(str, arguments)],
        env=ENVIRONMENT,
        start_new_session=True,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options},
    )


def finish(process):
    """Exit code, stdout, stderr."""
    with process:
        stdout, stderr = process.communicate(timeout=600)
    return process.returncode, stdout, stderr


def descendants(pid):
    """Processes below `pid` that are not zombies."""
    table = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if state != "Z":
                table.setdefault(int(parent), []).append(int(entry.name))
    found, new = [], [pid]
    while new:
        new = [child for parent in new for child in table.get(parent, ())]
        found += new
    return found


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
