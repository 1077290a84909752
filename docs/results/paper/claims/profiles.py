"""What the paper says of the performance profiles."""

from collections.abc import Iterator, Sequence

from cmalight.bench.analysis.costs import Problems, Traces

from claims.constant import disclosed
from claims.measures import (
    PAPER,
    TAUS,
    Figure,
    advantages,
    areas,
    is_complete,
    listed,
    mean,
    of_size,
)
from claims.verdicts import ON_BIG, ON_SMALL, Claim, verdict
from cmalight import bench

_SAME = 0.1  # an area that changes by less behaves as before


def profiles(results: bench.Results) -> Iterator[Claim]:
    """Those on big and on small data sets, in the paper's order, for the sizes that ran."""
    big, small = (of_size(results, size) for size in ("big", "small"))
    others = ("adadelta", "adagrad", "ig", "cma")
    if is_complete(big):
        yield _low_precision(bench.traces(big), others, disclosed(big))
    if is_complete(small):
        traces, stuck = bench.traces(small), disclosed(small)
        said = "Low precision, small data sets: CMA is ahead of all others (Figure 2b)."
        yield _cma_on_small(traces, TAUS[:1], said, stuck)
        yield _unchanged(traces, stuck)
        said = "Higher precision, small data sets: CMA is still the best (Figures 3b, 4b)."
        yield _cma_on_small(traces, TAUS[1:], said, stuck)
    if is_complete(big):
        yield _decrease(bench.traces(big), others, disclosed(big))


def _low_precision(big: Traces, others: Sequence[str], stuck: str) -> Claim:
    kinds: tuple[Problems, ...] = ("start", "pair")
    margins = {
        kind: advantages(areas(big, 0.1, problems=kind), "cmalight", others) for kind in kinds
    }
    return Claim(
        "Low precision (τ = 0.1), big data sets: CMALight slightly outperforms Adadelta, Adagrad, IG and CMA "
        "(Figure 2a).",
        f"Area under its profile less theirs: {listed(margins['start'])}. Adam, which the sentence leaves out: "
        f"{advantages(areas(big, 0.1), 'cmalight', ['adam'])['adam'].signed}.{stuck}",
        ON_BIG,
        *(verdict(list(margins[kind].values())) for kind in kinds),
    )


def outperforms(results: bench.Results) -> Iterator[Claim]:
    """The first sentence of the conclusions, at every precision."""
    if not is_complete(of_size(results, "big")):
        return
    big = bench.traces(of_size(results, "big"))
    others = [one for one in PAPER if one != "cmalight"]
    kinds: tuple[Problems, ...] = ("start", "pair")
    found = {
        (tau, kind): advantages(areas(big, tau, problems=kind), "cmalight", others)
        for tau in TAUS
        for kind in kinds
    }
    texts = [f"τ = {tau:g}: {listed(found[tau, 'start'])}" for tau in TAUS]
    yield Claim(
        "Conclusion: CMALight outperforms CMA and the other solvers on large-scale data sets.",
        f"Big data sets, area of CMALight less theirs, {'; '.join(texts)}."
        f"{disclosed(of_size(results, 'big'))}",
        ON_BIG,
        *(verdict([one for tau in TAUS for one in found[tau, kind].values()]) for kind in kinds),
    )


def _unchanged(small: Traces, stuck: str) -> Claim:
    kinds: tuple[Problems, ...] = ("start", "pair")
    changes = {}
    for kind in kinds:
        found = {tau: areas(small, tau, problems=kind) for tau in TAUS}
        for tau in TAUS[1:]:
            changes[tau, kind] = {
                one: mean((found[tau][one] - found[0.1][one]).to_numpy()) for one in PAPER
            }
    texts = [f"to τ = {tau:g}: {listed(changes[tau, 'start'])}" for tau in TAUS[1:]]
    return Claim(
        "Higher precision, small data sets: the behaviour of the algorithms does not change significantly.",
        f"The areas change from τ = 0.1 {'; '.join(texts)}. An interval within ±{_SAME:g} counts for the sentence, one "
        f"that lies on one side of 0 and is not within that against it.{stuck}",
        ON_SMALL,
        *(
            verdict([_is_same(one) for tau in TAUS[1:] for one in changes[tau, kind].values()])
            for kind in kinds
        ),
    )


def _is_same(change: Figure) -> Figure:
    """As a margin: of a change that is small, that is not, or of which neither is settled."""
    low, high = round(change.low, 2), round(change.high, 2)
    if -_SAME <= low and high <= _SAME:
        return Figure(1.0, 1.0, 1.0)
    is_open = low <= 0 <= high
    return Figure(0.0, -1.0, 1.0) if is_open else Figure(-1.0, -1.0, -1.0)


def _cma_on_small(small: Traces, taus: Sequence[float], said: str, stuck: str) -> Claim:
    others = [one for one in PAPER if one != "cma"]
    kinds: tuple[Problems, ...] = ("start", "pair")
    found = {
        (tau, kind): advantages(areas(small, tau, problems=kind), "cma", others)
        for tau in taus
        for kind in kinds
    }
    texts = [f"τ = {tau:g}: {listed(found[tau, 'start'])}" for tau in taus]
    return Claim(
        said,
        f"Area of CMA less theirs, {'; '.join(texts)}.{stuck}",
        ON_SMALL,
        *(verdict([one for tau in taus for one in found[tau, kind].values()]) for kind in kinds),
    )


def _decrease(big: Traces, others: Sequence[str], stuck: str) -> Claim:
    kinds: tuple[Problems, ...] = ("start", "pair")
    ahead, falls = {}, {}
    for kind in kinds:
        found = {tau: areas(big, tau, problems=kind) for tau in TAUS}
        over = {tau: one["cmalight"] - one[list(others)].mean(axis=1) for tau, one in found.items()}
        ahead[kind] = {tau: mean(one.to_numpy()) for tau, one in over.items()}
        falls[kind] = {tau: mean((over[0.1] - over[tau]).to_numpy()) for tau in TAUS[1:]}
    texts = [f"{one.signed} at τ = {tau:g}" for tau, one in ahead["start"].items()]
    changes = [f"{(-one).signed} to τ = {tau:g}" for tau, one in falls["start"].items()]
    return Claim(
        "Higher precision, big data sets: the advantage of CMALight slightly decreases (Figures 3a, 4a).",
        f"Its area less the mean of those of the four is {', '.join(texts)}; it changes from τ = 0.1 by "
        f"{' and by '.join(changes)}. The comparisons are three: that there is an advantage at τ = 0.1, and that it "
        f"decreases to either of the others.{stuck}",
        ON_BIG,
        *(verdict([ahead[kind][0.1], *falls[kind].values()]) for kind in kinds),
    )
