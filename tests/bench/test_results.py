"""Files that are whole or not there, verified when read, and turned into frames."""

import json
import os
import tarfile

import pandas
import pytest

from cmalight.bench import MergeError, ResultError, load, merge, plan, status
from cmalight.bench.running.one_run import Job, train, without_figures
from cmalight.bench.store.frames import only
from cmalight.bench.store.results import (
    LaterVersionError,
    read_result,
    remove_leftovers,
    result_path,
    runs_folder,
    set_aside,
    write_document,
    write_result,
)
from cmalight.bench.store.schema import COLUMNS
from tests.bench.common import own_data, spec
from tests.bench.synthetic import run, write

FAILED = {"status": "failed", "error": {"type": "ValueError", "message": "no", "traceback": ""}}


@pytest.fixture
def folder(tmp_path):
    runs_folder(tmp_path).mkdir()
    return tmp_path


def result(seed=0, solver="adam", **changes):
    """A made-up result of a real definition."""
    (run,) = plan(spec(seeds=[seed], solvers=[solver]))
    columns = {name: [1.0, 0.5] for name in COLUMNS}
    columns |= {"epoch": [0, 1], "evaluations": [0, 0], "outcome": ["a", "b"], "test_loss": [None, None]}
    content = {
        "key": run.key,
        "run": run.definition.to_plain(),
        "status": "done",
        "ended_by": "max_epochs",
        "error": None,
        "started": 100.0 + seed,
        "finished": 101.5 + seed,
        "seconds": 1.0,
        "initial_loss": 2.0,
        "final_loss": 0.75,
        "evaluations": 0,
        "epochs": columns,
        "environment": {"host": "here", "cpu": "x", "cores": 2, "load": 0.1, "versions": {"torch": "2"}},
        "data_sha256": "d",
        **changes,
    }
    return run.key, content


def written(folder, **changes):
    key, content = result(**changes)
    return write_result(folder, key, content)


def test_a_result_comes_back_as_it_went(folder):
    key, content = result()
    path = write_result(folder, key, content)
    assert path == result_path(folder, key)
    assert read_result(path) == content
    assert [p.name for p in runs_folder(folder).iterdir()] == [f"{key}.json"]


def test_a_number_that_is_not_finite_becomes_null(folder):
    path = written(folder, evaluations=float("inf"))
    assert read_result(path)["evaluations"] is None
    assert "Infinity" not in path.read_text()


@pytest.mark.parametrize("keep", [0, 1, 20, -30, -3])
def test_a_file_that_was_cut_off_is_damaged(folder, keep):
    path = written(folder)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ResultError, match="damaged"):
        read_result(path)


def test_a_changed_digit_is_noticed(folder):
    path = written(folder)
    path.write_text(path.read_text().replace("0.75", "0.25"))
    with pytest.raises(ResultError, match="checksum"):
        read_result(path)


@pytest.mark.parametrize("text", ["[]", "3", '{"format": "other"}', "[" * 100_000, "\x00"])
def test_what_is_no_result_is_refused(folder, text):
    path = written(folder)
    path.write_text(text)
    with pytest.raises(ResultError):
        read_result(path)


def test_a_file_under_a_wrong_name_is_not_trusted(folder):
    path = written(folder)
    other = path.with_name("0" * 40 + ".json")
    path.rename(other)
    with pytest.raises(ResultError, match="another run"):
        read_result(other)


def test_a_file_that_a_tool_laid_out_anew_is_still_good(folder):
    path = written(folder)
    path.write_text(json.dumps(json.loads(path.read_text()), indent=2))
    assert read_result(path)["final_loss"] == 0.75


def test_a_later_version_is_refused_with_advice(folder):
    path = written(folder)
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(LaterVersionError, match="update cmalight"):
        read_result(path)
    with pytest.raises(LaterVersionError):
        load(folder)


def test_a_write_that_fails_leaves_what_was_there(folder, monkeypatch):
    path = written(folder)
    before = path.read_bytes()
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        written(folder)
    assert path.read_bytes() == before
    assert list(runs_folder(folder).iterdir()) == [path]


def test_leftovers_of_a_killed_driver_go_and_results_stay(folder):
    path = written(folder)
    (runs_folder(folder) / ".x.json.123.tmp").write_text("half")
    remove_leftovers(folder)
    assert list(runs_folder(folder).iterdir()) == [path]


def test_damaged_files_are_set_aside_under_names_of_their_own(folder):
    places = set()
    for _ in range(2):
        places.add(set_aside(written(folder)))
    assert len(places) == 2
    assert all(place.parent == folder / "damaged" for place in places)


def test_a_folder_in_the_place_of_a_file_is_named_and_left_out(folder, caplog):
    written(folder)
    (runs_folder(folder) / "x.json").mkdir()
    assert len(load(folder).runs) == 1
    assert "x.json is damaged: it is a folder" in caplog.text


def test_frames_have_numbers_in_columns_of_numbers(folder):
    written(folder)  # no time limit, no test part, no number of attempts
    runs = load(folder).runs
    numbers = ["time_limit", "final_test_loss", "attempts", "concurrency", "max_epochs", "seed", "cores", "best_loss"]
    assert all(pandas.api.types.is_numeric_dtype(runs[name]) for name in numbers)
    assert runs["time_limit"].isna().all()
    assert (runs["version_torch"][0], runs["version_schedulefree"][0]) == ("2", None)


def test_results_say_when_versions_differ(folder):
    place = {"host": "here", "cpu": "x", "cores": 2, "load": 0.1}
    for seed, version in ((0, "2.6"), (10, "2.7")):
        written(folder, seed=seed, environment={**place, "versions": {"torch": version}})
    assert load(folder).notes == ["the runs are of different versions of torch (2.6, 2.7): compare them with care"]


def test_results_say_when_one_name_stands_for_different_data(folder):
    for seed, digest in ((0, "d"), (10, "e")):
        written(folder, seed=seed, data_sha256=digest)
    (note,) = load(folder).notes
    assert "the runs of diabetes are on different data" in note


def test_frames_have_a_row_a_run_and_a_row_an_epoch(folder):
    for seed in range(3):
        written(folder, seed=seed)
    runs, epochs = load(folder)
    assert (len(runs), len(epochs)) == (3, 6)
    assert sorted(runs["seed"]) == [0, 1, 2]
    assert set(runs["best_loss"]) == {0.5}
    assert list(epochs.columns) == ["key", *COLUMNS]
    joined = epochs.merge(runs[["key", "seed", "solver"]], on="key")
    assert len(joined) == 6
    assert epochs["test_loss"].isna().all()


def test_an_empty_folder_gives_empty_frames(folder):
    runs, epochs = load(folder)
    assert (len(runs), len(epochs)) == (0, 0)
    assert "final_loss" in runs
    assert "train_loss" in epochs


def test_a_folder_without_results_is_refused(tmp_path):
    with pytest.raises(ResultError, match="not a results folder"):
        load(tmp_path)


def test_a_failed_run_has_no_figures_in_the_frame(folder):
    (run,) = plan(spec())
    write_result(folder, run.key, without_figures(Job(run), "crashed", "it was killed"))
    runs = load(folder).runs
    assert (runs["status"][0], runs["error"][0]) == ("crashed", "it was killed")
    assert runs[["final_loss", "best_loss", "seconds"]].isna().all(axis=None)


def test_a_damaged_file_is_named_and_left_out(folder, caplog):
    written(folder)
    bad = written(folder, seed=1)
    bad.write_text("{")
    assert len(load(folder).runs) == 1
    assert str(bad) in caplog.text


def test_results_say_when_runs_shared_a_machine(folder):
    for seed in range(2):  # 100.0 to 101.5 and 101.0 to 102.5
        written(folder, seed=seed)
    results = load(folder)
    assert list(results.runs["neighbours"]) == [1, 1]
    assert any("2 of 2 runs shared their machine" in note for note in results.notes)


def test_runs_that_had_the_machine_to_themselves_need_no_note(folder):
    for seed in (0, 10):
        written(folder, seed=seed)
    results = load(folder)
    assert list(results.runs["neighbours"]) == [0, 0]
    assert results.notes == []


def test_results_say_when_solvers_ran_on_different_machines(folder):
    written(folder)
    elsewhere = {"host": "there", "cpu": "y", "cores": 2, "load": 5.0, "versions": {}}
    written(folder, solver="sgd", environment=elsewhere)
    notes = " ".join(load(folder).notes)
    assert "different machines" in notes
    assert "different processors" in notes
    assert "more work than cores" in notes


def test_merging_joins_and_keeps_equal_results_once(tmp_path):
    for name, seeds in (("a", (0, 1)), ("b", (1, 2))):
        runs_folder(tmp_path / name).mkdir(parents=True)
        for seed in seeds:
            written(tmp_path / name, seed=seed)
    assert merge([tmp_path / "a", tmp_path / "b"], tmp_path / "out") == 3
    assert sorted(load(tmp_path / "out").runs["seed"]) == [0, 1, 2]
    assert merge([tmp_path / "a"], tmp_path / "out") == 3


def two_folders(tmp_path, *results):
    """Folders a and b with a result each."""
    for name, changes in zip(("a", "b"), results, strict=True):
        runs_folder(tmp_path / name).mkdir(parents=True)
        written(tmp_path / name, **changes)
    return [tmp_path / "a", tmp_path / "b"]


@pytest.mark.parametrize("changes", [{"final_loss": 0.1}, FAILED, {"evaluations": 3}])
def test_merging_refuses_two_results_of_one_run_and_leaves_nothing_behind(tmp_path, changes):
    folders = two_folders(tmp_path, {}, changes)
    with pytest.raises(MergeError, match="different results of one run"):
        merge(folders, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("changes", [{"seconds": 3.0}, {"started": 5.0, "attempts": 2}, {"environment": {"host": "x"}}])
def test_merging_takes_the_first_of_two_results_that_differ_in_times_alone(tmp_path, changes):
    assert merge(two_folders(tmp_path, {}, changes), tmp_path / "out") == 1
    assert load(tmp_path / "out").runs["seconds"][0] == 1.0


def test_merging_into_results_that_contradict_keeps_these(tmp_path):
    ours, theirs = two_folders(tmp_path, {}, {"final_loss": 0.1})
    before = {path: path.read_bytes() for path in runs_folder(ours).iterdir()}
    with pytest.raises(MergeError):
        merge([theirs], ours)
    assert {path: path.read_bytes() for path in runs_folder(ours).iterdir()} == before


def test_merging_names_every_contradiction(tmp_path):
    folders = two_folders(tmp_path, {}, {"final_loss": 0.1})
    for seed in range(1, 13):
        for folder, loss in zip(folders, (0.2, 0.3), strict=True):
            written(folder, seed=seed, final_loss=loss)
    with pytest.raises(MergeError) as refused:
        merge(folders, tmp_path / "out")
    assert str(refused.value).count("are different results") == 10
    assert "and 3 more" in str(refused.value)


def test_merging_refuses_results_on_different_data(tmp_path):
    folders = two_folders(tmp_path, {"seed": 1}, {"seed": 2, "data_sha256": "e"})
    with pytest.raises(MergeError, match="different data, though both call it diabetes"):
        merge(folders, tmp_path / "out")


def test_merging_refuses_two_data_sets_of_ones_own_under_one_name(tmp_path):
    folders = []
    for name, power in (("a", 1), ("b", 2)):
        (run,) = plan(spec(datasets=[own_data(tmp_path / name, lambda i: i**power)]))  # noqa: B023
        folders.append(tmp_path / name / "out")
        runs_folder(folders[-1]).mkdir(parents=True)
        write_result(folders[-1], run.key, train(Job(run), lambda told: None))
    with pytest.raises(MergeError, match="different data, though both call it mine"):
        merge(folders, tmp_path / "out")


def test_merging_leaves_damaged_files_out_and_names_them(tmp_path, caplog):
    runs_folder(tmp_path / "a").mkdir(parents=True)
    written(tmp_path / "a").write_text("{")
    assert merge([tmp_path / "a"], tmp_path / "out") == 0
    assert "damaged" in caplog.text


LOSSES = [0.123456789012, 0.0987654321098]
SHORT = [0.1234568, 0.09876543]


def test_a_rounded_archive_has_fewer_digits_and_the_same_figures_of_runs(tmp_path):
    runs = [
        run("adam", LOSSES, seconds=[0.00123456789, 1.23456789]),
        run("cmalight", LOSSES, outcomes=["accepted", "rejected_early"], seconds=[0.00123456789, 1.23456789]),
        run("adam", [], status="diverged", seed=1),
    ]
    whole = load(write(tmp_path / "a", runs))
    assert merge([tmp_path / "a"], tmp_path / "b.tar.xz", rounded=True) == 3
    less = load(tmp_path / "b.tar.xz")
    pandas.testing.assert_frame_equal(
        less.runs.drop(columns="best_loss"), whole.runs.drop(columns="best_loss"), check_exact=True
    )
    by_solver = less.epochs.merge(less.runs[["key", "solver"]], on="key").groupby("solver")
    assert by_solver["train_loss"].agg(list).to_dict() == {"adam": SHORT, "cmalight": LOSSES}  # judged: all digits
    assert by_solver["seconds"].agg(list).tolist() == [[0.00123457, 1.23457]] * 2


def test_rounding_twice_gives_the_same_bytes(tmp_path):
    write(tmp_path / "a", [run("adam", LOSSES), run("cma", LOSSES, outcomes=["accepted"] * 2)])
    merge([tmp_path / "a"], tmp_path / "b.tar.xz", rounded=True)
    merge([tmp_path / "b.tar.xz"], tmp_path / "c.tar.xz", rounded=True)
    assert (tmp_path / "b.tar.xz").read_bytes() == (tmp_path / "c.tar.xz").read_bytes()


@pytest.mark.parametrize("order", [("a", "b.tar.xz"), ("b.tar.xz", "a")])
def test_a_rounded_result_agrees_with_the_one_it_was_made_of_and_the_first_is_kept(tmp_path, order):
    write(tmp_path / "a", [run("adam", LOSSES)])
    merge([tmp_path / "a"], tmp_path / "b.tar.xz", rounded=True)
    assert merge([tmp_path / name for name in order], tmp_path / "out") == 1
    assert list(load(tmp_path / "out").epochs["train_loss"]) == (LOSSES if order[0] == "a" else SHORT)


def test_a_rounded_result_contradicts_another_one_of_its_run(tmp_path):
    one = run("adam", LOSSES)
    write(tmp_path / "a", [one])
    one["epochs"]["train_loss"] = [0.123456, 0.09876543]
    write(tmp_path / "b", [one])
    merge([tmp_path / "b"], tmp_path / "b.tar.xz", rounded=True)
    with pytest.raises(MergeError, match="different results of one run"):
        merge([tmp_path / "a", tmp_path / "b.tar.xz"], tmp_path / "out")


def test_exact_results_that_differ_in_the_last_digit_still_contradict_each_other(tmp_path):
    one = run("adam", LOSSES)
    write(tmp_path / "a", [one])
    one["epochs"]["train_loss"] = [LOSSES[0] + 1e-12, LOSSES[1]]
    write(tmp_path / "b", [one])
    with pytest.raises(MergeError, match="different results of one run"):
        merge([tmp_path / "a", tmp_path / "b"], tmp_path / "out")


def test_a_folder_is_not_rounded(tmp_path):
    write(tmp_path / "a", [run("adam", LOSSES)])
    with pytest.raises(ValueError, match="out is not the name of an archive"):
        merge([tmp_path / "a"], tmp_path / "out", rounded=True)
    assert not (tmp_path / "out").exists()


def test_a_real_result_survives_the_file(folder):
    (run,) = plan(spec())
    content = train(Job(run), lambda told: None)
    assert read_result(write_result(folder, run.key, content))["final_loss"] == content["final_loss"]


def test_runs_of_a_changed_spec_can_be_told_apart():
    from cmalight.bench.store.frames import _notes, _row

    def content(lr):
        solver = {"solver": "adam", "name": "adam", "options": {"lr": lr}}
        run = {"dataset": "wine", "network": {"name": "1x50"}, "seed": 0, "solver": solver}
        return {"key": str(lr), "status": "failed", "run": run, "environment": {}, "epochs": {}}

    runs = pandas.DataFrame([{**_row(content(lr)), "neighbours": 0} for lr in (0.1, 0.01)])
    assert list(runs["solver_options"]) == ['{"lr": 0.1}', '{"lr": 0.01}']
    assert any("2 runs share data set, network, seed and solver" in note for note in _notes(runs))


def changed_content(path, change):
    """The same file with other contents under a seal that fits them."""
    content = json.loads(path.read_text())["content"]
    change(content)
    write_document(path, "cmalight-run", 1, content)


def put(place, value):
    *way, last = place

    def change(content):
        for step in way:
            content = content[step]
        content[last] = value

    return change


WRONG_CONTENTS = [
    (["status"], 3),
    (["status"], "splendid"),
    (["status"], "failed"),
    (["started"], "yesterday"),
    (["finished"], None),
    (["final_loss"], None),
    (["final_loss"], "low"),
    (["seconds"], [1]),
    (["run"], []),
    (["run", "solver"], "adam"),
    (["run", "solver", "name"], None),
    (["run", "seed"], "0"),
    (["run", "seed"], -1),
    (["run", "split_seed"], {}),
    (["run", "batch_size"], 0),
    (["run", "network"], None),
    (["environment"], 7),
    (["environment", "versions"], "2"),
    (["environment", "cores"], 10**400),
    (["epochs"], 3),
    (["epochs", "epoch"], [0]),
    (["epochs", "train_loss"], ["a", "b"]),
    (["epochs", "evaluations"], [0, 10**400]),
    (["error"], "bad"),
    (["data_sha256"], 5),
    (["key"], "another"),
]


@pytest.mark.parametrize(("place", "value"), WRONG_CONTENTS)
def test_wrong_contents_under_a_good_seal_are_named_and_left_out(folder, caplog, place, value):
    written(folder)
    bad = written(folder, seed=1)
    changed_content(bad, put(place, value))
    runs, epochs = load(folder)
    assert (len(runs), len(epochs)) == (1, 2)
    assert f"{bad} is damaged" in caplog.text
    (named,) = status(folder).damaged
    assert str(bad) in named


def test_a_link_to_what_is_not_there_is_named_and_left_out(folder, caplog):
    written(folder)
    dangling = runs_folder(folder) / f"{'0' * 40}.json"
    dangling.symlink_to(folder / "gone.json")
    assert len(load(folder).runs) == 1
    assert f"{dangling} is damaged: it is a link to what is not there" in caplog.text
    assert str(set_aside(dangling)).endswith("0000.0.json")
    assert not dangling.is_symlink()


@pytest.mark.parametrize("content", [{}, {"calls": 3}, {"calls": [{"spec": 1, "keys": [], "workers": 1}]}])
def test_wrong_calls_under_a_good_seal_are_a_warning(folder, caplog, content):
    written(folder)
    write_document(folder / "spec.json", "cmalight-bench-spec", 1, content)
    assert status(folder).left is None
    assert "spec.json cannot be used" in caplog.text


def test_merging_clears_what_a_killed_process_left(tmp_path):
    for name in ("a", "out"):
        runs_folder(tmp_path / name).mkdir(parents=True)
    written(tmp_path / "a")
    left = runs_folder(tmp_path / "out") / ".x.json.1.tmp"
    left.write_text("{")
    merge([tmp_path / "a"], tmp_path / "out")
    assert not left.exists()


def test_an_archive_holds_what_the_folders_hold(tmp_path):
    write(tmp_path / "a", [run("adam", [0.5, 0.2]), run("cma", [0.4], evaluations=[3])])
    write(tmp_path / "b", [run("adam", [0.3], seed=1)])
    archive = tmp_path / "published.tar.xz"
    assert merge([tmp_path / "a", tmp_path / "b"], archive) == 3
    assert merge([tmp_path / "a", tmp_path / "b"], tmp_path / "whole") == 3
    for ours, theirs in zip(load(archive), load(tmp_path / "whole"), strict=True):
        assert ours.equals(theirs)
    first = archive.read_bytes()
    assert merge([archive], tmp_path / "again.tar.xz") == 3
    assert (tmp_path / "again.tar.xz").read_bytes() == first


@pytest.mark.parametrize(
    ("member", "message"),
    [("../evil", "do not trust it"), ("runs/evil.py", "do not trust it"), (None, "damaged, or not an archive")],
)
def test_an_archive_of_something_else_is_refused(tmp_path, member, message):
    path = tmp_path / "x.tar.xz"
    if member is None:
        path.write_bytes(b"nothing of the kind")
    else:
        with tarfile.open(path, "w:xz") as packed:
            packed.addfile(tarfile.TarInfo(member))
    with pytest.raises(ResultError, match=message):
        load(path)


def test_an_archive_larger_than_the_limit_is_refused(tmp_path, monkeypatch):
    write(tmp_path / "a", [run("adam", [0.5, 0.2])])
    merge([tmp_path / "a"], tmp_path / "a.tar.xz")
    monkeypatch.setenv("CMALIGHT_MAX_BYTES", "100")
    with pytest.raises(ResultError, match="CMALIGHT_MAX_BYTES"):
        load(tmp_path / "a.tar.xz")


def test_a_part_of_the_results_is_what_is_named(tmp_path):
    runs = [run(solver, [0.5], network=network) for solver in ("adam", "cma") for network in ("paper:1x50", "3x20")]
    results = load(write(tmp_path, runs))
    part = only(results, ["1x50", "adam"])
    assert part.runs[["solver", "network"]].to_numpy().tolist() == [["adam", "paper:1x50"]]
    assert set(part.epochs["key"]) == set(part.runs["key"])
    assert only(results, []).runs.equals(results.runs)
    with pytest.raises(ValueError, match="Unknown name in `only` 'adan'; did you mean 'adam'"):
        only(results, ["adan"])
