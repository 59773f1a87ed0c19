"""Scores, drops and counts as a person reads them in a terminal."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reviewing import Reviewed

from autoselect.report.tables.frames import ModelRow
from autoselect.report.tables.result_lines import count_lines, deciding_rows, pick_lines, result_lines, scale_of

SCALES = {
    "a share": ("accuracy", [0.928, 0.75], ["92.8", "75.0"], "%"),
    "a share of one's own": ("my:hits", [0.928, 0.75], ["0.928", "0.750"], ""),
    "an error": ("mse", [0.5, 12.0], ["0.50", "12.00"], ""),
    "a small error": ("mse", [0.00231, 0.000042], ["2.310", "0.042"], "×1e-3"),
    "a large score": ("my:profit", [1_234_567.0, 0.0], ["1.235", "0.000"], "×1e6"),
    "decibels": ("sqnr_db", [200.0, 28.43], ["200.0", "28.4"], ""),
    "nothing": ("mse", [0.0], ["0.000"], ""),
    "less than a float's inverse": ("mse", [2e-310, 0.0], ["0.000", "0.000"], "×1e-300"),
}


@pytest.mark.parametrize(("metric", "values", "texts", "unit"), SCALES.values(), ids=SCALES)
def test_scores_of_one_column_are_written_alike(metric: str, values: list[float], texts: list[str], unit: str) -> None:
    scale = scale_of(metric, values)
    assert ([scale.text(value) for value in values], scale.unit) == (texts, unit)


def row(label: str, score: float, *picks: str, base: float = 0.9, **changes: Any) -> ModelRow:
    known = {"size_bytes": 42_000.0, "penalty": 12.0, "heldout": score}
    return ModelRow(label=label, score=score, drop=base - score, picks=picks, **{**known, **changes})


SUMMARY = {"metric": "accuracy"}
FLOAT = row("float", 0.9, reference="float")


def test_intervals_are_left_out_where_there_is_no_room() -> None:
    rows = [("float", row("float", 0.00231, base=0.00231, heldout_low=0.0022, heldout_high=0.00242))]
    (_, wide), (_, narrow) = (result_lines(rows, {"metric": "mse"}, width) for width in (80, 49))
    assert "2.310 (2.200–2.420)" in wide
    assert "2.310" in narrow
    assert "(" not in narrow
    assert len(narrow) <= 49 < len(wide)


def test_a_drop_has_no_sign() -> None:
    rows = [("float", FLOAT), ("worse", row("a", 0.85)), ("better", row("b", 0.91)), ("equal", row("c", 0.90001))]
    drops = [re.search(r"[\d.]+  +(.*?)  +42\.0 kB", line) for line in result_lines(rows, SUMMARY, 80)[2:]]
    assert [found and found[1] for found in drops] == ["5.0", "gain 1.0", "0.0"]


@given(st.floats(-1.0, 1.0, allow_nan=False), st.floats(0.0, 1.0, allow_nan=False))
def test_no_number_of_a_share_has_a_sign(drop: float, score: float) -> None:
    shown = ModelRow(label="a", score=score, drop=drop, size_bytes=1.0, penalty=0.0, heldout=score)
    (_, line) = result_lines([("a", shown)], SUMMARY, 80)
    assert "-" not in line


def test_how_close_outputs_are_has_no_drop() -> None:
    lines = result_lines([("float", FLOAT)], {"metric": "sqnr_db"}, 80)
    assert lines[0].split() == ["held-out", "sqnr_db", "size", "penalty"]


def test_without_held_out_scores_the_heading_says_so() -> None:
    lines = result_lines([("float", row("float", 0.9, heldout=None))], SUMMARY, 80)
    assert lines[0].split()[:3] == ["search", "accuracy", "%"]


def test_a_model_without_a_held_out_score_has_none_among_others() -> None:
    lines = result_lines([("float", FLOAT), ("a", row("a", 0.8, heldout=None))], SUMMARY, 80)
    assert lines[2].split() == ["a", "–", "42.0", "kB", "12.0"]


INTEGER = row("all-integer", 0.75, reference="fiq")
REPAIRED = row("all-integer, repaired", 0.6, reference="fiq+repairs")
DECIDING = {
    "two models": (
        [row("x", 0.91, "accurate"), row("y", 0.89, "recommended", "balanced")],
        ["float", "all-integer", "recommended", "accurate"],
    ),
    "one model": (
        [row("x", 0.91, "recommended", "accurate", "integer")],
        ["float", "all-integer", "recommended, accurate"],
    ),
    "a run from before": (
        [row("x", 0.91, "accurate"), row("y", 0.89, "balanced")],
        ["float", "all-integer", "balanced", "accurate"],
    ),
    "no candidate": ([], ["float", "all-integer"]),
}


@pytest.mark.parametrize(("front", "names"), DECIDING.values(), ids=DECIDING)
def test_what_decides(front: list[ModelRow], names: list[str]) -> None:
    objectives = {"objectives": ["accuracy", "size_bytes", "penalty"]}
    assert [name for name, _ in deciding_rows([FLOAT, INTEGER, REPAIRED], front, objectives)] == names


def test_a_search_that_weighs_sizes_alone_shows_the_smallest_model() -> None:
    front = [row("x", 0.91, "recommended"), row("y", 0.89, "compact")]
    objectives = {"objectives": ["accuracy", "flash_bytes"]}
    assert [name for name, _ in deciding_rows([FLOAT], front, objectives)] == ["float", "recommended", "compact"]


def test_picks_of_one_model_are_told_together() -> None:
    assert pick_lines([row("x", 0.9, "recommended", "balanced"), row("y", 0.8)]) == ("recommended, balanced: x",)


COUNTS = {
    "all": (
        {"trials": 60, "scored": 36, "dropped": 20, "reused": 3, "failed": 1},
        "60 trials: 36 scored, 20 dropped by racing, 3 reused, 1 failed.",
        "23 full evaluations saved; 1,000 search and 2,000 held-out samples; 2 workers.",
    ),
    "without those dropped": (
        {"trials": 132, "scored": 5, "reused": 0, "failed": 0},
        "132 trials: 5 scored, 127 dropped by racing, 0 reused, 0 failed.",
        "127 full evaluations saved; 1,000 search and 2,000 held-out samples; 2 workers.",
    ),
}


@pytest.mark.parametrize(("counts", "first", "second"), COUNTS.values(), ids=COUNTS)
def test_counts_are_complete(counts: dict[str, int], first: str, second: str) -> None:
    assert count_lines({"counts": counts, "evaluated": {"search": 1000, "heldout": 2000}}, 2) == (first, second)


def test_counts_of_an_evaluator_and_of_no_run(reviewed: Reviewed) -> None:
    counts = {"trials": 1, "scored": 1, "dropped": 0, "reused": 0, "failed": 0}
    reviewed("counts of an evaluator", count_lines({"counts": counts}))
    assert count_lines({"counts": {}}) == ()
    assert not math.isnan(scale_of("mse", []).factor)


def test_small_costs_of_a_chip_are_told_apart() -> None:
    """A profile may count in milliseconds; points are written with one decimal as long as the float model's are."""
    rows = [(name, row(name, 0.9, penalty=cost)) for name, cost in (("float", 4.4), ("a", 0.237), ("b", 0.242))]
    assert [line.split()[-1] for line in result_lines(rows, SUMMARY, 80)[1:]] == ["4.4000", "0.2370", "0.2420"]
    beside = [("float", row("float", 0.9, penalty=1403.0)), ("a", row("a", 0.9, penalty=0.84))]
    assert [line.split()[-1] for line in result_lines(beside, SUMMARY, 80)[1:]] == ["1,403", "0.8"]
    points = [("float", row("float", 0.9, penalty=80.0)), ("a", row("a", 0.9, penalty=0.237))]
    assert [line.split()[-1] for line in result_lines(points, SUMMARY, 80)[1:]] == ["80.0", "0.2"]
