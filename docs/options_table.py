"""Writes the tables of all options of a command into the pages that ask for them, as the site is built."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from autoselect.cases.declared import declared
from autoselect.cases.option import Option
from autoselect.cases.settings import SearchSettings
from autoselect.cli.config_file import Key, keys_of
from autoselect.cli.diagnose import diagnose
from autoselect.cli.search import search
from autoselect.diagnosis.settings import DiagnosisSettings

MARK = re.compile("<!-- the table of all options of (search|diagnose) -->")
_TOLD: dict[str, tuple[Callable[..., None], type]] = {
    "search": (search, SearchSettings),
    "diagnose": (diagnose, DiagnosisSettings),
}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by MkDocs for each page."""
    return MARK.sub(lambda found: table(*_TOLD[found[1]]), markdown)


def table(command: Callable[..., None], kind: type) -> str:
    """One row for each option, or key of a file, of a command."""
    head = ["| key | Python | default | what it says |", "|---|---|---|---|"]
    return "\n".join(
        head + [_row(key, found, declared(kind).get(found.name)) for key, found in keys_of(command).items()]
    )


def _row(key: str, found: Key, option: Option | None) -> str:
    name = f"`{found.name}`" if option is not None and option.only != "shell" else ""
    default = "" if found.default is None else f"`{json.dumps(found.default)}`"
    return f"| `{key}` | {name} | {default} | {found.help} |"
