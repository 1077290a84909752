"""The page on the paper shows the numbers of the runs that are published beside it, and no others."""

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from cmalight.bench import plan, read_spec
from cmalight.models import layered
from tests.helpers import script

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def page():
    return script("docs/results/paper.py")


@pytest.fixture(scope="module")
def claims():
    return script("docs/results/paper_claims.py")


@pytest.fixture(scope="module")
def runs(page):
    return pd.read_csv(page.RUNS)


@pytest.fixture(scope="module")
def cifar(page):
    return pd.read_csv(page.CIFAR)


def test_the_numbers_and_the_figures_are_those_of_the_published_runs(page, runs, cifar):
    made = page.written(runs, cifar)
    assert {file: file.read_text() for file in made} == made
    for name in (*page.BLOCKS, *page.CIFAR_BLOCKS):
        assert sum(f"<!-- {name} -->" in made[file] for file in page.PAGES) == 1


def test_the_published_runs_are_those_of_the_studies(page, runs):
    """Keys name the code that ran, so they are not compared."""
    for study, budgets in page.STUDIES.items():
        planned = [run for spec in page.specs_of(study) for run in plan(read_spec(spec))]
        labels = [(run.dataset, run.network_label, run.solver_label, run.seed) for run in planned]
        wanted = {(dataset, network.removeprefix("paper:"), *start) for dataset, network, *start in labels}
        assert {run.seconds for run in planned} == {max(budgets)}
        for budget in budgets:
            own = runs[(runs["reading"] == study) & (runs["budget"] == budget)]
            assert set(own[["dataset", "network", "solver", "seed"]].itertuples(index=False, name=None)) == wanted
            assert len(own) == len(wanted)
    found = runs[["reading", "budget"]].drop_duplicates().itertuples(index=False, name=None)
    assert set(found) == {(study, budget) for study, budgets in page.STUDIES.items() for budget in budgets}


def test_the_published_runs_on_cifar_10_are_those_of_their_studies(page, cifar):
    planned = [run for spec in page.specs_of("cifar") for run in plan(read_spec(spec))]
    assert set(zip(cifar["solver"], cifar["seed"], strict=True)) == {(run.solver_label, run.seed) for run in planned}
    ends = cifar.groupby(["solver", "seed"])["seconds"].max()
    (planned_seconds,) = {run.seconds for run in planned}
    assert ends.between(0.99 * planned_seconds, 1.05 * planned_seconds).all()


def test_what_is_published_is_small(page):
    assert page.RUNS.stat().st_size + page.CIFAR.stat().st_size < 800_000


def made_up(losses):
    """Runs of one reading: by network, the share of the variance that CMALight and its five rivals end at."""
    solvers = ("cmalight", "cma", "ig", "adam", "adagrad", "adadelta")
    rows = [
        {
            "reading": "public",
            "budget": 1.0,
            "dataset": dataset,
            "network": network,
            "solver": solver,
            "seed": seed,
            "epochs": 10,
            "evaluations": 1 if solver == "cmalight" else 10,
            "accepted": 0.85 if solver == "cmalight" else 0.9,
            "loss": loss,
            "variance": 1.0,
            "work_0.1": 5.0 if solver == "cmalight" else np.inf,
        }
        for dataset in ("blogfeedback", "covtype", "protein", "skin-nonskin", "mv")
        for network, of_network in losses.items()
        for solver, loss in zip(solvers, of_network, strict=True)
        for seed in (1, 10)
    ]
    return pd.DataFrame(rows)


LEFT, HALF, STAYED = (0.1,) * 6, (0.1, 1.0, 0.1, 1.0, 0.1, 1.0), (1.0, 1.0, 0.1, 0.1, 1.0, 1.0)


@pytest.mark.parametrize(
    ("losses", "verdict"),
    [
        ({"1x50": LEFT, "3x20": LEFT, "5x50": STAYED}, "yes"),
        ({"1x50": LEFT, "3x20": HALF}, "yes"),
        ({"1x50": LEFT, "3x20": STAYED, "5x50": STAYED}, "not decided"),
        ({"1x50": STAYED}, "not decided"),
    ],
)
def test_nothing_is_decided_where_most_runs_stay_at_the_constant(claims, losses, verdict):
    column = claims.Column(made_up(losses), "public", 1.0)
    for row in claims.ROWS:
        if claims.ROWS[row].datasets == claims.ALL:  # big sets are four, small sets one
            assert claims.cell(column, row).verdict == verdict


def test_what_is_said_of_two_solvers_is_decided_by_their_runs_alone(claims):
    column = claims.Column(made_up({"1x50": (1.0, 1.0, 0.1, 0.1, 0.1, 0.1)}), "public", 1.0)
    decided = {row for row in claims.ROWS if claims.cell(column, row).verdict != "not decided"}
    assert decided == {row for row in claims.ROWS if row.startswith("all sets")}


def test_a_tie_is_not_above(claims):
    assert claims.Cell(0.0, 0.0, 0.0, 4, 4, 5, (0.0, 1.0)).verdict == "no"
    assert claims.Cell(0.1, 0.0, 0.2, 4, 4, 5, (0.0, 1.0)).verdict == "open"


@pytest.mark.parametrize(
    ("low", "high", "verdict"), [(0.1, 0.4, "yes"), (0.1, 0.6, "open"), (0.6, 0.9, "no"), (0.4, 0.5, "yes")]
)
def test_an_interval_inside_the_claim_is_a_yes_and_one_outside_a_no(claims, low, high, verdict):
    assert claims.Cell(0.5, low, high, 3, 4, 5, (0.0, 0.5)).verdict == verdict
    assert claims.Cell(0.5, low, high, 2, 4, 5, (0.0, 0.5)).verdict == verdict
    assert claims.Cell(0.5, low, high, 1, 4, 5, (0.0, 0.5)).verdict == "not decided"
    assert claims.Cell(0.5, low, high, 4, 4, 4, (0.0, 0.5)).verdict == "not decided"


@pytest.mark.parametrize(("gain", "passed"), [(None, 1 / (4 * 3**0.5)), (1, 1 / 4), (4, 0.63)])
def test_how_much_of_the_differences_between_samples_a_sigmoid_layer_passes_on(gain, passed):
    torch.manual_seed(0)
    xavier = script("docs/studies/networks.py").xavier
    network = layered("10x50", 40) if gain is None else xavier(40, 1, "10x50", gain)
    x = torch.rand(1000, 40, dtype=torch.float64)
    spread = []
    for layer in network.double():
        x = layer(x)
        if isinstance(layer, nn.Sigmoid):
            spread.append(x.std(0).mean().item())
    ratios = [after / before for before, after in itertools.pairwise(spread)]
    assert np.exp(np.log(ratios).mean()) == pytest.approx(passed, rel=0.1)
