"""Small specs, and the command as a process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import cmalight
from cmalight.bench.spec.study import spec_from_plain

ROOT = Path(__file__).parents[2]
# For processes: the tests' own solvers are found, and the package where this process found it.
_PATHS = [str(ROOT), str(Path(cmalight.__file__).parents[1])]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(_PATHS), "OMP_NUM_THREADS": "1"}
# What differs between two runs of the same definition, whatever was done right.
TIMES = ("started", "finished", "seconds", "compile_seconds", "environment", "attempts")


def spec(**changes):
    plain = {
        "datasets": ["diabetes"],
        "networks": ["1x5"],
        "solvers": ["adam"],
        "seeds": 1,
        "max_epochs": 2,
        **changes,
    }
    return spec_from_plain(plain, origin="test")


def toml(path, **changes):
    """The same spec as a file."""
    lines = []
    for key, value in spec(**changes).to_plain().items():
        if value is not None and key not in ("networks", "solvers"):
            lines.append(f"{key} = {json.dumps(value)}")
    for kind in ("networks", "solvers"):
        for entry in getattr(spec(**changes), kind):
            lines += [f"[[{kind}]]", f'{kind[:-1]} = "{getattr(entry, kind[:-1])}"', f'name = "{entry.name}"']
            lines += [f"options.{option} = {json.dumps(value)}" for option, value in entry.options.items()]
    path.write_text("\n".join(lines))
    return path


def own_data(folder, target=lambda i: 2 * i, **more):
    """mine.toml, a data set of one's own, and mine.csv beside it."""
    folder.mkdir(exist_ok=True)
    lines = {"file": "mine.csv", "target": "y", "task": "regression", **more}
    (folder / "mine.toml").write_text("[dataset]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in lines.items()))
    text = "x,y\n" + "".join(f"{i},{target(i)}\n" for i in range(20))
    (folder / "mine.csv").write_text(text)
    return str(folder / "mine.toml")


def start(*arguments, **options):
    """`cmalight bench ...` as a process."""
    environment = {**ENVIRONMENT, **options.pop("env", {})}
    return subprocess.Popen(
        [sys.executable, "-m", "cmalight", "bench", *map(str, arguments)],
        env=environment,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options},
    )


def finished(process):
    with process:
        stdout, stderr = process.communicate(timeout=600)
    return process.returncode, stdout, stderr


def trainers(pid):
    """The processes that train for the driver `pid`."""
    return [child for parent in nurseries(pid) for child in _children(parent, "bench/running/")]


def nurseries(pid):
    """The processes that those are forked from."""
    return _children(pid, "bench/running/nursery.py")


def _children(pid, command):
    done = subprocess.run(["pgrep", "-P", str(pid), "-f", command], capture_output=True, text=True)
    return [int(line) for line in done.stdout.split()]


def has_ended(pid):
    """Whether a process is gone, or a zombie that nobody has asked about yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def contents(folder):
    """The results of a folder by key, times aside."""
    found = {}
    for path in sorted((Path(folder) / "runs").glob("*.json")):
        content = json.loads(path.read_text())["content"]
        content = {key: value for key, value in content.items() if key not in TIMES}
        content["epochs"] = {key: value for key, value in content["epochs"].items() if key != "seconds"}
        found[path.stem] = content
    return found
