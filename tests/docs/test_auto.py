"""The page on Auto shows the numbers of the runs that are published beside it, and no others."""

import numpy as np
import pandas as pd
import pytest

from tests.helpers import script


@pytest.fixture(scope="module")
def page():
    return script("docs/results/auto.py")


def test_the_tables_are_those_of_the_published_runs(page):
    text = page.PAGE.read_text()
    assert page.filled(text, page.BLOCKS, page.published()) == text
    assert all(f"<!-- {name} -->" in text for name in (*page.BLOCKS, *page.PRINTED))


def test_the_runs_of_auto_are_of_one_code(page):
    runs = page.published()
    assert runs[runs["solver"].str.startswith("auto")]["code"].nunique() <= 1


def made_up(study, solvers):
    """One run per solver: its final loss and whether a window was undone."""
    rows = [
        {
            "study": study,
            "dataset": "bikes",
            "network": "3x20",
            "seed": 0,
            "solver": solver,
            "status": "done",
            "initial_loss": 1.0,
            "final_loss": loss,
            "undone": undone,
        }
        for solver, (loss, undone) in solvers.items()
    ]
    return pd.DataFrame(rows)


def test_a_study_fills_its_table_and_leaves_the_others(page):
    solvers = {"auto lr=0.01": (0.2, True), "soap-wsd lr=0.01": (0.3, False), "adam-wsd lr=0.01": (0.4, False)}
    runs = made_up("equal-time", solvers).reindex(columns=["study", *page.KEPT]).replace({None: np.nan})
    row = "| 0.5 s of processor time each, compiled | 1 | **0.50** | 0.50 | 0 | 0.75 | 0.75 | 1 |"
    assert row in page.BLOCKS["tables"](runs)
    assert page.BLOCKS["labels"](runs) == page.NOT_YET


def test_the_table_of_a_benchmark_is_what_it_printed(page):
    assert page.printed_table("3 runs\n| a | b |\n|---|---|\n| 1 | 2 |\ndone\n") == "| a | b |\n|---|---|\n| 1 | 2 |"
    with pytest.raises(ValueError, match="no table in the output"):
        page.printed_table("it failed\n")
