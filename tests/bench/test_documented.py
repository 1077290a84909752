"""The pages on the test-bed name every key, preset and column, and their examples are valid."""

import re
from pathlib import Path

from cmalight import bench
from cmalight.bench.spec import DatasetEntry, NetworkEntry, SolverEntry, Spec, WorkloadEntry
from tests.bench.common import spec

DOCS = Path(__file__).parents[2] / "docs"
GUIDE, SPEC, RESULTS = (
    (DOCS / page).read_text() for page in ("guides/testbed.md", "reference/spec.md", "reference/results.md")
)


def blocks(page, kind):
    return re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL)


def test_every_key_and_preset_is_named():
    keys = {
        key for model in (Spec, DatasetEntry, NetworkEntry, SolverEntry, WorkloadEntry) for key in model.model_fields
    }
    assert [key for key in (*keys, "extends") if f"`{key}`" not in SPEC] == []
    assert [name for name in bench.PRESETS if f"`{name}`" not in GUIDE] == []


def test_every_column_and_status_is_named(tmp_path):
    bench.run(spec(), tmp_path, in_process=True)
    results = bench.load(tmp_path)
    columns = [name for name in (*results.runs, *results.points) if not name.startswith("version_")]
    assert [name for name in columns if f"`{name}`" not in RESULTS] == []
    for status in ("done", "diverged", "failed", "crashed", "timed_out"):
        assert f"`{status}`" in RESULTS


def test_the_examples_of_the_guide_are_valid(tmp_path):
    (tmp_path / "houses.csv").write_text("size,price\n" + "".join(f"{i},{2 * i}\n" for i in range(40)))
    (tmp_path / "mine.toml").write_text(blocks(GUIDE, "toml")[0])
    (tmp_path / "mine.py").write_text(blocks(GUIDE, "python")[0])
    study = bench.read_spec(tmp_path / "mine.toml", ["epochs = 1", "seeds = 1", 'networks = ["1x50"]'])
    assert bench.run(study, tmp_path / "results", in_process=True).statuses == {"done": 10}


def test_the_example_of_the_results_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bench.run(spec(), "results", in_process=True)
    names = {}
    exec(blocks(RESULTS, "python")[0], names)
    assert len(names["now"].runs) == 1
