"""train(run) -> result: the same conditions for every solver, and a result whatever happens."""

import importlib.metadata
import itertools
import math

import pytest

from cmalight import bench
from cmalight.bench import plan, train
from cmalight.bench.code import imported
from tests.bench.common import spec, user_code

CONTROLLED = ("auto", "cmalight", "cma", "ig")


def result_of(**changes):
    return train(plan(spec(**changes))[0])


def test_a_result_has_the_points_of_the_run():
    result = result_of(seeds=[3])
    assert (result.status, result.ended_by, result.error) == ("done", "max_epochs", None)
    points = result.points
    assert points.step == [0, 1, 2, 3, 4, 5, 6]
    assert points.epoch == pytest.approx([step / 3 for step in points.step])
    assert points.work == points.epoch
    assert (result.epochs, result.outcomes) == (2, {"uncontrolled": 2})
    assert points.seconds[0] == 0.0 < points.seconds[1] < points.seconds[2]
    assert points.train_loss[-1] < points.train_loss[0]
    assert (result.n_samples, result.n_validation, result.n_parameters) == (331, 111, 61)
    assert result.batches_per_epoch == 3
    assert len(result.data_sha256) == 64
    assert result.machine.versions["torch"] == importlib.metadata.version("torch")
    assert result_of(seeds=[3]).points.train_loss == points.train_loss


@pytest.mark.parametrize("engine", ["eager", "auto"])
@pytest.mark.parametrize("solver", ["adam", "cmalight", "auto"])
def test_a_run_is_measured_on_a_geometric_grid_of_steps_within_epochs_and_at_its_end(solver, engine):
    result = result_of(epochs=700, solvers=[solver], engine=engine)
    steps = result.points.step
    assert steps[:9] == [0, 1, 2, 3, 4, 5, 6, 7, 9]
    assert steps[-1] == 3 * result.epochs >= 100  # cmalight converges before its budget is spent
    ratios = [after / before for before, after in itertools.pairwise(steps[8:-1])]
    assert 1.14 < min(ratios) <= max(ratios) < 1.28  # whole steps
    assert len(steps) < 60


@pytest.mark.parametrize("solver", ["adam", "cmalight"])
def test_measuring_changes_nothing_whatever_its_spacing(solver):
    before = result_of(epochs=4, solvers=[solver]).points.train_loss[-1]
    points = result_of(epochs=4, solvers=[solver], spacing=1000.0).points
    assert points.step == [0, 1, 12]
    assert points.train_loss[-1] == before


def test_the_grid_of_measured_steps_may_begin_later():
    assert result_of(epochs=4, spacing=2.0, first_point=4).points.step == [0, 4, 8, 12]
    assert result_of(epochs=1, first_point=1000).points.step == [0, 3]


def test_what_is_measured_does_not_depend_on_how_many_samples_are_measured_at_once(monkeypatch):
    before = result_of(epochs=1).points.train_loss
    monkeypatch.setattr("cmalight.bench.training._NUMBERS_AT_ONCE", 70)  # seven of ten numbers
    assert result_of(epochs=1).points.train_loss == pytest.approx(before, rel=1e-6)


def test_the_solvers_of_a_problem_see_the_same_weights_and_the_same_batches():
    solvers = [user_code("Good"), "adam", "cmalight"]
    runs = plan(spec(networks=[user_code("Network")], solvers=solvers, seeds=2))
    made = imported(user_code("Network")).made
    seen = {}
    for run in runs:
        made.clear()
        train(run, warm_up=False)
        network = next(one for one in made if one.seen)
        seen[run.solver, run.seed] = (network.first.tolist(), network.seen)
    first = seen[user_code("Good"), 0]
    assert all(seen[solver, 0] == first for solver in solvers)
    assert seen[user_code("Good"), 1][0] != first[0]
    assert seen[user_code("Good"), 1][1] != first[1]


def test_classes_are_measured_by_accuracy_too():
    adam = {"solver": "adam", "options": {"lr": 0.05}}
    result = result_of(datasets=[user_code("classes")], epochs=30, solvers=[adam])
    assert result.task == "classification"
    assert result.points.accuracy[-1] > 0.6
    assert result.points.validation_loss[-1] < result.points.validation_loss[0]


@pytest.mark.parametrize("solver", CONTROLLED)
def test_what_a_control_evaluates_counts_as_work(solver):
    result = result_of(solvers=[solver], epochs=3)
    points, rows = result.points, 331
    assert points.evaluated_rows[-1] > 0 or solver in ("ig", "auto")
    assert (result.accepted is None) is (solver == "ig")
    assert points.work == pytest.approx(
        [epoch + evaluated / (3 * rows) for epoch, evaluated in zip(points.epoch, points.evaluated_rows, strict=True)]
    )
    assert points.evaluated_rows == sorted(points.evaluated_rows)


def test_batches_are_a_budget_in_whole_epochs():
    assert result_of(epochs=None, batches=8).points.epoch[-1] == 3  # 3 batches in an epoch
    assert result_of(epochs=None, batches=1).points.epoch[-1] == 1  # at least one


def test_a_time_limit_cuts_the_last_epoch_off():
    result = result_of(epochs=None, seconds=0.2, datasets=["teacher:rows=20000,features=10"], batch_size=8)
    assert (result.status, result.ended_by) == ("done", "time_limit")
    assert result.points.seconds[-1] >= 0.2
    assert result.points.epoch[-1] == result.points.step[-1] / 1875
    assert math.isfinite(result.points.train_loss[-1])


def test_a_run_stops_after_the_epoch_that_reached_its_target():
    result = result_of(epochs=500, target_loss=0.2, solvers=[{"solver": "adam", "options": {"lr": 0.05}}])
    assert result.ended_by == "target_loss"
    assert min(result.points.train_loss) <= 0.2
    assert result.epochs < 500


def test_an_own_solver_that_wants_an_objective_gets_one():
    result = result_of(solvers=[user_code("watched")])
    assert (result.status, result.error) == ("done", None)
    assert result.points.evaluated_rows[-1] > 0


def test_an_own_workload_is_a_problem():
    result = result_of(workloads=[user_code("workload")], datasets=[], networks=[])
    assert (result.status, result.n_samples) == ("done", 64)
    assert set(result.points.validation_loss) == {None}


@pytest.mark.parametrize(
    ("solver", "status", "error"),
    [
        ("Raises", "failed", "KeyError: 'momentum'"),
        ("Exits", "failed", "SystemExit: enough"),
        ("not_an_optimizer", "failed", "TypeError"),
        ("TurnsIntoNaN", "diverged", "diverged"),
        ("Explodes", "diverged", "diverged"),
    ],
)
def test_what_goes_wrong_is_in_the_result(solver, status, error):
    result = result_of(solvers=[user_code(solver)])
    assert result.status == status
    assert error in result.error
    assert (result.traceback or "").startswith("Traceback" if status == "failed" else "")
    assert result.points.step[0] == 0


def writes(path, body):
    path.write_text(f"import numpy as np, torch\nfrom torch import nn\nfrom cmalight.bench import Problem\n{body}")
    return path


def test_the_key_covers_the_data_of_a_file_and_those_that_a_function_reads(tmp_path):
    numbers = tmp_path / "numbers.txt"
    mine = writes(
        tmp_path / "mine.py",
        f"def data():\n    x = np.loadtxt({str(numbers)!r}, ndmin=2)\n    return x, x[:, 0]\n"
        "def work():\n    x, y = (torch.tensor(one).float() for one in data())\n"
        "    return Problem(lambda: nn.Linear(1, 1), nn.MSELoss(), (x, y[:, None]))\n",
    )
    numbers.write_text("1\n2\n3\n4\n5\n6\n")
    table = tmp_path / "table.csv"
    table.write_text("x,y\n1,2\n3,4\n5,6\n7,8\n")
    studies = [spec(datasets=[f"{mine}:data"]), spec(datasets=[], networks=[], workloads=[f"{mine}:work"])]
    studies.append(spec(datasets=[f"{table}:target=y"]))
    before = [plan(study)[0] for study in studies]
    assert [plan(study)[0].key for study in studies] == [run.key for run in before]
    numbers.write_text("1\n2\n3\n4\n5\n7\n")
    table.write_text("x,y\n1,2\n3,4\n5,6\n7,9\n")
    assert all(plan(study)[0].key != run.key for study, run in zip(studies, before, strict=True))
    for run in before:
        result = train(run)
        assert (result.status, result.traceback) == ("unavailable", None)
        assert "changed since the runs were planned; repeat the command" in result.error


def test_random_data_are_seeded_and_a_function_whose_data_no_seed_repeats_is_refused(tmp_path):
    body = "def data():\n    x = np.random.rand(9, 2)\n    return x, x[:, 0]\n"
    mine = writes(tmp_path / "mine.py", body)
    assert train(plan(spec(datasets=[f"{mine}:data"]))[0]).status == "done"
    writes(mine, body.replace("random.rand(9, 2)", "random.default_rng().random((9, 2))"))
    with pytest.raises(ValueError, match=r"mine.py:data gives other arrays at every call; seed its random numbers"):
        plan(spec(datasets=[f"{mine}:data"]))


BAD = "mine.py:data did not return arrays x, y"
WORK = "    return Problem(lambda: nn.Linear(1, 1), nn.MSELoss(), {})\n"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("    return {}['rows']\n", "data raised KeyError: 'rows'"),
        ("    raise SystemExit('no')\n", "mine.py:data raised SystemExit: no"),
        ("    return 3\n", BAD),
        ("    return np.ones(3), np.ones(3)\n", "returned arrays of the shapes [(3,), (3,)]"),
        ("    return np.full((3, 1), np.nan), np.ones(3)\n", "mine.py:data has a value that is missing"),
        (WORK.format("None"), "mine.py:data: its data are no pairs of tensors"),
        (WORK.format("(torch.ones(3).bfloat16(), torch.ones(3))"), "mine.py:data: its data are no pairs of tensors"),
    ],
)
def test_a_function_that_fails_is_named_before_any_run(tmp_path, caplog, body, message):
    mine = f"{writes(tmp_path / 'mine.py', f'def data():{chr(10)}{body}')}:data"
    kinds = {"workloads": [mine]} if "Problem" in body else {"datasets": ["diabetes", mine]}
    summary = bench.run(spec(**kinds), tmp_path / "out", in_process=True)
    assert summary.statuses == {"done": 1, "unavailable": 1}
    assert message in caplog.text
