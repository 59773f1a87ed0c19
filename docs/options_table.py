"""Writes the table of all options into the page that asks for it, as the site is built."""

from __future__ import annotations

import json
from typing import Any

from autoselect.cases.declared import declared
from autoselect.cli.config_file import Key, keys_of
from autoselect.cli.search import search

MARK = "<!-- the table of all options -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by MkDocs for each page."""
    return markdown.replace(MARK, table())


def table() -> str:
    """One row for each key of a file, in the order of ``autoselect search --help``."""
    head = ["| key | Python | default | what it says |", "|---|---|---|---|"]
    return "\n".join(head + [_row(key, found) for key, found in keys_of(search).items()])


def _row(key: str, found: Key) -> str:
    option = declared().get(found.name)
    name = f"`{found.name}`" if option is not None and option.only != "shell" else ""
    default = "" if found.default is None else f"`{json.dumps(found.default)}`"
    return f"| `{key}` | {name} | {default} | {found.help} |"
