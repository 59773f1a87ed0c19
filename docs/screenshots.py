"""Remakes the pictures that the documentation shows of the report, and, on request, those to look at before a release.

`python docs/screenshots.py` searches the demo and writes `docs/images/report_*.png`. With a folder, it writes the pages
of three runs there (the demo, one that was stopped early, one without a passing model), and of the run folders named
after it: at three widths, dark and on paper. It needs Chromium and Playwright.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import autoselect
from autoselect.cases.events import Event, TrialFinished
from autoselect.embedded import calibration, model_path, search_samples

if TYPE_CHECKING:
    from playwright.sync_api import Browser

IMAGES = Path(__file__).resolve().parent / "images"
KEPT = {"report_picks": "#picks", "report_graph": "#graph"}
"""Sections by the name of their picture."""
WIDTHS = {"1440": 1440, "820": 820, "390": 390, "dark": 1440, "print": 794}
STOPPED_AFTER, NEVER = 12, 1e-6


def stop_early(event: Event) -> None:
    """What Ctrl-C does in the middle of the trials."""
    if isinstance(event, TrialFinished) and event.number == STOPPED_AFTER:
        raise KeyboardInterrupt


def pages(folder: Path) -> dict[str, Path]:
    """Search three times; the page of each run by its name."""
    demo = autoselect.demo(output=folder / "demo")
    case = {"calibration": calibration, "evaluation": search_samples, "metric": "accuracy", "trials": 30}
    early = autoselect.search(model_path(), **case, output=folder / "early", listener=stop_early)
    none = autoselect.search(model_path(), **case, output=folder / "none", max_drop=NEVER, max_penalty=NEVER)
    return {name: run.directory / "report.html" for name, run in (("demo", demo), ("early", early), ("none", none))}


def keep(browser: Browser, page: Path) -> None:
    """Write the pictures that the documentation shows."""
    with browser.new_context(viewport={"width": 1000, "height": 800}) as context:
        window = context.new_page()
        window.goto(page.as_uri())
        for name, section in KEPT.items():
            window.locator(section).scroll_into_view_if_needed()
            window.wait_for_timeout(500)
            window.locator(section).screenshot(path=IMAGES / f"{name}.png")


def look(browser: Browser, name: str, page: Path, folder: Path) -> None:
    """Write a whole page at each width, dark and on paper."""
    for kind, width in WIDTHS.items():
        scheme = "dark" if kind == "dark" else "light"
        with browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme) as context:
            window = context.new_page()
            window.goto(page.as_uri())
            if window.locator("#canvas").count():
                window.locator("#canvas").scroll_into_view_if_needed()  # it is drawn when it is first seen
            if kind == "print":
                window.emulate_media(media="print")
            window.wait_for_timeout(500)
            window.screenshot(path=folder / f"{name}-{kind}.png", full_page=True)


def main() -> None:
    """Make them."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        if not sys.argv[1:]:
            os.chdir(name)  # so that the page names no folder of this machine
            keep(browser, (autoselect.demo(output="autoselect-demo").directory / "report.html").resolve())
        else:
            folder, *runs = map(Path, sys.argv[1:])
            for one, page in {**pages(Path(name)), **{run.name: run / "report.html" for run in runs}}.items():
                look(browser, one, page, folder)
        browser.close()


if __name__ == "__main__":
    main()
