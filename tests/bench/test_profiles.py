"""Performance profiles, data profiles, areas and wins against counts by hand and by brute force."""

import math

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmalight.bench import data_profile, pairwise_wins, performance_profile, profile_area, ratios
from cmalight.bench.analysis.profiles import resampled

INF = math.inf


def frame(rows, solvers="ab"):
    return pandas.DataFrame(rows, columns=list(solvers), index=[f"p{n}" for n in range(len(rows))])


def at(profile, place):
    """The step function's value."""
    return profile[profile.index <= place].iloc[-1].to_dict()


def test_a_profile_counted_by_hand():
    # a is the best on p0 and p1 (b takes twice, four times as long), b on p2; nobody solved p3
    profile = performance_profile(frame([[1, 2], [1, 4], [3, 1], [INF, INF]]))
    assert profile.index.name == "ratio"
    assert list(profile.index) == [1, 2, 3, 4]
    assert list(profile["a"]) == [0.5, 0.5, 0.75, 0.75]
    assert list(profile["b"]) == [0.25, 0.5, 0.5, 0.75]


def test_golden_numbers_of_three_solvers_on_five_problems():
    costs = frame([[2, 3, 8], [5, 5, 10], [INF, 1, 1.5], [4, INF, INF], [0.3, 0.1, 0.2]], "abc")
    profile = performance_profile(costs)
    assert list(profile.index.round(6)) == [1, 1.5, 2, 3, 4]
    assert list(profile["a"]) == [0.6, 0.6, 0.6, 0.8, 0.8]
    assert list(profile["b"]) == [0.6, 0.8, 0.8, 0.8, 0.8]
    assert list(profile["c"]) == [0, 0.2, 0.6, 0.6, 0.8]
    assert pairwise_wins(costs).to_numpy().tolist() == [[0, 2, 3], [2, 0, 4], [2, 0, 0]]


def test_a_tie_is_a_ratio_of_one_for_both():
    assert at(performance_profile(frame([[7.5, 7.5]])), 1) == {"a": 1, "b": 1}
    assert pairwise_wins(frame([[7.5, 7.5], [INF, INF]])).to_numpy().tolist() == [[0, 0], [0, 0]]


def test_a_failure_is_never_within_any_ratio():
    profile = performance_profile(frame([[1, INF], [1e-300, 1e300]]))
    assert at(profile, 1e308)["b"] == 0  # 1e600 is no ratio either
    assert at(profile, 1) == {"a": 1, "b": 0}


def test_a_problem_nobody_solved_counts_for_nobody_and_still_divides():
    profile = performance_profile(frame([[1, 2], [INF, INF]]))
    assert profile.iloc[-1].to_dict() == {"a": 0.5, "b": 0.5}
    assert data_profile(frame([[1, 2], [INF, INF]])).iloc[-1].to_dict() == {"a": 0.5, "b": 0.5}


def test_costs_of_zero_are_tied_and_leave_all_others_infinitely_behind():
    assert ratios(frame([[0, 0], [0, 3], [0, INF]])).to_numpy().tolist() == [[1, 1], [1, INF], [1, INF]]


@pytest.mark.parametrize("wrong", [math.nan, -1.0])
def test_what_is_no_cost_is_refused_and_named(wrong):
    with pytest.raises(ValueError, match=r"the cost of 'b' on 'p1' is .*expected 0 or more"):
        performance_profile(frame([[1, 2], [1, wrong]]))


def test_no_problems_are_no_shares():
    assert performance_profile(frame([])).to_numpy().tolist() == [[0, 0]]
    assert profile_area(frame([]))["area"].isna().all()


def test_a_data_profile_by_hand():
    profile = data_profile(frame([[1, 2], [1, INF], [5, 0]]))
    assert profile.index.name == "cost"
    assert list(profile.index) == [0, 1, 2, 5]
    assert profile["a"].tolist() == [0, 2 / 3, 2 / 3, 1]
    assert profile["b"].tolist() == [1 / 3, 1 / 3, 2 / 3, 2 / 3]


def test_areas_by_hand():
    areas = profile_area(frame([[1, 10], [1, 1000], [1, INF]]), limit=100)
    assert areas["area"].to_dict() == pytest.approx(
        {"a": 1, "b": 0.5 / 3}
    )  # a factor of 10 is half of 100 on a log scale
    assert areas.loc["a", ["low", "high"]].tolist() == [1, 1]
    assert 0 <= areas.loc["b", "low"] < areas.loc["b", "area"] < areas.loc["b", "high"] <= 0.5
    with pytest.raises(ValueError, match="Invalid limit value: 1"):
        profile_area(frame([[1, 2]]), limit=1)


def one_drawn(counter, problems):
    """The hash in plain whole numbers."""
    x = counter * 0x9E3779B9 % 2**32
    x = (x ^ x >> 16) * 0x85EBCA6B % 2**32
    x = (x ^ x >> 13) * 0xC2B2AE35 % 2**32
    return (x ^ x >> 16) * problems // 2**32


def test_resamples_are_the_same_everywhere_and_draw_every_problem_alike():
    assert resampled(7, 3).reshape(-1).tolist() == [one_drawn(counter, 7) for counter in range(21)]
    counts = np.bincount(resampled(20, 5000).reshape(-1), minlength=20)
    assert counts.min() > 4700
    assert counts.max() < 5300


costs_of_problems = st.integers(1, 4).flatmap(
    lambda solvers: st.lists(
        st.lists(
            st.one_of(st.sampled_from([0.0, 1.0, 2.0, INF]), st.floats(0.001, 1000.0)),
            min_size=solvers,
            max_size=solvers,
        ),
        min_size=1,
        max_size=8,
    )
)


def ratio_by_definition(row, cost):
    best = min(row)
    if cost == INF:
        return INF
    if best == 0:
        return 1.0 if cost == 0 else INF
    return cost / best


@given(costs_of_problems, st.floats(1.0, 50.0))
def test_profiles_equal_a_count_by_brute_force(rows, place):
    costs = frame(rows, "abcd"[: len(rows[0])])
    performance, data, wins = performance_profile(costs), data_profile(costs), pairwise_wins(costs)
    for column, solver in enumerate(costs.columns):
        for probe in (place, *performance.index):
            within = sum(ratio_by_definition(row, row[column]) <= probe for row in rows)
            assert at(performance, probe)[solver] == within / len(rows)
        for probe in (place, *data.index):
            assert at(data, probe)[solver] == sum(row[column] <= probe for row in rows) / len(rows)
        for other, name in enumerate(costs.columns):
            assert wins.loc[solver, name] == sum(row[column] < row[other] for row in rows)


@given(costs_of_problems)
def test_the_area_is_that_under_the_curve(rows):
    costs = frame(rows, "abcd"[: len(rows[0])])
    profile = performance_profile(costs)
    edges = np.log(np.clip([*profile.index, 100.0], None, 100.0)) / np.log(100.0)
    under = (profile.to_numpy() * np.diff(edges)[:, None]).sum(axis=0)
    assert profile_area(costs, resamples=10)["area"].to_numpy() == pytest.approx(under, abs=1e-12)
