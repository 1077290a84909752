"""What the paper says of the control: evaluations, acceptance and f̃."""

from collections.abc import Iterator

from claims.measures import mean
from claims.verdicts import ON_BIG, ON_SMALL, Claim, verdict
from cmalight import bench
from cmalight.bench.analysis.summaries import ACCEPTED, control_figures


def control(results: bench.Results) -> Iterator[Claim]:
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
    by_pair = mean((pairs["per_epoch"]["cmalight"] / pairs["per_epoch"]["cma"]).to_numpy())
    yield Claim(
        "CMALight needs significantly fewer evaluations of the whole objective per epoch than CMA (Figure 1b).",
        f"{light} against {full} per epoch, over {len(wide)} starts (medians {medians[0]:.2f} and {medians[1]:.2f}); "
        f"their ratio is {fewer}.",
        (*ON_SMALL, *ON_BIG),
        *(verdict([-one.less(1.0)]) for one in (fewer, by_pair)),
    )
    lower = (wide["acceptance"]["cmalight"] - wide["acceptance"]["cma"]).to_numpy()
    rates = [mean(wide["acceptance"][name].to_numpy()) for name in ("cmalight", "cma")]
    lower_by_pair = (pairs["acceptance"]["cmalight"] - pairs["acceptance"]["cma"]).to_numpy()
    yield Claim(
        "The acceptance rate of the tentative point is slightly lower in CMALight than in CMA (Figure 1a).",
        f"{rates[0]} against {rates[1]}: {mean(lower).signed}.",
        (*ON_SMALL, *ON_BIG),
        *(verdict([-mean(one)]) for one in (lower, lower_by_pair)),
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
        (*ON_SMALL, *ON_BIG),
        *(verdict([mean(one.to_numpy()).less(0.5)]) for one in (by_run, by_pair)),
    )
