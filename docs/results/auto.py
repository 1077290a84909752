"""The tables of auto.md: from the runs in auto.csv, harm.csv and failures.csv, and what benchmarks print.

    python docs/results/auto.py                           writes the tables
    python docs/results/auto.py --collect FOLDER ...      puts the runs of results folders into auto.csv first
    python docs/results/auto.py --printed hostile FILE    takes a table from the output of a benchmark

A folder has the name of its study: tables-1500, equal-time, workloads or label-noise. A run takes the place of an older
one of the same problem, solver and seed. Needs the `bench` extra.
"""

import argparse
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from pages import filled

from cmalight.bench import load

HERE = Path(__file__).parent
RUNS, PAGE = HERE / "auto.csv", HERE / "auto.md"
SOUND, FAILURES = HERE / "harm.csv", HERE / "failures.csv"  # of bench_harm.py and bench_failures.py
PROBLEM = ["study", "dataset", "network", "seed"]
KEPT = [
    *("dataset", "network", "seed", "solver", "status", "initial_loss", "final_loss", "seconds"),
    *("final_validation_loss", "best_validation_loss", "final_accuracy", "best_accuracy"),
    *("undone", "evaluations", "code"),
]
TRAINED = r"adamw-cosine lr=\S+ weight_decay=0.0"  # the rivals in training loss; those in validation decay, too
WATCHED = {"no objective": "auto, no objective", "objective": "auto"}
BUDGETS = {"tables-1500": "1,500 batches", "equal-time": "0.5 s"}
FACTORS = {"lr=0.1": "x 10", "lr=1.0": "x 100"}
PRINTED = ("hostile", "memory", "side")  # benchmarks whose output has a table for the page
NOT_YET = "*Not measured with this version yet.*"
OTHERS = {
    "adamw-cosine,": "AdamW, cosine, at 3·10⁻², above its four learning rates",
    "soap-cosine": "SOAP, cosine",
    "adam-wsd": "Adam, the schedule of `Auto`",
    "schedule-free-adamw": "schedule-free AdamW",
    "prodigy-cosine": "Prodigy, cosine",
    "muon-cosine": "Muon, cosine, at the best of four learning rates of its AdamW",
}


def collect(folders: list[Path]) -> pd.DataFrame:
    """One row per run, with what the page needs of it; of a run that was repeated, the newest."""
    parts = [published()]
    for folder in folders:
        runs = load(folder).recorded().runs.sort_values("finished")
        counts = [json.loads(outcomes) for outcomes in runs["outcomes"]]
        undone = [sum(one.get(name, 0) for name in ("undone", "diverged")) for one in counts]
        runs = runs.assign(study=folder.name, undone=undone, code=runs["code"].str[:12])
        parts.append(runs[["study", *KEPT]])
    runs = pd.concat([part for part in parts if len(part)], ignore_index=True)
    runs["network"] = runs["network"].astype(object).fillna("")
    return runs.drop_duplicates([*PROBLEM, "solver"], keep="last").sort_values([*PROBLEM, "solver"])


def published() -> pd.DataFrame:
    """The runs beside the page; none before the first study of this version."""
    return pd.read_csv(RUNS) if RUNS.exists() else pd.DataFrame(columns=["study", *KEPT])


def geometric(ratios: pd.Series) -> float:
    """Geometric mean."""
    return float(np.exp(np.log(ratios).mean()))


def number(value: float) -> str:
    """Two or three digits; a loss that is not finite, or a million times too high, is infinite."""
    if not value < 1e6:
        return "∞"
    return f"{value:,.0f}" if value >= 9.5 else f"{value:.2f}" if value >= 0.095 else f"{value:.2g}"


class Study:
    """The runs of one study: a row per problem and seed, a column per solver."""

    def __init__(self, runs: pd.DataFrame, name: str) -> None:
        own = runs[runs["study"] == name].copy()
        own["final_loss"] = own["final_loss"].where(own["status"] == "done").fillna(np.inf)
        own["network"] = own["network"].astype(object).fillna("")
        self.solvers = list(own["solver"].unique())
        self.frames = {
            value: own.pivot(index=PROBLEM[1:], columns="solver", values=value)
            for value in KEPT[5:-1]
        }
        self.loss = self.frames["final_loss"]
        self.rivals = [name for name in self.solvers if re.match(r"adamw?-(wsd|cosine) lr", name)]
        trained = [name for name in self.rivals if re.match(TRAINED, name)] or self.rivals
        self.best = self.loss[trained].min(axis=1, skipna=False)  # not where one is missing

    def name(self, solver: str) -> str:
        """The column of a solver at its default learning rate."""
        return solver if solver in self.solvers else f"{solver} lr=0.01"

    def over_best(self, solver: str) -> pd.Series:
        """The final loss over that of the best rival, chosen afterwards."""
        return (self.loss[self.name(solver)] / self.best).dropna()

    def over_alone(self, solver: str) -> pd.Series:
        """The final loss over that of SOAP alone at the default learning rate."""
        return self.loss[solver] / self.loss[self.name("soap-wsd")]

    def means(self, what: str, problem: str) -> pd.Series:
        """Means over the seeds of a workload, by solver."""
        return self.frames[what].loc[problem].mean()


def harm(runs: pd.DataFrame) -> str:
    """What the watchdog does to sound runs, and to runs in which something goes wrong; one row each."""
    lines = [
        "| | runs | alone | watched | with an objective |",
        "|---|---|---|---|---|",
        *(sound_row(*group) for group in sound_groups()),
    ]
    for name, label in (("workloads", "seven workloads, SOAP"), ("tables-1500", "tables, SOAP")):
        if (runs["study"] == name).any():
            study = Study(runs, name)
            cells = [
                study_cell(study, study.name(solver) if solver == "auto" else solver)
                for solver in WATCHED.values()
            ]
            lines.append(f"| {label} | {len(study.loss)} | 1 | {' | '.join(cells)} |")
    lines += failure_rows()
    if (runs["study"] == "tables-1500").any():
        lines += [rate_row(Study(runs, "tables-1500"), *factor) for factor in FACTORS.items()]
    return "\n".join(lines)


def sound_groups() -> list[tuple[str, pd.DataFrame]]:
    """The small sound runs, those with heavy tails apart."""
    table = pd.read_csv(SOUND)
    heavy, late = table["run"].str.startswith("heavy"), table["group"] == "held back"
    return [
        (f"{table[~heavy & ~late]['run'].nunique()} small kinds", table[~heavy & ~late]),
        ("heavy-tailed targets, batches of 8", table[heavy]),
        (f"{table[late]['run'].nunique()} kinds held back while the rule was chosen", table[late]),
    ]


def sound_row(label: str, table: pd.DataFrame) -> str:
    """One group of small sound runs."""
    alone = table[table["watch"] == "alone"].set_index(["run", "seed"])
    cells = []
    for watch in ("watched", "with an objective"):
        own = table[table["watch"] == watch].set_index(["run", "seed"])
        ratios = own["error"] / alone["error"].reindex(own.index)
        fewer = f" ({len(own)} runs)" if len(own) < len(alone) else ""
        cells.append(cell(ratios, own["undone"], own["evaluations"]) + fewer)
    return f"| {label} | {len(alone)} | 1 | {' | '.join(cells)} |"


def study_cell(study: Study, solver: str) -> str:
    """One watched solver of a study over SOAP alone."""
    if solver not in study.solvers:
        return "–"
    return cell(
        study.over_alone(solver),
        study.frames["undone"][solver],
        study.frames["evaluations"][solver],
    )


def cell(ratios: pd.Series, undone: pd.Series, evaluations: pd.Series) -> str:
    """Mean and worst, how many windows were undone in how many runs, and how often f was evaluated."""
    text = f"{number(geometric(ratios))}, worst {number(ratios.max())}"
    text += f"; {int(undone.sum())} undone in {(undone > 0).sum()}" if undone.sum() else ""
    return text + (f"; f {int(evaluations.sum()):,}" if evaluations.sum() else "")


def failure_rows() -> list[str]:
    """What goes wrong in bench_failures.py: over the run of SOAP alone where nothing does."""
    losses, table = failures_by_method()
    lines = []
    for name in losses.index.drop("nothing"):
        own = table[table["failure"] == name].set_index(["method", "seed"])
        cells = []
        for method in ("Auto", "Auto with an objective"):
            cells.append(
                cell(
                    losses.loc[name, method],
                    *(own.loc[method][c] for c in ("undone", "evaluations")),
                )
            )
        alone = losses.loc[name, "SOAP alone"]
        lines.append(f"| {name} | {len(alone)} | {three(alone)} | {' | '.join(cells)} |")
    return lines


def failures_by_method() -> tuple[pd.DataFrame, pd.DataFrame]:
    """By what goes wrong and by method: the losses of the seeds over those of SOAP alone where nothing does."""
    table = pd.read_csv(FAILURES)
    kept = table.pivot(index=["failure", "seed"], columns="method", values="loss")
    ratios = kept.div(kept.loc["nothing"]["SOAP alone"], level="seed", axis=0)
    names = list(table["failure"].unique())
    methods = list(table["method"].unique())
    cells = {method: [ratios.loc[name][method] for name in names] for method in methods}
    return pd.DataFrame(cells, index=names, columns=methods), table


def three(ratios: pd.Series) -> str:
    """The seeds one by one."""
    return ", ".join("dead" if not np.isfinite(one) else number(one) for one in ratios)


def remedies(_: pd.DataFrame) -> str:
    """What people do about bad steps today, beside the watchdog."""
    losses, _ = failures_by_method()
    methods = [name for name in losses.columns if name != "Auto"]
    lines = [f"| what goes wrong | {' | '.join(methods)} |", "|---|" + "---|" * len(methods)]
    for name in losses.index:
        lines.append(f"| {name} | {' | '.join(three(losses.loc[name, one]) for one in methods)} |")
    return "\n".join(lines)


def rate_row(study: Study, lr: str, factor: str) -> str:
    """What a learning rate that is too large costs on tables."""
    alone = study.over_alone(f"soap-wsd {lr}").clip(upper=1e6)
    watched = study_cell(study, f"auto {lr}")
    return (
        f"| tables, learning rate {factor} | {len(alone)} | {number(geometric(alone))}, worst {number(alone.max())} "
        f"| – | {watched} |"
    )


def workloads(runs: pd.DataFrame) -> str:
    """Unseen data, one row per workload: the lowest validation loss, and loss and accuracy at the end."""
    study = Study(runs, "workloads")
    lines = [
        "| workload | lowest validation loss | validation loss at the end | accuracy at the end |",
        "|---|---|---|---|",
    ]
    for name in study.loss.index.unique("dataset"):
        best, last, hits = (
            study.means(what, name)
            for what in ("best_validation_loss", "final_validation_loss", "final_accuracy")
        )
        cells = [versions(means, means[study.rivals].min(), "{:.3g}") for means in (best, last)]
        accuracy = (
            "–"
            if hits.isna().all()
            else versions(100 * hits, 100 * hits[study.rivals].max(), "{:.1f}")
        )
        lines.append(f"| {name} | {' | '.join([*cells, accuracy])} |")
    return "\n".join(lines)


def versions(means: pd.Series, rival: float, form: str) -> str:
    """The best rival, and `Auto` at its defaults, with weight decay, and at a smaller learning rate."""
    own = [means[name] for name in ("auto", "auto, weight decay 0.1", "auto, lr 3e-3")]
    first, *others = (form.format(one) for one in own)
    return f"{form.format(rival)} → {first}; {', '.join(others)}"


def training(runs: pd.DataFrame) -> str:
    """Training loss over that of the best cosine, one row per workload."""
    study = Study(runs, "workloads")
    lines = ["| workload | `Auto` | SOAP alone | time over AdamW's |", "|---|---|---|---|"]
    auto, soap = study.over_best("auto"), study.over_best("soap-wsd")
    seconds = study.frames["seconds"]
    times = seconds["auto"] / seconds[study.rivals].mean(axis=1)
    for name in auto.index.unique("dataset"):
        own = auto[name]
        cells = [
            f"{number(geometric(own))} ({number(own.min())} to {number(own.max())})",
            number(geometric(soap[name])),
            number(geometric(times[name])),
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    others = auto.index.get_level_values("dataset") != "vit"
    for label, chosen in (("all", others | True), ("all but vit", others)):
        own = auto[chosen]
        cells = [
            f"**{number(geometric(own))}**, worst {number(own.max())}",
            number(geometric(soap[chosen])),
            number(times[own.index].median()),
        ]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def defaults(runs: pd.DataFrame) -> str:
    """The default learning rate and its neighbours, and weight decay."""
    study = Study(runs, "workloads")
    lines = [
        "| `Auto` | training loss | worst | validation loss | worst | better on |",
        "|---|---|---|---|---|---|",
    ]
    unseen = study.frames["best_validation_loss"].groupby(level="dataset").mean()
    labels = {
        "auto, lr 3e-3": "lr 3·10⁻³",
        "auto": "default: lr 10⁻², no weight decay",
        "auto, lr 3e-2": "lr 3·10⁻²",
        "auto, weight decay 0.1": "lr 10⁻², weight decay 0.1",
    }
    for solver, label in labels.items():
        seen = study.over_best(solver)
        ratios = unseen[solver] / unseen[study.rivals].min(axis=1)
        cells = (
            number(geometric(seen)),
            number(seen.max()),
            number(geometric(ratios)),
            number(ratios.max()),
            f"{(ratios < 1).sum()} of {len(ratios)}",
        )
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def others(runs: pd.DataFrame) -> str:
    """One row per other optimizer, on the seed that all have."""
    study = Study(runs, "workloads")
    lines = [
        "| optimizer | training loss | worst | validation loss | worst | time over AdamW's |",
        "|---|---|---|---|---|---|",
    ]
    seconds, unseen = study.frames["seconds"], study.frames["best_validation_loss"]
    found = {name: [one for one in study.solvers if one.split(" ")[0] == name] for name in OTHERS}
    there = study.loss[found["soap-cosine"]].notna().all(axis=1)
    labels = {"auto": "`Auto`", "soap-wsd": "SOAP alone, the schedule of `Auto`", **OTHERS}
    for name, label in labels.items():
        columns = found.get(name, [name])
        seen = (study.loss[columns].min(axis=1) / study.best)[there]
        ratios = (unseen[columns].min(axis=1) / unseen[study.rivals].min(axis=1))[there]
        times = (seconds[columns].mean(axis=1) / seconds[study.rivals].mean(axis=1))[there]
        numbers = (geometric(seen), seen.max(), geometric(ratios), ratios.max(), times.median())
        lines.append(f"| {label} | {' | '.join(map(number, numbers))} |")
    return "\n".join(lines)


def tables(runs: pd.DataFrame) -> str:
    """One row per budget and network."""
    lines = [
        "| budget | network | runs | `Auto` over the best of ten Adams | worst | above f₀ | SOAP | worst | time |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, budget in BUDGETS.items():
        study = Study(runs, name)
        lines += [
            table_row(study, budget, network) for network in study.loss.index.unique("network")
        ]
    return "\n".join(lines)


def table_row(study: Study, budget: str, network: str) -> str:
    """The runs of one network."""
    auto, soap = (
        study.over_best(name).xs(network, level="network") for name in ("auto", "soap-wsd")
    )
    seconds = study.frames["seconds"]
    times = (seconds[study.name("auto")] / seconds[study.rivals].mean(axis=1)).xs(
        network, level="network"
    )
    above = (study.loss > study.frames["initial_loss"])[study.name("auto")].xs(
        network, level="network"
    )
    cells = [
        str(len(auto)),
        f"**{number(geometric(auto))}**",
        number(auto.max()),
        str(int(above.sum())),
        number(geometric(soap)),
        number(soap.max()),
        number(times.median()),
    ]
    return f"| {budget} | [{network}] | {' | '.join(cells)} |"


def labels(runs: pd.DataFrame) -> str:
    """Wrong labels: what helps."""
    study = Study(runs, "label-noise")
    lines = [
        "| | training loss | accuracy at the end | highest accuracy |",
        "|---|---|---|---|",
    ]
    for solver in study.solvers:
        means = {
            key: frame.loc["mlp-label-noise"][solver].mean() for key, frame in study.frames.items()
        }
        accuracies = f"{100 * means['final_accuracy']:.1f} % | {100 * means['best_accuracy']:.1f} %"
        lines.append(f"| {solver} | {means['final_loss']:.3g} | {accuracies} |")
    return "\n".join(lines)


def studied(block: Callable[[pd.DataFrame], str], study: str) -> Callable[[pd.DataFrame], str]:
    """A block that says so if its study was not run."""
    return lambda runs: block(runs) if (runs["study"] == study).any() else NOT_YET


BLOCKS = {
    "harm": harm,
    "remedies": remedies,
    "workloads": studied(workloads, "workloads"),
    "training": studied(training, "workloads"),
    "defaults": studied(defaults, "workloads"),
    "others": studied(others, "workloads"),
    "tables": studied(tables, "tables-1500"),
    "labels": studied(labels, "label-noise"),
}


def printed_table(output: str) -> str:
    """The lines of the table in what a benchmark printed."""
    lines = [line for line in output.splitlines() if line.startswith("|")]
    if not lines:
        raise ValueError("no table in the output: expected lines that begin with |")
    return "\n".join(lines)


def main() -> None:
    """What the command does."""
    parser = argparse.ArgumentParser(description="Write the tables of auto.md.")
    parser.add_argument("--collect", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument(
        "--printed", nargs=2, action="append", default=[], metavar=("|".join(PRINTED), "FILE")
    )
    options = parser.parse_args()
    if options.collect:
        collect(options.collect).to_csv(RUNS, index=False, float_format="%.6g")
    page = filled(PAGE.read_text(encoding="utf-8"), BLOCKS, published())
    for name, file in options.printed:
        if name not in PRINTED:
            parser.error(f"got {name!r}; expected one of {', '.join(PRINTED)}")
        found = printed_table(Path(file).read_text(encoding="utf-8"))
        page = filled(page, {name: lambda _, found=found: found}, published())
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
