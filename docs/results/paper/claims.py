"""The claims of the paper's section on results, each as figures of the published runs."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas

from cmalight import bench
from cmalight.bench.analysis.costs import Problems, Traces
from cmalight.bench.analysis.profiles import AREA_LIMIT, resampled
from cmalight.bench.analysis.sizes import size_of
from cmalight.bench.analysis.summaries import ACCEPTED, control_figures

PAPER = ("cmalight", "cma", "ig", "adam", "adagrad", "adadelta")
NAMES = {
    "cmalight": "CMALight",
    "cma": "CMA",
    "ig": "IG",
    "adam": "Adam",
    "adagrad": "Adagrad",
    "adadelta": "Adadelta",
}
DESCENT = Path(__file__).with_name("descent.json")
TAUS = (1e-1, 1e-2, 1e-4)
LAMBDAS = {", λ = 0": "0", ", λ = 1e-6": "1e-6", ", λ = 1e-4": "1e-4"}
HOLDS, PARTLY, NOT_SEEN = "holds", "holds in part", "not seen"
_SMALL_NETWORKS = ("paper:1x50", "paper:3x20", "paper:5x50", "paper:10x50")
_ON_SMALL = ("reproduced-small",)
_ON_BIG = ("reproduced-big", "reproduced-covtype")
_RESAMPLES = 2000


@dataclass(frozen=True)
class Figure:
    """A number with its 95 % interval, a bootstrap over problems or runs."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{_signless(self.value)} [{_signless(self.low)}, {_signless(self.high)}]"

    @property
    def signed(self) -> str:
        return f"{self.value:+.2f} [{self.low:+.2f}, {self.high:+.2f}]".replace("-", "−")


def _signless(number: float) -> str:
    return f"{number:.2f}".replace("-", "−")


@dataclass(frozen=True)
class Parts:
    """The published runs, by what they are for.

    Attributes:
        tables: the paper's solvers on its small networks, compiled.
        today: solvers of today on the same problems, eager.
        large: the paper's solvers on a large network.
        regularised: the same with a regulariser.
        images: of CIFAR-10.
    """

    tables: bench.Results
    today: bench.Results
    large: bench.Results
    regularised: bench.Results
    images: bench.Results


def parts(results: bench.Results) -> Parts:
    runs = results.runs
    is_image = runs["dataset"].str.startswith("cifar10")
    of_lambda = runs["solver"].str.contains("λ")
    on_table = ~is_image & ~of_lambda & runs["network"].isin(_SMALL_NETWORKS)
    is_compiled = runs["engine"] == "compiled"
    if not is_compiled.any():  # a study of one part, as the quick one
        is_compiled, is_eager = on_table, on_table
    else:
        is_eager = ~is_compiled
    return Parts(
        tables=_part(results, on_table & is_compiled),
        today=_part(results, on_table & is_eager),
        large=_part(results, ~is_image & ~of_lambda & ~on_table),
        regularised=_part(results, of_lambda),
        images=_part(results, is_image),
    )


def _part(results: bench.Results, mask: "pandas.Series[bool]") -> bench.Results:
    runs = results.runs[mask].reset_index(drop=True)
    return bench.Results(
        runs, results.epochs[results.epochs["key"].isin(runs["key"])].reset_index(drop=True)
    )


def of_size(results: bench.Results, size: str) -> bench.Results:
    """The runs on small or on big data sets, as Table 2 of the paper has them."""
    names = results.runs["dataset"]
    return _part(results, names.isin([name for name in names.unique() if size_of(name) == size]))


def by_size(results: bench.Results) -> dict[str, Traces]:
    """What areas and profiles are computed from, for big and for small data sets; made once, it serves every τ."""
    return {size: bench.traces(of_size(results, size)) for size in ("big", "small")}


def mean(values: Sequence[float]) -> Figure:
    """With its interval, the same resamples on every call."""
    known = np.asarray(values, dtype=np.float64)
    known = known[np.isfinite(known)]
    if not len(known):
        return Figure(*[float("nan")] * 3)
    means = known[resampled(len(known), _RESAMPLES)].mean(axis=1)
    return Figure(float(known.mean()), *map(float, np.quantile(means, [0.025, 0.975])))


def gains(costs: pandas.DataFrame) -> pandas.DataFrame:
    """By problem and solver: 1 for the quickest, 0 for a hundred times its time or never; their means are the areas."""
    with np.errstate(divide="ignore"):
        logs = np.log(bench.ratios(costs).to_numpy())
    return pandas.DataFrame(
        np.clip(1 - logs / np.log(AREA_LIMIT), 0, 1), index=costs.index, columns=costs.columns
    )


def areas(
    source: bench.Results | Traces,
    tau: float,
    *,
    solvers: Sequence[str] = PAPER,
    problems: Problems = "start",
) -> pandas.DataFrame:
    """`gains` of those solvers, on the problems that all of them have a result of."""
    return gains(bench.solution_costs(source, tau, solvers=solvers, problems=problems))


def advantages(found: pandas.DataFrame, solver: str, others: Sequence[str]) -> dict[str, Figure]:
    """The difference of the areas of a solver and of each of the others."""
    return {other: mean((found[solver] - found[other]).to_numpy()) for other in others}


def verdict(checks: Sequence[bool]) -> str:
    """All of the comparisons that a claim makes, at least half of them, or fewer."""
    return HOLDS if all(checks) else PARTLY if sum(checks) * 2 >= len(checks) else NOT_SEEN


@dataclass(frozen=True)
class Claim:
    """A row of the page: what the paper says, what was seen where, and the verdicts, by starts and by pairs."""

    said: str
    seen: str
    where: tuple[str, ...]
    by_start: str
    by_pair: str = ""

    def row(self) -> str:
        same = not self.by_pair or self.by_pair == self.by_start
        judged = (
            f"**{self.by_start}**" if same else f"**{self.by_start}**; by pairs: {self.by_pair}"
        )
        return f"| {self.said} | {self.seen} *Run: {', '.join(self.where)}.* | {judged} |"


def claims(found: Parts) -> Iterator[Claim]:
    yield from _control(found.tables)
    yield _descent(json.loads(DESCENT.read_text(encoding="utf-8")))
    yield from _profiles(found.tables)
    yield from _large(found.large)
    yield from _images(found.images)


def _control(results: bench.Results) -> Iterator[Claim]:
    runs = results.runs[(results.runs["status"] == "done") & (results.runs["epochs"] > 0)]
    figures = control_figures(runs, results.epochs)
    runs = runs.assign(
        per_epoch=runs["key"].map(figures["per_epoch"]),
        acceptance=runs["key"].map(figures["acceptance"]),
    )
    wide = runs[runs["solver"].isin(["cmalight", "cma"])].pivot(
        index=["dataset", "network", "seed"], columns="solver", values=["per_epoch", "acceptance"]
    )
    wide = wide.dropna()
    light, full = (mean(wide["per_epoch"][name].to_numpy()) for name in ("cmalight", "cma"))
    medians = [float(wide["per_epoch"][name].median()) for name in ("cmalight", "cma")]
    pairs = wide.groupby(level=[0, 1]).mean()
    fewer = mean((wide["per_epoch"]["cmalight"] / wide["per_epoch"]["cma"]).to_numpy())
    below = [
        bool(frame["per_epoch"]["cmalight"].mean() < frame["per_epoch"]["cma"].mean())
        for frame in (wide, pairs)
    ]
    yield Claim(
        "CMALight needs significantly fewer evaluations of the whole objective per epoch than CMA (Figure 1b).",
        f"{light} against {full} per epoch, over {len(wide)} starts (medians {medians[0]:.2f} and {medians[1]:.2f}); "
        f"their ratio is {fewer}.",
        (*_ON_SMALL, *_ON_BIG),
        *(HOLDS if one else NOT_SEEN for one in below),
    )
    lower = (wide["acceptance"]["cmalight"] - wide["acceptance"]["cma"]).to_numpy()
    rates = [mean(wide["acceptance"][name].to_numpy()) for name in ("cmalight", "cma")]
    lower_by_pair = (pairs["acceptance"]["cmalight"] - pairs["acceptance"]["cma"]).to_numpy()
    yield Claim(
        "The acceptance rate of the tentative point is slightly lower in CMALight than in CMA (Figure 1a).",
        f"{rates[0]} against {rates[1]}: {mean(lower).signed}.",
        (*_ON_SMALL, *_ON_BIG),
        *(HOLDS if one.mean() < 0 else NOT_SEEN for one in (lower, lower_by_pair)),
    )
    light_keys = runs[runs["solver"] == "cmalight"].set_index("key")
    epochs = results.epochs[results.epochs["key"].isin(light_keys.index)]
    kept = epochs[epochs["outcome"].isin(ACCEPTED)]
    above = kept["f_tilde"] > kept["train_loss"]
    by_run = above.groupby(kept["key"]).mean()
    share = mean(by_run.to_numpy())
    by_pair = by_run.groupby(
        [by_run.index.map(light_keys["dataset"]), by_run.index.map(light_keys["network"])]
    ).mean()
    yield Claim(
        "f̃ is often an upper approximation of the real f.",
        f"In {share} of the accepted epochs of a run f̃ is above the true loss at their end "
        f"({len(kept):,} epochs of {len(by_run)} runs).",
        (*_ON_SMALL, *_ON_BIG),
        *(HOLDS if one > 0.5 else NOT_SEEN for one in (share.value, by_pair.mean())),
    )


def _descent(shares: dict[str, list[float]]) -> Claim:
    """Not of the runs, but of a script beside this one, on the same small data sets."""
    texts = [
        f"{mean(found)} {'at the start' if epochs == '0' else f'after {epochs} epochs'}"
        for epochs, found in shares.items()
    ]
    return Claim(
        "The anti-gradients of single samples are often a descent direction even for f.",
        f"Of the anti-gradients of batches {', '.join(texts)} of CMALight ({len(shares['0'])} pairs of small data set "
        "and network, one start).",
        ("descent.py",),
        verdict([mean(found).value > 0.5 for found in shares.values()]),
    )


def _profiles(results: bench.Results) -> Iterator[Claim]:
    others = ("adadelta", "adagrad", "ig", "cma")
    big, small = by_size(results).values()
    kinds: tuple[Problems, ...] = ("start", "pair")
    margins: dict[tuple[float, Problems], dict[str, Figure]] = {}
    for tau in TAUS:
        for kind in kinds:
            margins[tau, kind] = advantages(areas(big, tau, problems=kind), "cmalight", others)
    yield Claim(
        "Low precision (τ = 0.1), big data sets: CMALight slightly outperforms Adadelta, Adagrad, IG and CMA "
        "(Figure 2a).",
        f"Area under its profile less theirs: {_listed(margins[0.1, 'start'])}. Adam, which the sentence leaves out: "
        f"{advantages(areas(big, 0.1), 'cmalight', ['adam'])['adam'].signed}.",
        _ON_BIG,
        *(verdict([one.value > 0 for one in margins[0.1, kind].values()]) for kind in kinds),
    )
    yield from _cma_on_small(
        small, [0.1], "Low precision, small data sets: CMA is ahead of all others (Figure 2b)."
    )
    yield from _cma_on_small(
        small,
        [1e-2, 1e-4],
        "Higher precision, small data sets: CMA is still the best (Figures 3b, 4b).",
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
        + ".",
        _ON_BIG,
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
        f"Big data sets, τ = 0.01: {_listed(whole['start'])}.",
        _ON_BIG,
        *(verdict([one.value > 0 for one in whole[kind].values()]) for kind in kinds),
    )


def _cma_on_small(small: Traces, taus: Sequence[float], said: str) -> Iterator[Claim]:
    others = [one for one in PAPER if one != "cma"]
    kinds: tuple[Problems, ...] = ("start", "pair")
    found = {
        (tau, kind): advantages(areas(small, tau, problems=kind), "cma", others)
        for tau in taus
        for kind in kinds
    }
    texts = [f"τ = {tau:g}: {_listed(found[tau, 'start'])}" for tau in taus]
    yield Claim(
        said,
        f"Area of CMA less theirs, {'; '.join(texts)}.",
        _ON_SMALL,
        *(
            verdict([one.value > 0 for tau in taus for one in found[tau, kind].values()])
            for kind in kinds
        ),
    )


def _large(results: bench.Results) -> Iterator[Claim]:
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
        f"[12x300] on {where} ({count} problems), τ = 0.01, area of CMALight less theirs: {_listed(found['start'])}.",
        ("reproduced-large",),
        *(verdict([one.value > 0 for one in found[kind].values()]) for kind in ("start", "pair")),
    )


def finals(results: bench.Results, column: str) -> dict[str, Figure]:
    """The mean over the starts of what each solver ended with."""
    done = results.runs[results.runs["status"] == "done"]
    return {str(solver): mean(group[column].to_numpy()) for solver, group in done.groupby("solver")}


def _images(results: bench.Results) -> Iterator[Claim]:
    if not len(results.runs):
        return
    others = ("adam", "adagrad", "adadelta")
    accuracy, loss = finals(results, "final_test_accuracy"), finals(results, "final_loss")
    starts = results.runs["seed"].nunique()
    shown = [one for one in ("cmalight", *others) if one in accuracy]
    texts = [
        f"{NAMES[one]} {accuracy[one].value:.1%} (loss {loss[one].value:.2f})" for one in shown
    ]
    yield Claim(
        "CIFAR-10, ResNet-18: CMALight has a significant advantage over Adam, Adagrad and Adadelta in efficiency and "
        "in the quality reached in a given time (Figure 5).",
        f"A ResNet-18 of an eighth of the width, 2,560 pictures, {starts} start{'s' if starts > 1 else ''}; "
        f"test accuracy and training loss after 30 s: {', '.join(texts)}.",
        ("cifar10-small",),
        verdict(
            [accuracy["cmalight"].value > accuracy[one].value for one in shown[1:]]
            + [loss["cmalight"].value < loss[one].value for one in shown[1:]]
        ),
    )


def regularised(results: bench.Results) -> str:
    """A table: the areas of the paper's solvers at each λ, and whether the order hangs on it."""
    heads = ["λ", *(NAMES[one] for one in PAPER), "CMALight less CMA", "problems", "highest"]
    rows = [f"| {' | '.join(heads)} |", "|---" + "|---:" * (len(heads) - 2) + "|---|"]
    firsts, signs = set(), set()
    for suffix, text in LAMBDAS.items():
        solvers = [f"{one}{suffix}" for one in PAPER]
        found = areas(results, 1e-2, solvers=solvers)
        means = [mean(found[one].to_numpy()) for one in solvers]
        first = NAMES[PAPER[int(np.argmax([one.value for one in means]))]]
        less = mean((found[solvers[0]] - found[solvers[1]]).to_numpy())
        firsts.add(first)
        signs.add(less.value > 0)
        cells = [text, *map(str, means), less.signed, str(len(found)), first]
        rows.append(f"| {' | '.join(cells)} |")
    said = [
        f"The highest area is {'that of one solver' if len(firsts) == 1 else 'not always that of one solver'}",
        f"the sign of CMALight less CMA {'is the same' if len(signs) == 1 else 'changes'}",
    ]
    return "\n".join(rows) + f"\n\n{said[0]} at the three values of λ, and\n{said[1]}."


def today(results: bench.Results, solvers: Sequence[str]) -> str:
    """A table: the areas of all solvers, on big and on small data sets."""
    rows = [
        "| solver | big, τ = 0.1 | τ = 0.01 | τ = 0.0001 | small, τ = 0.1 | τ = 0.01 | τ = 0.0001 |",
        "|---" + "|---:" * 6 + "|",
    ]
    columns = [
        areas(traces, tau, solvers=solvers) for traces in by_size(results).values() for tau in TAUS
    ]
    best = [max(column[one].mean() for one in solvers) for column in columns]
    order = sorted(
        solvers, key=lambda one: -float(np.mean([column[one].mean() for column in columns]))
    )
    for solver in order:
        cells = []
        for column, top in zip(columns, best, strict=True):
            text = str(mean(column[solver].to_numpy()))
            cells.append(f"**{text}**" if column[solver].mean() == top else text)
        rows.append(f"| {NAMES.get(solver, solver)} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _listed(found: dict[str, Figure]) -> str:
    return ", ".join(f"{NAMES.get(name, name)} {figure.signed}" for name, figure in found.items())


def table(found: Parts) -> str:
    rows = ["| the paper | what we saw | verdict |", "|---|---|---|"]
    return "\n".join([*rows, *(claim.row() for claim in claims(found))])
