"""What the pages say of the study itself, in words and small tables: all of it read off the runs."""

from collections import Counter

import claims
import pandas
from claims.measures import NAMES, PAPER, TAUS, areas, by_size, mean, network_order, short
from claims.tables import LAMBDAS
from cmalight.bench.spec.spec_files import PRESETS

from cmalight import bench

PARTS = {
    "tables": "the paper's solvers on its small networks",
    "today": "today's solvers",
    "large": "the large networks",
    "regularised": "the regulariser",
    "images": "CIFAR-10",
}
_OF_THE_PAPER = 11  # its data sets


def listed(values: list[str], last: str = "and") -> str:
    return values[0] if len(values) == 1 else f"{', '.join(values[:-1])} {last} {values[-1]}"


def numbers(values: "pandas.Series[float]", last: str = "or") -> str:
    return listed([f"{one:g}" for one in sorted(values.unique())], last)


def starts(runs: pandas.DataFrame) -> str:
    """How many of a data set and network there are: `1 or 2`."""
    return numbers(runs.groupby(["dataset", "network"])["seed"].nunique())


def coverage(results: bench.Results) -> str:
    """What ran: data sets, networks, starts, solvers, limits, epochs."""
    runs = results.runs
    rows = [
        "| data set | engine | limit, s | networks (starts) | epochs of a run, median | runs |",
        "|---|---|---:|---|---:|---:|",
    ]
    for (dataset, engine, limit), group in runs.groupby(["dataset", "engine", "time_limit"]):
        counts = group.groupby("network")["seed"].nunique()
        named = [one for one in counts.index if one.startswith("paper:")]
        order = [*network_order(named), *(one for one in counts.index if one not in named)]
        networks = [f"{name.removeprefix('paper:')} ({counts[name]})" for name in order]
        epochs = int(group["epochs"].median())
        rows.append(
            f"| {dataset} | {engine} | {limit:g} | {', '.join(networks)} | {epochs} | {len(group)} |"
        )
    return "\n".join(rows)


def planned(results: bench.Results) -> str:
    """What the presets plan beside what is there."""
    there = set(results.runs["key"])
    missing = 0
    rows = ["| preset | runs planned | there | missing |", "|---|---:|---:|---|"]
    for preset in [*(one for one in PRESETS if is_of_the_study(one)), "cifar10-small"]:
        spec = bench.read_spec(preset)
        wanted = bench.plan(spec)
        absent = Counter(run.cell[0] for run in wanted if run.key not in there)
        missing += absent.total()
        rows.append(
            f"| {preset} | {len(wanted)} | {len(wanted) - absent.total()} | {_missing(absent, spec)} |"
        )
    said = "Everything that its presets plan is there"
    if missing:
        said = f"Of what its presets plan {missing} runs are missing, for want of time"
    return f"{said}:\n\n" + "\n".join(rows)


def is_of_the_study(preset: str) -> bool:
    return preset.startswith("reproduced-") and preset != "reproduced-quick"


def _missing(absent: Counter[str], spec: bench.Spec) -> str:
    """By data set, how many of its runs."""
    each = len(spec.networks) * len(spec.solvers) * len(spec.seeds)
    return ", ".join(
        f"{name} (all)" if count == each else f"{name} ({count} of {each})"
        for name, count in sorted(absent.items())
    )


def versions(found: claims.Parts) -> str:
    """Of the package, with what each was used for."""
    used: dict[str, dict[str, int]] = {}
    for part, words in PARTS.items():
        runs = getattr(found, part).runs
        for version, count in runs["version_cmalight"].value_counts().items():
            used.setdefault(str(version), {})[words] = int(count)
    return "; ".join(
        f"cmalight {version} ({', '.join(f'{words}: {count:,} runs' for words, count in counts.items())})"
        for version, counts in sorted(used.items())
    )


def pace(results: bench.Results) -> str:
    """How many times as long an epoch took from the first start as from the last, the median over what ran."""
    runs = results.runs[(results.runs["status"] == "done") & (results.runs["epochs"] > 0)]
    each = runs.assign(each=runs["seconds"] / runs["epochs"]).pivot(
        index=["dataset", "network", "solver"], columns="seed", values="each"
    )
    return f"{(each[each.columns.min()] / each[each.columns.max()]).median():.1f}"


def engines(found: claims.Parts) -> str:
    texts = []
    for part, words in PARTS.items():
        runs = getattr(found, part).runs
        if len(runs):
            texts.append(f"{listed(sorted(runs['engine'].unique()))} for {words}")
    return ", ".join(texts)


def failures(runs: pandas.DataFrame) -> str:
    failed = runs[runs["status"] != "done"]
    kinds = failed.groupby(["solver", "network", "status"]).size()
    texts = [
        f"{NAMES.get(solver, solver)} on [{network.removeprefix('paper:')}] {status.replace('_', ' ')}: {count}"
        for (solver, network, status), count in kinds.items()
    ]
    return f"{len(failed)} without a figure" + (f" ({', '.join(texts)})" if texts else "")


def study(found: claims.Parts) -> str:
    runs = found.tables.runs
    return (
        f"{numbers(runs['time_limit'])} seconds of processor time for each run on a small network instead of 300, "
        f"{starts(runs)} starts instead of five ({starts(found.large.runs)} on a large network), "
        f"{runs['dataset'].nunique()} of its {_OF_THE_PAPER} data sets"
    )


def regularised(found: claims.Parts) -> str:
    """The verdicts of the rows on profiles at each λ, on the data sets of that study."""
    results = found.regularised
    judged: dict[str, list[str]] = {}
    for suffix in LAMBDAS:
        runs = results.runs[results.runs["solver"].str.endswith(suffix)]
        runs = runs.assign(solver=runs["solver"].str.removesuffix(suffix)).reset_index(drop=True)
        part = bench.Results(runs, results.epochs[results.epochs["key"].isin(runs["key"])])
        for claim in [*claims.profiles(part), *claims.outperforms(part)]:
            judged.setdefault(claim.said, []).append(claim.by_start)
    heads = " | ".join(f"λ = {one}" for one in LAMBDAS.values())
    rows = [f"| the paper | {heads} |", "|---" * (len(LAMBDAS) + 1) + "|"]
    rows += [f"| {said} | {' | '.join(found)} |" for said, found in judged.items()]
    changed = sum(len(set(found)) > 1 for found in judged.values())
    said = "No verdict changes" if not changed else f"{changed} of {len(judged)} verdicts change"
    return "\n".join(rows) + f"\n\n{said} with λ."


def of_lambda(found: claims.Parts) -> str:
    """Where, how long and how that study ran."""
    runs = found.regularised.runs
    return (
        f"{listed(sorted(runs['dataset'].unique()))}, {listed([f'[{one}]' for one in _short(runs)])}, "
        f"{numbers(runs['time_limit'])} s a run, {listed(sorted(runs['engine'].unique()))}, {starts(runs)} starts"
    )


def _short(runs: pandas.DataFrame) -> list[str]:
    return [short(one) for one in network_order(runs["network"].unique())]


def largest_change(found: claims.Parts) -> str:
    """Of a solver's area at τ = 0.01 between two values of λ."""
    by_lambda = {
        text: areas(found.regularised, 1e-2, solvers=[f"{one}{suffix}" for one in PAPER]).mean()
        for suffix, text in LAMBDAS.items()
    }
    table = {
        one: {text: float(by_lambda[text][f"{one}{suffix}"]) for suffix, text in LAMBDAS.items()}
        for one in PAPER
    }
    spread = {one: max(values.values()) - min(values.values()) for one, values in table.items()}
    first = max(spread, key=lambda one: spread[one])
    high, low = (pick(table[first], key=lambda one: table[first][one]) for pick in (max, min))
    return (
        f"The area that changes most is that of {NAMES[first]}, {table[first][high]:.2f} at λ = {high} and "
        f"{table[first][low]:.2f} at λ = {low}"
    )


def of_today(found: claims.Parts) -> str:
    runs = found.today.runs
    return (
        f"{runs['dataset'].nunique()} data sets, {numbers(runs['time_limit'])} s of processor time for each run, "
        f"starts per problem: {starts(runs)}, epochs {listed(sorted(runs['engine'].unique()))}"
    )


def standing(found: claims.Parts, solvers: list[str]) -> str:
    """Two points: where `auto` is first and above all others, and where CMALight is beside Adam."""
    first, above, behind, level = [], [], [], []
    for size, traces in by_size(found.today).items():
        for tau in TAUS:
            column = areas(traces, tau, solvers=solvers)
            figures = {one: mean(column[one].to_numpy()) for one in solvers}
            name, rest = f"{size} τ = {tau:g}", [one for one in solvers if one != "auto"]
            if all(figures["auto"].value > figures[one].value for one in rest):
                first.append(name)
            if all(round(figures["auto"].low, 2) > round(figures[one].high, 2) for one in rest):
                above.append(name)
            less = figures["adam"].value - figures["cmalight"].value
            (behind if less > 0 else level if less == 0 else []).append(name)
    count = 2 * len(TAUS)
    every = f"in {len(first)} of the {count} columns" if len(first) < count else "in every column"
    return (
        f"- `auto` has the highest area {every}; its interval lies above all others in {len(above)} of them"
        f"{': ' + ', '.join(above) if above else ''}. {_worst_of_auto(found, solvers)}\n"
        f"- CMALight, the published method, is behind Adam in {len(behind)} of the {count} columns"
        f"{f' and level with it in {len(level)}' if level else ''}."
    )


def _worst_of_auto(found: claims.Parts, solvers: list[str]) -> str:
    runs = found.today.runs[found.today.runs["status"] == "done"]
    ends = runs.pivot(
        index=["dataset", "network", "seed"], columns="solver", values="final_loss"
    ).dropna()
    ratio = ends["auto"] / ends[solvers].min(axis=1)
    dataset, network, _ = ratio.idxmax()
    return (
        f"Its worst run, on {dataset} [{short(network)}], ended at {ratio.max():.1f} times the loss of the solver "
        "that was lowest there."
    )


def auto_by_start(found: claims.Parts, solvers: list[str]) -> str:
    """The area of `auto`, the mean over the columns of the table, start by start."""
    by_seed: dict[int, list[float]] = {}
    for traces in by_size(found.today).values():
        seed = traces.runs.drop_duplicates("problem").set_index("problem")["seed"]
        for tau in TAUS:
            column = areas(traces, tau, solvers=solvers)["auto"]
            for start, area in column.groupby(column.index.map(seed)).mean().items():
                by_seed.setdefault(int(start), []).append(float(area))
    means = [sum(one) / len(one) for _, one in sorted(by_seed.items())]
    return listed([f"{one:.2f}" for one in means])


def on_images(found: claims.Parts) -> str:
    runs = found.images.runs[found.images.runs["status"] == "done"]
    if "auto" not in set(runs["solver"]):
        return "it did not run"
    means = runs.groupby("solver")[["final_test_accuracy", "final_loss"]].mean()
    accuracy = means["final_test_accuracy"].rank(ascending=False)["auto"]
    loss = means["final_loss"].rank()["auto"]
    return (
        f"it is number {accuracy:g} of {len(means)} by test accuracy and number {loss:g} by training loss, "
        f"in the mean over {runs['seed'].nunique()} starts"
    )
