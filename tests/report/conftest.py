"""A browser for the tests of pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NEEDED = "AUTOSELECT_NEEDS_BROWSER"
"""Where this is set, as in CI, a missing browser is a failure."""


def _missing(reason: str) -> None:
    text = f"{reason} Install it with `apt-get install chromium` and `pip install playwright`."
    if os.environ.get(NEEDED):
        pytest.fail(f"{NEEDED} is set, but {text}")
    pytest.skip(text)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("Playwright is not installed.")
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        _missing("no Chromium was found.")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()
