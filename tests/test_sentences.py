"""Few tests ask for the words of a sentence: words get better more often than what they say.

A test asks for the type of an error and its fields, for a finding, or for a row. What a sentence says is reviewed as
text: the fixture ``reviewed`` compares it with the page of the test's folder.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parent
MOST = 70
"""How many tests still ask for sentences. This number only falls."""
WORDS = 3
"""So many words in a row are a part of a sentence; fewer are a name or a number with its unit."""
_RUN_OF_WORDS = re.compile(rf"(?:[A-Za-z][a-z']* ){{{WORDS - 1}}}[A-Za-z][a-z']*")


def texts_of(node: ast.AST) -> Iterator[str]:
    """The texts in an expression, with those between the values of an f-string.

    A key and the selector of a page's element are names, whatever they are made of.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.Subscript):
        yield from texts_of(node.value)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "locator":
        yield from texts_of(node.func)
    else:
        for part in ast.iter_child_nodes(node):
            yield from texts_of(part)


def asked_of(test: ast.AST) -> Iterator[str]:
    """The texts that a test asks for: in its assertions, and as the match of an error or a warning."""
    for node in ast.walk(test):
        if isinstance(node, ast.Assert):
            yield from texts_of(node.test)
        elif isinstance(node, ast.keyword) and node.arg == "match":
            yield from texts_of(node.value)


def ask_for_sentences(source: str) -> list[str]:
    """The names of a file's tests that ask for a part of a sentence."""
    tests = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef))
    return [
        test.name for test in tests if test.name.startswith("test_") and any(map(_RUN_OF_WORDS.search, asked_of(test)))
    ]


def test_fewer_and_fewer_tests_ask_for_sentences() -> None:
    found = {path.name: ask_for_sentences(path.read_text(encoding="utf-8")) for path in TESTS.rglob("test_*.py")}
    assert sum(map(len, found.values())) <= MOST


def test_sentences_are_told_from_names() -> None:
    source = (
        "def test_a(): assert 'the sky is blue' in f(x)\n"
        "def test_b():\n    with pytest.raises(E, match=r'of \\d+ nodes are left'): f()\n"
        "def test_c(): assert f'{a} of the nodes' == x\n"
        "def test_d():\n    'It is a docstring.'\n    assert x == ['CONV_2D', 'two words', 'a-b c/d e_f']\n"
        "def test_e(): assert x['the sky is blue'] == page.locator('#a tbody tr td').count()\n"
        "def test_f(): assert page.locator('#a').inner_text() == f(x)['of the nodes']['a'] == 'the sky is blue'\n"
        "def helper(): assert 'the sky is blue'\n"
    )
    assert ask_for_sentences(source) == ["test_a", "test_b", "test_c", "test_f"]
