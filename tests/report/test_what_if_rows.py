"""What would be recommended at each allowed drop, as the terminal tells it."""

from __future__ import annotations

import pandas as pd
from reviewing import Reviewed

from autoselect.report.tables.what_if_rows import limit_rows

ROW = {"penalty_low": 1.0, "penalty_high": 9.0, "size_bytes": 42_000, "chance_to_break": 0.03}


def rows(*found: tuple[float, str, float], **more: object) -> pd.DataFrame:
    return pd.DataFrame([{**ROW, "allowed_drop": drop, "id": id_, "penalty": p, **more} for drop, id_, p in found])


def test_drops_with_one_recommendation_are_one_row(reviewed: Reviewed) -> None:
    table = rows((0.0, "a", 8.0), (0.002, "a", 8.0), (0.004, "b", 2.0))
    reviewed("other limits", map(" | ".join, limit_rows(table, "accuracy")))


def test_without_resamples_there_is_no_bracket() -> None:
    (_, row) = limit_rows(rows((0.0, "a", 8.0), penalty_low=None, penalty_high=None), "mse")
    assert row == ("0 mse", "a", "8.00", "42.0 kB", "3 %")


def test_several_targets_have_a_column_and_a_ratio() -> None:
    one = rows((0.0, "a", 8.0), target="x", worst_ratio=None)
    both = rows((0.0, "a", float("nan")), target="x,y", worst_ratio=1.5)
    heading, *found = limit_rows(pd.concat([one, both]), "accuracy")
    assert heading[0] == "target"
    assert [row[3] for row in found] == ["8.00 (1.00–9.00)", "1.50 × the best"]
    further = rows((0.0, "a", float("nan")), (0.1, "a", float("nan")), target="x,y").assign(worst_ratio=[5.15, 2.9])
    assert limit_rows(further, "accuracy")[1][2] == "2.90–5.15 × the best"


def test_chances_of_a_stretch_are_those_at_its_ends() -> None:
    table = rows((0.0, "a", 8.0), (0.002, "a", 8.0), (0.004, "a", 8.0)).assign(chance_to_break=[0.5, 0.22, 0.01])
    (_, row) = limit_rows(table, "accuracy")
    assert row[-1] == "50 to 1 %"
