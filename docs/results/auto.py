"""The tables of auto.md: of studies from the runs in auto.csv, of benchmarks from what they print.

    python docs/results/auto.py                           writes the tables of the studies in auto.csv
    python docs/results/auto.py --collect FOLDER ...      puts the runs of results folders into auto.csv first
    python docs/results/auto.py --printed harm FILE       takes a table from the output of benchmarks/bench_harm.py

A folder has the name of its study: tables-1500, tables-6000, tables-24000, equal-time, activations, few-batches,
one-batch, long-epoch, workloads or label-noise. A run takes the place of an older one of the same problem, solver and
seed. Needs the `bench` extra.
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
PROBLEM = ["study", "dataset", "network", "seed"]
KEPT = [
    *("dataset", "network", "seed", "solver", "status", "initial_loss", "final_loss", "seconds"),
    *(
        "final_validation_loss",
        "best_validation_loss",
        "final_accuracy",
        "best_accuracy",
        "undone",
        "code",
    ),
]
DEFAULT = {"auto": "auto lr=0.01", "soap-wsd": "soap-wsd lr=0.01"}
TABLES = {
    "tables-1500": "1,500 batches of 128",
    "tables-6000": "6,000 batches",
    "tables-24000": "24,000 batches",
    "equal-time": "0.5 s of processor time each, compiled",
    "activations": "ReLU and tanh, 1,500 batches",
    "few-batches": "3 to 8 batches per epoch, 600 batches",
    "one-batch": "one batch per epoch, 600 epochs",
    "long-epoch": "one epoch in batches of 8",
}
FACTORS = {"0.1": "x 10", "1.0": "x 100"}
PRINTED = ("harm", "failures", "hostile")  # benchmarks whose output has a table for the page
NOT_YET = "*Not measured with this version yet.*"
OTHERS = ("soap-cosine", "adam-wsd", "muon-cosine", "schedule-free-adamw", "prodigy-cosine")


def collect(folders: list[Path]) -> pd.DataFrame:
    """One row per run, with what the page needs of it; of a run that was repeated, the newest."""
    parts = [published()]
    for folder in folders:
        runs = load(folder).recorded().runs.sort_values("finished")
        undone = [
            json.loads(outcomes).keys() & {"undone", "diverged"} for outcomes in runs["outcomes"]
        ]
        runs = runs.assign(study=folder.name, undone=[bool(names) for names in undone])
        parts.append(runs.assign(code=runs["code"].str[:12])[["study", *KEPT]])
    runs = pd.concat([part for part in parts if len(part)], ignore_index=True)
    runs["network"] = runs["network"].fillna("")
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
        own["network"] = own["network"].fillna("")
        self.solvers = list(own["solver"].unique())
        self.frames = {
            value: own.pivot(index=PROBLEM[1:], columns="solver", values=value)
            for value in KEPT[5:-1]
        }
        self.loss = self.frames["final_loss"]
        self.rivals = [name for name in self.solvers if re.match(r"adamw?-(wsd|cosine) lr", name)]
        self.best = self.loss[self.rivals].min(axis=1, skipna=False)  # not where one is missing

    def name(self, solver: str) -> str:
        """The column of a solver at its default learning rate."""
        return solver if solver in self.solvers else DEFAULT[solver]

    def over_best(self, solver: str) -> pd.Series:
        """The final loss over that of the best rival, chosen afterwards."""
        return (self.loss[self.name(solver)] / self.best).dropna()

    def unseen(self, problem: str, when: str) -> str:
        """The validation loss of the best rival and of auto, at the end or at the best epoch."""
        losses = self.frames[f"{when}_validation_loss"].loc[problem].mean()
        return f"{losses[self.rivals].min():.3g} → {losses['auto']:.3g}"


def workloads(runs: pd.DataFrame) -> str:
    """One row per workload."""
    study = Study(runs, "workloads")
    lines = [
        "| workload | `Auto` | SOAP alone | validation loss: best → `Auto` | at the best epoch | accuracy | time |",
        "|---|---|---|---|---|---|---|",
    ]
    auto, soap = study.over_best("auto"), study.over_best("soap-wsd")
    hits = study.frames["best_accuracy"]
    seconds = study.frames["seconds"]
    times = seconds["auto"] / seconds[study.rivals].mean(axis=1)
    for name in auto.index.unique("dataset"):
        own = auto[name]
        cells = [
            f"{number(geometric(own))} ({number(own.min())} to {number(own.max())})",
            number(geometric(soap[name])),
            *(study.unseen(name, when) for when in ("final", "best")),
            accuracy(hits.loc[name], study.rivals),
            number(geometric(times[name])),
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    cells = [
        f"**{number(geometric(auto))}**, worst {number(auto.max())}",
        number(geometric(soap)),
        *("", "", ""),
        number(times.mean()),
    ]
    return "\n".join([*lines, f"| all | {' | '.join(cells)} |"])


def accuracy(hits: pd.DataFrame, rivals: list[str]) -> str:
    """The best rival's, and auto's."""
    if hits["auto"].isna().all():
        return ""
    best, own = hits[rivals].mean().max(), hits["auto"].mean()
    return f"{100 * best:.1f} → {100 * own:.1f} %"


def others(runs: pd.DataFrame) -> str:
    """One row per other optimizer, on the seed that all have."""
    study = Study(runs, "workloads")
    lines = [
        "| optimizer | over the best of four AdamW cosines | worst | time over AdamW's |",
        "|---|---|---|---|",
    ]
    seconds = study.frames["seconds"]
    there = study.loss[[name for name in OTHERS if name in study.loss]].notna().all(axis=1)
    for name in ("auto", "soap-wsd", *OTHERS):
        if name in study.loss:
            ratios = study.over_best(name)[there[there].index]
            times = (seconds[name] / seconds[study.rivals].mean(axis=1))[there]
            label = "`Auto`" if name == "auto" else f"`{name}`"
            lines.append(
                f"| {label} | {number(geometric(ratios))} | {number(ratios.max())} | {number(times.mean())} |"
            )
    return "\n".join(lines)


def tables(runs: pd.DataFrame) -> str:
    """One row per study of tables."""
    lines = [
        "| study | runs | `Auto` over the best of ten | worst | above f₀ | SOAP alone | worst | undone in |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, label in TABLES.items():
        if name not in runs["study"].unique():
            continue
        study = Study(runs, name)
        auto, soap = study.over_best("auto"), study.over_best("soap-wsd")
        undone = int(study.frames["undone"][study.name("auto")].sum())
        cells = [
            str(len(auto)),
            f"**{number(geometric(auto))}**",
            number(auto.max()),
            str(int((study.loss > study.frames["initial_loss"])[study.name("auto")].sum())),
            number(geometric(soap)),
            number(soap.max()),
            str(undone),
        ]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def large(runs: pd.DataFrame) -> str:
    """What a learning rate ten and a hundred times too large costs."""
    lines = [
        "| study | learning rate | `Auto` over its default | within 1.5 | within 3 | SOAP alone | worse | above f₀ |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in ("tables-1500", "activations", "few-batches", "one-batch", "long-epoch"):
        if name not in runs["study"].unique():
            continue
        study = Study(runs, name)
        default = study.loss[DEFAULT["auto"]]
        for lr, factor in FACTORS.items():
            auto, soap = (study.loss[f"{solver} lr={lr}"] for solver in ("auto", "soap-wsd"))
            first = study.frames["initial_loss"][f"auto lr={lr}"]
            ratio = auto / default
            cells = [
                factor,
                f"{number(geometric(ratio))}, worst {number(ratio.max())}",
                f"{(ratio <= 1.5).sum()} of {len(ratio)}",
                str((ratio <= 3.0).sum()),
                number(geometric((soap / default).clip(upper=1e6))),
                str((auto > 1.01 * soap).sum()),
                str((auto > first).sum()),
            ]
            lines.append(f"| {TABLES[name]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def labels(runs: pd.DataFrame) -> str:
    """Wrong labels: what helps."""
    study = Study(runs, "label-noise")
    lines = [
        "| | training loss | accuracy at the end | accuracy of the best epoch (`restore_best`) |",
        "|---|---|---|---|",
    ]
    for solver in study.solvers:
        means = {
            key: frame.loc["mlp-label-noise"][solver].mean() for key, frame in study.frames.items()
        }
        accuracies = f"{100 * means['final_accuracy']:.1f} % | {100 * means['best_accuracy']:.1f} %"
        lines.append(f"| {solver} | {means['final_loss']:.3g} | {accuracies} |")
    return "\n".join(lines)


def studied(block: Callable[[pd.DataFrame], str], *studies: str) -> Callable[[pd.DataFrame], str]:
    """A block that says so if none of its studies was run."""
    return lambda runs: block(runs) if runs["study"].isin(studies).any() else NOT_YET


BLOCKS = {
    "workloads": studied(workloads, "workloads"),
    "others": studied(others, "workloads"),
    "tables": studied(tables, *TABLES),
    "large": studied(large, *TABLES),
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
