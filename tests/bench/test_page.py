"""The page in a real browser: what is drawn, what the slider and the solvers' buttons change, and to which numbers."""

import itertools
import math
import random
import shutil

import pytest

from cmalight import bench
from cmalight.bench.analysis.summaries import control_figures, costs_at, problem_table
from cmalight.bench.analysis.tables import shown as in_print
from cmalight.bench.report.content import TAUS, page_data, read_study
from cmalight.bench.report.page import page as page_of
from tests.bench.synthetic import run, write

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium to open the page in"),
    pytest.mark.xdist_group("chromium"),
]
MILLISECONDS = 300_000  # for what never comes, not for slow machines
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]
NASTY = "<script>alert(1)</script><b>&amp;"
SOLVERS = ["cmalight", "cma", "adam", NASTY]
PLOTS = ["performance", "data-profiles", "areas"]


def made_up_runs():
    """Losses that fall in steps of chance, some that fail, evaluations for two of the solvers, an image set."""
    chance = random.Random(0)
    runs = []
    for dataset, seed, (place, solver) in itertools.product(
        ("bikes", "covtype", "cifar10"), range(4), enumerate(SOLVERS)
    ):
        loss, losses = 1.0, []
        for _ in range(12):
            loss *= chance.choice([1.02, 0.9, 0.6, 0.2, 0.999])
            losses.append(loss)
        seconds = list(itertools.accumulate(chance.uniform(0.05, 0.4) for _ in losses))
        more = {}
        if solver.startswith("cma"):
            more["outcomes"] = [chance.choice(["accepted", "rejected_early", "search_failed_kept"]) for _ in losses]
            more["evaluations"] = list(itertools.accumulate(chance.randint(0, 3) for _ in losses))
            more["steps"] = [0.5 * 0.75**epoch for epoch in range(12)]
        if dataset == "cifar10":
            more["accuracy"] = [1 - one / 2 for one in losses]
            more["test"] = losses
        failed = place == 3 and seed == 1
        runs.append(
            run(
                solver,
                losses,
                dataset=dataset,
                seed=seed,
                seconds=seconds,
                status="diverged" if failed else "done",
                error=NASTY,
                start=1.0,
                **more,
            )
        )
    return runs


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return read_study(write(tmp_path_factory.mktemp("page") / "results", made_up_runs()))


@pytest.fixture(scope="module")
def address(study):
    path = study.folder / "index.html"
    path.write_text(page_of(page_data(study)), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=MILLISECONDS)
        yield opened
        opened.close()


@pytest.fixture
def opened(browser, address):
    """The page in a window of some width; whatever it complains of fails the test."""
    pages, complaints = [], []

    def at_width(width=1280, address=address):
        page = browser.new_page(viewport={"width": width, "height": 900})
        pages.append(page)
        page.set_default_timeout(MILLISECONDS)
        page.on("console", lambda said: complaints.append(f"{said.type}: {said.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on(
            "request", lambda asked: asked.url.startswith(("file:", "data:", "blob:")) or complaints.append(asked.url)
        )
        page.goto(address)
        page.wait_for_selector("html[data-ready]", state="attached")
        return page

    yield at_width
    for page in pages:
        page.close()
    assert complaints == []


def drawn(page, place):
    """The curves of a plot: x and y by the name of the solver."""
    return page.evaluate(
        "id => Object.fromEntries((document.getElementById(id).data || []).map(t => [t.name, [t.x, t.y]]))", place
    )


def escaped(name):
    return name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def expect_profiles(page, study, tau, measure, solvers):
    """Every panel shows the curves that Python computes for these solvers alone."""
    costs = bench.solution_costs(study.traces, tau, measure=measure, solvers=solvers, problems=study.problems)
    for place, (_, problems) in enumerate(study.groups):
        part = costs[costs.index.isin(problems)]
        for plot, frame in (
            ("performance", bench.performance_profile(part)),
            ("data-profiles", bench.data_profile(part)),
        ):
            shown = drawn(page, f"{plot}-{place}")
            assert set(shown) == {escaped(solver) for solver in solvers}
            for solver in solvers:
                x, y = shown[escaped(solver)]
                curve = frame[solver][frame[solver].diff().fillna(1) > 0]
                steps = [(a, b) for a, b in zip(x[:-1], y[:-1], strict=True) if b > 0]
                assert [a for a, _ in steps] == pytest.approx([a for a, b in curve.items() if b > 0], rel=1e-6)
                assert [b for _, b in steps] == pytest.approx([b for b in curve if b > 0], rel=1e-12)
        areas = bench.profile_area(part)
        for solver in solvers:
            mark = page.evaluate(
                "([id, name]) => { const t = document.getElementById(id).data.find(t => t.name === name);"
                " return [t.x[0], t.x[0] - t.error_x.arrayminus[0], t.x[0] + t.error_x.array[0]]; }",
                [f"areas-{place}", escaped(solver)],
            )
            assert mark == pytest.approx(areas.loc[solver].tolist(), rel=1e-5, abs=1e-7)
        cells = page.locator(f"#wins-{place} tbody tr").evaluate_all(
            "rows => rows.map(row => [...row.cells].slice(1).map(cell => Number(cell.textContent) || 0))"
        )
        assert cells == bench.pairwise_wins(part).to_numpy().tolist()


def slide(page, place):
    page.locator("#tau").evaluate("(e, v) => { e.value = v; e.dispatchEvent(new Event('input')); }", place)


def test_every_plot_is_shown(opened):
    page = opened()
    places = [f"{plot}-{group}" for plot in PLOTS for group in range(3)]
    places += ["box-evaluations", "box-acceptance", "curve", "strip", "image-accuracy", "image-loss"]
    for place in places:
        page.wait_for_selector(f"#{place} .main-svg", state="attached")
        box = page.locator(f"#{place}").bounding_box()
        assert box["width"] > 200, place
        assert box["height"] > 100, place
        marks = page.evaluate(
            "id => document.querySelectorAll(`#${id} .scatterlayer path, #${id} .boxlayer path`).length", place
        )
        assert marks >= 2, f"{place} is empty"
    assert page.evaluate("document.querySelectorAll('.plot').length") == len(places)
    assert page.locator("#table tbody tr").count() == 12
    assert page.locator("#failures tbody tr").count() == 3
    assert "somewhere" in page.locator("#facts").inner_text()


def test_profiles_are_pythons_at_every_place_of_the_slider_that_is_tried(opened, study):
    page = opened()
    expect_profiles(page, study, 1e-2, "seconds", SOLVERS)
    for place in (0, 3, 11, 23):
        slide(page, place)
        expect_profiles(page, study, TAUS[place], "seconds", SOLVERS)
    page.get_by_role("button", name="10⁻⁴", exact=True).click()
    expect_profiles(page, study, 1e-4, "seconds", SOLVERS)
    assert page.locator("#tau-text").inner_text() == "τ = 10⁻⁴"


def test_profiles_over_pairs_are_pythons_too(opened, study, tmp_path):
    pairs = read_study(study.folder, problems="pair")
    path = tmp_path / "index.html"
    path.write_text(page_of(page_data(pairs)), encoding="utf-8")
    page = opened(address=path.as_uri())
    expect_profiles(page, pairs, 1e-2, "seconds", SOLVERS)
    assert "a pair of data set and network" in page.locator("#facts").inner_text()


def test_hiding_a_solver_recomputes_everything(opened, study):
    page = opened()
    for hidden in ("adam", NASTY, "cma"):
        page.locator("#solvers button").filter(has_text=hidden).last.click()
        shown = [
            name
            for name in SOLVERS
            if page.locator(f"#solvers button >> nth={SOLVERS.index(name)}").get_attribute("aria-pressed") == "true"
        ]
        assert hidden not in shown
        expect_profiles(page, study, 1e-2, "seconds", shown)
        names = set(page.locator("#table tbody tr td:nth-child(2)").all_inner_texts())
        assert names == set(shown)
    page.get_by_role("button", name="show all").click()
    expect_profiles(page, study, 1e-2, "seconds", SOLVERS)


@pytest.mark.parametrize("measure", ["epochs", "evaluations", "work"])
def test_other_costs_are_pythons_too(opened, study, measure):
    page = opened()
    page.select_option("#measure", measure)
    expect_profiles(page, study, 1e-2, measure, SOLVERS)
    for hidden in (2, 3):
        page.locator(f"#solvers button >> nth={hidden}").click()
    expect_profiles(page, study, 1e-2, measure, SOLVERS[:2])


def test_with_no_solver_shown_the_page_says_so(opened):
    page = opened()
    for place in range(len(SOLVERS)):
        page.locator(f"#solvers button >> nth={place}").click()
    assert "nothing to show" in page.locator("#performance-0").inner_text()
    page.get_by_role("button", name="show all").click()
    assert len(drawn(page, "performance-0")) == 4


def test_the_table_has_pythons_numbers_and_sorts(opened, study):
    page = opened()
    figures = control_figures(study.traces.runs, study.results.epochs)
    expected = problem_table(study.traces, figures, costs_at(study.traces)).rows
    rows = page.locator("#table tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(c => c.textContent))"
    )
    assert len(rows) == len(expected)
    for shown, cells in zip(rows, expected, strict=True):
        assert shown[:3] == [f"{cells[0]} · {cells[1]}", cells[2], cells[3]]
        for text, value in zip(shown[3:], cells[4:], strict=True):
            if math.isnan(value) or math.isinf(value):
                assert text == in_print(value)
            else:
                assert float(text) == pytest.approx(value, rel=6e-4)
    heading = page.locator("#table th").nth(3)
    for direction in ("ascending", "descending"):
        heading.get_by_role("button").click()
        assert heading.get_attribute("aria-sort") == direction
        values = [float(text) for text in page.locator("#table tbody tr td:nth-child(4)").all_inner_texts() if text]
        assert values == sorted(values, reverse=direction == "descending")
    page.fill("#filter", "covtype")
    assert page.locator("#table tbody tr").count() == 4


def test_the_table_says_how_many_runs_got_there_and_what_the_test_part_gave(opened, study):
    page = opened()
    assert any("of 4" in text for text in page.locator("#table td.never").all_inner_texts())
    titles = page.locator("#table th").all_inner_texts()
    assert titles[2:7] == ["runs", "final loss", "best loss", "test loss", "test accuracy"]


@pytest.mark.parametrize("width", [1280, 1000])
def test_the_table_fits_its_box(opened, width):
    page = opened(width)
    inside, box = page.evaluate(
        "(box => [box.scrollWidth, box.clientWidth])(document.querySelector('#results .scroll'))"
    )
    assert inside <= box


def test_failures_are_in_sight_in_a_narrow_window(opened):
    page = opened(500)
    ends, edge = page.evaluate(
        """(box => [box.querySelector('tbody tr td:nth-child(3)').getBoundingClientRect().right,
                    box.getBoundingClientRect().right])(document.querySelector('#results .scroll'))"""
    )
    assert ends <= edge


def test_ticks_say_which_axis_is_logarithmic(opened):
    page = opened()

    def axes():
        return page.evaluate("(l => [l.xaxis.type, l.yaxis.type])(document.getElementById('curve').layout)")

    assert (page.is_checked("#log-x"), page.is_checked("#log-y"), axes()) == (False, True, ["linear", "log"])
    page.uncheck("#log-y")
    page.check("#log-x")
    assert axes() == ["log", "linear"]


def test_dashes_mean_solvers_everywhere(opened):
    page = opened()
    lines = page.evaluate(
        """document.getElementById('strip').data.filter(t => t.type === 'scatter')
                   .map(t => [t.name.split(',')[0], t.line.dash, t.opacity])"""
    )
    dashes = {solver: {dash for other, dash, _ in lines if other == solver} for solver, *_ in lines}
    assert dashes == {"cmalight": {"solid"}, "cma": {"solid"}}
    assert len({opacity for solver, _, opacity in lines if solver == "cma"}) == 4


def test_curves_follow_what_is_chosen(opened, study):
    page = opened()
    families = study.families
    page.select_option("#family", str(families.index("covtype · 1x5")))
    page.select_option("#axis", "epochs")
    x, y = drawn(page, "curve")["adam"]
    runs = study.traces.runs
    ends = runs[(runs["family"] == "covtype · 1x5") & (runs["label"] == "adam")]["final_loss"]
    assert x[-1] == 13  # twelve epochs, and one that the time limit cut off
    assert y[-1] == pytest.approx(ends.median(), rel=2e-3)
    assert set(drawn(page, "strip")) >= {"cmalight, seed 0", "cma, seed 3"}
    x, y = page.evaluate("(({ x, y }) => [x, y])(document.getElementById('strip').data[0])")  # its step sizes
    assert x == list(range(13))  # to the end of the last epoch
    assert y == pytest.approx([0.5 * 0.75 ** min(epoch, 11) for epoch in range(13)], rel=2e-3)
    page.select_option("#value", "test_accuracy")
    assert "no run that ended well" in page.locator("#curve").inner_text()
    page.select_option("#family", str(families.index("cifar10 · 1x5")))
    assert len(drawn(page, "curve")) == 4


@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_fits_its_window(opened, width):
    page = opened(width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for place in page.locator(".plot").all():
        box = place.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    overlaps = page.evaluate(
        """() => {
            const boxes = [...document.querySelectorAll('.plot, #solvers, h2, h3, figcaption, .controls')]
                .map(e => e.getBoundingClientRect()).filter(b => b.width && b.height);
            return boxes.flatMap((a, i) => boxes.slice(i + 1).filter(b => a.left < b.right - 1 && b.left < a.right - 1
                && a.top < b.bottom - 1 && b.top < a.bottom - 1)).length;
        }"""
    )
    assert overlaps == 0
    slide(page, 3)
    page.locator("#solvers button >> nth=0").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(
    ("runs", "notes"),
    [
        pytest.param(
            lambda: [run(name, [0.1], status="failed") for name in "ab"],
            ["2 of 2 runs have no figure: they failed, diverged, crashed or were stopped"],
            id="all failed",
        ),
        pytest.param(
            lambda: [run("a", [])],
            ["there is one solver only: its profiles compare it with itself"],
            id="one solver, no epochs",
        ),
        pytest.param(
            lambda: [run("a", [0.1]), run("b", [0.1], seed=1)],
            ["2 of 2 problems do not have a result of every solver"],
            id="nothing in common",
        ),
        pytest.param(lambda: [run("a", [0.1], start=float("nan")), run("b", [0.0])], [], id="no start, a loss of zero"),
    ],
)
def test_a_partial_folder_has_a_page_too(opened, tmp_path, runs, notes):
    found = read_study(write(tmp_path / "results", runs()))
    (tmp_path / "index.html").write_text(page_of(page_data(found)), encoding="utf-8")
    page = opened(400, (tmp_path / "index.html").as_uri())
    said = page.locator("#warnings p").all_inner_texts()
    assert len(said) == len(notes)
    assert all(text.startswith(note) for text, note in zip(said, notes, strict=True))
    costs = bench.solution_costs(found.traces, 1e-2)
    shown = drawn(page, "performance-0") if len(costs) else {}
    assert set(shown) == (set(costs.columns) if len(costs) else set())
    assert ("nothing to show" in page.locator("#performance-0").inner_text()) == (not len(costs))


def test_a_name_with_markup_is_text(opened):
    page = opened()
    assert NASTY in page.locator("#solvers").inner_text()
    assert NASTY in page.locator("#table").inner_text()
    assert NASTY in page.locator("#failures").inner_text()
    assert NASTY in page.locator("#wins-0").inner_text()
    labels = page.locator("#areas-0 .ytick text").all_text_contents()
    assert any(label.startswith("<script>alert(1)") for label in labels)  # shortened to fit
    assert page.locator("#table b, #solvers b, #failures script").count() == 0
