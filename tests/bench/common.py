"""Small specs, and the command as a process."""

import json
import os
import subprocess
import sys
from pathlib import Path

from cmalight.bench.spec import spec_from_plain

ROOT = Path(__file__).parents[2]
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
    path.write_text("\n".join(lines))
    return path


def start(*arguments, **options):
    """`cmalight bench ...` as a process."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **options.pop("env", {})}
    return subprocess.Popen(
        [sys.executable, "-m", "cmalight", "bench", *map(str, arguments)],
        env=environment,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options},
    )


def finished(process, timeout=240):
    with process:
        stdout, stderr = process.communicate(timeout=timeout)
    return process.returncode, stdout, stderr


def contents(folder):
    """The results of a folder by key, times aside."""
    found = {}
    for path in sorted((Path(folder) / "runs").glob("*.json")):
        content = json.loads(path.read_text())["content"]
        content = {key: value for key, value in content.items() if key not in TIMES}
        content["epochs"] = {key: value for key, value in content["epochs"].items() if key != "seconds"}
        found[path.stem] = content
    return found
