"""Takes the picture of the report in the guide: `python docs/pictures/report_page.py report/index.html`.

The page is what `cmalight demo` writes. Needs playwright and Chromium.
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

PICTURE = Path(__file__).parents[1] / "guides" / "report-page.png"
WIDTH, HEIGHT = 1440, 1330


def main() -> None:
    page_file = Path(sys.argv[1]).resolve()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(page_file.as_uri())
        page.wait_for_selector(".plot .main-svg")
        page.wait_for_timeout(1000)
        page.screenshot(path=PICTURE)
        browser.close()


if __name__ == "__main__":
    main()
