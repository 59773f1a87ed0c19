"""Texts that a person has read. It compares what is said with them, and writes them anew if it is asked to.

Each folder of tests has one page, ``reviewed.md``, with one section for each kind of text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PAGE = "reviewed.md"
AGAIN = "--review"
_TITLE = "# Texts that were read and may be said\n"
_HEADING = re.compile(r"^## (.*)\n", flags=re.MULTILINE)
_NAME = re.compile(r"(?<!\w)'[^']+'(?!\w)")
_NUMBER = re.compile(r"[-+]?\b\d(?:[\d.,]*\d)?(?:e[-+]?\d+)?\b")


def unnamed(text: str) -> str:
    """A text without the names in it, if another program gives them."""
    return _NAME.sub("'…'", text)


def read_page(page: Path) -> dict[str, str]:
    """The texts of a page by their kind; none if there is no page."""
    if not page.is_file():
        return {}
    _, *parts = _HEADING.split(page.read_text(encoding="utf-8"))
    return {kind: text.strip("\n") for kind, text in zip(parts[::2], parts[1::2], strict=True)}


def write_page(page: Path, texts: dict[str, str]) -> None:
    """Write the sections in the order of their kinds."""
    sections = (f"\n## {kind}\n\n{texts[kind]}\n" for kind in sorted(texts))
    page.write_text(_TITLE + "".join(sections), encoding="utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewed:
    """The page of a folder of tests."""

    page: Path
    is_rewritten: bool

    def __call__(self, kind: str, said: str | Iterable[str], *, measured: bool = False) -> None:
        """Assert that a text is the one that was reviewed.

        Args:
            kind: The heading of its section.
            said: The text, or its lines.
            measured: Whether numbers in it are measured; then each counts as N, and the test asks for it by itself.
        """
        text = said if isinstance(said, str) else "\n".join(said)
        text = "\n".join(line.rstrip() for line in text.strip("\n").splitlines())
        text = _NUMBER.sub("N", text) if measured else text
        assert text, "an empty text was never reviewed"
        assert not _HEADING.search(text), "a line of it would be a heading"
        texts = read_page(self.page)
        if self.is_rewritten and texts.get(kind) != text:
            write_page(self.page, {**texts, kind: text})
            return
        expected = texts.get(kind)
        assert text == expected, f"{kind!r}: reviewed was\n{expected}\nbut said is\n{text}\n{AGAIN} writes {self.page}"
