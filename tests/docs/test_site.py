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
CUT = "[...document.querySelectorAll('.bd-article {}')].some((e) => e.scrollWidth > e.clientWidth + 1)"
TUTORIALS = sorted((ROOT / "examples" / "tutorials").glob("*.py"))
pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The folder; a link, an anchor or a reference that leads nowhere, or a tutorial that fails, is an error.

    It is built from a copy, so that every tutorial is run: what `make docs` keeps of the last time is not there.
    """
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", source / "docs", ignore=shutil.ignore_patterns("tutorials"))
    shutil.copytree(ROOT / "examples", source / "examples")
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
    assert len(files) > 20
    assert [(file.name, found) for file in files for found in loading.findall(file.read_text())] == []


def test_every_page_can_be_edited_where_it_is_written(site):
    edited = {}
    for page in pages(site):
        edited |= dict.fromkeys(re.findall(r"https://github.com/owner/name/edit/main/([^\"]+)", page.read_text()), page)
    assert len(edited) > 20
    assert [path for path in edited if not (ROOT / path).exists()] == []


def shown(site, page):
    """The text of a page, without its tags."""
    return re.sub(r"<[^>]*>", "", (site / page).read_text())


def test_pages_show_what_the_settings_of_the_site_add(site):
    assert "git clone https://github.com/owner/name &amp;&amp; cd name" in shown(site, "start/install.html")
    optimizers = shown(site, "reference/api/optimizers.html")
    assert "cmalight.Auto(model_or_params, *, objective=None, total_steps=None" in optimizers
    assert "cmalight.Controlled(base, model=None, *, objective=None, total_steps=None" in optimizers
    first = (site / "index.html").read_text()
    assert 'href="https://github.com/owner/name"' in first
    assert "_images/why.svg" in first
    assert "favicon.svg" in first


def test_every_verb_and_option_of_the_command_is_in_the_reference(site):
    page = shown(site, "reference/command.html")
    headings = re.findall(r"<h\d>(.*?)<", (site / "reference/command.html").read_text())
    found = dict(verbs(command))
    assert len(found) > 8
    assert [path for path in found if path not in headings] == []
    options = [one.opts[0] for verb in found.values() for one in verb.params if isinstance(one, click.Option)]
    assert [option for option in options if option not in page] == []


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
        if window.evaluate("document.documentElement.scrollWidth") > 400 or window.evaluate(CUT.format("table")):
            complaints.append(f"{page.relative_to(site)} is too wide")
    assert complaints == []


def test_tables_of_figures_and_code_are_whole_on_a_wide_screen(site, window):
    window.set_viewport_size({"width": 1440, "height": 900})
    wide = [page for page in pages(site) if 'class="text-right"' in page.read_text()]
    wide += [site / f"{name}.html" for name in ("guides/loop", "guides/distributed", "reference/api/optimizers")]
    for page in wide:
        window.goto(page.as_uri())
        assert not window.evaluate(CUT.format(":is(table, pre)")), page.name


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
        ("add solver", "contribute/index"),
        ("learning rate", "start/choosing"),
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


def test_llms_txt_leads_to_files_of_the_site(site):
    linked = re.findall(r"\]\(([^)\s]+)\)", (site / "llms.txt").read_text())
    assert len(linked) > 20
    assert [address for address in linked if not (site / address).exists()] == []
    empty = [address for address in linked if len((site / address).read_text()) < 500]
    assert empty == []  # a page that only includes another has no text of its own
