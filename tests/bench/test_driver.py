"""What a run's executor may do to the driver, and what the driver makes of it."""

import os
import sys
import types
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest
import torch

from cmalight import bench
from cmalight.bench.running import executors, runner, supervise
from cmalight.bench.running.executors import Backend
from cmalight.bench.running.one_run import Job, train
from cmalight.bench.store.folder_status import add_call, read_calls
from cmalight.bench.store.results import read_result, result_path, runs_folder, write_result
from cmalight.bench.store.schema import DriverCall
from cmalight.cli.bench import summary_text
from tests.bench.common import contents, own_data, spec
from tests.helpers import wait_for


def trained(job, report):
    return train(job, report)


@pytest.fixture
def working(monkeypatch):
    """Runs are executed by a function in a thread of this process."""

    def install(work):
        monkeypatch.setattr(executors, "execute", work)

    return install


def test_an_error_of_a_worker_stops_the_driver_with_advice_and_is_no_result(tmp_path, working):
    def fails(job, report):
        raise ModuleNotFoundError("No module named 'cmalight'")

    working(fails)
    with pytest.raises(RuntimeError, match=r"No module named 'cmalight'.*the same versions.*the same command goes on"):
        bench.run(spec(), tmp_path, workers=1)
    assert contents(tmp_path) == {}


class LostWorker(Exception):
    pass


def test_a_lost_worker_is_tried_once_more_and_then_recorded(tmp_path, monkeypatch):
    calls = []

    def loses(job, report):
        calls.append(job.key)
        raise LostWorker("gone")

    with ThreadPoolExecutor(1) as pool:
        backend = Backend(pool, loses, print, None, on_one_machine=False, lost_worker=(LostWorker,))
        monkeypatch.setattr(runner, "opened", lambda *_, **__: nullcontext(backend))
        assert bench.run(spec(), tmp_path).recorded == {"crashed": 1}
    assert len(calls) == 2


def test_the_result_of_another_run_is_refused(tmp_path, working):
    working(lambda job, report: {**trained(job, report), "key": "0" * 40})
    with pytest.raises(RuntimeError, match="with the result of another run"):
        bench.run(spec(), tmp_path, workers=1)
    assert contents(tmp_path) == {}


def test_what_is_finished_when_the_driver_is_stopped_is_kept(tmp_path, working, monkeypatch):
    begun = []

    class Stops:
        def recorded(self, *_): ...

        def close(self): ...

        def tick(self, view):
            wait_for(lambda: len(begun) == 4)  # the thread that they share has ended the other three
            raise KeyboardInterrupt

    def work(job, report):
        begun.append(job.key)
        if len(begun) == 4:
            raise RuntimeError("this one does not end well")
        return {**quick, "key": job.key, "run": job.definition.to_plain()}

    quick = {"status": "done", "started": 0, "finished": 1, "environment": {}, "epochs": {}, "error": None}
    working(work)
    monkeypatch.setattr(runner, "make_display", lambda progress: Stops())
    with pytest.raises(KeyboardInterrupt):
        bench.run(spec(solvers=["adam", "sgd", "ig", "cma"]), tmp_path, workers=1)
    assert len(contents(tmp_path)) == 3


def test_the_first_result_decides_which_data_is_meant(tmp_path, working, caplog):
    working(lambda job, report: {**trained(job, report), "data_sha256": job.definition.solver.name})
    summary = bench.run(spec(solvers=["adam", "sgd"]), tmp_path, workers=1)
    assert (summary.recorded, list(summary.left_out)) == ({"done": 1}, ["data set diabetes"])
    assert "is not the data that the results in the folder are of" in caplog.text


def test_data_other_than_that_of_the_results_is_not_trained_on(tmp_path, working):
    """A file without a known checksum may have been replaced since."""
    working(trained)
    bench.run(spec(), tmp_path, workers=1)
    (run,) = bench.plan(spec())
    content = read_result(result_path(tmp_path, run.key))
    write_result(tmp_path, run.key, {**content, "data_sha256": "another"})
    summary = bench.run(spec(solvers=["sgd"]), tmp_path, workers=1)
    assert (summary.recorded, summary.is_complete) == ({}, False)
    assert "bring that data back, or use another folder" in summary.left_out["data set diabetes"]


def test_results_on_different_data_are_not_used_together(tmp_path, working):
    working(trained)
    both = spec(solvers=["adam", "sgd"])
    bench.run(both, tmp_path, workers=1)
    key = bench.plan(both)[0].key
    write_result(tmp_path, key, {**read_result(result_path(tmp_path, key)), "data_sha256": "another"})
    with pytest.raises(bench.ResultError, match="are results on different data, though both call it diabetes"):
        bench.run(both, tmp_path, workers=1)


def test_files_that_changed_since_the_planning_or_differ_on_a_worker_are_refused(tmp_path):
    (run,) = bench.plan(spec(datasets=[own_data(tmp_path)]))
    job = Job(run)
    assert train(job, print)["status"] == "done"
    own_data(tmp_path, lambda i: i**2)
    (changed,) = bench.plan(spec(datasets=[run.source]))
    assert train(Job(changed), print)["status"] == "done"
    result = train(job, print)
    assert result["status"] == "no_data"
    assert "are not those that the runs were planned with" in result["error"]["message"]


def test_a_name_stands_for_one_data_set_in_a_folder(tmp_path):
    """As in a merged folder, and in what frames say of one."""
    source = own_data(tmp_path / "data")
    assert bench.run(spec(datasets=[source]), tmp_path / "out", workers=1).is_complete
    own_data(tmp_path / "data", lambda i: i**2)
    summary = bench.run(spec(datasets=[source]), tmp_path / "out", workers=1)
    assert not summary.is_complete
    assert "bring that data back, or use another folder" in summary.left_out["data set mine"]


def test_data_that_was_swapped_is_loaded_again_by_the_next_plan(tmp_path):
    digests = []
    for power in (1, 2):
        (run,) = bench.plan(spec(datasets=[own_data(tmp_path, lambda i: i**power)]))  # noqa: B023
        digests.append(train(Job(run), print)["data_sha256"])
    assert digests[0] != digests[1]


def test_failed_runs_are_repeated_where_that_is_asked_for(tmp_path, working):
    outcomes = {"adam": "failed", "sgd": "diverged", "nadam": "done"}
    called = []

    def work(job, report):
        name = job.definition.solver.name
        called.append(name)
        good = trained(job, report)
        wrong = {"status": outcomes[name], "error": {"type": "x", "message": "x", "traceback": ""}}
        return good if outcomes[name] == "done" else {**good, **wrong}

    working(work)
    three = spec(solvers=list(outcomes))
    summary = bench.run(three, tmp_path, workers=1)
    assert (summary.failed, summary_text(summary, tmp_path).partition("; ")[2]) == (
        1,
        "`--retry-failed` runs 1 of them again",
    )
    outcomes["adam"] = "done"
    called.clear()
    assert bench.run(three, tmp_path, workers=1).recorded == {"failed": 1, "diverged": 1, "done": 1}
    assert called == []
    summary = bench.run(three, tmp_path, workers=1, retry_failed=True)
    assert (called, summary.recorded, summary.failed) == (["adam"], {"diverged": 1, "done": 2}, 0)


def test_results_of_other_versions_are_named(tmp_path, working, caplog):
    working(trained)
    bench.run(spec(), tmp_path, workers=1)
    (run,) = bench.plan(spec())
    content = read_result(result_path(tmp_path, run.key))
    content["environment"]["versions"]["torch"] = "1.0"
    write_result(tmp_path, run.key, content)
    bench.run(spec(), tmp_path, workers=1)
    assert f"1 results that are reused are of torch 1.0, and this is {torch.__version__}" in caplog.text


def test_a_process_is_for_one_call_of_the_driver():
    (run,) = bench.plan(spec())
    supervise.allow_children()
    child = supervise.Child(1, "one call")
    try:
        fits = [child.is_fit_for(Job(run, session=s)) for s in ("one call", "the next")]
    finally:
        child.kill()
    assert fits == [True, False]


@pytest.mark.slow
def test_a_solver_that_a_worker_cannot_import_is_left_for_later(tmp_path, monkeypatch):
    module = types.ModuleType("only_here")
    module.Solver = torch.optim.SGD
    monkeypatch.setitem(sys.modules, "only_here", module)
    summary = bench.run(spec(solvers=["only_here:Solver", "adam"]), tmp_path, workers=1)
    assert summary.recorded == {"done": 1}
    ((what, why),) = summary.left_out.items()
    assert what == "solver only_here:Solver on network 1x5"
    assert "No module named 'only_here'" in why


def test_a_process_that_does_not_start_is_no_result_of_its_run(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    summary = bench.run(spec(), tmp_path, workers=1)
    assert (summary.recorded, contents(tmp_path)) == ({}, {})
    assert list(summary.left_out) == ["a process for diabetes 1x5 seed 0 adam"]
    assert "ended before the run began (exit code 1" in str(summary.left_out)
    assert "tried once more" in caplog.text


def test_a_process_that_is_not_ready_in_time_is_no_result_of_its_run(tmp_path, monkeypatch):
    monkeypatch.setattr(supervise, "_START_SECONDS", 0.0)
    summary = bench.run(spec(), tmp_path, workers=1)
    assert (summary.recorded, contents(tmp_path)) == ({}, {})
    assert "packages and data were not loaded" in str(summary.left_out)


@pytest.mark.slow
def test_a_solver_may_print_as_much_as_it_likes(tmp_path):
    """Only the end is kept, and of one that dies it is told."""
    chosen = spec(solvers=["tests.bench.solvers:PrintsAndDies"])
    assert bench.run(chosen, tmp_path, workers=1).recorded == {"crashed": 1}
    (content,) = contents(tmp_path).values()
    assert content["error"]["traceback"].endswith("the last words\n")
    assert len(content["error"]["traceback"]) == 2000


def test_status_needs_neither_the_data_nor_the_solvers(tmp_path, working):
    working(trained)
    source = own_data(tmp_path / "data")
    bench.run(spec(datasets=[source], solvers=["adam"]), tmp_path / "out", workers=1)
    os.unlink(source)
    counts = bench.status(tmp_path / "out")
    assert (counts.recorded, counts.left) == ({"done": 1}, 0)


def call(*keys):
    return DriverCall({"name": "x"}, list(keys), 2)


def test_a_folder_remembers_every_call_but_not_one_that_a_later_one_covers(tmp_path):
    runs_folder(tmp_path).mkdir()
    for one in (call("a"), call("b", "c"), call("a", "d"), call("a", "d")):
        add_call(tmp_path, one)
    assert read_calls(tmp_path) == [call("b", "c"), call("a", "d")]
    assert bench.status(tmp_path).left == 4


def test_a_damaged_record_of_calls_is_written_anew(tmp_path, caplog):
    (tmp_path / "spec.json").write_text("{")
    add_call(tmp_path, call("a"))
    assert read_calls(tmp_path) == [call("a")]
    assert "spec.json cannot be used" in caplog.text


def test_a_stopped_narrow_run_and_a_later_whole_one_leave_nothing_to_do(tmp_path, working):
    working(trained)
    whole = spec(solvers=["adam", "sgd"])
    bench.run(spec(solvers=["sgd"]), tmp_path, workers=1)
    bench.run(whole, tmp_path, workers=1)
    assert (bench.status(tmp_path).left, len(read_calls(tmp_path))) == (0, 1)
