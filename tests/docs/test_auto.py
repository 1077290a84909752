"""The page on Auto shows the numbers of the runs that are published beside it, and no others."""

import pandas as pd
import pytest

from tests.helpers import script


@pytest.fixture(scope="module")
def page():
    return script("docs/results/auto.py")


def test_the_tables_are_those_of_the_published_runs(page):
    runs, text = pd.read_csv(page.RUNS), page.PAGE.read_text()
    assert page.filled(text, page.BLOCKS, runs) == text
    assert all(f"<!-- {name} -->" in text for name in page.BLOCKS)


def test_the_runs_of_auto_are_of_one_code_and_what_is_published_is_small(page):
    runs = pd.read_csv(page.RUNS)
    assert runs[runs["solver"].str.startswith("auto")]["code"].nunique() == 1
    assert page.RUNS.stat().st_size < 1_000_000
