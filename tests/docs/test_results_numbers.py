"""Numbers of the results' pages, computed a second time from the published files, by other code than the pages' own."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from cmalight.bench.analysis.sizes import size_of

from cmalight import bench

RESULTS = Path(__file__).parents[2] / "docs" / "results"
PAGE = (RESULTS / "paper.md").read_text(encoding="utf-8")
NAMES = {"CMALight": "cmalight", "CMA": "cma", "IG": "ig", "Adam": "adam", "Adagrad": "adagrad", "Adadelta": "adadelta"}
PAPER = list(NAMES.values())
SMALL_NETWORKS = [f"paper:{name}" for name in ("1x50", "3x20", "5x50", "10x50")]
NUMBER = r"[+−]?\d+\.\d+"
# What a text may have as a number of its own: the paper's figures, equations, τ, networks, limits; ζ⁰; commands; lines
# of the rule of `auto`, and batches of an epoch.
OF_THE_PAPER = {
    *("300", "95", "2", "3", "4", "5", "1", "0", "0.1", "0.01", "0.0001", "0.5", "100", "10"),
    *("1x50", "3x20", "5x50", "10x50"),
    *("34", "37", "32"),
}


@pytest.fixture(scope="module")
def results():
    return bench.load(RESULTS / "paper" / "study.tar.xz")


@pytest.fixture(scope="module")
def tables(results):
    """Runs of the paper's solvers on its small networks."""
    runs = results.runs
    return runs[(runs["engine"] == "compiled") & runs["network"].isin(SMALL_NETWORKS) & runs["solver"].isin(PAPER)]


def part(results, runs):
    return bench.Results(runs.reset_index(drop=True), results.epochs[results.epochs["key"].isin(runs["key"])])


def row(start, page=PAGE):
    """The first row of a table that begins so."""
    return re.search(rf"^\| {re.escape(start)}.*$", page, re.MULTILINE)[0]


def printed(text):
    return [float(one.replace("−", "-")) for one in re.findall(NUMBER, text)]


def margins(text):
    """`Adam −0.33 [...]` by solver."""
    found = re.findall(rf"\b({'|'.join(NAMES)}) ({NUMBER}) \[", text)
    return {NAMES[name]: float(number.replace("−", "-")) for name, number in found}


def areas(results, runs, tau, solvers):
    """The mean over problems of 1 − log r / log 100, not below 0, with r the time over the least time."""
    costs = bench.solution_costs(part(results, runs), tau, solvers=solvers)
    least = costs.min(axis=1)
    gains = [np.clip(1 - np.log(costs[one] / least) / np.log(100), 0, 1).fillna(0.0).mean() for one in solvers]
    return dict(zip(solvers, map(float, gains), strict=True))


def paired(runs, values):
    """By start, for the starts that CMA and CMALight both have."""
    runs = runs.assign(value=values)[runs["solver"].isin(["cma", "cmalight"]) & (runs["status"] == "done")]
    return runs.pivot(index=["dataset", "network", "seed"], columns="solver", values="value").dropna()


def test_evaluations_per_epoch(tables):
    wide = paired(tables, tables["evaluations"] / tables["epochs"])
    found = printed(row("CMALight needs significantly fewer"))
    assert found[0] == pytest.approx(wide["cmalight"].mean(), abs=0.006)
    assert found[3] == pytest.approx(wide["cma"].mean(), abs=0.006)
    assert f"over {len(wide)} starts" in row("CMALight needs significantly fewer")


def test_seconds_per_epoch(tables):
    wide = paired(tables, tables["seconds"] / tables["epochs"])
    found = printed(row("That leads to a significant reduction"))
    assert found[0] == pytest.approx((wide["cmalight"] / wide["cma"]).mean(), abs=0.006)


def test_acceptance_both_ways(results, tables):
    epochs = results.epochs
    text = row("The acceptance rate of the tentative point")
    for words, flag in (
        ("Line 6 holds", epochs["outcome"] == "accepted"),
        ("The point stands", epochs["alpha"] == epochs["lr"]),
    ):
        wide = paired(tables, tables["key"].map(flag.groupby(epochs["key"]).mean()))
        found = printed(text[text.index(words) :])
        expected = [wide["cmalight"].mean(), wide["cma"].mean(), (wide["cmalight"] - wide["cma"]).mean()]
        assert [found[0], found[3], found[6]] == pytest.approx(expected, abs=0.006)


@pytest.mark.parametrize(
    ("start", "first", "size", "tau"),
    [
        ("Low precision (τ = 0.1), big data sets", "cmalight", "big", 0.1),
        ("Low precision, small data sets", "cma", "small", 0.1),
        ("Conclusion: CMALight outperforms", "cmalight", "big", 0.1),
    ],
)
def test_differences_of_areas(results, tables, start, first, size, tau):
    runs = tables[[size_of(name) == size for name in tables["dataset"]]]
    expected = areas(results, runs, tau, PAPER)
    found = margins(row(start).split("; τ")[0])
    assert len(found) >= 4
    assert found == pytest.approx({one: expected[first] - expected[one] for one in found}, abs=0.006)


def test_runs_that_end_no_better_than_a_constant(tables):
    targets = json.loads((RESULTS / "paper" / "targets.json").read_text(encoding="utf-8"))
    variance = tables["dataset"].map({name: one["variance"] for name, one in targets.items()})
    stuck = 100 * (tables["final_loss"] > 0.98 * variance)
    page = PAGE[PAGE.index("## Runs that stay") :]
    for name, solver in NAMES.items():
        found = [int(one) for one in re.findall(r"(\d+) %", row(f"{name} |", page))]
        its = stuck[tables["solver"] == solver]
        expected = [*(its[tables["network"] == one].mean() for one in SMALL_NETWORKS), its.mean()]
        assert found[:5] == pytest.approx(expected, abs=0.51)


def test_large_networks(results):
    runs = results.runs[(results.runs["status"] == "done") & results.runs["solver"].isin(PAPER)]
    targets = json.loads((RESULTS / "paper" / "targets.json").read_text(encoding="utf-8"))
    better = runs["final_loss"] <= 0.98 * runs["dataset"].map({name: one["variance"] for name, one in targets.items()})
    text = row("Conclusion: an example proves")
    networks = re.findall(r"\[(\d+x\d+)\]: ", text)
    assert networks
    for network in networks:
        there = runs["network"] == f"paper:{network}"
        light = there & (runs["solver"] == "cmalight")
        part = text.split(f"[{network}]: ")[1]
        ends = re.search(r"(\d+) of (\d+) runs of CMALight end better than a constant, and (\d+) of (\d+) of", part)
        others = there & ~light
        expected = [better[light].sum(), light.sum(), better[others].sum(), others.sum()]
        assert [int(ends[n]) for n in (1, 2, 3, 4)] == expected
        epochs = re.findall(r"([\d.]+) in (\d+) s \(", part[: ends.start()])
        medians = runs[light].groupby("time_limit")["epochs"].median()
        assert {float(limit): float(count) for count, limit in epochs} == medians.to_dict()


def test_images(results):
    runs = results.runs[results.runs["dataset"].str.startswith("cifar10")]
    accuracy, loss = (runs.groupby("solver")[name].mean() for name in ("final_test_accuracy", "final_loss"))
    for name in ("CMALight", "Adam", "Adagrad", "Adadelta"):
        cell = re.search(rf"{name} ({NUMBER}) % \[.*?\], loss ({NUMBER})", row("The same in the quality"))
        assert float(cell[1]) == pytest.approx(100 * accuracy[NAMES[name]], abs=0.06)
        assert float(cell[2]) == pytest.approx(loss[NAMES[name]], abs=0.006)


def test_samples():
    points = json.loads((RESULTS / "paper" / "descent.json").read_text(encoding="utf-8"))
    for start, field in (
        ("The anti-gradients of single samples", "descent"),
        ("So the points of the first inner", "worse"),
    ):
        found = re.findall(rf"({NUMBER}) \[{NUMBER}, {NUMBER}\] (?:at the start|after (\d+) kept)", row(start))
        expected = {
            kept: np.mean([one[field] for one in points if one["kept"] == kept])
            for kept in {one["kept"] for one in points}
        }
        assert {int(kept or 0): float(value) for value, kept in found} == pytest.approx(expected, abs=0.006)


def test_the_regulariser(results):
    page = PAGE[PAGE.index("## The regulariser") :]
    for text in ("0", "1e-6", "1e-4"):
        solvers = [f"{one}, λ = {text}" for one in PAPER]
        runs = results.runs[results.runs["solver"].isin(solvers)]
        expected = list(areas(results, runs, 0.01, solvers).values())
        assert printed(row(f"{text} |", page))[: 3 * len(PAPER) : 3] == pytest.approx(expected, abs=0.006)


def test_today(results):
    page = (RESULTS / "today.md").read_text(encoding="utf-8")
    runs = results.runs
    runs = runs[(runs["engine"] == "eager") & runs["network"].isin(SMALL_NETWORKS) & ~runs["solver"].str.contains("λ")]
    solvers = sorted(runs["solver"].unique())
    names = {solver: name for name, solver in NAMES.items()}
    columns = [
        areas(results, runs[[size_of(name) == size for name in runs["dataset"]]], tau, solvers)
        for size in ("big", "small")
        for tau in (0.1, 0.01, 0.0001)
    ]
    for solver in solvers:
        found = printed(row(f"{names.get(solver, solver)} |", page))[::3]
        assert found == pytest.approx([column[solver] for column in columns], abs=0.006)


def test_what_ran(results):
    runs = results.runs
    assert f"{len(runs):,} runs, {runs['seconds'].sum() / 3600:.1f} hours of training" in PAGE
    assert f"{(runs['status'] != 'done').sum()} without a figure" in PAGE
    assert all(f"cmalight {version} (" in PAGE for version in runs["version_cmalight"].unique())
    rows = re.findall(r"^\| [\w:=-]+ \| (?:eager|compiled) \|.*\| (\d+) \|$", PAGE, re.MULTILINE)
    assert sum(map(int, rows)) == len(runs)


@pytest.mark.parametrize("name", ["paper.txt", "today.txt"])
def test_the_texts_have_no_numbers_of_runs(name):
    """Besides what the generator fills in it has the paper's numbers alone: others would be compared with nothing."""
    text = (RESULTS / "paper" / name).read_text(encoding="utf-8").split("## Against schedules")[0]
    text = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)|<<\w+>>|[\w-]+-1[08]\b", " ", text, flags=re.DOTALL)
    assert set(re.findall(r"\d+(?:[.x]\d+)*", text)) - OF_THE_PAPER == set()
