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
    assert page.NOT_YET not in text


def test_the_runs_of_auto_on_a_data_set_are_of_one_code(page):
    runs = page.published()
    own = runs[runs["solver"].str.match("auto( lr=|$)")]
    assert (own.groupby(["study", "dataset"])["code"].nunique() == 1).all()


def made_up(study, losses):
    """One run per solver, and its final loss; the first undid a window and evaluated f."""
    rows = [
        {
            "study": study,
            "dataset": "bikes",
            "network": "3x20",
            "seed": 0,
            "solver": solver,
            "status": "done",
            "initial_loss": 1.0,
            "seconds": 1.0 + (place == 0),
            "final_loss": loss,
            "undone": int(place == 0),
            "evaluations": 3 * (place == 0),
        }
        for place, (solver, loss) in enumerate(losses.items())
    ]
    return pd.DataFrame(rows)


def test_a_study_fills_its_table_and_leaves_the_others(page):
    losses = {"auto lr=0.01": 0.2, "soap-wsd lr=0.01": 0.3, "adam-wsd lr=0.01": 0.4, "adam-cosine lr=0.01": 0.8}
    runs = made_up("tables-1500", losses).reindex(columns=["study", *page.KEPT]).replace({None: np.nan})
    row = "| 1,500 batches | [3x20] | 1 | **0.50** | 0.50 | 0 | 0.75 | 0.75 | 2.00 |"
    assert page.BLOCKS["tables"](runs).splitlines()[2:] == [row]
    assert page.BLOCKS["labels"](runs) == page.NOT_YET
    study = page.Study(runs, "tables-1500")
    assert page.study_cell(study, "auto lr=0.01") == "0.67, worst 0.67; 1 undone in 1; f 3"


def test_the_table_of_a_benchmark_is_what_it_printed(page):
    assert page.printed_table("3 runs\n| a | b |\n|---|---|\n| 1 | 2 |\ndone\n") == "| a | b |\n|---|---|\n| 1 | 2 |"
    with pytest.raises(ValueError, match="no table in the output"):
        page.printed_table("it failed\n")
