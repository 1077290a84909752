"""What the command writes, of whole folders and of partial ones."""

import csv
import json
import os
import re

import pytest
from click.testing import CliRunner

from cmalight import bench
from cmalight.bench.analysis import profiles, sizes
from cmalight.bench.analysis.sizes import size_groups, size_of
from cmalight.bench.analysis.tables import to_latex
from cmalight.bench.report import content, figures, strips
from cmalight.bench.report import styles as report_styles
from cmalight.bench.report.canvas import plain
from cmalight.bench.report.content import page_data, read_study, slider, tables
from cmalight.bench.report.figures import planned_figures, profile_figure, slug
from cmalight.bench.report.packing import embedded_json
from cmalight.bench.report.page import page
from cmalight.bench.report.styles import _USUAL, OUTCOMES, UNKNOWN, styles
from cmalight.cli import command
from cmalight.rules.outcome import Outcome
from tests.bench.common import ROOT
from tests.bench.synthetic import run, write

NASTY = "<script>alert(1)</script>"
CONTROLLED = ["rejected_early", "accepted", "search_failed_kept"]


def study(solvers=("cmalight", "cma", "adam"), seeds=(0, 1), datasets=("bikes", "covtype")):
    """Runs whose losses fall at different speeds."""
    runs = []
    for dataset in datasets:
        for seed in seeds:
            for place, solver in enumerate(solvers):
                losses = [0.5 ** (epoch * (place + 1)) * (1 + 0.1 * seed) for epoch in range(1, 4)]
                more = {}
                if solver.startswith("cma"):
                    more = {"outcomes": CONTROLLED, "evaluations": [1, 1, 2], "steps": [0.5, 0.375, 0.375]}
                runs.append(run(solver, losses, dataset=dataset, seed=seed, start=2.0, **more))
    return runs


def invoke(*arguments):
    return CliRunner().invoke(command, [str(one) for one in arguments], prog_name="cmalight")


def embedded(folder):
    """The data of a page."""
    text = (folder / "index.html").read_text()
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


@pytest.mark.slow
def test_an_archive_has_the_report_of_its_folder_by_starts_or_by_pairs(tmp_path):
    folder = write(tmp_path / "results", study())
    archive = tmp_path / "published.tar.xz"
    assert invoke("bench", "merge", folder, "--out", archive).exit_code == 0
    assert invoke("bench", "report", archive).exit_code == 0
    assert invoke("bench", "report", folder).exit_code == 0
    places = (tmp_path / "published-report" / "tables", folder / "report" / "tables")
    texts = [{path.name: path.read_text() for path in place.iterdir()} for place in places]
    assert texts[0] == texts[1]
    done = invoke("bench", "report", archive, "--out", tmp_path / "pairs", "--problems", "pair")
    assert done.exit_code == 0, done.output
    assert "Share of 2 problems" in (tmp_path / "pairs" / "tables" / "solvers.tex").read_text()
    assert "Share of 4 problems" in texts[0]["solvers.tex"]
    assert embedded(tmp_path / "pairs")["pairs"] is True


@pytest.mark.slow
def test_the_report_is_a_page_with_figures_and_tables(tmp_path):
    folder = write(tmp_path / "results", study())
    done = invoke("bench", "report", folder)
    assert done.exit_code == 0, done.output
    report = folder / "report"
    assert done.output == f"report: {report / 'index.html'}\n"
    figures = {path.name for path in (report / "figures").iterdir()}
    for kind in ("pdf", "png"):
        assert {
            f"figure1-evaluations-and-acceptance.{kind}",
            f"figure2-profiles-tau-0.1.{kind}",
            f"figure3-profiles-tau-0.01.{kind}",
            f"figure4-profiles-tau-0.0001.{kind}",
            f"data-profiles.{kind}",
            f"areas.{kind}",
            f"curves-0-bikes-1x5.{kind}",
            f"control-1-covtype-1x5.{kind}",
        } <= figures
    assert (report / "figures" / "areas.pdf").read_bytes().startswith(b"%PDF")
    written = {path.name for path in (report / "tables").iterdir()}
    names = ("solvers", "results", "areas", "wins-0.1", "wins-0.01", "wins-0.0001")
    assert written == {f"{name}.{kind}" for name in names for kind in ("csv", "md", "tex")}
    with (report / "tables" / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6
    bikes = next(row for row in rows if row["data set"] == "bikes" and row["solver"] == "cma")
    assert float(bikes["final loss"]) == pytest.approx((0.5**6 + 1.1 * 0.5**6) / 2)
    assert float(bikes["acceptance rate"]) == pytest.approx(1 / 3)
    assert bikes["runs"] == "2 done"


@pytest.mark.slow
def test_the_figures_can_be_put_elsewhere(tmp_path):
    folder = write(tmp_path / "results", study(("adam",), (0,), ("bikes",)))
    assert invoke("bench", "report", folder, "--out", tmp_path / "a" / "b").exit_code == 0
    assert (tmp_path / "a" / "b" / "index.html").exists()
    assert not (folder / "report").exists()


def test_the_page_needs_no_network(tmp_path):
    folder = write(tmp_path / "results", study(("adam",), (0,), ("bikes",)))
    text = page(page_data(read_study(folder)))
    assert text.count("plotly.js v") == 1  # embedded once
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=[\"']?(https?:)?//", text)
    assert "default-src 'none'" in text


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        pytest.param(lambda: study(("adam",)), "there is one solver only", id="one solver"),
        pytest.param(lambda: study()[:-1], "1 of 4 problems do not have a result of every solver", id="a run missing"),
        pytest.param(
            lambda: [run(name, [0.1], status="failed", error="it <b>broke</b>") for name in "ab"],
            "2 of 2 runs have no figure",
            id="all failed",
        ),
        pytest.param(lambda: [run("a", []), run("b", [])], None, id="no epochs"),
        pytest.param(lambda: [run("a", [None, None]), run("b", [None])], None, id="nothing measured"),
        pytest.param(lambda: [run("a", [float("nan"), 0.1]), run("b", [0.0, 0.0])], None, id="NaN and zero losses"),
        pytest.param(lambda: [run("a", [0.1]), run("b", [0.1], seed=1)], "2 of 2 problems", id="nothing in common"),
        pytest.param(lambda: [run("a", [0.1], start=float("nan"))], None, id="no start"),
        pytest.param(lambda: [run("a", [0.3]), run("a", [0.1])], "1 runs are of a problem", id="the same twice"),
    ],
)
def test_partial_folders_have_a_report_that_says_so(tmp_path, runs, said):
    found = read_study(write(tmp_path / "results", runs()))
    notes = " ".join(json.loads(embedded_json(page_data(found)))["notes"])
    assert said is None or said in notes
    assert all(to_latex(table) for table in tables(found))
    drawn = [make() for _, make in planned_figures(found)]
    assert len(drawn) >= 5


@pytest.mark.slow
def test_a_folder_of_failures_has_a_report_too(tmp_path):
    folder = write(tmp_path / "results", [run(name, [0.1], status="failed", error=NASTY) for name in "ab"])
    assert invoke("bench", "report", folder).exit_code == 0
    assert embedded(folder / "report")["failures"][0][3] == NASTY


@pytest.mark.slow
def test_runs_that_the_spec_has_and_the_folder_has_not_are_counted(tmp_path):
    from tests.bench.common import spec

    bench.run(spec(seeds=2), tmp_path, workers=1)
    next((tmp_path / "runs").iterdir()).unlink()
    data = page_data(read_study(tmp_path))
    assert "1 runs of the spec have no result yet" in " ".join(data["notes"])
    assert list(data["spec"][0]["datasets"]) == ["diabetes"]
    assert dict(data["facts"])["batch size"] == "128"


def test_runs_that_shared_a_machine_are_warned_about(tmp_path):
    runs = study(("adam", "cma"), (0,), ("bikes",))
    for one in runs:
        one.update(started=0.0, finished=10.0)
    notes = page_data(read_study(write(tmp_path, runs)))["notes"]
    assert any("2 of 2 runs shared their machine" in note for note in notes)


def test_failures_are_listed_with_their_errors(tmp_path):
    runs = [run("a", [0.1]), run("b", [], status="timed_out", error="it did not end within 60 s")]
    data = page_data(read_study(write(tmp_path, runs)))
    assert data["failures"] == [("data · 1x5 · seed 0", "b", "timed out", "it did not end within 60 s")]
    assert data["statuses"] == "1 done, 1 timed out"


@pytest.mark.parametrize("make", [lambda _: None, lambda path: (path / "runs").mkdir(parents=True)])
def test_a_folder_without_results_is_refused_in_one_line(tmp_path, make):
    folder = tmp_path / "nothing"
    make(folder)
    done = invoke("bench", "report", folder)
    assert done.exit_code == 2
    assert done.output.count("\n") == 1
    assert re.search("is not a results folder|has no results yet", done.output)
    assert not (folder / "report").exists()


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    folder = write(tmp_path / "results", study(("adam",), (0,), ("bikes",)))
    (tmp_path / "file").write_text("")
    done = invoke("bench", "report", folder, "--out", tmp_path / "file")
    assert done.exit_code == 2
    assert f"{tmp_path / 'file'}: Not a directory" in done.output


@pytest.mark.slow
def test_names_cannot_leave_the_text_they_are_in(tmp_path):
    folder = write(tmp_path / "results", [run(NASTY, [0.1], dataset=NASTY, network="$x_1$ & {y}\u2028")])
    bench.write_report(folder)
    assert NASTY not in (folder / "report" / "index.html").read_text()
    assert embedded(folder / "report")["solvers"][0]["name"] == NASTY
    assert NASTY not in (folder / "report" / "tables" / "results.md").read_text()
    assert r"\textless{}script\textgreater{}" in (folder / "report" / "tables" / "results.tex").read_text()
    assert json.loads(embedded_json({"a": "</script><!--"})) == {"a": "</script><!--"}
    assert "<" not in embedded_json({"a": "</script><!--"})


def test_names_of_files_and_of_matplotlib_are_harmless():
    assert slug("../../etc/passwd · 1x5") == "etc-passwd-1x5"
    assert slug("···") == "unnamed"
    assert plain("$a$") == r"\$a\$"
    assert not plain("_hidden").startswith("_")


def test_a_solver_looks_the_same_in_every_report():
    assert styles(["adam", "cmalight"])["adam"] == styles(["sgd", "adam", "mine"])["adam"]
    many = styles([f"solver {n}" for n in range(56)])
    assert len(set(many.values())) == 56
    assert len(styles([f"solver {n}" for n in range(60)])) == 60


def test_a_colour_is_shared_only_once_all_are_used():
    usual = styles(list(_USUAL))
    assert len({style.colour for style in usual.values()}) == len(usual)
    mixed = styles([*list(_USUAL)[:6], *(f"solver {n}" for n in range(8))])
    assert len({style.colour for style in mixed.values()}) == len(mixed)


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(list(_USUAL)[:13], id="usual solvers"),
        pytest.param([f"controlled-adamw-{n:02}" for n in range(13)], id="equally long"),
        pytest.param([f"a-solver-with-a-name-of-its-own (lr=0.{n:02})" for n in range(13)], id="with options"),
    ],
)
@pytest.mark.parametrize("datasets", [("bikes",), ("bikes", "covtype")], ids=["one panel", "two panels"])
def test_a_legend_is_inside_its_figure(tmp_path, names, datasets):
    found = read_study(write(tmp_path, study(names, (0,), datasets)))
    figure = profile_figure(found, 1e-2)
    figure.draw_without_rendering()
    (legend,) = figure.legends
    extent = legend.get_window_extent()
    assert len(legend.get_texts()) == 13
    assert extent.x0 >= 0
    assert extent.y0 >= 0
    assert extent.x1 <= figure.bbox.x1
    assert extent.y1 <= figure.axes[0].get_tightbbox().y0


def strips_of(folder, outcomes, **options):
    found = read_study(write(folder, [run("cma", [0.1] * len(outcomes), outcomes=outcomes)]))
    names = list(OUTCOMES)
    return [[names[code] for code in codes] for _, codes, _, _ in strips.strips(*found.results, **options)]


def test_every_outcome_has_a_colour_of_its_own():
    assert {one.name.lower() for one in Outcome} | {UNKNOWN} == set(OUTCOMES)
    assert len(set(OUTCOMES.values())) == len(OUTCOMES)


def test_an_outcome_without_a_colour_has_that_of_those_kept_or_undone(monkeypatch):
    monkeypatch.delitem(report_styles._QUIET, "grown")
    monkeypatch.delitem(report_styles._LOUD, "refused")
    assert list(report_styles._others(True, "pale")) == ["grown"]
    assert list(report_styles._others(False, "dark")) == ["refused"]


def test_an_outcome_that_is_not_known_is_not_shown_as_accepted(tmp_path):
    assert strips_of(tmp_path / "a", ["accepted", "of tomorrow"]) == [["accepted", UNKNOWN]]
    assert strips_of(tmp_path / "b", ["accepted", "of tomorrow"], most_cells=1) == [[UNKNOWN]]


@pytest.mark.parametrize("quiet", ["no_step", "uncontrolled", "accepted"])
def test_a_quiet_epoch_does_not_hide_a_loud_one_in_its_cell(tmp_path, quiet):
    assert strips_of(tmp_path, ["diverged", quiet, "accepted", quiet], most_cells=2) == [["diverged", "accepted"]]


def test_the_step_size_is_drawn_to_the_end_of_the_last_epoch(tmp_path):
    found = read_study(write(tmp_path, study(("cma",), (0,), ("bikes",))))
    (make,) = [make for name, make in planned_figures(found) if name.startswith("control-")]
    (line,) = make().axes[0].get_lines()
    assert line.get_xdata().tolist() == [0, 1, 2, 3]
    assert line.get_ydata().tolist() == [0.5, 0.375, 0.375, 0.375]


def test_small_and_big_are_those_of_the_paper():
    small = ["ailerons", "beijing-pm25", "bikes", "california", "mv"]
    big = ["blogfeedback", "covtype", "protein", "sido", "skin-nonskin", "year-prediction-msd"]
    assert {size_of(name) for name in small} == {"small"}
    assert {size_of(name) for name in big} == {"big"}
    assert size_of("teacher:rows=2000,features=10") == "small"
    assert size_of("teacher:rows=1000000,features=10") == "big"
    assert size_of("nobody knows this") is None


def test_groups_are_big_small_and_all(tmp_path):
    runs = bench.traces(bench.load(write(tmp_path, study(("adam",), (0,), ("bikes", "covtype", "mine"))))).runs
    groups = size_groups(runs)
    assert [name for name, _ in groups] == ["big data sets", "small data sets", "all data sets"]
    assert [len(problems) for _, problems in groups] == [1, 1, 3]
    assert [name for name, _ in size_groups(runs[runs["dataset"] == "bikes"])] == ["all data sets (small)"]


def test_the_papers_tolerances_are_on_the_slider():
    for runs in (10, 10_000):
        assert {1e-1, 1e-2, 1e-4} <= set(slider(runs))
        assert all(0 < tau < 1 for tau in slider(runs))


def test_the_pages_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "results", study())
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "guides" / "report.md").read_text(), re.DOTALL)
    names = {}
    exec(example, names)
    assert list(names["profile"].columns) == ["cmalight", "cma"]


def test_the_documented_limits_are_those_of_the_code():
    text = " ".join((ROOT / "docs" / "guides" / "report.md").read_text().split())
    for said in (
        f"from 1 to {profiles.AREA_LIMIT:g}",
        f"{profiles.LEVEL:.0%}".replace("%", " %"),
        f"{profiles.RESAMPLES} bootstrap resamples",
        f"{sizes._BIG_ROWS:,} training rows",
        f"{strips._MOST_CELLS:,} cells",
        f"{strips._MOST_CELLS_OF_A_RUN} epochs share",
        f"above {content._MANY_RUNS:,} runs",
        f"first {('', 'one', 'two', 'three', 'four', 'five', 'six')[figures.MOST_FAMILIES]} pairs",
        f"{content._FEWEST_PLACES} to {content._MOST_PLACES} places",
    ):
        assert said in text, said


@pytest.mark.slow
def test_the_demo_ends_with_the_report(tmp_path):
    done = invoke("demo", "--out", tmp_path / "demo", "--quiet")
    assert done.exit_code == 0, done.output
    report = tmp_path / "demo" / "report"
    assert done.output.splitlines()[-1] == f"report: {report / 'index.html'}"
    assert len(embedded(report)["problems"]["name"]) == 8


def test_what_a_killed_report_left_goes_after_an_hour(tmp_path):
    folder = write(tmp_path / "results", [run("a", [0.1])])
    left, fresh = (folder / "report" / "tables" / f".{name}.csv.1.tmp" for name in ("old", "new"))
    left.parent.mkdir(parents=True)
    for path in (left, fresh):
        path.write_text("cut off")
    os.utime(left, (0, 0))
    bench.write_report(folder)
    assert (left.exists(), fresh.exists()) == (False, True)
