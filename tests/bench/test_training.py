"""One run: every solver of a cell gets the same start, batches, clock and measurements."""

import itertools
import math
import time

import pytest
import torch

from cmalight.bench import plan
from cmalight.bench.running.measuring import Measuring
from cmalight.bench.running.one_run import Job, train
from cmalight.bench.spec.solvers import SOLVERS, is_full_batch
from cmalight.bench.spec.study import Definition, Network, Solver
from cmalight.training.records import clock as clock_module
from tests.bench.common import own_data, spec
from tests.bench.solvers import Witness

MODULE = "tests.bench.solvers"
ALL = [*SOLVERS, f"{MODULE}:Slow"]


def trained(changed, report=lambda told: None):
    return [train(Job(run), report) for run in plan(changed)]


def test_every_solver_runs_and_starts_from_the_same_loss():
    results = trained(spec(solvers=ALL))
    assert [(r["status"], r["error"]) for r in results] == [("done", None)] * len(ALL)
    assert len({r["initial_loss"] for r in results}) == 1
    assert all(len(r["epochs"]["epoch"]) == 2 and r["ended_by"] == "max_epochs" for r in results)
    assert len({r["data_sha256"] for r in results}) == 1


def witnesses(**changes):
    """A network for each run, in their order; the warm-up before each run has one of its own."""
    Witness.made.clear()
    results = trained(spec(networks=[f"{MODULE}:Witness"], max_epochs=1, **changes))
    assert len(Witness.made) == 2 * len(results)
    return Witness.made[1::2]


def test_the_solvers_of_a_cell_see_the_same_weights_and_the_same_batches_in_the_same_order():
    names = [name for name in SOLVERS if not is_full_batch(Solver(name, name))]
    seen = dict(zip(names, witnesses(solvers=names, batch_size=32), strict=True))
    expected = seen["sgd"].seen
    assert len(expected) == math.ceil(331 / 32)
    for name, witness in seen.items():
        broken_off = name.startswith("cmalight")  # by the watchdog, when an epoch cannot succeed any more
        if name == "sls":  # a line search sees a batch as often as it tries a step size on it
            assert [batch for batch, _ in itertools.groupby(witness.seen)] == expected
        else:
            assert witness.seen == (expected[: len(witness.seen)] if broken_off else expected)
        assert witness.seen
        assert torch.equal(witness.start, seen["sgd"].start)


def test_another_seed_is_another_start_and_another_order():
    one, other = witnesses(solvers=["sgd"], seeds=2, batch_size=32)
    assert not torch.equal(one.start, other.start)
    assert one.seen != other.seen


def test_lbfgs_sees_all_samples_at_once():
    (witness,) = witnesses(solvers=["lbfgs"])
    assert len(set(witness.seen)) == 1


def test_every_run_is_warmed_up_off_its_clock_with_its_own_solver_and_network():
    """On a network that is thrown away, with at most two batches; and it changes nothing."""
    (witness,) = witnesses(solvers=["adam"], batch_size=32)
    warm = Witness.made[0]
    assert (len(warm.seen), torch.equal(warm.start, witness.start)) == (2, True)
    assert not torch.equal(warm.layer.weight, warm.start)
    torch.manual_seed(0)
    assert torch.equal(witness.start, Witness(10, 1).start)


def test_what_goes_wrong_in_the_warm_up_is_seen_in_the_run():
    (result,) = trained(spec(solvers=[f"{MODULE}:Raises"]))
    assert (result["status"], result["error"]["type"]) == ("failed", "ZeroDivisionError")


def test_a_step_size_that_is_below_rounding_is_a_normal_end():
    (result,) = trained(spec(solvers=[f"{MODULE}:Converges"], max_epochs=50))
    assert (result["status"], result["ended_by"], result["error"]) == ("done", "converged", None)
    assert len(result["epochs"]["epoch"]) < 50


def test_a_time_limit_stops_lbfgs_within_its_step():
    """One step may evaluate a thousand times; the clock is looked at before each."""
    options = {"max_iter": 10**6, "max_eval": 10**9, "tolerance_grad": 0.0, "tolerance_change": 0.0, "lr": 1e-9}
    (result,) = trained(spec(solvers=[{"solver": "lbfgs", "options": options}], max_epochs=None, time_limit=0.2))
    assert (result["status"], result["ended_by"]) == ("done", "time_limit")


def test_measuring_is_off_the_training_clock(monkeypatch):
    now = Measuring.now

    def slowly(self):
        time.sleep(0.1)
        return now(self)

    monkeypatch.setattr(Measuring, "now", slowly)
    (result,) = trained(spec(max_epochs=5))
    wall = result["finished"] - result["started"]
    assert wall >= result["seconds"] + 7 * 0.1


def test_the_clock_of_a_study_is_that_of_its_runs_and_recorded(monkeypatch):
    monkeypatch.setattr(clock_module, "processor_seconds", lambda: 7.0)  # it stands still
    (result,) = trained(spec(max_epochs=2, clock="processor"))
    assert (result["run"]["clock"], result["seconds"], set(result["epochs"]["seconds"])) == ("processor", 0.0, {0.0})
    (usual,) = trained(spec(max_epochs=2))
    assert "clock" not in usual["run"]  # it has the key that it had before there was a choice
    assert usual["seconds"] > 0


def test_a_file_that_the_spec_trusts_is_taken_and_that_is_recorded(tmp_path):
    source = own_data(tmp_path, sha256="0" * 64)
    (refused,) = trained(spec(datasets=[source], networks=["1x2"]))
    assert (refused["status"], "say that you trust it" in refused["error"]["message"]) == ("no_data", True)
    (taken,) = trained(spec(datasets=[source], networks=["1x2"], trust=["mine"]))
    assert (taken["status"], taken["run"]["trusted"]) == ("done", True)
    assert "trusted" not in refused["run"]


def test_the_loss_is_measured_at_the_start_at_the_end_and_after_every_nth_epoch():
    (result,) = trained(spec(max_epochs=5, measure_every=2))
    measured = [loss is not None for loss in result["epochs"]["train_loss"]]
    assert measured == [False, True, False, True, False]
    assert result["final_loss"] < result["initial_loss"]
    (often,) = trained(spec(max_epochs=5))
    assert often["final_loss"] == result["final_loss"] == often["epochs"]["train_loss"][-1]


def test_the_loss_is_that_of_the_whole_training_part():
    from cmalight.datasets import load_dataset

    (result,) = trained(spec(networks=[f"{MODULE}:Witness"], solvers=["sgd"], max_epochs=1))
    data = load_dataset("diabetes")
    torch.manual_seed(0)
    network = Witness(10, 1)
    loss = torch.nn.functional.mse_loss(network(data.x_train), data.y_train)
    assert result["initial_loss"] == pytest.approx(loss.item(), rel=1e-6)


def test_classes_are_trained_by_cross_entropy_and_tested_by_accuracy():
    adam = {"solver": "adam", "options": {"lr": 0.05}}
    (result,) = trained(spec(datasets=["wine"], solvers=[adam], measure_test=True, max_epochs=30, batch_size=16))
    assert result["initial_loss"] == pytest.approx(math.log(3), abs=0.4)
    assert 0.5 < result["final_test_accuracy"] <= 1
    assert len([v for v in result["epochs"]["test_accuracy"] if v is not None]) == 30


def test_a_schedule_free_solver_is_judged_at_its_average():
    (result,) = trained(spec(solvers=["schedule-free-adamw"], max_epochs=20))
    assert result["status"] == "done"
    assert result["final_loss"] < result["initial_loss"]


@pytest.mark.parametrize(
    ("solver", "status", "words"),
    [
        ("Raises", "failed", "the solver divided by zero"),
        ("Exits", "failed", "the solver has had enough"),
        ("not_an_optimizer", "failed", "gave a int"),
        ("TurnsIntoNaN", "diverged", "not finite"),
        ("EatsMemory", "out_of_memory", ""),
    ],
)
def test_what_goes_wrong_is_recorded_and_never_as_a_number(solver, status, words):
    (result,) = trained(spec(solvers=[f"{MODULE}:{solver}"], memory_limit=300, max_epochs=3))
    assert result["status"] == status
    assert words in result["error"]["message"]
    assert "final_loss" not in result


def test_a_loss_that_exploded_is_no_figure():
    options = {"lr": 30.0}
    (result,) = trained(spec(networks=[f"{MODULE}:Witness"], solvers=[{"solver": "sgd", "options": options}]))
    assert result["status"] == "diverged"
    assert "final_loss" not in result


def test_a_run_says_where_it_ran():
    (result,) = trained(spec())
    environment = result["environment"]
    assert {"host", "cpu", "cores", "threads", "concurrency", "load", "versions", "load_at_the_end"} <= set(environment)
    assert environment["versions"]["torch"] == torch.__version__
    assert torch.get_num_threads() == environment["threads"] == 1


def test_a_run_reports_every_epoch():
    told = []
    trained(spec(max_epochs=3), told.append)
    assert [one.epoch for one in told] == [0, 1, 2]
    assert all(one.loss > 0 for one in told)


def test_a_users_solver_is_followed_by_a_process_of_its_own():
    def runs_own_code(solver, network="1x50"):
        parts = {"network": Network(network, network), "solver": Solver(solver, solver)}
        return Definition(dataset="x", data_files=None, seed=0, max_epochs=1, **parts).runs_own_code

    assert not runs_own_code("adam", "paper:1x50")
    assert runs_own_code("mine:Solver")
    assert runs_own_code("adam", "mine:network")
