"""What the scripts of peers share: what compare.py asks each of them, and the note that each writes for it.

Some of them run in environments of their own, so this imports the standard library alone.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import inspect
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def asking(description: str | None, model: str) -> argparse.ArgumentParser:
    """The options that all have.

    Args:
        description: Of the script.
        model: What file the model is.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", type=Path, required=True, help=model)
    parser.add_argument("--samples", type=Path, required=True, help="Folder of arrays, as compare.py writes it.")
    parser.add_argument("--output", type=Path, required=True, help="The .json file.")
    return parser


def add_limit(parser: argparse.ArgumentParser) -> None:
    """The option of those that can be told a limit."""
    parser.add_argument("--max-drop", type=float, required=True, help="Allowed loss of the share of right answers.")


def write_note(output: Path, packages: Sequence[str], entry: Callable[..., Any], **said: Any) -> None:
    """Write what a peer gave.

    Args:
        output: The .json file.
        packages: Whose versions count.
        entry: The peer's function or method; the note has the names of its parameters.
        said: The rest of the note.
    """
    versions = {name: importlib.metadata.version(name) for name in packages}
    note = {"versions": versions, "parameters": list(inspect.signature(entry).parameters), **said}
    output.write_text(json.dumps(note), encoding="utf-8")
