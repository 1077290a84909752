"""The report as files: which results it shows, what it says of the others, and what is in the page."""

import json
import re
from pathlib import Path

import numpy as np
import pandas
import pytest

from cmalight import bench
from cmalight.bench import store
from cmalight.bench.models import Points
from cmalight.bench.report.page import MOST_OF_A_RUN, TAUS, looks, page_data, render_page
from tests.bench.frames import results, run

SPEC = {"datasets": ["diabetes"], "networks": ["1x5"], "solvers": ["adam", "sgd"], "seeds": 2, "epochs": 3}
LOSSES = {"adam": [1.0, 0.5, 0.25, 0.125], "sgd": [1.0, 0.75, 0.5, 0.25]}


def points(losses):
    count = len(losses)
    columns = {name: [0.0] * count for name in ("accuracy", "batch_loss", "lr")}
    columns |= {name: [0] * count for name in ("evaluations", "evaluated_rows")}
    counted = list(range(count))
    return Points(
        epoch=counted,
        seconds=counted,
        work=counted,
        train_loss=losses,
        validation_loss=losses,
        outcome=["start", *["uncontrolled"] * (count - 1)],
        **columns,
    )


def fill(folder, spec, **changes):
    """A results folder of the spec, with made-up results; `changes` of every run make them those of another spec."""
    runs = bench.plan(spec)
    store.begin(folder, spec, [one.key for one in runs])
    for one in runs:
        made = one.model_copy(update=changes)
        store.write_result(folder, bench.Result(run=made, status="done", points=points(LOSSES[one.solver])))
    return folder


@pytest.fixture(scope="module")
def spec():
    return bench.make_spec(SPEC)


def embedded(path):
    """The data of a page."""
    (text,) = re.findall(
        r'<script type="application/json" id="data">(.*?)</script>', path.read_text("utf-8"), re.DOTALL
    )
    return json.loads(text)


def test_the_report_is_a_page_and_its_tables(tmp_path, spec):
    path = bench.write_report(fill(tmp_path / "study", spec))
    assert path == tmp_path / "study" / "report" / "index.html"
    data = embedded(path)
    assert data["title"] == "study"
    assert data["problems"] == ["diabetes 1x5"]
    assert [solver["name"] for solver in data["solvers"]] == ["adam", "sgd"]
    assert data["notes"] == []
    for address in data["tables"]:
        assert (path.parent / address).is_file()
    table = pandas.read_csv(path.parent / "tables" / "results.csv")
    assert table["final_loss"].tolist() == [0.125, 0.25]
    assert table["seconds_to_0.1"].tolist() == [3, np.inf]
    assert len(pandas.read_csv(path.parent / "tables" / "runs.csv")) == 4
    assert sorted(file.name for file in path.parent.rglob("*.*")) == [
        "epochs.csv",
        "index.html",
        "results.csv",
        "runs.csv",
    ]


def test_the_example_of_the_guide_runs(tmp_path, spec, monkeypatch, capsys):
    guide = Path(__file__).parents[2] / "docs" / "guides" / "report.md"
    (example,) = re.findall(r"```python\n(.*?)```", guide.read_text("utf-8"), re.DOTALL)
    fill(tmp_path / "results", spec)
    monkeypatch.chdir(tmp_path)
    exec(example, {})
    assert capsys.readouterr().out == "adam was quickest on 1 of 1 problem.\n"


def test_results_of_other_code_are_left_out_in_one_line(tmp_path, spec):
    folder = fill(fill(tmp_path / "study", spec, code="other"), spec)
    data = embedded(bench.write_report(folder))
    assert len(data["runs"]) == 4
    assert data["notes"] == ["Left out: 4 results are of other code or of another spec"]


def test_a_folder_with_results_of_other_code_only_is_refused(tmp_path, spec):
    folder = fill(tmp_path / "study", spec, code="other")
    with pytest.raises(ValueError, match="no results to report: its 4 results are of other code or of another spec"):
        bench.write_report(folder)
    assert not (folder / "report").exists()


def test_recorded_results_are_shown_when_asked_for_and_named(tmp_path, spec):
    folder = fill(tmp_path / "study", spec, code="0123456789abcdef")
    store.begin(folder, spec, [path.stem for path in (folder / "runs").iterdir()])  # as the other code planned it
    data = embedded(bench.write_report(folder, recorded=True))
    assert len(data["runs"]) == 4
    assert data["notes"][0] == "Recorded results, trained by code 0123456789ab; the installed code may differ"


def test_another_spec_shows_its_own_runs(tmp_path, spec):
    folder = fill(tmp_path / "study", spec)
    part = bench.make_spec({**SPEC, "solvers": ["sgd"]})
    data = embedded(bench.write_report(folder, spec=part, out=tmp_path / "elsewhere"))
    assert [solver["name"] for solver in data["solvers"]] == ["sgd"]
    assert (tmp_path / "elsewhere" / "tables" / "results.csv").is_file()
    assert not (folder / "report").exists()


def test_a_partial_folder_says_what_is_missing(tmp_path, spec):
    folder = fill(tmp_path / "study", spec)
    (folder / "runs" / f"{bench.plan(spec)[0].key}.json").unlink()
    assert "1 of 2 starts lack a result of one of the solvers" in embedded(bench.write_report(folder))["notes"][0]


def test_a_folder_without_results_is_refused_in_one_line(tmp_path, spec):
    store.begin(tmp_path / "study", spec, [])
    with pytest.raises(ValueError, match="has no results to report: run a spec into it first"):
        bench.write_report(tmp_path / "study")


def test_a_report_replaces_the_one_before(tmp_path, spec):
    folder = fill(tmp_path / "study", spec)
    first = bench.write_report(folder).read_text("utf-8")
    again = bench.write_report(folder).read_text("utf-8")
    made = re.compile(r'"made":"[^"]*"')
    assert made.sub("", first) == made.sub("", again)


def test_the_page_asks_nothing_of_the_network():
    html = render_page(results(run("a", [1, 0.5])), title="t", notes=[], tables=["tables/results.csv"])
    own = html.replace(re.search(r"<script>(.*?)</script>", html, re.DOTALL)[1], "")
    assert re.findall(r"(?:src|href)=\"([^\"]*)\"", own) == ["data:,"]
    assert "default-src 'none'" in own
    assert "{{" not in own


def test_names_cannot_end_the_script_they_are_in():
    nasty = "</script><script>alert(1)</script>{{css}}\u2028é"
    html = render_page(results(run(nasty, [1, 0.5], problem=nasty)), title=nasty, notes=[nasty], tables=[])
    (text,) = re.findall(r'id="data">(.*?)</script>', html, re.DOTALL)
    assert "<" not in text
    data = json.loads(text)
    assert [data["title"], data["notes"][0], data["problems"][0], data["solvers"][0]["name"]] == [nasty] * 4


def test_facts_are_listed_once_each():
    found = results(run("a", [1, 0.5], host="x"), run("b", [1, 0.5], host="y", batch_size=64))
    facts = dict(page_data(found, title="", notes=[], tables=[])["facts"])
    assert facts["machine"] == "x, y"
    assert facts["batch size"] == "128, 64"
    assert facts["code"] == "0123456789ab"
    assert "time limit, s" not in facts


def test_the_slider_has_the_precisions_of_the_paper_and_of_the_table():
    assert {1e-1, 1e-2, 1e-4} <= set(TAUS)
    assert list(TAUS) == sorted(TAUS, reverse=True)


def test_no_two_solvers_look_alike():
    made = [tuple(look.values()) for look in looks(40)]
    assert len(set(made)) == 40
    assert len({colour for colour, _ in made[:10]}) == 10


def test_a_large_study_has_a_page_of_bounded_size():
    losses = list(np.geomspace(1, 1e-3, 3000))
    data = page_data(results(*(run(f"s{n}", losses) for n in range(3))), title="", notes=[], tables=[])
    ends = [(one["begin"], one["end"]) for one in data["runs"]]
    assert ends[0][0] == 0
    assert all(end - begin <= MOST_OF_A_RUN + 3 * len(TAUS) for begin, end in ends)
