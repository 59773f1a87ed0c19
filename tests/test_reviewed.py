"""Pages of reviewed texts hold what tests ask for and nothing else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from reviewing import PAGE, Reviewed, read_page, write_page

TESTS = Path(__file__).resolve().parent


@pytest.mark.parametrize("page", sorted(TESTS.rglob(PAGE)), ids=lambda page: page.parent.name)
def test_each_text_is_of_a_kind_that_a_test_of_its_folder_names(page: Path) -> None:
    sources = [ast.parse(path.read_text(encoding="utf-8")) for path in page.parent.glob("test_*.py")]
    named = {node.value for tree in sources for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    kinds = read_page(page)
    assert kinds
    assert list(kinds) == sorted(kinds)
    assert set(kinds) <= named


def test_a_text_is_compared_and_written_if_that_is_asked_for(tmp_path: Path) -> None:
    page = tmp_path / PAGE
    write_page(page, {"b": "It is 3.\nSo it is."})
    ask, write = (Reviewed(page=page, is_rewritten=which) for which in (False, True))
    ask("b", ["It is 3.", "So it is."])
    write("a", "From -1.5e-03 to 1,000 of int8", measured=True)
    assert read_page(page) == {"a": "From N to N of int8", "b": "It is 3.\nSo it is."}
    ask("a", "From 2 to 4 of int8", measured=True)
    for kind, text in (("b", "It is 4.\nSo it is."), ("c", "It is 3."), ("b", "")):
        with pytest.raises(AssertionError):
            ask(kind, text)
