"""The site is built as `make docs` builds it, and asks nothing of any other host."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from cmalight.cli import command
from tests.cli.verbs import verbs

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

ROOT = Path(__file__).parents[2]
RECIPE = re.search(r"-m (sphinx .*) docs site$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()
CUT_TABLES = "[...document.querySelectorAll('.bd-article table')].some((e) => e.scrollWidth > e.clientWidth + 1)"
TUTORIALS = sorted((ROOT / "examples" / "tutorials").glob("*.py"))
pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The folder; a link, an anchor or a reference that leads nowhere, or a tutorial that fails, is an error.

    It is built from a copy, so that every tutorial is run: what `make docs` keeps of the last time is not there.
    """
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    for name in ("docs", "examples"):
        shutil.copytree(
            ROOT / name, source / name, ignore=shutil.ignore_patterns("tutorials") if name == "docs" else None
        )
    for page in ROOT.glob("*.md"):
        shutil.copy(page, source)
    done = subprocess.run(
        [sys.executable, "-m", *RECIPE, "docs", str(folder)],
        cwd=source,
        env={**os.environ, "GITHUB_REPOSITORY": "owner/name"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    assert "build succeeded" in done.stdout  # else a tutorial has switched off the warnings that would have ended it
    return folder


def pages(site):
    return [page for page in site.rglob("*.html") if "_static" not in page.parts]


BROKEN = """# Broken

[a page](nowhere.md), [an anchor](#nowhere), {doc}`/nowhere`, {py:class}`cmalight.Nothing`

```{eval-rst}
.. autofunction:: cmalight.nothing
```
"""


def test_a_link_an_anchor_or_a_reference_that_leads_nowhere_ends_the_build(tmp_path):
    settings = (ROOT / "docs" / "conf.py").read_text().replace('    "sphinx_gallery.gen_gallery",\n', "")
    (tmp_path / "conf.py").write_text(settings)
    (tmp_path / "index.md").write_text(BROKEN)
    recipe = ["dummy" if word == "html" else word for word in RECIPE]  # reads and checks, writes no pages
    done = subprocess.run(
        [sys.executable, "-m", *recipe, ".", "site"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode != 0
    for complaint in ("'nowhere.md'", "'nowhere'", "unknown document: '/nowhere'", "cmalight.Nothing", "'nothing'"):
        assert complaint in done.stderr, done.stderr


def test_nothing_is_loaded_from_another_host(site):
    """Links may lead outside; scripts, styles, fonts, frames and pictures may not come from there."""
    loading = re.compile(
        r"<(?:script|img|iframe|source|video|audio|object|embed)\b[^>]*?\b(?:src|data|srcset)=[\"']?((?:https?:)?//[^\"'\s>]*)"
        r"|<link\b(?![^>]*rel=[\"']?(?:canonical|next|prev))[^>]*href=[\"']?((?:https?:)?//[^\"'\s>]*)"
        r"|@import\s+(?:url\()?[\"']?((?:https?:)?//[^\"')\s]*)"
        r"|url\([\"']?((?:https?:)?//[^\"')\s]*)",
        re.IGNORECASE,
    )
    files = [*pages(site), *(site / "_static").rglob("*.css")]
    assert len(files) > 30
    assert [(file.name, found) for file in files for found in loading.findall(file.read_text())] == []


def test_every_page_can_be_edited_where_it_is_written(site):
    edited = {}
    for page in pages(site):
        edited |= dict.fromkeys(re.findall(r"https://github.com/owner/name/edit/main/([^\"]+)", page.read_text()), page)
    assert len(edited) > 35
    assert [path for path in edited if not (ROOT / path).exists()] == []


def test_the_page_on_installing_says_where_to_clone_from(site):
    page = re.sub(r"<[^>]*>", "", (site / "start" / "install.html").read_text())
    assert "git clone https://github.com/owner/name &amp;&amp; cd name" in page
    assert 'href="https://github.com/owner/name"' in (site / "index.html").read_text()


def test_optimizers_are_shown_with_their_arguments(site):
    page = re.sub(r"<[^>]*>", "", (site / "reference" / "api" / "optimizers.html").read_text())
    assert "cmalight.Auto(model_or_params, *, objective=None, total_steps=None" in page
    assert "cmalight.Controlled(base, model=None, *, objective=None, total_steps=None" in page


def test_every_verb_and_option_of_the_command_is_in_the_reference(site):
    page = re.sub(r"<[^>]*>", "", (site / "reference" / "command.html").read_text())
    headings = re.findall(r"<h\d>(.*?)<", (site / "reference" / "command.html").read_text())
    shown = dict(verbs(command))
    assert len(shown) > 8
    for path, one in shown.items():
        assert path in headings
        options = [option.opts[0] for option in one.params if isinstance(option, click.Option)]
        assert [option for option in options if option not in page] == []


def test_headings_are_smaller_the_deeper_they_are(site, window):
    window.goto((site / "reference" / "command.html").as_uri())
    sizes = [
        window.evaluate(f"parseFloat(getComputedStyle(document.querySelector('h{n}')).fontSize)") for n in (1, 2, 3, 4)
    ]
    assert sizes == sorted(set(sizes), reverse=True)


def test_the_tutorials_have_been_run_and_are_shown_with_what_they_gave(site):
    assert len(TUTORIALS) == 3
    for script in TUTORIALS:
        page = (site / "tutorials" / f"{script.stem}.html").read_text()
        assert "sphx-glr-script-out" in page
        assert ("sphx_glr_" + script.stem in page) == ("plt.show()" in script.read_text())


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("there is no Chromium to open the pages in")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"], timeout=300_000
        )
        yield opened
        opened.close()


@pytest.fixture
def window(browser):
    """A dark page, as wide as a telephone."""
    page = browser.new_page(viewport={"width": 400, "height": 900}, color_scheme="dark")
    page.set_default_timeout(300_000)
    yield page
    page.close()


def test_no_page_scrolls_sideways_on_a_telephone_asks_for_another_host_or_has_a_script_that_fails(site, window):
    complaints = []
    window.on("pageerror", lambda error: complaints.append(str(error)))
    window.on("request", lambda asked: asked.url.startswith(("file:", "data:")) or complaints.append(asked.url))
    for page in pages(site):
        window.goto(page.as_uri())
        if window.evaluate("document.documentElement.scrollWidth") > 400 or window.evaluate(CUT_TABLES):
            complaints.append(f"{page.relative_to(site)} is too wide")
    assert complaints == []


def test_tables_of_figures_fit_a_wide_screen(site, window):
    window.set_viewport_size({"width": 1440, "height": 900})
    figures = [page for page in pages(site) if 'class="text-right"' in page.read_text()]
    assert figures
    for page in figures:
        window.goto(page.as_uri())
        assert not window.evaluate(CUT_TABLES), page.name


def test_a_dark_page_is_printed_light_and_the_cells_of_a_table_name_their_column(site, window):
    window.goto((site / "start" / "choosing.html").as_uri())
    theme = "document.documentElement.dataset.theme"
    assert window.evaluate(theme) == "dark"
    assert window.evaluate(f"window.dispatchEvent(new Event('beforeprint')); {theme}") == "light"
    assert window.evaluate(f"window.dispatchEvent(new Event('afterprint')); {theme}") == "dark"
    cell = window.locator("td", has_text="your schedule").first
    assert cell.get_attribute("data-head") == "take"


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("resume", "guides/checkpoints"),
        ("cluster", "guides/testbed"),
        ("add solver", "contribute/index"),
        ("Trainer", "guides/integrations"),
        ("learning rate", "start/choosing"),
        ("install", "start/install"),
        ("scheduler", "guides/loop"),
    ],
)
def test_a_search_finds_the_page_among_the_first_five(site, window, words, wanted):
    window.goto(f"{(site / 'search.html').as_uri()}?q={words.replace(' ', '+')}")
    window.wait_for_selector("ul.search li a")
    window.wait_for_function("/finished/.test(document.querySelector('#search-results').textContent)")
    links = window.eval_on_selector_all("ul.search li > a", "all => all.map((one) => one.href)")
    found = list(dict.fromkeys(link.partition(site.as_uri() + "/")[2].partition(".html")[0] for link in links))
    assert wanted in found[:5], found[:8]


def test_code_is_whole_on_a_wide_screen(site, window):
    window.set_viewport_size({"width": 1400, "height": 900})
    cut = "[...document.querySelectorAll('.bd-article pre')].filter((e) => e.scrollWidth > e.clientWidth + 1).length"
    for page in ("guides/loop", "guides/fit", "guides/distributed", "reference/api/optimizers", "start/five-minutes"):
        window.goto((site / f"{page}.html").as_uri())
        assert window.evaluate(cut) == 0, page


def test_the_page_has_an_icon_and_its_buttons_have_names(site, window):
    window.goto((site / "start" / "five-minutes.html").as_uri())
    assert (site / "_static" / "favicon.svg").exists()
    assert "favicon.svg" in window.locator("link[rel=icon]").get_attribute("href")
    window.wait_for_selector(".copybtn[aria-label]", state="attached")


def test_the_first_page_has_code_and_the_picture(site):
    page = (site / "index.html").read_text()
    assert "highlight-python" in page
    assert "_images/why.svg" in page


def test_llms_txt_leads_to_files_of_the_site(site):
    linked = re.findall(r"\]\(([^)\s]+)\)", (site / "llms.txt").read_text())
    assert len(linked) > 20
    assert [address for address in linked if not (site / address).exists()] == []
    empty = [address for address in linked if len((site / address).read_text()) < 500]
    assert empty == []  # a page that only includes another has no text of its own
