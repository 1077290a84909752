"""What the paper says of the control: evaluations, effort, acceptance and f̃."""

import json
from collections.abc import Iterator

import pandas
from cmalight.bench.analysis.summaries import ACCEPTED, control_figures
from targets import targets

from claims.constant import stays
from claims.measures import TAUS, Figure, areas, mean
from claims.verdicts import ON_BIG, ON_SMALL, Claim, verdict
from cmalight import bench

_PLACE = ["dataset", "network", "seed"]
_WHERE = (*ON_SMALL, *ON_BIG)
_GAMMA = 1e-2  # where a run's options have none
_CLOSE = 1e-6  # as a share of f: what single precision can just tell apart


def control(results: bench.Results) -> Iterator[Claim]:
    runs = controlled(results)
    yield _evaluations(_wide(runs, "per_epoch"))
    yield _effort(results, _wide(runs, "seconds_per_epoch"))
    yield _acceptance(runs)
    epochs = light_epochs(results)
    yield _upper(epochs)
    sized = epochs[epochs["wanted"].notna()]
    if len(sized):
        yield _because(sized)


def controlled(results: bench.Results) -> pandas.DataFrame:
    """The finished runs of CMA and CMALight, each with its figures."""
    runs = results.runs
    runs = runs[
        (runs["status"] == "done") & (runs["epochs"] > 0) & runs["solver"].isin(["cmalight", "cma"])
    ]
    figures = control_figures(runs, results.epochs)
    stands = results.epochs["alpha"] == results.epochs["lr"]  # w̃ itself is the next point
    return runs.assign(
        per_epoch=runs["key"].map(figures["per_epoch"]),
        seconds_per_epoch=runs["seconds"] / runs["epochs"],
        accepted=runs["key"].map(figures["acceptance"]),
        stands=runs["key"].map(stands.groupby(results.epochs["key"]).mean()),
        at_constant=runs["key"].map(stays(results)),
    )


def _wide(runs: pandas.DataFrame, column: str) -> pandas.DataFrame:
    return runs.pivot(index=_PLACE, columns="solver", values=column).dropna()


def _by_pair(by_start: "pandas.Series[float]") -> Figure:
    return mean(by_start.groupby(level=["dataset", "network"]).mean().to_numpy())


def _evaluations(wide: pandas.DataFrame) -> Claim:
    light, full = (mean(wide[name].to_numpy()) for name in ("cmalight", "cma"))
    medians = [float(wide[name].median()) for name in ("cmalight", "cma")]
    ratio = wide["cmalight"] / wide["cma"]
    return Claim(
        "CMALight needs significantly fewer evaluations of the whole objective per epoch than CMA (Figure 1b).",
        f"{light} against {full} per epoch, over {len(wide)} starts (medians {medians[0]:.2f} and {medians[1]:.2f}); "
        f"their ratio is {mean(ratio.to_numpy())}.",
        _WHERE,
        *(verdict([-one.less(1.0)]) for one in (mean(ratio.to_numpy()), _by_pair(ratio))),
    )


def _effort(results: bench.Results, wide: pandas.DataFrame) -> Claim:
    traces = bench.traces(results)
    ratio = wide["cmalight"] / wide["cma"]
    ahead = {}
    for kind in ("start", "pair"):
        found = {tau: areas(traces, tau, problems=kind) for tau in TAUS}
        ahead[kind] = pandas.DataFrame(
            {tau: one["cmalight"] - one["cma"] for tau, one in found.items()}
        )
    texts = [f"{mean(ahead['start'][tau].to_numpy()).signed} at τ = {tau:g}" for tau in TAUS]
    whole = {kind: mean(one.mean(axis=1).to_numpy()) for kind, one in ahead.items()}
    return Claim(
        "That leads to a significant reduction of computational effort.",
        f"Per epoch: processor time of CMALight over that of CMA {mean(ratio.to_numpy())}. To a given loss: its area "
        f"less that of CMA, all data sets, {', '.join(texts)}, in the mean {whole['start'].signed}. The comparisons "
        "are these two.",
        _WHERE,
        verdict([-mean(ratio.to_numpy()).less(1.0), whole["start"]]),
        verdict([-_by_pair(ratio).less(1.0), whole["pair"]]),
    )


def _acceptance(runs: pandas.DataFrame) -> Claim:
    texts, lower, pairs = [], [], []
    kinds = {
        "accepted": "Line 6 holds, and line 7 takes the point",
        "stands": "The point stands, on lines 7, 10 or 15 or where a search ends at it",
    }
    for column, words in kinds.items():
        wide = _wide(runs, column)
        less = wide["cmalight"] - wide["cma"]
        rates = [mean(wide[name].to_numpy()) for name in ("cmalight", "cma")]
        texts.append(f"{words}: {rates[0]} against {rates[1]}, {mean(less.to_numpy()).signed}.")
        lower.append(-mean(less.to_numpy()))
        pairs.append(-_by_pair(less))
    learns = runs[~runs["at_constant"].astype("boolean").fillna(False)]
    both = {column: _wide(learns, column) for column in kinds}
    if len(both["accepted"]):
        less = [mean((one["cmalight"] - one["cma"]).to_numpy()).signed for one in both.values()]
        texts.append(
            f"Where neither run ends at the constant predictor ({len(both['accepted'])} starts): "
            f"{less[0]} and {less[1]}."
        )
    return Claim(
        "The acceptance rate of the tentative point is slightly lower in CMALight than in CMA (Figure 1a).",
        f"The paper does not define it; share of epochs, two ways. {' '.join(texts)}",
        _WHERE,
        verdict(lower),
        verdict(pairs),
    )


def light_epochs(results: bench.Results) -> pandas.DataFrame:
    """The epochs of CMALight whose end stands, so that f there was measured.

    `accepted` is what line 6 said of f̃, and `sufficient` what the same test says on true values, as CMA has it, by
    the decrease that is `wanted`: NaN for a data set whose size is not known.
    """
    runs = results.runs[(results.runs["status"] == "done") & (results.runs["solver"] == "cmalight")]
    by_key = runs.set_index("key")
    samples = {name: one.samples for name, one in targets(sorted(runs["dataset"].unique())).items()}
    gamma = by_key["solver_options"].map(lambda text: json.loads(text).get("gamma", _GAMMA))
    steps = by_key["dataset"].map(samples) / by_key["batch_size"]
    epochs = results.epochs[results.epochs["key"].isin(by_key.index)].sort_values(["key", "epoch"])
    before = epochs.groupby("key")["train_loss"].shift()
    before = before.fillna(epochs["key"].map(by_key["initial_loss"]))
    wanted = epochs["key"].map(gamma / steps) * epochs["lr"]
    epochs = epochs.assign(
        dataset=epochs["key"].map(by_key["dataset"]),
        network=epochs["key"].map(by_key["network"]),
        wanted=wanted,
        accepted=epochs["outcome"].isin(ACCEPTED),
        sufficient=epochs["train_loss"] <= before - wanted,
        above=epochs["f_tilde"] > epochs["train_loss"],
    )
    return epochs[epochs["alpha"] == epochs["lr"]]


def _shares(epochs: pandas.DataFrame, is_so: "pandas.Series[bool]") -> tuple[Figure, Figure]:
    """Of the epochs of a run: the mean over the runs, and over the pairs."""
    by_run = is_so.groupby([epochs["key"], epochs["dataset"], epochs["network"]]).mean()
    return mean(by_run.to_numpy()), _by_pair(by_run)


def _upper(epochs: pandas.DataFrame) -> Claim:
    accepted = epochs[epochs["accepted"]]
    judged = [_shares(one, one["above"]) for one in (accepted, epochs)]
    apart = epochs[(epochs["f_tilde"] / epochs["train_loss"] - 1).abs() > _CLOSE]
    return Claim(
        "f̃ is often an upper approximation of the real f.",
        f"f̃ is above the true loss at the end of the epoch in {judged[0][0]} of the epochs of a run that line 7 "
        f"accepted ({len(accepted):,} epochs), and in {judged[1][0]} of all whose end stands ({len(epochs):,}); in "
        f"{_shares(apart, apart['above'])[0]} of the {len(apart):,} of these in which the two differ by more than a "
        "millionth. Of epochs that were undone the loss was not measured. The comparisons are the first two, with 0.5.",
        _WHERE,
        *(verdict([one[kind].less(0.5) for one in judged]) for kind in (0, 1)),
    )


def _because(epochs: pandas.DataFrame) -> Claim:
    refused = epochs["sufficient"] & ~epochs["accepted"] & epochs["above"]
    taken = epochs["accepted"] & ~epochs["sufficient"]
    more = refused.astype(float) - taken.astype(float)
    figures = _shares(epochs, more)
    found = {"refused": _shares(epochs, refused)[0], "taken": _shares(epochs, taken)[0]}
    return Claim(
        "The acceptance rate is lower because f̃ is an upper approximation.",
        f"Of the epochs of a run whose end stands, line 6 refuses {found['refused']} that pass CMA's test on the true "
        f"values, f(w̃) ≤ f(w^k) − γζ/K, and have f̃ > f(w̃); it takes {found['taken']} that fail that test. The first "
        f"less the second is {figures[0].signed}.",
        _WHERE,
        *(verdict([one]) for one in figures),
    )
