"""Results folders: one file per run, whole or not at all; frames; merging; and never the results of other code."""

import json
import math
import tarfile

import pytest

from cmalight import bench
from cmalight.bench import plan
from cmalight.bench.models import Machine, Result
from cmalight.bench.store import FolderInUseError, begin, locked
from tests.bench.common import folder_of, result_of, spec


def test_a_result_survives_its_file(tmp_path):
    run = plan(spec())[0]
    result = result_of(run, losses=(1.0, math.inf, 0.25), status="diverged", log="äöü\n")
    folder_of(tmp_path, spec(), [result])
    text = (tmp_path / "runs" / f"{run.key}.json").read_text()
    assert json.loads(text)["points"]["train_loss"] == [1.0, None, 0.25]
    assert Result.model_validate_json(text).model_dump_json() == text


def test_frames_have_a_row_per_run_in_the_specs_order_and_a_row_per_point(tmp_path):
    study = spec(solvers=["sgd", "adam"], seeds=2)
    results = bench.load(folder_of(tmp_path, study))
    assert results.runs[["solver", "seed"]].values.tolist() == [["sgd", 0], ["adam", 0], ["sgd", 1], ["adam", 1]]
    row = results.runs.iloc[0]
    assert (row.problem, row.status, row.epochs, row.work) == ("diabetes 1x5", "done", 2, 3.0)
    assert (row.initial_loss, row.final_loss, row.best_loss, row.budget_epochs) == (1.0, 0.25, 0.25, 2.0)
    assert math.isnan(row.final_accuracy)
    assert (row.error, row.traceback) == (None, None)
    assert results.runs["current"].all()
    assert results.points.groupby("key").size().tolist() == [3, 3, 3, 3]
    assert str(results.points["train_loss"].dtype) == "float64"


def test_an_empty_folder_gives_empty_frames_and_no_folder_is_refused(tmp_path):
    results = bench.load(folder_of(tmp_path / "a", spec(), []))
    assert (len(results.runs), len(results.points)) == (0, 0)
    assert len(results.current().runs) == 0
    with pytest.raises(ValueError, match="is not a results folder"):
        bench.load(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe"])
def test_a_damaged_file_is_named_and_left_out(tmp_path, caplog, content):
    study = spec(solvers=["adam", "sgd"])
    path = folder_of(tmp_path, study) / "runs" / f"{plan(study)[0].key}.json"
    path.with_name("x.json").write_bytes(path.read_bytes())
    path.with_name("y.json").symlink_to("nowhere")
    path.write_bytes(content)
    (tmp_path / "specs" / "study.json").write_text("{")
    results = bench.load(tmp_path)
    assert results.runs["solver"].tolist() == ["sgd"]
    for words in (f"{path.name} is damaged", "another one than its name says", "y.json cannot be", "study.json is"):
        assert words in caplog.text


def test_a_loss_beyond_all_bounds_counts_as_not_finite(tmp_path):
    folder_of(tmp_path, spec(), [result_of(run, (1.0, 1e300, 0.5)) for run in plan(spec())])
    points = bench.load(tmp_path).points["train_loss"]
    assert points.isna().tolist() == [False, True, False]


def packed(folder):
    """Write an archive beside the folder, as `tar --xz` does."""
    with tarfile.open(folder.with_name(f"{folder.name}.tar.xz"), "w:xz") as archive:
        archive.add(folder, folder.name)


@pytest.mark.parametrize("place", [slice(0, 500), slice(2, None), slice(0, 0)])
def test_a_damaged_archive_is_one_line(tmp_path, place):
    packed(folder_of(tmp_path / "a", spec(seeds=20)))
    content = (tmp_path / "a.tar.xz").read_bytes()
    (tmp_path / "a.tar.xz").write_bytes(content[place])
    with pytest.raises(ValueError, match=r"a\.tar\.xz is damaged, cut short or no archive of results"):
        bench.load(tmp_path / "a.tar.xz")


def test_results_of_reverted_code_are_current_again(tmp_path):
    """Edit a solver, run, revert: the report shows the runs of the code as it is."""
    mine = tmp_path / "mine.py"

    def run_with(lr):
        mine.write_text(f"import torch\ndef make(params):\n    return torch.optim.SGD(params, lr={lr})\n")
        study = spec(solvers=[f"{mine}:make"])
        folder_of(tmp_path / "out", study, [result_of(run, (1.0, lr)) for run in plan(study)])

    run_with(0.1)
    run_with(0.2)
    assert len(bench.load(tmp_path / "out").runs) == 2
    assert bench.load(tmp_path / "out").current().runs["final_loss"].tolist() == [0.2]
    mine.write_text(mine.read_text().replace("0.2", "0.1"))
    results = bench.load(tmp_path / "out").current()
    assert results.runs["final_loss"].tolist() == [0.1]
    assert results.points["train_loss"].tolist() == [1.0, 0.1]


def test_results_of_other_code_are_recorded_and_not_current(tmp_path, monkeypatch):
    study = spec(solvers=["adam", "sgd"])
    folder_of(tmp_path, study, [result_of(plan(study)[0])])
    monkeypatch.setattr("cmalight.bench.spec.code_digest", lambda *_, **__: "another commit")
    current, recorded = bench.load(tmp_path).current(), bench.load(tmp_path).recorded()
    assert [len(one.runs) for one in (current, recorded)] == [0, 1]
    assert [one.missing["solver"].tolist() for one in (current, recorded)] == [["adam", "sgd"], ["sgd"]]


def test_results_on_a_file_that_is_gone_are_not_current(tmp_path):
    data = tmp_path / "mine.csv"
    data.write_text("x,y\n1,2\n3,4\n5,6\n7,8\n")
    study = spec(datasets=[f"{data}:target=y"])
    folder_of(tmp_path / "out", study)
    data.unlink()
    results = bench.load(tmp_path / "out")
    assert (len(results.runs), len(results.current().runs)) == (1, 0)
    assert "No such file" in results.missing["reason"].item()


def test_labels_are_those_of_the_spec_as_it_is_now(tmp_path):
    folder_of(tmp_path, spec())
    renamed = spec(solvers=[{"solver": "adam", "name": "Adam, plain"}])
    assert bench.load(tmp_path, renamed).current().runs["solver"].tolist() == ["Adam, plain"]


def test_one_problem_with_two_budgets_is_two_problems(tmp_path):
    folder_of(tmp_path, spec(name="short"))
    folder_of(tmp_path, spec(name="long", epochs=3))
    labels = bench.load(tmp_path).runs["problem"]
    assert sorted(labels) == ["diabetes 1x5 budget_epochs=2", "diabetes 1x5 budget_epochs=3"]


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"workers": 2}, "shared their machine"),
        ({"machine": Machine(host="there", cores=2, load=5.0, versions={"torch": "2"})}, "more work than cores"),
        ({"machine": Machine(host="there", cores=2, load=0.1, versions={"torch": "3"})}, "different machines"),
        ({"status": "crashed"}, "1 of 2 runs have no final loss"),
        ({"data_sha256": "b" * 64}, "1 of 1 problems have results on different data"),
        ({"data_sha256": "a" * 64}, ""),
    ],
)
def test_notes_say_what_belongs_beside_a_comparison(tmp_path, changes, note):
    study = spec(solvers=["adam", "sgd"])
    first, second = plan(study)
    folder_of(tmp_path, study, [result_of(first, data_sha256="a" * 64), result_of(second, **changes)])
    notes = bench.load(tmp_path).notes
    assert any(note in one for one in notes) if note else notes == []


def test_a_start_without_a_result_of_every_solver_is_noted(tmp_path):
    study = spec(solvers=["adam", "sgd"], seeds=2)
    folder_of(tmp_path, study, map(result_of, plan(study)[1:]))
    assert "1 of 2 starts lack a result of one of the solvers" in bench.load(tmp_path).notes[0]


def test_status_counts_the_runs_of_the_last_calls_and_a_failed_one_has_no_final_loss(tmp_path):
    study = spec(solvers=["adam", "sgd", "ig"])
    first, second, _ = plan(study)
    folder_of(tmp_path, study, [result_of(first), result_of(second, status="failed", error="KeyError: 'momentum'")])
    row = bench.load(tmp_path).runs.iloc[1]
    assert (row.status, row.error, math.isnan(row.final_loss)) == ("failed", "KeyError: 'momentum'", True)
    assert bench.status(tmp_path) == {"done": 1, "failed": 1, "left": 1}
    begin(tmp_path, spec(), [first.key])
    assert bench.status(tmp_path) == {"done": 1, "left": 0, "others": 1}


def test_merging_joins_folders_and_archives_and_keeps_a_finished_result(tmp_path):
    study = spec(solvers=["adam", "sgd"])
    first, second = plan(study)
    folder_of(tmp_path / "a", study, [result_of(first, status="crashed")])
    folder_of(tmp_path / "b", study, [result_of(first), result_of(second)])
    packed(tmp_path / "b")
    assert bench.merge([tmp_path / "a", tmp_path / "b.tar.xz"], tmp_path / "out") == 2
    assert bench.load(tmp_path / "out").current().runs["status"].tolist() == ["done", "done"]
    assert bench.load(tmp_path / "b.tar.xz").current().runs["status"].tolist() == ["done", "done"]
    with pytest.raises(ValueError, match="merge into a folder, and pack that with tar"):
        bench.merge([tmp_path / "out"], tmp_path / "all.tar.xz")


def test_a_folder_has_one_driver_and_what_a_killed_one_was_writing_goes(tmp_path):
    folder_of(tmp_path, spec(), [])
    (tmp_path / "runs" / ".half.json.0a1b.tmp").write_text("{")
    before = (tmp_path / "specs" / "study.json").read_text()
    with locked(tmp_path), pytest.raises(FolderInUseError, match="another `bench run` or `merge` uses"):
        assert list((tmp_path / "runs").iterdir()) == []
        bench.run(spec(epochs=3), tmp_path)
    assert (tmp_path / "specs" / "study.json").read_text() == before  # of the study at work
