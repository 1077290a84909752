"""What the paper says of more variables and of larger problems."""

from collections.abc import Iterator

import pandas
from cmalight.bench.analysis.costs import Traces

from claims.constant import disclosed, stays
from claims.measures import (
    NAMES,
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
    on_networks,
    short,
)
from claims.verdicts import ON_BIG, ON_LARGE, ON_SMALL, UNDECIDED, Claim, verdict
from cmalight import bench

_TAU = 1e-2
# Data sets with a solver that has learnt something, below which nothing is judged.
_ENOUGH = 3
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
    """Large networks beside the small ones on the same data sets, network by network."""
    results = found.large
    if not is_complete(results):
        return
    small = by_dataset(bench.traces(found.tables), _TAU)
    texts = [_beside_small(part, small) for part in _by_network(results)]
    counted = learnt(results)
    judged, why = UNDECIDED, " In none of these problems does a solver end better than a constant."
    if is_complete(counted):
        remaining = by_dataset(bench.traces(counted), _TAU)
        there = remaining.index.intersection(small.index)
        why = f" Some solver ends better than a constant on {', '.join(there)} alone"
        if len(there) < _ENOUGH:
            why += ", which is too little to judge by."
        else:
            judged = verdict(
                [mean((remaining[one] - small[one])[there].to_numpy()) for one in _OTHERS]
            )
            why += ", by which the sentence is judged."
    yield Claim(
        "The advantage of CMALight could be more evident with more variables.",
        f"Area of CMALight less theirs, τ = {_TAU:g}, and how much more that is than on the small networks, data set "
        f"by data set. {' '.join(texts)}{disclosed(results)}{_without_epochs(results)}{why}",
        ON_LARGE,
        judged,
    )


def _by_network(results: bench.Results) -> list[bench.Results]:
    return [on_networks(results, [one]) for one in network_order(results.runs["network"].unique())]


def _beside_small(results: bench.Results, small: pandas.DataFrame) -> str:
    """What one network says, on the data sets that all solvers ran on."""
    name = short(results.runs["network"].iloc[0])
    large = by_dataset(bench.traces(results), _TAU) if is_complete(results) else pandas.DataFrame()
    shared = large.index.intersection(small.index)
    if not len(shared):
        return f"[{name}]: there is no problem that all solvers ran on."
    here = {one: mean(large[one][shared].to_numpy()) for one in _OTHERS}
    more = {one: mean((large[one] - small[one])[shared].to_numpy()) for one in _OTHERS}
    return f"[{name}] on {', '.join(shared)}: {listed(here)}; more by: {listed(more)}."


def _without_epochs(results: bench.Results) -> str:
    """Runs that were over before their first epoch was."""
    runs = results.runs[(results.runs["status"] == "done") & (results.runs["epochs"] == 0)]
    kinds = runs.groupby(["solver", "network", "dataset"]).size()
    texts = [
        f"{NAMES[solver]} on [{short(network)}], {dataset}"
        for solver, network, dataset in kinds.index
    ]
    return f" Runs that ended no epoch: {'; '.join(texts)}." if texts else ""


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
    left = ~stays(results)
    light = results.runs[results.runs["solver"] == "cmalight"]["key"]
    mine = left.reindex(light).dropna().astype(float)
    if not len(mine):
        return
    texts = [_size_of_runs(part, left) for part in _by_network(results)]
    yield Claim(
        "Conclusion: an example proves that it easily scales up to larger data sets and deeper networks.",
        f"Epochs that CMALight makes, the median of a network. {' '.join(filter(None, texts))}"
        f"{_without_epochs(results)} The paper's example is CIFAR-10, above.",
        ON_LARGE,
        verdict([mean(mine.to_numpy()).less(0.5)]) if left.any() else UNDECIDED,
    )


def _size_of_runs(results: bench.Results, left: "pandas.Series[bool]") -> str:
    """How far CMALight comes on one network, and how many runs, its own and others', leave the constant."""
    runs = results.runs[(results.runs["status"] == "done") & results.runs["key"].isin(left.index)]
    light = runs[runs["solver"] == "cmalight"]
    if not len(light):
        return ""
    others = runs[(runs["solver"] != "cmalight") & runs["solver"].isin(PAPER)]
    mine, theirs = (left.reindex(one["key"]).astype(int).sum() for one in (light, others))
    epochs = ", ".join(
        f"{group['epochs'].median():g} in {limit:g} s ({', '.join(sorted(group['dataset'].unique()))})"
        for limit, group in light.groupby("time_limit")
    )
    return (
        f"[{short(light['network'].iloc[0])}]: {epochs}; {mine} of {len(light)} runs of CMALight end better than a "
        f"constant, and {theirs} of {len(others)} of the others."
    )
