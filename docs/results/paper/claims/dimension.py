"""What the paper says of more variables and of larger problems."""

from collections.abc import Iterator

import pandas

from claims.constant import disclosed, stays
from claims.measures import (
    PAPER,
    TAUS,
    Parts,
    areas,
    by_size,
    difference,
    is_complete,
    listed,
    mean,
    network_order,
    of_size,
    percent,
)
from claims.verdicts import ON_BIG, ON_SMALL, UNDECIDED, Claim, verdict
from cmalight import bench
from cmalight.bench.analysis.costs import Traces

_TAU = 1e-2
_OTHERS = [one for one in PAPER if one != "cmalight"]


def by_dataset(traces: Traces, tau: float) -> pandas.DataFrame:
    """The area of CMALight less that of each of the others, the mean over what ran on a data set."""
    found = areas(traces, tau)
    less = pandas.DataFrame({one: found["cmalight"] - found[one] for one in _OTHERS})
    dataset = traces.runs.drop_duplicates("problem").set_index("problem")["dataset"]
    return less.groupby(less.index.map(dataset)).mean()


def learnt(results: bench.Results) -> bench.Results:
    """The problems in which some solver ends better than a constant: others compare who is first at one."""
    place = ["dataset", "network", "seed"]
    left = ~stays(results)
    runs = results.runs[results.runs["key"].isin(left.index[left])]
    kept = results.runs.merge(runs[place].drop_duplicates(), on=place)["key"]
    runs = results.runs[results.runs["key"].isin(kept)].reset_index(drop=True)
    return bench.Results(runs, results.epochs[results.epochs["key"].isin(runs["key"])])


def more_variables(found: Parts) -> Iterator[Claim]:
    """Large networks beside the small ones on the same data sets."""
    results = found.large
    if not is_complete(results):
        return
    traces = bench.traces(results)
    large, small = by_dataset(traces, _TAU), by_dataset(bench.traces(found.tables), _TAU)
    shared = large.index.intersection(small.index)
    more = {one: mean((large[one] - small[one])[shared].to_numpy()) for one in _OTHERS}
    networks = ", ".join(
        f"[{one.removeprefix('paper:')}]" for one in network_order(results.runs["network"].unique())
    )
    counted = learnt(results)
    judged, why = UNDECIDED, " In none of these problems does a solver end better than a constant."
    if is_complete(counted):
        remaining = by_dataset(bench.traces(counted), _TAU)
        there = remaining.index.intersection(small.index)
        judged = verdict([mean((remaining[one] - small[one])[there].to_numpy()) for one in _OTHERS])
        why = f" Judged on the {len(there)} data sets on which some solver ends better than a constant."
    yield Claim(
        "The advantage of CMALight could be more evident with more variables.",
        f"{networks} on {', '.join(shared)} ({len(areas(traces, _TAU))} problems), τ = {_TAU:g}. Area of CMALight less "
        f"theirs: {listed({one: mean(large[one].to_numpy()) for one in _OTHERS})}. This less the same on the small "
        f"networks, data set by data set: {listed(more)}.{disclosed(results)}{why}",
        ("reproduced-large",),
        judged,
    )


def large_scale(results: bench.Results) -> Iterator[Claim]:
    """The first sentence of the paper's section 4.2."""
    if not all(is_complete(of_size(results, size)) for size in ("big", "small")):
        return
    over = {}
    for size, traces in by_size(results).items():
        for tau in TAUS:
            found = areas(traces, tau)
            over[size, tau] = (found["cmalight"] - found[_OTHERS].mean(axis=1)).to_numpy()
    ahead = {tau: mean(over["big", tau]) for tau in TAUS}
    more = {tau: difference(over["big", tau], over["small", tau]) for tau in TAUS}
    texts = [
        f"{ahead[tau].signed} at τ = {tau:g}, which is {more[tau].signed} more than on small ones"
        for tau in TAUS
    ]
    yield Claim(
        "CMALight has an increasing advantage over the other algorithms on large-scale problems (section 4.2).",
        f"Its area less the mean of those of the five, big data sets: {'; '.join(texts)}. The comparisons are that it "
        "is ahead there, and that it is more so, at each τ.",
        (*ON_SMALL, *ON_BIG),
        verdict([*ahead.values(), *more.values()]),
    )


def scales_up(found: Parts) -> Iterator[Claim]:
    results = found.large
    if not len(results.runs):
        return
    runs = results.runs[(results.runs["status"] == "done") & results.runs["solver"].isin(PAPER)]
    light = runs[runs["solver"] == "cmalight"]
    left = ~stays(results)
    mine = left.reindex(light["key"]).dropna().astype(float)
    if not len(mine):
        return
    others = left.reindex(runs[runs["solver"] != "cmalight"]["key"]).dropna()
    yield Claim(
        "Conclusion: an example proves that it easily scales up to larger data sets and deeper networks.",
        f"On the large networks CMALight makes a median of {light['epochs'].median():g} epochs in "
        f"{light['time_limit'].median():g} s; {percent(mine.mean())} of its {len(mine)} runs end better than a "
        f"constant, and {percent(others.mean())} of the {len(others)} of the other solvers. The paper's example is "
        "CIFAR-10, above.",
        ("reproduced-large",),
        verdict([mean(mine.to_numpy()).less(0.5)]) if left.any() else UNDECIDED,
    )
