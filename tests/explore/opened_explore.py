"""How tests open the page of a run in a browser and read what it says."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from autoselect.domain.words import unit_of_drops
from autoselect.report.tables.frames import format_penalty

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

SECONDS = 180.0
"""A job imports TensorFlow, calibrates and does the held-out check, maybe beside many other tests."""


@contextlib.contextmanager
def window(
    browser: Browser, url: str, *, width: int = 1440, scheme: Any = "light", quiet: bool = True
) -> Iterator[Page]:
    """The page in a window of its own; at the end no other address was asked and, if it is quiet, no error was told."""
    with browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, accept_downloads=True
    ) as context:
        yield from _watched(context, url, quiet)


def _watched(context: BrowserContext, url: str, quiet: bool) -> Iterator[Page]:
    page, told, base = context.new_page(), list[str](), url.split("/?", maxsplit=1)[0]
    if quiet:
        page.on("console", lambda message: told.append(f"{message.text} {message.location}"))
    page.on("pageerror", lambda error: told.append(str(error)))
    page.on(
        "request",
        lambda request: None if request.url.startswith((base, "data:", "blob:")) else told.append(request.url),
    )
    page.goto(url)
    settled(page)
    yield page
    assert not told, told


def settled(page: Page) -> None:
    """Wait until the page shows the answer to what was asked last."""
    page.wait_for_selector("html[data-ready]:not([data-busy])", state="attached", timeout=60_000)


def op(page: Page, words: str) -> Any:
    """The row of an op in the list, by words of its label."""
    return page.locator(f"#nodes-list button[aria-label*='{words}']").first


def press(page: Page, row: Any, key: str) -> None:
    """Press a key at an op."""
    row.press(key)
    settled(page)


def figures(page: Page) -> dict[str, list[str]]:
    """The table of figures: this one, the other, the change."""
    rows: list[list[str]] = page.locator("#figures tbody tr").evaluate_all(
        "rows => rows.map(r => [...r.cells].map(c => c.textContent))"
    )
    return {name: cells for name, *cells in rows}


def traces(page: Page) -> dict[str, Any]:
    """The chart's points by their name."""
    found: list[Any] = page.locator("#plot").evaluate(
        "e => e.data.map(t => ({name: t.name, ids: t.customdata, x: [...t.x], y: [...t.y]}))"
    )
    return {trace["name"]: trace for trace in found}


def job(page: Page, kind: str) -> str:
    """Wait until the job of a kind that began last is done; what it says."""
    row = page.locator(f"#jobs li:has(b:text-is('{kind}'))").first
    row.and_(page.locator(".done, .failed, .stopped")).wait_for(timeout=SECONDS * 1000)
    assert "done" in (row.get_attribute("class") or ""), row.inner_text()
    return row.locator(".words").inner_text()


def agrees(page: Page, answer: Any) -> None:
    """The figures of the page are those of an answer."""
    shown = {name: cells[0] for name, cells in figures(page).items()}
    assert shown["size"] == f"{answer.size_bytes / 1e3:.1f} kB"
    assert shown["penalty"] == format_penalty(answer.penalty)
    assert shown["segments"] == str(answer.segments)
    assert shown["crossings"] == str(answer.crossing_tensors)
    for kind, name in (("integer", "int8"), ("int16", "int16"), ("hybrid", "hybrid"), ("float", "float")):
        assert shown[f"{name} ops"] == str(answer.kinds.get(kind, 0))
    assert shown["expected drop"] == ("–" if answer.drop is None else _as_shown(answer.drop, answer))
    if answer.chance_within is not None:
        assert shown["within the limit"] == f"{100 * answer.chance_within:.0f} %"


def _as_shown(drop: float, answer: Any) -> str:
    """A drop in hundredths of a point or, of other metrics, with as many digits as the allowed drop needs for three."""
    unit, factor = unit_of_drops(answer.metric)
    digits = 2 - math.floor(math.log10(abs(factor * answer.allowed_drop) or 1.0))
    text = f"{factor * drop:.{2 if unit == 'points' else max(0, min(6, digits))}f}"
    return text.lstrip("-") if float(text) == 0.0 else text.replace("-", "−")
