"""Remakes the tour of `autoselect explore`: its pictures, and the table of "A model by hand".

`python docs/explore_tour.py` searches the demo, serves its page, does in a browser what the tutorial says, and writes
the film `docs/images/explore_*` and the table into `docs/explore-by-hand.md`. The film has each picture in both widths
and both colour schemes. With names of folders of runs of the demo it only does the steps, and prints the table of each.
It needs Chromium and Playwright.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

import autoselect
from autoselect.runs.files import write_bytes, write_text

if TYPE_CHECKING:
    from playwright.sync_api import Page

PAGES = Path(__file__).resolve().parent
TUTORIAL = PAGES / "explore-by-hand.md"
TABLE = re.compile("(?<=<!-- the steps -->\n\n).*?(?=\n\n<!-- end of the steps -->)", re.DOTALL)
KNOWN = {"normalization": 2, "filterbank": 1, "energy": 4}
"""What the tutorial types into the filter, and how many ops it then moves to 16 bits."""
REPAIRS = ("bias", "equalization", "ranges-moving-average")
"""Those that the search of the demo tries together."""
SECONDS = 300
Scheme = Literal["light", "dark"]
FILM: Mapping[tuple[int, int, Scheme], str] = {
    (1440, 900, "light"): "explore_{}.png",
    (1440, 900, "dark"): "explore_{}_dark.webp",
    (820, 1180, "light"): "explore_{}_820.webp",
    (820, 1180, "dark"): "explore_{}_820_dark.webp",
}
"""Names of the pictures by width, height and colour scheme; the page is used in the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What the page says after a step.

    Attributes:
        said: What was done.
        figures: First column of the table of figures, by row.
    """

    said: str
    figures: dict[str, str]


Look = Callable[[str], None]


def settled(page: Page) -> None:
    """Wait for the answer to what was asked last."""
    page.wait_for_selector("html[data-ready]:not([data-busy])", state="attached", timeout=60_000)


def step(page: Page, said: str) -> Step:
    """What the page says now."""
    settled(page)
    rows: list[list[str]] = page.locator("#figures tbody tr").evaluate_all(
        "rows => rows.map(r => [...r.cells].map(c => c.textContent))"
    )
    return Step(said=said, figures={name: own for name, own, *_ in rows})


def by_hand(page: Page, look: Look = lambda name: None) -> Iterator[Step]:
    """Do what the tutorial says, step by step.

    Args:
        page: The page of a run of the demo, as it opens.
        look: Called with the number of each picture once the page shows it.
    """
    look("1")
    page.select_option("#start", "int8")
    settled(page)
    page.select_option("#compare", "recommended")
    yield step(page, "Start from all int8")
    page.locator("#canvas .op[aria-label^='SUB']").click()
    look("2")
    page.keyboard.press("Escape")
    for words, count in KNOWN.items():
        page.fill("#filter", words)
        for place in range(count):
            row = page.locator("#nodes-list button").nth(place)
            name = f"{row.locator('.type').inner_text()} `{row.locator('.nodename').inner_text()}`"
            row.press("6")
            yield step(page, name)
    page.fill("#filter", "")
    settled(page)
    look("3")
    page.click("#score")
    page.locator("#jobs progress").wait_for(timeout=SECONDS * 1000)
    look("4")
    page.locator("#jobs li.done").wait_for(timeout=SECONDS * 1000)
    page.locator("#answer:has-text('Scored as trial')").wait_for()
    yield step(page, "Score")
    page.click("#repairs-menu summary")
    for name in REPAIRS:
        page.check(f"#repairs input[value='{name}']")
        settled(page)
    page.click("#repairs-menu summary")
    yield step(page, "Tick three repairs")
    look("5")


def table(steps: list[Step]) -> str:
    """The steps as the tutorial shows them."""
    columns = ("penalty", "expected drop", "nine in ten", "within the limit", "front")
    rows = [f"| {s.said} | " + " | ".join(s.figures[name] for name in columns) + " |" for s in steps]
    head = "| step | penalty | expected drop, points | nine in ten | within the limit | front |"
    return "\n".join([head, "|---|---|---|---|---|---|", *rows])


def keep(page: Page, number: str) -> None:
    """Write a picture of the film at each width and in each colour scheme, and leave the page as it was."""
    is_asking = page.locator("#menu").is_visible()
    for (width, height, scheme), name in FILM.items():
        show(page, width, height, scheme)
        page.evaluate(f"scrollTo(0, {'document.body.scrollHeight' if number in '45' else '0'})")
        if is_asking and page.locator("#menu").is_hidden():  # The page closes it if its width changes.
            page.locator("#canvas .op[tabindex='0']").press("Enter")
        page.wait_for_timeout(600)
        write_bytes(PAGES / "images" / name.format(number), small(page.screenshot(), name.rpartition(".")[2]))
    show(page, *next(iter(FILM)))


def show(page: Page, width: int, height: int, scheme: Scheme) -> None:
    """Give the page a size and a colour scheme, and time to draw itself."""
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(color_scheme=scheme)
    page.wait_for_timeout(300)


def small(screenshot: bytes, kind: str) -> bytes:
    """The picture with few colours, without loss beyond that."""
    from PIL import Image

    shot = Image.open(io.BytesIO(screenshot)).convert("RGB")
    flat = np.asarray(shot).reshape(-1, 3)
    colours, indices, counts = np.unique(flat, axis=0, return_inverse=True, return_counts=True)
    common = colours[np.argsort(-counts)[:256]].astype(int)
    nearest = np.square(colours[:, None].astype(int) - common[None]).sum(axis=2).argmin(axis=1).astype(np.uint8)
    picture = Image.fromarray(nearest[indices].reshape(shot.height, shot.width), "P")
    picture.putpalette(common.ravel().tolist())
    content = io.BytesIO()
    if kind == "png":
        picture.save(content, "PNG", optimize=True)
    else:
        picture.convert("RGB").save(content, "WEBP", lossless=True, quality=100, method=6)
    return content.getvalue()


def tour(folder: Path, pictures: bool) -> list[Step]:
    """Serve the page of a run and do the steps on it."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with autoselect.load_run(folder).explore(browser=False) as served, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        show(page, *next(iter(FILM)))
        page.goto(served.url)
        settled(page)
        steps = list(by_hand(page, (lambda name: keep(page, name)) if pictures else lambda name: None))
        browser.close()
    return steps


def main() -> None:
    """Make them."""
    if sys.argv[1:]:
        for folder in map(Path, sys.argv[1:]):
            print(table(tour(folder, pictures=False)))
        return
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)  # so that the page names no folder of this machine
        run = autoselect.demo(output="autoselect-demo")
        begun = time.monotonic()
        steps = tour(run.directory, pictures=True)
        spent = time.monotonic() - begun
        os.chdir(PAGES)
    print(table(steps), f"\n{spent:.0f} s")
    write_text(TUTORIAL, TABLE.sub(lambda _: table(steps), TUTORIAL.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
