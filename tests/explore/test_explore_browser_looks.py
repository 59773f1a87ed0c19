"""The page of `autoselect explore` for every eye and hand: widths, colours, keys alone, and names of all controls."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from asked_page import Asked, served
from opened_explore import agrees, op, press, settled, window

import autoselect

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMELESS = """() => [...document.querySelectorAll('button, select, input, a, summary, [role]')].filter(e => {
    const labels = e.labels ? [...e.labels].map(l => l.textContent).join('') : '';
    const by = (e.getAttribute('aria-labelledby') || '').split(' ').map(i => document.getElementById(i)?.textContent);
    const name = [e.getAttribute('aria-label'), labels, by.join(''), e.textContent, e.title].find(t => t && t.trim());
    return !name && !['status', 'alert', 'menu'].includes(e.getAttribute('role'));
}).map(e => e.outerHTML.slice(0, 120))"""
CUT = """() => [...document.querySelectorAll('button, td, th, h2, label, p, select')].filter(e =>
    e.clientWidth && getComputedStyle(e).textOverflow !== 'ellipsis' && !e.closest('.unseen, .row, .move')
    && !e.matches('.unseen') && e.scrollWidth > e.clientWidth + 1).map(e => e.outerHTML.slice(0, 120))"""


@pytest.fixture(scope="module")
def server(explored: Path) -> Iterator[Asked]:
    with served(explored) as (_, asked):
        yield asked


def a_visit(page: Page) -> None:
    press(page, op(page, "LOGISTIC"), "f")
    press(page, op(page, "SUB"), "8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 820, 390])
def test_nothing_is_wider_than_the_window_and_nothing_is_cut(
    browser: Browser, server: Asked, tmp_path: Path, width: int, scheme: str
) -> None:
    with window(browser, server.url, width=width, scheme=scheme) as page:
        a_visit(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.evaluate(CUT) == []
        panels = page.locator("main section").evaluate_all(
            "all => all.map(e => e.getBoundingClientRect()).map(b => [b.left, b.top, b.right, b.bottom])"
        )
        assert [p for p in combinations(panels, 2) if _meet(*p)] == []
        picture = page.screenshot(path=tmp_path / f"{width}-{scheme}.png", full_page=True)
        assert len(picture) > 30_000
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(255, 255, 255)") is (scheme == "light")


def test_a_graph_whose_place_has_no_size_yet_is_drawn_when_it_has_one(browser: Browser, server: Asked) -> None:
    shown = "document.querySelector('#canvas > svg').getAttribute('viewBox')"
    with window(browser, server.url) as page:
        wanted = page.evaluate(shown)
        page.evaluate("document.querySelector('#canvas').style.width = 0; dispatchEvent(new Event('resize'))")
        page.evaluate("document.querySelector('#canvas').style.width = '300px'")
        limit = time.monotonic() + 10
        while page.evaluate(shown) == wanted:  # wait_for_function evaluates text, which the page does not allow
            assert time.monotonic() < limit
            page.wait_for_timeout(20)
        assert all(np.isfinite(float(number)) for number in page.evaluate(shown).split())


def _meet(one: list[float], other: list[float]) -> bool:
    return one[0] < other[2] - 1 and other[0] < one[2] - 1 and one[1] < other[3] - 1 and other[1] < one[3] - 1


def test_every_control_has_a_name(browser: Browser, server: Asked) -> None:
    with window(browser, server.url) as page:
        a_visit(page)
        assert page.evaluate(NAMELESS) == []
        op(page, "LOGISTIC").click()
        assert page.evaluate(NAMELESS) == []
        assert page.locator("#menu").get_attribute("aria-label")
        assert page.locator("#plot").get_attribute("aria-label")
        assert page.locator("#interval").get_attribute("aria-label")
        assert page.locator("#answer").get_attribute("aria-live") == "polite"


def test_the_keyboard_alone_moves_ops_and_reaches_all(browser: Browser, server: Asked, explored: Path) -> None:
    run = autoselect.load_run(explored)
    with window(browser, server.url) as page:
        page.click("#reset", force=True)  # Places the focus at the top; the button itself is not enabled.
        reached = list[str]()
        for _ in range(45):
            page.keyboard.press("Tab")
            reached.append(
                page.evaluate("document.activeElement.id || document.activeElement.closest('[id]')?.id || ''")
            )
        wanted = {"start", "target", "filter", "nodes-list", "zoom-in", "canvas", "compare", "build", "score", "keep"}
        assert wanted | {"trials", "axis", "moves"} <= {*reached}
        page.focus("#canvas .op[tabindex='0']")
        names = page.locator("#canvas .op").evaluate_all("all => all.map(e => e.getAttribute('aria-label'))")
        at = names.index(page.evaluate("document.activeElement.getAttribute('aria-label')"))
        to = next(i for i, name in enumerate(names) if name.startswith("LOGISTIC"))
        for _ in range(abs(to - at)):
            page.keyboard.press("ArrowDown" if to > at else "ArrowUp")
        assert page.evaluate("getComputedStyle(document.activeElement.querySelector('rect')).strokeWidth") != "0px"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.getAttribute('role')") == "menuitemradio"
        page.keyboard.press("f")
        settled(page)
        agrees(page, run.what_if("recommended", in_float=["LOGISTIC"]))
        assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("LOGISTIC, float, decided")
        page.keyboard.press("d")
        settled(page)
        agrees(page, run.what_if("recommended"))
        page.keyboard.press("Enter")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        settled(page)
        page.keyboard.press("Control+z")
        settled(page)
        agrees(page, run.what_if("recommended"))
