"""The pages and the help keep to docs/style.md, as far as a program can tell."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoselect.cases.declared import declared, told_of
from autoselect.cases.settings import SearchSettings
from autoselect.cases.shared_settings import SharedSettings
from autoselect.diagnosis.settings import DiagnosisSettings

ROOT = Path(__file__).resolve().parents[1]
STYLE = ROOT / "docs" / "style.md"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(set((ROOT / "docs").rglob("*.md")) - {STYLE})]
LONGEST = 35
"""Words of a sentence."""

PHRASES = {
    "nodes have errors, models have accuracy": r"accuracy of (?:a few |its |some )?(?:nodes|ops|layers)",
    "a telegram, not a sentence": r"(?:^|[.!?] )(?:That|The same) \w+\.(?:\s|$)",
    "an inversion: the subject comes first": r"(?:^|[.!?] )(?:Of|With) (?:which|\w+ that)\b",
    "a reference to nothing": r"\bwith which one\b|\bthat is worth it is not\b",
    "a loss is never negative": r"\bloses? (?:at most )?-\d",
    "'where' is for places, 'if' for conditions": r"(?:^|[.!?] )Where [^?]*[.,]",
    "'one's own' is 'your own' or 'its own'": r"\bone's own\b",
}

DANGLING = r"^(?:Of|Those|That|The same|So (?:many|much)|By (?:which|how much)|In (?:which|what))\b(?! course)"
"""A docstring begins with what it is about: the noun is there, and comes first."""


def prose(text: str) -> str:
    """A page without code, tables, headings and links' addresses."""
    text = re.sub(r"```.*?```|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    lines = [line for line in text.splitlines() if not re.match(r"\||#| {4}\S.*  |!\[|::: ", line)]
    return re.sub(r"`[^`]*`", "x", "\n".join(lines))


def sentences(text: str) -> list[str]:
    """The sentences of a page; an item of a list is one at least."""
    paragraphs = re.split(r"\n\s*\n|\n\s*(?=[*:] |\d+\. )", prose(text))
    return [part for one in paragraphs for part in re.split(r"(?<=[.!?:;])\s+", " ".join(one.split())) if part]


def helps() -> dict[str, str]:
    """What the command line says of each setting."""
    kinds: tuple[type[SharedSettings], ...] = (SearchSettings, DiagnosisSettings)
    return {f"{kind.__name__}.{name}": told_of(name, kind) for kind in kinds for name in declared(kind)}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_sentences_are_short_and_without_the_phrases_that_were_taken_out(page: Path) -> None:
    found = sentences(page.read_text(encoding="utf-8"))
    assert found
    assert [one for one in found if len(one.split()) > LONGEST] == []
    assert [(why, one) for one in found for why, rule in PHRASES.items() if re.search(rule, one)] == []


def docstrings(source: str) -> Iterator[str]:
    """The docstrings of a module, of its classes and functions, and of its constants, each in one line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield " ".join(re.sub(r"``.*?``", "x", node.value.value).split())


def of_the_package() -> list[str]:
    return [text for path in (ROOT / "autoselect").rglob("*.py") for text in docstrings(path.read_text("utf-8"))]


def test_no_docstring_lacks_its_noun() -> None:
    assert [text for text in of_the_package() if re.match(DANGLING, text)] == []


def test_no_docstring_has_a_phrase_that_was_taken_out() -> None:
    """A docstring may begin with "Where": it is then about a place."""
    texts = [text.removeprefix("Where") for text in of_the_package()]
    assert [(why, text) for text in texts for why, rule in PHRASES.items() if re.search(rule, text)] == []


def test_docstrings_of_constants_count_too() -> None:
    source = '"""A module."""\nA = 1\n"""Of b."""\n\n\ndef f():\n    """The same."""\n    x = "no docstring"\n'
    assert sorted(docstrings(source)) == ["A module.", "Of b.", "The same."]
    assert [text for text in docstrings(source) if re.match(DANGLING, text)] == ["Of b.", "The same."]


def test_the_help_has_none_of_the_phrases_either() -> None:
    assert [
        (name, why) for name, text in helps().items() for why, rule in PHRASES.items() if re.search(rule, text)
    ] == []


def test_the_rules_find_what_they_are_for() -> None:
    before = [row.split(" | ")[0].removeprefix("| ") for row in STYLE.read_text(encoding="utf-8").splitlines()]
    missed = {why for why, rule in PHRASES.items() if not any(re.search(rule, text) for text in before)}
    assert missed == set()
