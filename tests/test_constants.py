"""The package has few numbers at the tops of its modules: they look like knobs, and like knowledge.

A number that one function uses stands in that function, beside its reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "autoselect"
MOST = 199
"""How many there still are. This number only falls."""


def is_number(value: ast.expr | None) -> bool:
    """Whether it is a number, or a sum or power of numbers."""
    if isinstance(value, ast.UnaryOp):
        return is_number(value.operand)
    if isinstance(value, ast.BinOp):
        return is_number(value.left) and is_number(value.right)
    return isinstance(value, ast.Constant) and type(value.value) in (int, float)


def constants_of(source: str) -> Iterator[str]:
    """The names at the top of a module that stand for one number each."""
    for node in ast.parse(source).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = [*zip(target.elts, node.value.elts, strict=True)]
            yield from (ast.unparse(name) for name, value in pairs if is_number(value))


def test_fewer_and_fewer_numbers_stand_at_the_top_of_modules() -> None:
    counts = {path: len([*constants_of(path.read_text(encoding="utf-8"))]) for path in PACKAGE.rglob("*.py")}
    assert sum(counts.values()) <= MOST


def test_numbers_are_told_from_other_values() -> None:
    source = "A = 1\n_B: float = -2.0**3\nC, D = 4, 'e'\nF = True\nG = (1, 2)\nclass H:\n    I = 5\nJ = K = 1 << 3\n"
    assert [*constants_of(source)] == ["A", "_B", "C", "J", "K"]
