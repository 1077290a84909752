"""train(run) -> result: the same conditions for every solver, and a result whatever happens."""

import math

import pytest
import torch

from cmalight.bench import plan, train
from cmalight.bench.code import imported
from cmalight.bench.workloads import WORKLOADS
from tests.bench.common import own, spec

CONTROLLED = ("auto", "cmalight", "cma", "ig")


def result_of(**changes):
    return train(plan(spec(**changes))[0])


def figures(result):
    """What a result says apart from times."""
    points = result.points.model_dump(exclude={"seconds"})
    return result.model_dump(exclude={"points", "machine", "started", "finished"}), points


def test_a_result_has_the_course_of_the_run():
    result = result_of(seeds=[3])
    assert (result.status, result.ended_by, result.error) == ("done", "max_epochs", None)
    points = result.points
    assert points.epoch == [0, 1, 2]
    assert points.work == [0.0, 1.0, 2.0]
    assert points.outcome == ["start", "uncontrolled", "uncontrolled"]
    assert points.seconds[0] == 0.0 < points.seconds[1] < points.seconds[2]
    assert points.train_loss[2] < points.train_loss[0]
    assert (result.n_samples, result.n_validation, result.n_parameters) == (331, 111, 61)
    assert result.batches_per_epoch == 3
    assert len(result.data_sha256) == 64
    assert result.machine.versions["torch"] == torch.__version__


def test_a_run_repeated_is_the_same_run():
    assert figures(result_of()) == figures(result_of())


def test_the_solvers_of_a_problem_see_the_same_weights_and_the_same_batches():
    solvers = [own("Good"), "adam", "cmalight"]
    runs = plan(spec(networks=[own("Network")], solvers=solvers, seeds=2))
    made = imported(own("Network")).made
    seen = {}
    for run in runs:
        made.clear()
        train(run, warm_up=False)
        network = next(one for one in made if one.seen)
        seen[run.solver, run.seed] = (network.first.tolist(), network.seen)
    first = seen[own("Good"), 0]
    assert all(seen[solver, 0] == first for solver in solvers)
    assert seen[own("Good"), 1][0] != first[0]
    assert seen[own("Good"), 1][1] != first[1]


def test_the_training_loss_is_the_mean_over_the_whole_training_part():
    run = plan(spec(networks=[own("Network")]))[0]
    made = imported(own("Network")).made
    result = train(run, warm_up=False)
    network = made[-1]
    from cmalight.datasets import load_dataset

    data = load_dataset("diabetes")
    with torch.no_grad():
        loss = torch.nn.functional.mse_loss(network(torch.tensor(data.x_train)), torch.tensor(data.y_train))
    assert result.points.train_loss[-1] == pytest.approx(float(loss), rel=1e-5)


def test_classes_are_measured_by_accuracy_too():
    adam = {"solver": "adam", "options": {"lr": 0.05}}
    result = result_of(datasets=[own("classes")], epochs=30, solvers=[adam])
    assert result.task == "classification"
    assert result.points.accuracy[-1] > 0.6
    assert result.points.validation_loss[-1] < result.points.validation_loss[0]


@pytest.mark.parametrize("solver", CONTROLLED)
def test_what_a_control_evaluates_counts_as_work(solver):
    result = result_of(solvers=[solver], epochs=3)
    points, rows = result.points, 331
    assert points.evaluated_rows[-1] > 0 or solver == "ig"
    assert points.work == pytest.approx(
        [epoch + evaluated / (3 * rows) for epoch, evaluated in zip(points.epoch, points.evaluated_rows, strict=True)]
    )
    assert points.evaluated_rows == sorted(points.evaluated_rows)


def test_the_acceptance_rate_is_that_of_a_control():
    assert result_of(solvers=["auto"], epochs=5).accepted > 0
    assert result_of(solvers=["adam"]).accepted is None
    assert result_of(solvers=["ig"]).accepted is None


def test_looks_at_a_sample_count_although_they_are_no_full_evaluation():
    points = result_of(solvers=["auto"], epochs=20, batch_size=16).points
    assert points.evaluated_rows[-1] >= 331 * points.evaluations[-1]


def test_batches_are_a_budget_in_whole_epochs():
    assert result_of(epochs=None, batches=8).points.epoch[-1] == 3  # 3 batches in an epoch
    assert result_of(epochs=None, batches=1).points.epoch[-1] == 1


def test_a_time_limit_cuts_the_last_epoch_off():
    result = result_of(epochs=None, seconds=0.2, datasets=["teacher:rows=20000,features=10"], batch_size=8)
    assert (result.status, result.ended_by) == ("done", "time_limit")
    assert result.points.outcome[-1] == "cut"
    assert result.points.seconds[-1] >= 0.2
    assert math.isfinite(result.points.train_loss[-1])


def test_a_run_stops_at_its_target():
    result = result_of(epochs=500, target_loss=0.2, solvers=[{"solver": "adam", "options": {"lr": 0.05}}])
    assert result.ended_by == "target_loss"
    assert result.points.train_loss[-1] <= 0.2 < result.points.train_loss[-2]


def test_a_schedule_free_solver_is_measured_at_its_average():
    result = result_of(solvers=["schedule-free-adamw"], epochs=5)
    assert result.status == "done"
    assert result.points.train_loss[-1] < result.points.train_loss[0]


def test_an_own_solver_that_wants_an_objective_gets_one():
    result = result_of(solvers=[own("watched")])
    assert (result.status, result.error) == ("done", None)
    assert result.points.evaluated_rows[-1] > 0


def test_an_own_workload_is_a_problem():
    result = result_of(workloads=[own("workload")], datasets=[], networks=[])
    assert (result.status, result.n_samples) == ("done", 64)
    assert result.points.validation_loss == [None, None, None]


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
    result = result_of(solvers=[own(solver)])
    assert result.status == status
    assert error in result.error
    assert (result.traceback is not None) is (status == "failed")


def test_a_failure_has_its_traceback_and_the_points_before_it():
    result = result_of(solvers=[own("Raises")])
    assert result.traceback.startswith("Traceback")
    assert 'return {}["momentum"]' in result.traceback
    assert result.points.epoch == [0]


def test_data_that_cannot_be_had_is_not_the_solvers_fault(monkeypatch, tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text("x,y\n" + "".join(f"{i},{i}\n" for i in range(20)))
    run = plan(spec(datasets=[f"{file}:target=y"]))[0]
    file.write_text(file.read_text() + "20,20\n")
    result = train(run)
    assert result.status == "unavailable"
    assert "changed since the runs were planned" in result.error


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in WORKLOADS if name != "resnet"])
def test_every_workload_is_trained(name):
    chosen = spec(datasets=[], networks=[], workloads=[name], epochs=1, solvers=["adam"])
    result = train(plan(chosen)[0], warm_up=False)
    assert (result.status, result.error) == ("done", None)
    assert result.points.train_loss[1] < result.points.train_loss[0]


def test_bad_batches_are_seen_by_training_steps_alone():
    layer = WORKLOADS["mlp-bad-batches"]().make_model()[0]
    layer.every = 1
    x = torch.ones(2, 2)
    assert layer(x).tolist() == (x * 1e4).tolist()
    with torch.no_grad():
        assert layer(x).tolist() == x.tolist()
    assert layer.eval()(x).tolist() == x.tolist()


def test_augmentation_moves_pictures_in_training_mode_alone():
    layer = WORKLOADS["resnet-digits"]().make_model()[0]
    x = torch.arange(64.0).reshape(1, 1, 8, 8).repeat(20, 1, 1, 1)
    assert layer(x).shape == x.shape
    assert not torch.equal(layer(x), x)
    assert torch.equal(layer.eval()(x), x)


def test_the_engine_that_ran_is_recorded():
    assert result_of(engine="eager").engine_used == "eager"
    assert result_of(engine="auto").engine_used in ("eager", "compiled")
