"""The page on Auto shows the numbers of the runs that are published beside it, and no others."""

import importlib.util
from pathlib import Path

import pandas as pd
import pytest

RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.fixture(scope="module")
def page():
    spec = importlib.util.spec_from_file_location("auto_page", RESULTS / "auto.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_those_of_the_published_runs(page):
    runs, text = pd.read_csv(page.RUNS), page.PAGE.read_text()
    assert page.filled(text, runs) == text
    assert all(f"<!-- {name} -->" in text for name in page.BLOCKS)


def test_the_published_runs_are_of_one_code_and_few(page):
    assert pd.read_csv(page.RUNS)["code"].nunique() == 1
    assert page.RUNS.stat().st_size < 1_000_000
