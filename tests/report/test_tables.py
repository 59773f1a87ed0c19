"""Plain rows of a run, from frames as they are read from its folder."""

from __future__ import annotations

import io
from typing import Any

import pandas as pd
import pytest

from autoselect.report.tables import frames as tables

TRIALS = """number,id,state,origin,accuracy,drop,size_bytes,penalty,feasible
0,aa,complete,baseline:fiq,0.75,0.18,49320,0,False
1,,failed,tpe,,,,,
2,bb,complete,tpe,0.92,0.01,48000,3,True
3,bb,complete,tpe,0.92,0.01,48000,3,True
"""
FRONT = """id,accuracy,drop,size_bytes,penalty,heldout_accuracy,heldout_low,heldout_high,pick
cc,0.90,0.03,47000,2,,,,
bb,0.92,0.01,48000,3,0.91,0.90,0.92,"compact,accurate"
dd,0.92,0.01,49000,1,0.915,0.905,0.925,balanced
"""


def frame(text: str) -> pd.DataFrame:
    read = pd.read_csv(io.StringIO(text), dtype={"id": str, "pick": str})
    if "pick" in read:
        read["pick"] = read["pick"].fillna("")
    return read


def summary(**changes: Any) -> dict[str, Any]:
    reference = {"size_bytes": 102604, "penalty": 30.0, "heldout": 0.928, "heldout_low": 0.92, "heldout_high": 0.93}
    value = {
        "metric": "accuracy",
        "direction": "maximize",
        "evaluated": {"search": 1000, "heldout": 2000},
        "references": {
            "drq": {"accuracy": None, "size_bytes": 41784, "penalty": 30.0},
            "fiq": {**reference, "accuracy": 0.75, "heldout": 0.7505, "size_bytes": 49320, "penalty": 0},
            "float": {**reference, "accuracy": 0.93},
        },
    }
    return {**value, **changes}


def test_references_come_in_one_order_and_without_those_that_have_no_score() -> None:
    rows = tables.reference_rows(summary())
    assert [row.label for row in rows] == ["float", "all-integer"]
    assert [row.score for row in rows] == [0.928, 0.7505]
    assert [row.drop for row in rows] == pytest.approx([0.0, 0.1775])
    assert [row.heldout for row in rows] == [0.928, 0.7505]


def test_references_of_a_metric_to_be_minimised_lose_by_growing() -> None:
    rows = tables.reference_rows(summary(direction="minimize"))
    assert [row.drop for row in rows] == pytest.approx([0.0, -0.1775])


def test_references_may_be_missing() -> None:
    assert tables.reference_rows(summary(references={})) == ()


@pytest.mark.parametrize(
    ("direction", "expected"),
    [
        pytest.param("maximize", ["dd", "bb", "cc"], id="more is better"),
        pytest.param("minimize", ["cc", "bb", "dd"], id="less is better"),
    ],
)
def test_front_is_ordered_best_first(direction: str, expected: list[str]) -> None:
    rows = tables.front_rows(frame(FRONT), summary(direction=direction))
    assert [row.label for row in rows] == expected


def test_front_cells() -> None:
    by_id = {row.label: row for row in tables.front_rows(frame(FRONT), summary())}
    assert by_id["bb"].picks == ("accurate", "compact")
    assert (by_id["bb"].heldout_low, by_id["bb"].heldout_high) == (0.90, 0.92)
    assert (by_id["bb"].score, by_id["bb"].drop) == pytest.approx((0.91, 0.018))
    assert (by_id["cc"].score, by_id["cc"].drop, by_id["cc"].heldout) == (0.90, 0.03, None)
    assert by_id["cc"].picks == ()


def test_trials_leave_out_failures_and_repetitions() -> None:
    rows = tables.trial_rows(frame(TRIALS), summary())
    assert [(row.label, row.feasible) for row in rows] == [("aa", False), ("bb", True)]


def test_no_trials() -> None:
    assert tables.trial_rows(frame(TRIALS).iloc[:0], summary()) == ()
    assert tables.front_rows(frame(FRONT).iloc[:0], summary()) == ()


def point(label: str, score: float, size: float) -> tables.ModelRow:
    return tables.ModelRow(label=label, score=score, drop=None, size_bytes=size, penalty=0.0)


@pytest.mark.parametrize(
    ("direction", "expected"),
    [
        pytest.param("maximize", ["small", "middle", "large"], id="more is better"),
        pytest.param("minimize", ["small"], id="less is better"),
    ],
)
def test_best_in_panel_is_the_staircase(direction: str, expected: list[str]) -> None:
    rows = [point("large", 0.9, 30), point("bad", 0.7, 25), point("middle", 0.8, 20), point("small", 0.5, 10)]
    rows.append(point("twin of middle", 0.8, 20))
    found = tables.best_in_panel(rows, "size_bytes", summary(direction=direction))
    assert [row.label for row in found] == expected


def test_best_in_panel_of_nothing() -> None:
    assert tables.best_in_panel([], "penalty", summary()) == ()


@pytest.mark.parametrize(
    ("picks", "expected"),
    [(["accurate", "recommended"], "recommended"), (["accurate", "balanced"], "balanced"), (["x"], "x"), ([], "")],
)
def test_the_first_pick_is_the_recommended_one_where_there_is_one(picks: list[str], expected: str) -> None:
    assert tables.first_pick(picks) == expected


@pytest.mark.parametrize(
    ("size_bytes", "expected"),
    [(None, "–"), (999, "999 B"), (49320, "49.3 kB"), (2_650_000, "2.65 MB")],
)
def test_format_size(size_bytes: float | None, expected: str) -> None:
    assert tables.format_size(size_bytes) == expected


@pytest.mark.parametrize(
    ("value", "scale", "expected"),
    [
        pytest.param(None, None, "–", id="missing"),
        pytest.param(0.9312345, None, "0.9312", id="share"),
        pytest.param(35.1234, None, "35.123", id="decibel"),
        pytest.param(1234.56, None, "1234.6", id="large"),
        pytest.param(0.0000123, None, "1.23e-05", id="tiny"),
        pytest.param(-0.00000001, 0.9, "0.0000", id="no minus before zero"),
        pytest.param(0.5, 35.0, "0.500", id="decimals of the column"),
    ],
)
def test_format_score(value: float | None, scale: float | None, expected: str) -> None:
    assert tables.format_score(value, scale=scale) == expected


@pytest.mark.parametrize(
    ("value", "scale", "expected"),
    [
        (None, None, "–"),
        (0.0, None, "0.00"),
        (0.000364, None, "0.000364"),
        (-0.0000364, None, "-0.0000364"),
        (0.5, None, "0.5"),
        (1.8e-15, None, "0.00"),
        (9.3976, None, "9.40"),
        (89_132.4, None, "89,132"),
        (0.02, 3.0, "0.0200"),
        (2.0, 42.0, "2.0"),
        (2.0, 1.3e6, "2.0"),
        (0.0, 1.3e6, "0"),
        (40.0, 1.3e6, "40"),
    ],
)
def test_a_penalty_has_the_decimals_of_its_column_and_alone_its_own(
    value: float | None, scale: float | None, expected: str
) -> None:
    assert tables.format_penalty(value, scale=scale) == expected


def test_largest() -> None:
    assert tables.largest([None, -3.0, 2.0]) == 3.0
    assert tables.largest([None]) is None
