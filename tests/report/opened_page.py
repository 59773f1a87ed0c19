"""How tests open a page in the browser."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page


def open_page(page: Page, path: Path) -> float:
    """Open the page; seconds until it can be used."""
    begun = time.monotonic()
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]", state="attached")
    return time.monotonic() - begun
