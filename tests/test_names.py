"""Local variables and parameters are named by nouns of what they hold."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "autoselect"
NO_NOUNS = {"found", "told", "one", "known"}
"""Names that stood in hundreds of functions, and said that something is there but not what."""


def local_names(source: str) -> Iterator[str]:
    """The parameters of functions, what these assign to, and what their loops and comprehensions go through."""
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            for node in ast.walk(function):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    yield node.id
                elif isinstance(node, ast.arg):
                    yield node.arg


def test_local_names_have_nouns() -> None:
    names = {path: {*local_names(path.read_text(encoding="utf-8"))} for path in PACKAGE.rglob("*.py")}
    assert {str(path.relative_to(PACKAGE)): own & NO_NOUNS for path, own in names.items() if own & NO_NOUNS} == {}


def test_each_kind_of_local_name_is_read() -> None:
    inside = "c, (d, *e) = b\n    for g in c: pass\n    return [h for h in d if (i := h)]"
    source = f"a = 1\ndef f(b, *, k):\n    {inside}\nlambda j: j\n"
    assert {*local_names(source)} == {"b", "k", "c", "d", "e", "g", "h", "i", "j"}
