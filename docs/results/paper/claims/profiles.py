"""What the paper says of the performance profiles."""

from collections.abc import Iterator, Sequence

from claims.constant import disclosed
from claims.measures import PAPER, TAUS, Figure, advantages, areas, by_size, listed, mean, of_size
from claims.verdicts import ON_BIG, ON_SMALL, Claim, verdict
from cmalight import bench
from cmalight.bench.analysis.costs import Problems, Traces

_SAME = 0.1  # an area that changes by less behaves as before


def profiles(results: bench.Results) -> Iterator[Claim]:
    others = ("adadelta", "adagrad", "ig", "cma")
    big, small = by_size(results).values()
    on_big, on_small = (disclosed(of_size(results, size)) for size in ("big", "small"))
    kinds: tuple[Problems, ...] = ("start", "pair")
    margins: dict[tuple[float, Problems], dict[str, Figure]] = {}
    for tau in TAUS:
        for kind in kinds:
            margins[tau, kind] = advantages(areas(big, tau, problems=kind), "cmalight", others)
    yield Claim(
        "Low precision (τ = 0.1), big data sets: CMALight slightly outperforms Adadelta, Adagrad, IG and CMA "
        "(Figure 2a).",
        f"Area under its profile less theirs: {listed(margins[0.1, 'start'])}. Adam, which the sentence leaves out: "
        f"{advantages(areas(big, 0.1), 'cmalight', ['adam'])['adam'].signed}.{on_big}",
        ON_BIG,
        *(verdict(list(margins[0.1, kind].values())) for kind in kinds),
    )
    yield from _cma_on_small(
        small,
        [0.1],
        "Low precision, small data sets: CMA is ahead of all others (Figure 2b).",
        on_small,
    )
    yield _unchanged(small, on_small)
    yield from _cma_on_small(
        small,
        [1e-2, 1e-4],
        "Higher precision, small data sets: CMA is still the best (Figures 3b, 4b).",
        on_small,
    )
    yield _decrease(big, others, on_big)


def outperforms(results: bench.Results) -> Claim:
    """The first sentence of the conclusions, at every precision."""
    big = bench.traces(of_size(results, "big"))
    others = [one for one in PAPER if one != "cmalight"]
    kinds: tuple[Problems, ...] = ("start", "pair")
    found = {
        (tau, kind): advantages(areas(big, tau, problems=kind), "cmalight", others)
        for tau in TAUS
        for kind in kinds
    }
    texts = [f"τ = {tau:g}: {listed(found[tau, 'start'])}" for tau in TAUS]
    return Claim(
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


def _cma_on_small(small: Traces, taus: Sequence[float], said: str, stuck: str) -> Iterator[Claim]:
    others = [one for one in PAPER if one != "cma"]
    kinds: tuple[Problems, ...] = ("start", "pair")
    found = {
        (tau, kind): advantages(areas(small, tau, problems=kind), "cma", others)
        for tau in taus
        for kind in kinds
    }
    texts = [f"τ = {tau:g}: {listed(found[tau, 'start'])}" for tau in taus]
    yield Claim(
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
