"""Performance profiles (Dolan and Moré), data profiles (Moré and Wild) and what follows from them, on plain frames.

Every function takes `costs`: one row per problem, one column per solver, in any unit. A failure costs inf. A problem
that nobody solved counts for nobody, and still divides: shares are shares of all problems.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pandas

Floats = npt.NDArray[np.float64]
AREA_LIMIT = 100.0
RESAMPLES = 500
LEVEL = 0.95


def performance_profile(costs: pandas.DataFrame) -> pandas.DataFrame:
    """The share of the problems that a solver solves at no more than `ratio` times the least cost of any solver.

    Args:
        costs: one row per problem, one column per solver, inf for never; what `solution_costs` gives.

    Returns:
        One column per solver. The index is `ratio`: 1, and every ratio at which a curve rises; a curve is flat between
        two of them.
    """
    return _steps(ratios(costs), start=1.0, name="ratio")


def data_profile(costs: pandas.DataFrame) -> pandas.DataFrame:
    """The share of the problems that a solver solves at a cost of no more than `cost`; flat between two rows.

    Args:
        costs: one row per problem, one column per solver, inf for never; what `solution_costs` gives.

    Returns:
        One column per solver, over `cost`.
    """
    return _steps(_checked(costs), start=0.0, name="cost")


def ratios(costs: pandas.DataFrame) -> pandas.DataFrame:
    """Each cost over the least of its row; equal costs are equal ratios.

    Where the least is 0, as when the start was good enough, 0 is the ratio 1 and all else is infinitely worse.

    Args:
        costs: one row per problem, one column per solver, inf for never; what `solution_costs` gives.

    Returns:
        The ratios, in the same places.
    """
    import pandas

    checked = _checked(costs)
    values = checked.to_numpy()
    best = values.min(axis=1, keepdims=True) if values.size else np.ones((len(values), 1))
    found = np.full(values.shape, np.inf)
    solved = np.isfinite(values) & (best > 0)
    with np.errstate(over="ignore"):
        np.divide(values, best, out=found, where=solved)
    found[(values == 0) & (best == 0)] = 1.0
    return pandas.DataFrame(found, index=checked.index, columns=checked.columns)


def profile_area(
    costs: pandas.DataFrame, *, limit: float = AREA_LIMIT, resamples: int = RESAMPLES, level: float = LEVEL
) -> pandas.DataFrame:
    """The area under each performance profile over log(ratio), from 1 to `limit`, as a share of the whole.

    1 is a solver that is the best on every problem, 0 one that is never within `limit` times the best.

    Args:
        costs: one row per problem, one column per solver, inf for never; what `solution_costs` gives.
        limit: the largest ratio that counts.
        resamples: of the bootstrap, the same ones on every call.
        level: of its interval.

    Returns:
        One row per solver, with `area`, and `low` and `high`, the bootstrap's percentile interval over problems.

    Raises:
        ValueError: if the limit is not above 1.
    """
    import pandas

    found = ratios(costs)
    if not limit > 1:
        raise ValueError(f"Invalid limit value: {limit!r}; expected a ratio above 1")
    with np.errstate(divide="ignore"):
        gains = np.clip(1.0 - np.log(found.to_numpy()) / np.log(limit), 0.0, 1.0)
    rows = []
    chosen = resampled(len(found), resamples)
    tail = (1.0 - level) / 2
    for column in gains.T if len(found) else np.empty((len(found.columns), 0)):
        if not len(column):
            rows.append((np.nan, np.nan, np.nan))
            continue
        means = column[chosen].mean(axis=1)
        low, high = np.quantile(means, [tail, 1.0 - tail])
        rows.append((float(column.mean()), float(low), float(high)))
    return pandas.DataFrame(rows, index=found.columns, columns=["area", "low", "high"])


def pairwise_wins(costs: pandas.DataFrame) -> pandas.DataFrame:
    """On how many problems the solver of the row cost less than that of the column; a tie is nobody's.

    Args:
        costs: one row per problem, one column per solver, inf for never; what `solution_costs` gives.

    Returns:
        One row and one column per solver.
    """
    import pandas

    checked = _checked(costs)
    values = checked.to_numpy()
    counts = (values[:, :, None] < values[:, None, :]).sum(axis=0)
    return pandas.DataFrame(counts, index=checked.columns, columns=checked.columns)


def resampled(problems: int, resamples: int) -> npt.NDArray[np.int64]:
    """Which problems are drawn, one row per resample.

    A hash of a counter rather than a generator, so that the page can draw the very same ones.
    """
    x = np.arange(resamples * problems, dtype=np.uint32) * np.uint32(0x9E3779B9)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    x ^= x >> np.uint32(16)
    drawn = (x.astype(np.uint64) * np.uint64(problems)) >> np.uint64(32)
    return drawn.astype(np.int64).reshape(resamples, problems)


def _checked(costs: pandas.DataFrame) -> pandas.DataFrame:
    values: pandas.DataFrame = costs.astype("float64")
    wrong = ~(values.to_numpy() >= 0)
    if wrong.any():
        row, column = (int(place[0]) for place in np.nonzero(wrong))
        cost = float(values.to_numpy()[row, column])
        raise ValueError(
            f"the cost of {values.columns[column]!r} on {values.index[row]!r} is {cost}; expected 0 or more, "
            "and inf for a failure (leave out problems that a solver was not run on)"
        )
    return values


def _steps(values: pandas.DataFrame, *, start: float, name: str) -> pandas.DataFrame:
    import pandas

    columns = np.sort(values.to_numpy(), axis=0)
    finite = columns[np.isfinite(columns)]
    levels = np.unique(np.concatenate([[start], finite]))
    counts: list[Any] = [np.searchsorted(column, levels, side="right") for column in columns.T]
    shares = np.array(counts, dtype=np.float64).reshape(len(values.columns), len(levels)).T / max(len(values), 1)
    return pandas.DataFrame(shares, index=pandas.Index(levels, name=name), columns=values.columns)
