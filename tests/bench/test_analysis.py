"""Costs, profiles, medians and the sentence, with numbers that were worked out by hand."""

import numpy as np
import pandas
import pytest

from cmalight.bench import Results, load
from cmalight.bench.analysis import (
    COLUMNS,
    best_of_grid,
    data_profile,
    performance_profile,
    profile_area,
    ratios,
    resampled,
    results_table,
    solution_costs,
    summary,
    tail,
    unseen_summary,
)
from tests.bench.common import folder_of, spec
from tests.bench.frames import INF, NAN, results, run


def frame(rows, names="ab"):
    values = np.array(rows, dtype=float).reshape(len(rows), len(names))
    return pandas.DataFrame(values, columns=list(names), index=pandas.RangeIndex(len(rows), name="problem"))


def on(*sources):
    """Results whose n-th problem is on the n-th of these sources."""
    return results(*(run("a", [1], problem=number, source=name) for number, name in enumerate(sources)))


def costs(found, tau, **options):
    return {name: list(column) for name, column in solution_costs(found, tau, **options).items()}


def test_a_problem_is_solved_at_the_first_point_that_is_low_enough():
    # The lowest loss is 0: at tau 0.5 the target is 0.5, at 0.1 it is 0.1.
    found = results(run("a", [1, 0.5, 0.2, 0.1]), run("b", [1, 0.9, 0.05, 0]))
    assert costs(found, 0.5) == {"a": [1], "b": [2]}
    assert costs(found, 0.1) == {"a": [3], "b": [2]}
    assert costs(found, 0) == {"a": [INF], "b": [3]}


def test_hiding_a_solver_moves_the_target():
    found = results(run("a", [1, 0.5, 0.4]), run("b", [1, 0, 0]))
    assert costs(found, 0.1) == {"a": [INF], "b": [1]}
    assert costs(found, 0.1, solvers=["a"]) == {"a": [2]}  # 0.4 + 0.1 (1 - 0.4) = 0.46


def test_each_measure_is_what_was_spent_by_then():
    spent = {"seconds": [0, 0.5, 1.5], "evaluations": [0, 2, 7], "work": [0, 1.7, 4.4]}
    found = results(run("a", [1, 0.5, 0], **spent))
    assert [costs(found, 0.1, measure=measure)["a"] for measure in COLUMNS] == [[1.5], [4.4], [7], [2]]


def test_a_target_on_the_validation_loss():
    found = results(run("a", [1, 0.5, 0], validation=[2, 1, 1.5]), run("b", [1, 0.9, 0.8], validation=[2, 1.8, 1.1]))
    assert costs(found, 0.2, loss="validation_loss") == {"a": [1], "b": [2]}  # 1 + 0.2 (2 - 1) = 1.2


@pytest.mark.parametrize("status", ["diverged", "failed", "crashed", "timed_out"])
def test_a_failed_run_costs_infinity_and_sets_no_target(status):
    found = results(run("a", [1, 0, 0], status=status), run("b", [1, 0.9, 0.5]))
    assert costs(found, 0.1) == {"a": [INF], "b": [2]}
    assert costs(results(run("a", [1, 0], status=status)), 0.1) == {"a": [INF]}


def test_points_that_are_not_finite_are_passed_over():
    found = results(run("a", [1, NAN, INF, 0]), run("b", [1, 0.5, NAN, 0.3]))
    assert costs(found, 0.6) == {"a": [3], "b": [1]}


def test_a_problem_costs_the_median_over_its_seeds_with_failures_infinite():
    runs = [run("a", [1, 0], seed=0), run("a", [1, 1, 0], seed=1), run("a", [1, 0], seed=2, status="failed")]
    assert costs(results(*runs), 0.1) == {"a": [2]}
    assert costs(results(*runs), 0.1, per="seed") == {"a": [1, 2, INF]}
    assert costs(results(runs[0], runs[2]), 0.1) == {"a": [INF]}


def test_seeds_without_a_result_of_every_solver_are_left_out():
    found = results(run("a", [1, 0]), run("b", [1, 1, 0]), run("a", [1, 1, 0], seed=1))
    assert costs(found, 0.1) == {"a": [1], "b": [2]}
    table = solution_costs(found, 0.1, per="seed", complete=False)
    assert table["a"].tolist() == [1, 2]
    assert table["b"].isna().tolist() == [False, True]
    assert solution_costs(results(run("a", [1, 0]), run("b", [1, 0], seed=1)), 0.1).empty


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"tau": 2}, "Invalid tau value: 2"),
        ({"tau": 0.1, "measure": "hours"}, "expected one of seconds, work, evaluations, epochs"),
        ({"tau": 0.1, "loss": "test"}, "Invalid loss value"),
        ({"tau": 0.1, "solvers": ["b"]}, "Invalid solvers value: 'b'; expected one of a"),
    ],
)
def test_wrong_arguments_are_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        solution_costs(results(run("a", [1, 0])), **wrong)


def test_no_run_and_the_same_run_twice_are_refused():
    found = results(run("a", [1, 0]))
    with pytest.raises(ValueError, match="there is no run to compare"):
        solution_costs(Results(found.runs[:0], found.points[:0]), 0.1)
    with pytest.raises(ValueError, match="a on data 1x5, seed 0: results of different code"):
        solution_costs(results(run("a", [1, 0]), run("a", [1, 0.5])), 0.1)


def test_profiles_counted_by_hand():
    costs = frame([[1, 2], [1, 4], [3, 1], [INF, INF]])
    profile = performance_profile(costs)
    assert list(profile.index) == [1, 2, 3, 4]
    assert profile["a"].tolist() == [0.5, 0.5, 0.75, 0.75]
    assert profile["b"].tolist() == [0.25, 0.5, 0.5, 0.75]
    profile = data_profile(costs)
    assert list(profile.index) == [0, 1, 2, 3, 4]
    assert profile["a"].tolist() == [0, 0.5, 0.5, 0.75, 0.75]


def test_ratios_of_ties_failures_and_costs_of_zero():
    found = ratios(frame([[2, 2], [0, 3], [0, 0], [INF, 5], [INF, INF], [1e-300, 1e300]]))
    assert found.to_numpy().tolist() == [[1, 1], [1, INF], [1, 1], [INF, 1], [INF, INF], [1, INF]]


@pytest.mark.parametrize("wrong", [NAN, -1])
def test_what_is_no_cost_is_refused_and_named(wrong):
    for profile in (performance_profile, data_profile, lambda table: profile_area(table, on("x", "y"))):
        with pytest.raises(ValueError, match="the cost of 'b' on 1 is"):
            profile(frame([[1, 2], [1, wrong]]))


def test_areas_by_hand():
    # A ratio of 10, of at most 100, is half of the logarithmic axis.
    areas = profile_area(frame([[1, 10], [1, 1000], [1, INF]]), on("x", "y", "z"))
    assert areas["area"].tolist() == pytest.approx([1, 0.5 / 3])


def test_five_cuts_of_one_data_set_are_one_source_and_have_no_interval(tmp_path):
    def areas(datasets):
        named = [{"dataset": one, "name": f"set {n}"} for n, one in enumerate(datasets)]
        study = spec(datasets=named, solvers=["adam", "sgd"], name=str(len(list(tmp_path.iterdir()))))
        found = load(folder_of(tmp_path / study.name, study))
        return found.runs["source"].unique().tolist(), profile_area(solution_costs(found, 0.1), found)

    sources, cuts = areas([f"teacher:rows={rows},features=5" for rows in (100, 200, 300, 400, 500)])
    assert sources == ["teacher"]
    assert cuts[["low", "high"]].isna().all(axis=None)
    sources, sets = areas(["wine", "digits", "breast-cancer", "diabetes:rows=100", "teacher:rows=100"])
    assert sources == ["wine", "digits", "breast-cancer", "diabetes", "teacher"]
    assert sets[["low", "high"]].notna().all(axis=None)


def test_resampled_data_sets_bring_all_their_problems():
    """The means of a straightforward bootstrap with another generator."""
    chance = np.random.default_rng(0)
    names = np.repeat(list("abcdef"), [1, 2, 3, 4, 5, 6])
    table = frame([[1, cost] for cost in chance.choice([1, 3, 10, 200], len(names))])
    gains = np.clip(1 - np.log(ratios(table)["b"].to_numpy()) / np.log(100), 0, 1)
    sets = [gains[names == name] for name in "abcdef"]
    means = [np.concatenate([sets[n] for n in chance.integers(6, size=6)]).mean() for _ in range(4000)]
    found = profile_area(table, on(*names)).loc["b", ["low", "high"]].tolist()
    assert found == pytest.approx(np.quantile(means, [tail(6), 1 - tail(6)]).tolist(), abs=0.04)


@pytest.mark.parametrize(("cases", "least"), [(5, 0.9), (9, 0.93)])
def test_an_interval_holds_the_mean_about_as_often_as_it_says_although_the_cases_are_few(cases, least):
    """Cases of a normal distribution, of which plain percentiles hold 85 % with five and 90 % with nine."""
    values = np.random.default_rng(0).normal(size=(1000, cases))
    drawn = resampled(cases, 2000)
    ends = [np.quantile(one[drawn].mean(axis=1), [tail(cases), 1 - tail(cases)]) for one in values]
    held = np.mean([low <= 0 <= high for low, high in ends])
    assert least < held < 0.97


def test_of_many_cases_an_interval_ends_at_the_plain_percentiles():
    assert tail(10**6) == pytest.approx(0.025, rel=1e-4)


def test_no_problems_have_no_area_and_no_fraction():
    assert profile_area(frame([]), on("x")).isna().all(axis=None)
    assert performance_profile(frame([])).to_numpy().tolist() == [[0, 0]]


def test_the_best_of_a_grid_is_chosen_problem_by_problem_by_the_median_training_loss():
    def tuned(lr, problem, losses, status="done"):
        runs = enumerate(losses)
        return [run(f"adam lr={lr}", [1, x], problem=problem, seed=n, grid="adam", status=status) for n, x in runs]

    made = [*tuned(1, "p", [0.1, 0.1, 0.9]), *tuned(2, "p", [0.2, 0.2, 0.2]), run("sgd", [1, 0.3], problem="p")]
    made += [*tuned(1, "q", [0.1], status="failed"), *tuned(2, "q", [0.5])]
    found = best_of_grid(results(*made)).runs
    best = found[found["solver"] == "adam, best of 2"]
    assert best[["problem", "final_loss"]].values.tolist() == [["p", 0.1], ["p", 0.1], ["p", 0.9], ["q", 0.5]]
    assert best_of_grid(results(run("sgd", [1, 0.3]))).runs["solver"].tolist() == ["sgd"]


def test_the_second_sentence_is_about_unseen_data():
    made = [run("a", [1, 0], validation=[1, 0.9], problem=problem) for problem in "pqr"]
    made += [run("b", [1, 1, 0], validation=[1, 0.5, 0.4], problem=problem) for problem in "pq"]
    made += [run("b", [1, 1, 0], validation=[1, 0.5, 0.95], problem="r")]
    found = results(*made)
    table = solution_costs(found, 0.1)
    assert summary(table) == "a reached the target in the least training time on 3 of 3 problems."
    assert unseen_summary(found, table) == "On unseen data, b ended lowest on 2 of 3 problems."
    blind = results(run("a", [1, 0]))
    assert unseen_summary(blind, solution_costs(blind, 0.1)) == "No loss on unseen data was measured for every solver."


@pytest.mark.parametrize(
    ("rows", "measure", "sentence"),
    [
        ([[1, 2], [1, 4], [3, 1]], "seconds", "a reached the target in the least training time on 2 of 3 problems."),
        ([[1, 2], [3, 1]], "work", "a and b reached the target with the least work on 1 of 2 problems each."),
        ([[INF, 2]], "evaluations", "b reached the target with the fewest evaluations on 1 of 1 problem."),
        ([[INF, INF], [INF, INF]], "epochs", "No solver reached the target on any of 2 problems."),
        ([], "seconds", "No problem has a result of every solver yet."),
    ],
)
def test_the_sentence(rows, measure, sentence):
    assert summary(frame(rows), measure=measure) == sentence


def test_the_sentence_over_single_seeds_counts_starts():
    found = results(*(run(solver, [1, 0], seed=seed) for solver in "ab" for seed in (0, 1)))
    sentence = "a and b reached the target in the least training time on 2 of 2 starts each."
    assert summary(solution_costs(found, 0.1, per="seed")) == sentence


def test_the_table_never_skips_a_failed_seed():
    lucky = [run("lucky", [1, 0.01], seed=0), *(run("lucky", [1, 0.5], seed=n, status="diverged") for n in (1, 2))]
    steady = [run("steady", [1, 0.2], seed=n) for n in range(3)]
    table = results_table(results(*lucky, *steady)).set_index("solver")
    shown = table[["ended", "final_loss", "seconds_to_0.1", "reached_0.1"]]
    assert shown.loc["lucky"].tolist() == ["2 diverged, 1 done", INF, INF, 1]
    assert shown.loc["steady"].tolist() == ["3 done", 0.2, 1, 2]  # from seed 0 the target is 0.109


def test_the_table_has_the_figures_that_were_measured():
    with_classes = run("a", [1, 0.5], problem="p", accuracy=[0.1, 0.9], accepted=0.75, evaluations=[1, 4])
    without = run("a", [1, 0.5], problem="q", status="failed")
    table = results_table(results(with_classes, without))
    assert list(table)[:6] == ["problem", "solver", "ended", "final_loss", "best_loss", "final_accuracy"]
    assert list(table)[-2:] == ["evaluations", "accepted"]
    assert table["final_accuracy"].tolist()[0] == 0.9
    assert np.isnan(table["final_accuracy"].tolist()[1])
    assert table.loc[0, ["evaluations", "accepted"]].tolist() == [4, 0.75]
    failed = results(with_classes, run("b", [1], problem="p", status="crashed", accuracy=[0.1]))
    assert results_table(failed)["final_accuracy"].tolist() == [0.9, -INF]
