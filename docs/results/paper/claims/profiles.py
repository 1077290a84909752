"""What the paper says of the performance profiles."""

from collections.abc import Iterator, Sequence

import numpy as np

from claims.constant import disclosed
from claims.measures import PAPER, TAUS, Figure, advantages, areas, by_size, listed, of_size
from claims.verdicts import ON_BIG, ON_SMALL, Claim, verdict
from cmalight import bench
from cmalight.bench.analysis.costs import Problems, Traces


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
        *(verdict([one.value > 0 for one in margins[0.1, kind].values()]) for kind in kinds),
    )
    yield from _cma_on_small(
        small,
        [0.1],
        "Low precision, small data sets: CMA is ahead of all others (Figure 2b).",
        on_small,
    )
    yield from _cma_on_small(
        small,
        [1e-2, 1e-4],
        "Higher precision, small data sets: CMA is still the best (Figures 3b, 4b).",
        on_small,
    )
    least = {key: min(one.value for one in found.values()) for key, found in margins.items()}
    means = {
        key: float(np.mean([one.value for one in found.values()])) for key, found in margins.items()
    }
    yield Claim(
        "Higher precision, big data sets: the advantage of CMALight slightly decreases (Figures 3a, 4a).",
        "Its mean advantage over the four is "
        + ", ".join(f"{means[tau, 'start']:+.2f} at τ = {tau:g}" for tau in TAUS).replace(
            "-0.", "−0."
        )
        + "; over the nearest of them "
        + ", ".join(f"{least[tau, 'start']:+.2f}" for tau in TAUS).replace("-0.", "−0.")
        + f".{on_big}",
        ON_BIG,
        *(
            verdict(
                [0 < means[0.1, kind] > means[tau, kind] for tau in TAUS[1:]]
            )  # what is not there cannot decrease
            for kind in kinds
        ),
    )
    everybody = [one for one in PAPER if one != "cmalight"]
    whole = {
        kind: advantages(areas(big, 1e-2, problems=kind), "cmalight", everybody) for kind in kinds
    }
    yield Claim(
        "Conclusion: CMALight outperforms CMA and the other solvers on large-scale data sets.",
        f"Big data sets, τ = 0.01: {listed(whole['start'])}.{on_big}",
        ON_BIG,
        *(verdict([one.value > 0 for one in whole[kind].values()]) for kind in kinds),
    )


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
        *(
            verdict([one.value > 0 for tau in taus for one in found[tau, kind].values()])
            for kind in kinds
        ),
    )


def large(results: bench.Results) -> Iterator[Claim]:
    if not set(PAPER) <= set(results.runs["solver"]):
        return
    others = [one for one in PAPER if one != "cmalight"]
    found = {
        kind: advantages(areas(results, 1e-2, problems=kind), "cmalight", others)
        for kind in ("start", "pair")
    }
    where = ", ".join(sorted(results.runs["dataset"].unique()))
    count = len(areas(results, 1e-2))
    yield Claim(
        "The advantage of CMALight could be more evident with more variables.",
        f"[12x300] on {where} ({count} problems), τ = 0.01, area of CMALight less theirs: {listed(found['start'])}."
        f"{disclosed(results)}",
        ("reproduced-large",),
        *(verdict([one.value > 0 for one in found[kind].values()]) for kind in ("start", "pair")),
    )
