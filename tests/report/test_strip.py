from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoselect.domain.graph import OpKind
from autoselect.domain.looks import LOOKS
from autoselect.report.tables.strip import strip_legend, strip_rows

LETTERS = {"i": "integer", "w": "int16", "h": "hybrid", "f": "float", "b": "boundary", "n": "neutral"}


def kinds(letters: str) -> list[str]:
    return [LETTERS[letter] for letter in letters]


@pytest.mark.parametrize(
    ("letters", "width", "expected"),
    [
        pytest.param("", 80, (), id="no ops"),
        pytest.param("i", 80, ("0 -",), id="one op"),
        pytest.param("biifhwnib", 80, ("0 |--Fh=.-|",), id="every kind"),
        pytest.param("iiiff", 5, ("0 ---", "3 FF"), id="less room than ten ops"),
        pytest.param("if", 1, ("0 -", "1 F"), id="no room at all"),
        pytest.param("i" * 10 + "f", 13, (" 0 " + "-" * 10, "10 F"), id="exactly full"),
        pytest.param("i" * 25, 26, (" 0 " + "-" * 20, "20 " + "-" * 5), id="a round number of ops"),
    ],
)
def test_rows(letters: str, width: int, expected: tuple[str, ...]) -> None:
    assert strip_rows(kinds(letters), width) == expected


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        pytest.param("", "", id="no ops"),
        pytest.param("iii", "- 3 integer", id="one kind"),
        pytest.param(
            "biifhwnib",
            "- 3 integer   = 1 16-bit integer   h 1 hybrid   F 1 float   | 2 conversion   . 1 shapes and indices",
            id="every kind",
        ),
    ],
)
def test_legend(letters: str, expected: str) -> None:
    assert strip_legend(kinds(letters)) == expected


def test_every_kind_has_a_mark_of_its_own() -> None:
    marks = [look.mark for look in LOOKS.values()]
    assert set(LOOKS) == {kind.value for kind in OpKind}
    assert len({*marks}) == len(marks)
    assert all(len(mark) == 1 and mark.isascii() and not mark.isdigit() for mark in marks)


@given(st.text(alphabet="ihfbn", max_size=400), st.integers(8, 200))
def test_one_mark_an_op_in_their_order_and_never_too_wide(letters: str, width: int) -> None:
    rows = strip_rows(kinds(letters), width)
    assert all(len(row) <= width for row in rows)
    assert "".join(row.split()[1] for row in rows) == "".join(LOOKS[kind].mark for kind in kinds(letters))
    starts = [int(row.split()[0]) for row in rows]
    assert starts == [sum(len(row.split()[1]) for row in rows[:i]) for i in range(len(rows))]
