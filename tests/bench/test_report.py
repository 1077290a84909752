"""The report as files: which results it shows, what it says of the others, and what is in the page."""

import html
import json
import re
from pathlib import Path

import numpy as np
import pandas
import pytest

from cmalight import bench
from cmalight.bench import store
from cmalight.bench.report import page_data, render_page
from tests.bench.common import folder_of, result_of
from tests.bench.frames import results, run

SPEC = {"datasets": ["diabetes"], "networks": ["1x5"], "solvers": ["adam", "sgd"], "seeds": 2, "epochs": 3}
DIABETES = {"name": "diabetes 1x5", "source": "diabetes", "group": ""}
LOSSES = {"adam": [1.0, 0.5, 0.25, 0.125], "sgd": [1.0, 0.75, 0.5, 0.25]}


def fill(folder, spec, **changes):
    """A results folder of the spec, with made-up results; `changes` of every run make them those of another spec."""
    made = [result_of(one.model_copy(update=changes), LOSSES[one.solver]) for one in bench.plan(spec)]
    return folder_of(folder, spec, made)


@pytest.fixture(scope="module")
def spec():
    return bench.read_spec(SPEC)


def embedded(page):
    """The data of a page, and its notes."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(text), [html.unescape(note) for note in re.findall('<p class="note">(.*?)</p>', page)]


def test_the_report_is_a_page_and_its_tables(tmp_path, spec):
    path = bench.write_report(fill(tmp_path / "study", spec))
    assert path == tmp_path / "study" / "report" / "index.html"
    page = path.read_text("utf-8")
    data, notes = embedded(page)
    assert "study: 1 problem, 2 solvers, 4 runs (4 done)" in page
    assert (data["problems"], data["solvers"], notes) == ([DIABETES], ["adam", "sgd"], [])
    linked = re.findall(r'<a href="([^"]*)">', page)
    assert linked == ["tables/results.csv", "tables/runs.csv", "tables/points.csv"]
    results, runs, points = (pandas.read_csv(path.parent / address) for address in linked)
    assert results["final_loss"].tolist() == [0.125, 0.25]
    assert results["seconds_to_0.1"].tolist() == [3, np.inf]
    assert (len(runs), len(points)) == (4, 16)


def test_the_example_of_the_page_on_costs_runs(tmp_path, spec, monkeypatch, capsys):
    page = Path(__file__).parents[2] / "docs" / "reference" / "costs.md"
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    fill(tmp_path / "results", spec)
    monkeypatch.chdir(tmp_path)
    exec(example, {})
    assert capsys.readouterr().out.startswith("adam reached the target in the least training time on 1 of 1 problem. ")


def test_results_of_other_code_are_left_out_in_one_line(tmp_path, spec):
    folder = fill(fill(tmp_path / "study", spec, code="other"), spec)
    data, notes = embedded(bench.write_report(folder).read_text("utf-8"))
    assert len(data["runs"]) == 4
    assert notes == ["Left out: 4 results are of other code or of another spec"]


def test_a_folder_with_results_of_other_code_only_is_refused_unless_they_are_asked_for(tmp_path, spec):
    folder = fill(tmp_path / "study", spec, code="0123456789abcdef")
    with pytest.raises(ValueError, match="no results to report: its 4 results are of other code or of another spec"):
        bench.write_report(folder)
    assert not (folder / "report").exists()
    store.begin(folder, spec, [path.stem for path in (folder / "runs").iterdir()])  # as the other code planned it
    data, notes = embedded(bench.write_report(folder, recorded=True).read_text("utf-8"))
    assert len(data["runs"]) == 4
    assert notes[0] == "Recorded results, trained by code 0123456789ab; the installed code may differ"


@pytest.mark.parametrize(
    ("dataset", "advice"), [("diabetes", "run a spec into it first"), ("mv", "the data set mv .* datasets fetch mv")]
)
def test_a_folder_without_results_is_refused_in_one_line(tmp_path, monkeypatch, dataset, advice):
    monkeypatch.setenv("CMALIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CMALIGHT_DATA", raising=False)
    folder_of(tmp_path / "study", bench.read_spec({**SPEC, "datasets": [dataset]}), [])
    with pytest.raises(ValueError, match=f"has no results to report: {advice}$"):
        bench.write_report(tmp_path / "study")


def test_the_page_asks_nothing_of_the_network():
    page = render_page(results(run("a", [1, 0.5])), title="t", tables=["tables/results.csv"])
    own = page.replace(re.search(r"<script>(.*?)</script>", page, re.DOTALL)[1], "")
    assert re.findall(r"(?:src|href)=\"([^\"]*)\"", own) == ["data:,", "tables/results.csv"]
    assert "default-src 'none'" in own
    assert "{{" not in own


def test_names_cannot_end_the_script_they_are_in():
    nasty = "</script><script>alert(1)</script>{{css}}\u2028é"
    page = render_page(results(run(nasty, [1, 0.5], problem=nasty)), title=nasty, notes=[nasty])
    data, notes = embedded(page)
    assert [*notes, data["problems"][0]["name"], *data["solvers"]] == [nasty] * 3
    assert "<script>alert" not in page


def test_a_run_finds_its_points():
    data = page_data(results(run("a", [1, 0.5]), run("b", [1], status="crashed"), run("a", [1, 0.5, 0.1], seed=1)))
    assert [(one["begin"], one["end"]) for one in data["runs"]] == [(0, 2), (2, 3), (3, 6)]


@pytest.mark.parametrize("link", ["report", "report/tables"])
def test_a_linked_folder_in_the_place_of_the_report_is_refused(tmp_path, spec, link):
    folder = fill(tmp_path / "study", spec)
    (tmp_path / "precious").mkdir()
    (folder / link).parent.mkdir(exist_ok=True)
    (folder / link).symlink_to(tmp_path / "precious")
    with pytest.raises(ValueError, match=f"{link} is a symbolic link; delete it"):
        bench.write_report(folder)
    assert list((tmp_path / "precious").iterdir()) == []


def test_problems_without_results_are_listed_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("CMALIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CMALIGHT_DATA", raising=False)
    study = bench.read_spec({**SPEC, "datasets": ["diabetes", "mv", "wine"], "seeds": 1})
    planned = bench.plan(study)
    folder = folder_of(tmp_path / "study", study, [result_of(planned[0], LOSSES["adam"])])
    page = html.unescape(bench.write_report(folder).read_text("utf-8"))
    (section,) = re.findall(r'<section id="missing">(.*?)</section>', page, re.DOTALL)
    rows = [re.findall("<td>(.*?)</td>", row) for row in section.split("<tr>")[1:]]
    assert rows == [
        ["diabetes 1x5", "sgd", "1", "not run yet"],
        ["mv 1x5", "adam, sgd", "2", "the data set mv is not on this machine; get it by: cmalight datasets fetch mv"],
        ["wine 1x5", "adam, sgd", "2", "not run yet"],
    ]
