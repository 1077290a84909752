"""The page in a real browser: what it draws, what its controls change, and that its numbers are Python's."""

import itertools
import math
import random
import shutil

import pytest

from cmalight.bench import analysis, report
from tests.bench.frames import results, run

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium to open the page in"),
    pytest.mark.xdist_group("chromium"),
]
MILLISECONDS = 120_000  # for what never comes, not for slow machines
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]
LOCAL = ("file:", "data:", "blob:")
NASTY = "<script>alert(1)</script> \"q\" 'é' &amp; {{data}} №1"
SOLVERS = ["auto", "adam", NASTY]
PROBLEMS = ["california 3x20", "digits 2x50", f"<img src=x onerror=alert(2)> {NASTY}"]
PROBLEMS += ["california 5x50", "mv 3x20", "bikes 3x20"]
GROUPS = dict(zip(PROBLEMS, ["big", "small", "small", "big", "big", "small"], strict=True))
SETS = dict(zip(PROBLEMS, ["california", "digits", NASTY, "california", "mv", "bikes"], strict=True))


def made_up():
    """Losses that fall by chance over six problems, three seeds and three solvers; two runs fail."""
    chance = random.Random(0)
    for problem, seed, solver in itertools.product(PROBLEMS, range(3), SOLVERS):
        loss, losses = 1.0, [1.0]
        for _ in range(12):
            loss *= chance.choice([1.02, 0.9, 0.6, 0.2, 0.999])
            losses.append(loss)
        spent = [0.0, *itertools.accumulate(chance.uniform(0.05, 0.4) for _ in range(12))]
        passes = [float(n) if solver == "auto" else 0.0 for n in range(13)]
        failed = solver == NASTY and seed == 1 and problem in PROBLEMS[1:3]
        yield run(
            solver,
            losses,
            problem=problem,
            source=SETS[problem],
            group=GROUPS[problem],
            seed=seed,
            status="diverged" if failed else "done",
            error=NASTY,
            seconds=spent,
            evaluations=passes,
            work=[epoch + spent / 3 for epoch, spent in enumerate(passes)],
            validation=[one + 0.01 * epoch for epoch, one in enumerate(losses)],
            accepted=0.9 if solver == "auto" else math.nan,
        )


@pytest.fixture(scope="module")
def found():
    return results(*made_up())


@pytest.fixture(scope="module")
def write(tmp_path_factory):
    """Write a page of results; its address."""

    def written(found):
        path = tmp_path_factory.mktemp("page") / "index.html"
        path.write_text(report.render_page(found, title=NASTY, notes=[NASTY], tables=["tables/results.csv"]))
        return path.as_uri()

    return written


@pytest.fixture(scope="module")
def address(found, write):
    return write(found)


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=MILLISECONDS)
        yield opened
        opened.close()


@pytest.fixture
def opened(browser, address):
    """The page in a window of some width; whatever it complains of, or asks the network for, fails the test."""
    pages, complaints = [], []

    def with_view(width=1440, address=address, view=""):
        page = browser.new_page(viewport={"width": width, "height": 900})
        pages.append(page)
        page.set_default_timeout(MILLISECONDS)
        page.on("console", lambda said: complaints.append(f"{said.type}: {said.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda asked: asked.url.startswith(LOCAL) or complaints.append(asked.url))
        page.goto(f"{address}#{view}")
        page.wait_for_selector("html[data-ready]", state="attached")
        return page

    yield with_view
    for page in pages:
        page.close()
    assert complaints == []


def wait_until(page, expression):
    """As `wait_for_function`, which the page's own policy against `eval` forbids."""
    while not page.evaluate(expression):
        page.wait_for_timeout(50)


def choose(page, name, value):
    page.locator(f"[name={name}]").select_option(value)


def press(page, solver):
    page.locator("#solvers label").filter(has_text=solver).click()


def drawn(page, plot):
    """The lines of a figure by name."""
    return page.evaluate(
        "id => Object.fromEntries((document.getElementById(id).data || []).map(t => [t.name, {...t}]))", plot
    )


def markup(name):
    return name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def expect_profile(page, plot, profile):
    """The lines of the figure rise where the profile does."""
    lines = drawn(page, plot)
    assert set(lines) == {markup(solver) for solver in profile}
    for solver in profile:
        rises = profile[solver][profile[solver].diff().fillna(1) != 0].items()
        x, y = lines[markup(solver)]["x"][:-1], lines[markup(solver)]["y"][:-1]
        assert list(zip(x, y, strict=True)) == [pytest.approx(step, rel=1e-5) for step in rises]


def expect_as_in_python(page, found, solvers=SOLVERS, *, tau=1e-2, **options):
    """The sentences, the profiles and the areas are those that Python computes for these solvers alone."""
    costs = analysis.solution_costs(found, tau, solvers=solvers, **options)
    sentence = analysis.summary(costs, measure=options.get("measure", "seconds"))
    assert page.locator("h1").text_content() == f"{sentence} {analysis.unseen_summary(found, costs)}"
    expect_profile(page, "data-profile", analysis.data_profile(costs))
    for column, precision in enumerate(analysis.TABLE_TAUS):
        all_costs = analysis.solution_costs(found, precision, solvers=solvers, **options)
        for line, group in enumerate(("", "big", "small")):
            own = [GROUPS[problem] == group or not group for problem in all_costs.index.get_level_values("problem")]
            expect_profile(page, f"profile-{line}-{column}", analysis.performance_profile(all_costs[own]))
    areas = analysis.profile_area(costs, found)
    for row, solver in enumerate(solvers, start=1):
        area, low, high = areas.loc[solver]
        text = page.locator("#solver-table tr").nth(row).locator("td").nth(2).text_content()
        assert text == f"{area:.2f} ({low:.2f} to {high:.2f})"


def test_the_page_shows_what_python_computes(opened, found):
    page = opened()
    expect_as_in_python(page, found)
    choose(page, "tau", "0.1")
    expect_as_in_python(page, found, tau=0.1)
    for measure in ("work", "epochs"):
        choose(page, "measure", analysis.COLUMNS[measure])
        expect_as_in_python(page, found, tau=0.1, measure=measure)
    choose(page, "loss", "validation_loss")
    choose(page, "per", "seed")
    expect_as_in_python(page, found, tau=0.1, measure="epochs", loss="validation_loss", per="seed")


def test_hiding_a_solver_recomputes_everything(opened, found):
    page = opened()
    assert page.locator("#solvers input").first.is_checked()
    press(page, "auto")
    assert not page.locator("#solvers input").first.is_checked()
    expect_as_in_python(page, found, SOLVERS[1:])
    assert markup("auto") not in drawn(page, "curves")
    assert "auto" not in page.locator("#result-table").text_content() + page.locator("#heat").text_content()
    press(page, "auto")
    expect_as_in_python(page, found)


def test_with_no_solver_shown_the_page_says_so(opened):
    page = opened()
    for solver in SOLVERS:
        press(page, solver)
    assert page.inner_text("h1") == "No solver is shown."
    for plot in ("curves", "profile-0-0", "data-profile", "box-accepted"):
        assert "No solver is shown: check one above." in page.locator(f"#{plot}").text_content()
    press(page, "adam")
    assert list(drawn(page, "profile-0-0")) == ["adam"]


def test_a_filter_keeps_the_problems_with_all_its_words_in_every_part_of_the_page(opened, found):
    page = opened()
    page.locator("[name=filter]").fill("california 3x20")
    part = results(*(one for one in made_up() if one[0]["problem"] == PROBLEMS[0]))
    costs = analysis.solution_costs(part, 0.01)
    assert page.inner_text("h1") == f"{analysis.summary(costs)} {analysis.unseen_summary(part, costs)}"
    assert page.inner_text("#filtered") == "1 of 6 problems shown"
    assert page.locator("#heat tbody tr").count() == page.locator("#result-table tbody").count() == 1
    assert "No interval is given: 1 source data set, and fewer than 5 carry none." in page.inner_text("#profile-hint")
    page.locator("[name=filter]").fill("big")  # a group
    assert page.locator("#heat tbody tr").count() == 3


def test_box_plots_are_over_the_runs_of_each_solver(opened, found):
    page = opened()
    boxes = drawn(page, "box-accepted")
    assert list(boxes) == ["auto"]
    assert boxes["auto"]["x"] == [0.9] * 18
    assert drawn(page, "box-evaluations")["auto"]["x"] == [1.0] * 18  # 12 in 12 epochs
    assert set(drawn(page, "box-evaluations")) == {"auto", "adam", markup(NASTY)}
    assert f"{NASTY[:23]}…" in page.locator("#box-evaluations .yaxislayer-above").all_text_contents()[0]


def test_the_heat_map_has_each_number_over_the_least_of_its_row(opened, found):
    page = opened()
    ratios = analysis.ratios(analysis.solution_costs(found, 0.01))
    rows = [row.locator("td").all_text_contents() for row in page.locator("#heat tbody tr").all()]
    shown = [[math.inf if text == "never" else float(text) for text in row] for row in rows]
    assert shown == [pytest.approx(row, rel=1e-3) for row in ratios.to_numpy().tolist()]
    choose(page, "heat", "final_validation_loss")
    losses = analysis.unseen_losses(found).to_numpy()
    best = [row.locator("td.best").count() for row in page.locator("#heat tbody tr").all()]
    assert best == (losses == losses.min(axis=1, keepdims=True)).sum(axis=1).tolist()


def test_the_best_of_a_grid_is_shown_and_its_members_can_be(opened, write):
    made = [run(f"adam lr={lr}", [1, loss], grid="adam") for lr, loss in ((1, 0.5), (2, 0.25))]
    page = opened(address=write(results(*made, run("sgd", [1, 0.4]))))
    assert [box.is_checked() for box in page.locator("#solvers input").all()] == [False, False, True, True]
    assert page.inner_text("h1").startswith(
        "adam, best of 2 reached the target in the least training time on 1 of 1 problem."
    )
    press(page, "adam lr=1")
    assert page.evaluate("location.hash") == "#show=adam+lr%3D1"
    assert "adam lr=1" in drawn(page, "profile-0-0")


def test_the_view_is_in_the_address(opened):
    page = opened()
    choose(page, "problem", PROBLEMS[2])
    choose(page, "x", "epoch")
    choose(page, "measure", "work")
    page.locator("[name=gap]").check()
    choose(page, "tau", "0.001")
    press(page, NASTY)
    view = page.evaluate("location.hash.slice(1)")
    other = opened(view=view)
    for name in ("problem", "x", "measure", "tau"):
        control = f"document.querySelector('[name={name}]').value"
        assert other.evaluate(control) == page.evaluate(control)
    assert other.locator("[name=gap]").is_checked()
    assert [box.is_checked() for box in other.locator("#solvers input").all()] == [True, True, False]
    assert drawn(other, "curves") == drawn(page, "curves")
    other.evaluate("location.hash = ''")
    wait_until(other, "document.querySelector('[name=x]').value === 'seconds'")
    assert set(drawn(other, "profile-0-0")) == {markup(solver) for solver in SOLVERS}


def test_names_are_text(opened):
    page = opened()
    assert page.title().startswith(NASTY)
    assert page.locator(".note").inner_text() == NASTY
    assert page.locator("#solvers label").nth(2).text_content() == NASTY
    assert page.locator("#failed td").nth(5).text_content() == NASTY
    choose(page, "problem", PROBLEMS[2])
    assert page.locator("[name=problem] option:checked").text_content() == PROBLEMS[2]
    assert page.locator("img, script[src], b").count() == 0


def test_curves_are_medians_over_the_seeds_with_failures_infinite(opened, write):
    made = [
        run("a", [1, 0.5, 0.25], seed=0),
        run("a", [1, 0.7, 0.35], seed=1),
        run("a", [1, 0.6], seed=2, status="failed"),
    ]
    made += [run("b", [1, 0.1], seed=0), run("b", [1, 0.1], seed=1, status="failed"), run("b", [1, 0.1, 0.1], seed=2)]
    made += [run("c", [1, 0.1, 0.1], seed=seed, status="diverged") for seed in range(3)]
    page = opened(address=write(results(*made)))
    assert drawn(page, "curves")["a"]["y"] == [1, 0.6, 0.35]  # at last 0.25, 0.35 and infinity
    assert drawn(page, "curves")["b"]["y"] == [1, 0.1, 0.1]
    assert "5 of 9 runs failed" in page.inner_text("#curves-hint")
    page.locator("[name=gap]").check()
    assert drawn(page, "curves")["a"]["y"] == pytest.approx([0.9, 0.5, 0.25])
    assert page.evaluate("document.getElementById('curves').layout.yaxis.title.text") == "training loss − lowest"
    page.locator("[name=gap]").uncheck()
    page.locator("[name=seeds]").check()
    lines = drawn(page, "curves")
    assert lines["a, seed 1"]["y"] == [1, 0.7, 0.35]
    assert (lines["a, seed 2: failed"]["x"], lines["a, seed 2: failed"]["y"]) == ([1], [0.6])


def test_a_failed_seed_is_counted_and_never_bold(opened, write):
    lucky = [run("lucky", [1, 0.01], seed=0), *(run("lucky", [1, 0.5], seed=n, status="diverged") for n in (1, 2))]
    nearly = [run("nearly", [1, 0.1], seed=n, status="crashed" if n else "done") for n in (2, 0, 1)]
    nearly[2] = run("nearly", [1, 0.1], seed=1)
    steady = [run("steady", [1, 0.2], seed=n) for n in range(3)]
    page = opened(address=write(results(*lucky, *nearly, *steady)))
    rows = [row.locator("th, td").all_text_contents()[:3] for row in page.locator("#result-table tr").all()[2:]]
    assert rows == [
        ["lucky", "2 diverged, 1 done", "1 of 3"],
        ["nearly", "2 done, 1 crashed", "0.1 (2 of 3)"],
        ["steady", "3 done", "0.2"],
    ]
    bold = page.locator("#result-table tr:has(td.best) th").all_text_contents()
    assert bold == ["steady"]


@pytest.mark.parametrize("width", [1440, 400])
def test_the_page_fits_its_window(opened, width):
    page = opened(width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for label in page.locator("#solvers label").all():
        box = label.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    assert page.evaluate("parseFloat(getComputedStyle(document.querySelector('#solvers label')).fontSize)") >= 13
    for plot in page.locator(".plot").all():
        assert plot.bounding_box()["width"] >= min(width - 60, 330)
    page.mouse.wheel(0, 1500)
    wait_until(page, "scrollY > 500")
    assert page.locator("#solvers").bounding_box()["y"] <= 8  # the legend stays in sight


def test_a_download_is_the_figure_on_the_page_with_a_legend(opened, tmp_path):
    page = opened()
    press(page, "adam")
    with page.expect_download() as waiting:
        page.locator("figure").nth(1).get_by_role("button", name="SVG").click()
    path = tmp_path / waiting.value.suggested_filename
    waiting.value.save_as(path)
    assert path.name == "all-problems-0-01.svg"
    content = path.read_bytes()
    assert content.startswith(b"<svg")
    assert b">auto<" in content
    assert b">adam<" not in content
