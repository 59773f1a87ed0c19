"""Markdown tables for pages, and those of results read back; for the ``page.py`` of a study."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with a head."""
    lines = ["".join(f"| {cell} " if cell else "| " for cell in cells) + "|" for cells in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def table_of(path: Path, number: int = 1) -> list[list[str]]:
    """The cells of the n-th table of a Markdown file, head first."""
    lines = path.read_text(encoding="utf-8").splitlines()
    found: list[list[list[str]]] = []
    for before, line in zip(["", *lines], lines, strict=False):
        if line.startswith("|"):
            if not before.startswith("|"):
                found.append([])
            found[-1].append([cell.strip() for cell in line.strip("|").split("|")])
    head, _, *rows = found[number - 1]
    return [head, *rows]


def grouped(rows: Iterable[Sequence[str]]) -> list[list[str]]:
    """Rows whose first cell stands once for all that follow with the same."""
    shown: list[list[str]] = []
    last = None
    for first, *others in rows:
        shown.append(["" if first == last else first, *others])
        last = first
    return shown


def listed(values: Iterable[float], digits: int, unit: str = "") -> str:
    """Figures of several seeds, with one unit behind."""
    return ", ".join(f"{value:.{digits}f}" for value in values) + unit
