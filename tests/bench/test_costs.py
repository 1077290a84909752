"""When a problem is solved and what that cost: small cases by hand, and random ones by brute force."""

import math
import tempfile
from pathlib import Path

import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cmalight import bench
from cmalight.bench.analysis.costs import MEASURES
from cmalight.bench.analysis.curves import Bundles, fractions
from cmalight.bench.analysis.summaries import control_figures
from cmalight.bench.report.about import facts
from tests.bench.synthetic import run, write

INF = math.inf


def loaded(folder, runs):
    return bench.load(write(folder, runs))


def costs(results, tau, **options):
    return bench.solution_costs(results, tau, **options).to_dict("list")


def test_a_problem_is_solved_at_the_first_moment_that_is_low_enough(tmp_path):
    # f(w0) = 1, f_L = 0: the loss to reach is tau itself
    quick = run("quick", [0.5, 0.05, 0.5, 0.02], seconds=[1.0, 2.0, 3.0, 4.5])
    thorough = run("thorough", [0.9, 0.1, 0.0], seconds=[2.0, 4.0, 6.0])
    results = loaded(tmp_path, [quick, thorough])
    assert costs(results, 0.1) == {"quick": [2.0], "thorough": [4.0]}  # exactly on the bound is solved
    assert costs(results, 0.03) == {"quick": [4.5], "thorough": [6.0]}
    assert costs(results, 1e-4) == {"quick": [INF], "thorough": [6.0]}
    assert costs(results, 0.1, measure="epochs") == {"quick": [2], "thorough": [2]}


def test_hiding_a_solver_changes_what_is_lowest(tmp_path):
    results = loaded(tmp_path, [run("best", [0.0]), run("good", [0.4, 0.2]), run("bad", [0.6])])
    assert costs(results, 0.1) == {"best": [1], "good": [INF], "bad": [INF]}
    assert costs(results, 0.1, solvers=["good", "bad"]) == {"good": [2], "bad": [INF]}
    assert costs(results, 0.1, solvers=["bad"]) == {"bad": [1]}


def test_evaluations_and_work_are_those_made_by_then(tmp_path):
    results = loaded(tmp_path, [run("a", [0.5, 0.1, 0.0], evaluations=[1, 4, 9])])
    assert costs(results, 0.1, measure="evaluations") == {"a": [4]}
    assert costs(results, 0.1, measure="work") == {"a": [2 + 4 / 3]}


def test_a_start_that_nobody_improves_on_is_solved_at_no_cost(tmp_path):
    results = loaded(tmp_path, [run("a", [1.5, 2.0]), run("b", [1.1])])
    assert costs(results, 0.1) == {"a": [0], "b": [0]}
    assert bench.performance_profile(bench.solution_costs(results, 0.1)).loc[1.0].tolist() == [1, 1]


@pytest.mark.parametrize("status", ["diverged", "failed", "crashed", "timed_out", "out_of_memory"])
def test_a_failed_run_costs_infinity_and_sets_no_standard(tmp_path, status):
    results = loaded(tmp_path, [run("failed", [0.0], status=status), run("fine", [0.5])])
    assert costs(results, 0.1) == {"failed": [INF], "fine": [1]}


def test_a_problem_that_all_runs_failed_on_is_solved_by_nobody(tmp_path):
    results = loaded(tmp_path, [run("a", [0.1], status="failed"), run("b", [0.1], status="crashed")])
    assert costs(results, 0.1) == {"a": [INF], "b": [INF]}


def test_epochs_that_were_not_measured_are_passed_over(tmp_path):
    results = loaded(tmp_path, [run("a", [None, 0.5, None, 0.0], measure_every=2)])
    assert costs(results, 0.6) == {"a": [2]}
    assert costs(results, 0.1) == {"a": [4]}


def test_the_end_inside_an_epoch_counts_with_the_loss_there_and_as_a_whole_epoch(tmp_path):
    results = loaded(tmp_path, [run("a", [0.5], final=0.0, total=1.4)])
    assert costs(results, 0.1) == {"a": [1.4]}
    assert costs(results, 0.1, measure="epochs") == {"a": [2]}
    for end in ("max_epochs", "converged"):
        ended = loaded(tmp_path / end, [run("a", [None], final=0.0, ended_by=end)])
        assert costs(ended, 0.1, measure="epochs") == {"a": [1]}


def test_losses_that_are_not_finite_solve_nothing(tmp_path):
    results = loaded(tmp_path, [run("a", [0.5, float("nan"), float("inf"), 0.0])])
    assert costs(results, 0.1) == {"a": [4]}


def test_problems_without_a_result_of_every_solver_are_left_out(tmp_path):
    results = loaded(tmp_path, [run("a", [0.1]), run("b", [0.1]), run("a", [0.1], seed=1)])
    assert costs(results, 0.1) == {"a": [1], "b": [1]}
    everything = bench.solution_costs(results, 0.1, complete=False)
    assert everything["b"].isna().tolist() == [False, True]
    assert costs(results, 0.1, solvers=["a"]) == {"a": [1, 1]}


def test_a_pair_of_data_set_and_network_costs_the_median_over_its_starts(tmp_path):
    seconds = {"a": (1.0, 5.0, 2.0), "b": (3.0, 1.0, None)}
    results = loaded(
        tmp_path,
        [
            run(solver, [0.0] if spent else [0.9], seed=seed, seconds=[spent or 1.0])
            for solver, starts in seconds.items()
            for seed, spent in enumerate(starts)
        ],
    )
    assert costs(results, 0.1) == {"a": [1.0, 5.0, 2.0], "b": [3.0, 1.0, INF]}
    assert costs(results, 0.1, problems="pair") == {"a": [2.0], "b": [3.0]}
    assert list(bench.solution_costs(results, 0.1, problems="pair").index) == ["data · 1x5"]


def test_a_pair_that_half_of_the_starts_do_not_solve_is_not_solved(tmp_path):
    results = loaded(tmp_path, [run("a", [0.0]), run("a", [0.9], seed=1), run("b", [0.0]), run("b", [0.0], seed=1)])
    assert costs(results, 0.1, problems="pair") == {"a": [INF], "b": [1.0]}


def test_solvers_of_one_name_with_other_options_are_told_apart(tmp_path):
    results = loaded(tmp_path, [run("adam", [0.1]), run("adam", [0.2], options={"lr": 0.01, "amsgrad": True})])
    assert bench.traces(results).labels.solvers == ["adam (defaults)", "adam (amsgrad=true, lr=0.01)"]


@pytest.mark.parametrize(
    ("rule", "usual", "other"), [("batch_size", "128", 32), ("engine", "eager", "compiled"), ("starts", "1", 4)]
)
def test_runs_under_other_rules_are_other_problems(tmp_path, rule, usual, other):
    rules = {"max_epochs": 10, "time_limit": None, "engine": "compiled"} if rule == "starts" else {}
    runs = [run("a", [0.1], **rules), run("b", [0.1], **rules), run("a", [0.1], **{**rules, rule: other})]
    results = loaded(tmp_path, runs)
    costs = bench.solution_costs(results, 0.1, complete=False)
    title = rule.replace("_", " ")
    assert set(costs.index) == {f"data · 1x5 · {title} {value} · seed 0" for value in (usual, other)}
    assert costs["b"].isna().sum() == 1
    assert bench.traces(results).labels.left_out == 0
    assert set(dict(facts(results.runs))[title].split(", ")) == {usual, str(other)}


def test_networks_with_other_options_and_other_data_are_other_problems(tmp_path):
    runs = [run("a", [0.1]), run("a", [0.1], network_options={"bias": False}), run("a", [0.1], data="b" * 64)]
    found = bench.traces(loaded(tmp_path, runs)).runs["problem"].tolist()
    assert len(set(found)) == 3
    assert any("bias=false" in name for name in found)
    assert any("data bbbbbbbb" in name for name in found)


def test_of_the_same_run_twice_the_last_counts(tmp_path):
    results = loaded(tmp_path, [run("a", [0.3]), run("a", [0.1])])
    traces = bench.traces(results)
    assert traces.labels.left_out == 1
    assert traces.runs["final_loss"].tolist() == [0.1]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"tau": -0.1}, "Invalid tau value: -0.1"),
        ({"tau": float("nan")}, "Invalid tau"),
        ({"tau": 0.1, "measure": "second"}, "did you mean 'seconds'"),
        ({"tau": 0.1, "solvers": ["adom"]}, "did you mean 'adam'"),
        ({"tau": 0.1, "problems": "pairs"}, "did you mean 'pair'"),
    ],
)
def test_wrong_arguments_are_named(tmp_path, wrong, message):
    with pytest.raises(ValueError, match=message):
        bench.solution_costs(loaded(tmp_path, [run("adam", [0.1])]), **wrong)


losses_of_runs = st.lists(
    st.lists(st.sampled_from([None, 0.0, 0.05, 0.1, 0.3, 0.5, 0.9, 1.0, 2.0]), min_size=1, max_size=5),
    min_size=2,
    max_size=4,
)


@settings(max_examples=25)
@given(losses_of_runs, st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0]), st.sampled_from(MEASURES), st.integers(0, 15))
def test_costs_equal_those_by_brute_force(runs, tau, measure, failed):
    names = "abcd"[: len(runs)]
    bad = {name for place, name in enumerate(names) if failed >> place & 1}
    contents = [
        run(name, losses, evaluations=list(range(len(losses))), status="failed" if name in bad else "done")
        for name, losses in zip(names, runs, strict=True)
    ]
    with tempfile.TemporaryDirectory() as place:
        found = costs(loaded(Path(place), contents), tau, measure=measure)
    points = {}
    for name, losses in zip(names, runs, strict=True):
        measured = [(epoch + 1, epoch, loss) for epoch, loss in enumerate(losses) if loss is not None]
        final = measured[-1][2] if measured else 1.0
        points[name] = [(0, 0, 1.0), *measured, (len(losses) + 1, len(losses) - 1, final)]
    good = [name for name in names if name not in bad]
    lowest = min((loss for name in good for *_, loss in points[name]), default=INF)
    for name in names:
        expected = INF
        for epochs, evaluations, loss in points[name] if name in good else ():
            if loss <= lowest + tau * (1.0 - lowest):
                seconds = min(epochs, len(points[name]) and len(runs[names.index(name)]))
                expected = {
                    "seconds": seconds,
                    "epochs": epochs,
                    "evaluations": evaluations,
                    "work": epochs + evaluations / 3,
                }[measure]
                break
        assert found[name] == [pytest.approx(expected)]


def test_columns_may_be_of_any_type_that_holds_their_numbers(tmp_path):
    runs = [run("a", [0.5, 0.1], evaluations=[1, 2], outcomes=["accepted"] * 2), run("b", [0.1], status="failed")]
    results = loaded(tmp_path, runs)
    nullable = bench.Results(results.runs.convert_dtypes(), results.epochs.convert_dtypes())
    assert costs(nullable, 0.1) == costs(results, 0.1) == {"a": [2], "b": [INF]}
    figures = [control_figures(one.runs, one.epochs) for one in (results, nullable)]
    pandas.testing.assert_frame_equal(*figures, check_index_type=False)


def test_curves_are_medians_and_quartiles_over_the_seeds(tmp_path):
    runs = [run("a", [0.1 * (seed + 1)] * 2, seed=seed) for seed in range(5)]
    curve = Bundles(bench.traces(loaded(tmp_path, runs))).curve("data · 1x5", "a", "loss", "seconds", fractions(200))
    assert [curve.low[0], curve.median[0], curve.high[0]] == [1.0, 1.0, 1.0]  # f(w0)
    assert curve.x[-1] == 2.0
    assert [curve.low[-1], curve.median[-1], curve.high[-1]] == pytest.approx([0.2, 0.3, 0.4])
    assert curve.median[curve.x < 1.0][-1] == 1.0  # nothing is known before the first epoch is measured


def test_a_run_that_has_ended_keeps_its_last_value(tmp_path):
    runs = [run("a", [0.5]), run("a", [0.5, 0.1, 0.1], seed=1), run("a", [0.5, 0.3, 0.1], seed=2)]
    curve = Bundles(bench.traces(loaded(tmp_path, runs))).curve("data · 1x5", "a", "loss", "epochs", fractions(200))
    assert curve.median[curve.x >= 2.0][0] == pytest.approx(0.3)


def test_the_control_is_judged_by_evaluations_and_by_epochs_accepted_at_once(tmp_path):
    controlled = run(
        "cmalight",
        [0.5, 0.4, 0.4, 0.3],
        evaluations=[1, 1, 3, 3],
        outcomes=["accepted", "accepted", "search_failed_kept", "accepted"],
    )
    results = loaded(tmp_path, [controlled, run("adam", [0.1])])
    figures = control_figures(results.runs, results.epochs)
    assert figures.loc[controlled["key"]].to_dict() == {"per_epoch": 0.75, "acceptance": 0.75}
    assert figures.drop(controlled["key"]).isna().all().all()


def test_epochs_that_are_judged_together_are_one(tmp_path):
    outcomes = ["open", "open", "kept", "open", "refused"]
    auto = run("auto", [0.5, 0.4, 0.4, 0.3, 0.3], outcomes=outcomes)
    results = loaded(tmp_path, [auto])
    assert control_figures(results.runs, results.epochs).loc[auto["key"], "acceptance"] == 0.5
