"""Any data file, archive, description, cache or answer of a server gives data, or an error that names the file.

`CMALIGHT_FUZZ_CASES=N` tries N cases of each kind, `CMALIGHT_FUZZ_SEED=S` other ones.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
KINDS = ("csv", "npz", "parquet", "wrapped", "archive", "bomb", "toml", "cache", "http")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process as Linux does")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """By kind, in one process that cannot take much memory; a crash leaves out what comes after it."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.data_files", str(tmp_path_factory.mktemp("fuzz")), *KINDS],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"},
    )
    found = {said["kind"]: said for said in map(json.loads, done.stdout.splitlines())}
    return {"crash": done.stderr.splitlines()[-12:] if done.returncode else None, **found}


@pytest.mark.parametrize("kind", KINDS)
def test_every_case_gives_data_or_an_error_that_names_the_file(outcome: dict[str, Any], kind: str) -> None:
    assert kind in outcome, f"the process ended before: {outcome['crash']}"
    said = outcome[kind]
    assert said["wrong"] == []
    assert said["good"] + said["refused"] == said["tried"] > 0
    assert said["refused"] > 0 or kind == "cache"
    assert said["good"] > 0 or kind == "bomb"
