"""What the paper says of more variables and of larger problems."""

from collections.abc import Iterator

import pandas

from claims.constant import disclosed, stays
from claims.measures import PAPER, Parts, areas, listed, mean, network_order
from claims.verdicts import UNDECIDED, Claim, verdict
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
    if not set(PAPER) <= set(results.runs["solver"]):
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
    if set(PAPER) <= set(counted.runs["solver"]):
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
