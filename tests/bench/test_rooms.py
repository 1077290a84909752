"""The rooms of the test-bed: what needs what, and who waits for torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from cmalight import bench
from cmalight.bench.analysis.summaries import ACCEPTED
from cmalight.rules.outcome import Outcome
from tests.bench import synthetic
from tests.bench.common import ENVIRONMENT

HOME = Path(bench.__file__).parent
# What each room may import of the others.
NEEDS = {
    "spec": set(),
    "store": {"spec"},
    "running": {"spec", "store"},
    "analysis": {"spec", "store"},
    "report": {"spec", "store", "analysis"},
}


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("room", NEEDS)
def test_rooms_need_each_other_in_one_direction(room):
    needed = {
        name.split(".")[2]
        for path in (HOME / room).glob("*.py")
        for name in imported(path)
        if name.startswith("cmalight.bench.")
    }
    assert needed <= NEEDS[room] | {room}


@pytest.mark.parametrize(
    "code",
    [
        "import cmalight.bench.store.lock",
        "from cmalight.bench import status, merge, load; status('FOLDER'); load('FOLDER')",
        "from cmalight.cli import command; command(['bench', '--help'], standalone_mode=False)",
        "from cmalight.cli import command; command(['bench', 'status', 'FOLDER'], standalone_mode=False)",
    ],
)
def test_looking_at_a_folder_does_not_wait_for_torch(tmp_path, code):
    folder = synthetic.write(tmp_path / "results", [synthetic.run("adam", [0.5])])
    code = f"import sys\n{code.replace('FOLDER', str(folder))}\nassert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_acceptance_rate_counts_epochs_whose_own_end_the_rule_was_content_with():
    accepted, kept = ({one.name.lower() for one in Outcome if one.text.startswith(w)} for w in ("accepted", "kept"))
    assert set(ACCEPTED) == accepted | kept
    assert all(Outcome[name.upper()].keeps for name in ACCEPTED)


def test_public_names_are_there():
    assert all(getattr(bench, name) is not None for name in bench.__all__)
