from __future__ import annotations

import itertools

import pytest

from autoselect.domain.objectives import drop_from
from autoselect.domain.quantities import QUANTITIES
from autoselect.domain.recipe import Recipe
from autoselect.domain.rule import Standing
from autoselect.runs.records import (
    MEASURED_COLUMNS,
    Heldout,
    Scores,
    TrialRecord,
    front_columns,
    front_row,
    metric_column,
    trial_columns,
    trial_row,
)

COSTS = [quantity.column for quantity in QUANTITIES.values()]
OTHERS = sorted({*trial_columns("m", COSTS), *front_columns("m", COSTS), *itertools.chain(*MEASURED_COLUMNS.values())})
SCORES = Scores(
    sha256="ab" * 32,
    metric=0.75,
    drop=drop_from(0.5, 0.75, "minimize"),
    drop_noise=0.0,
    sqnr_db=20.0,
    size_bytes=1000,
    penalty=3.0,
    segments=2,
    float_ops=1,
    crossing_tensors=1,
    crossing_bytes=64,
    float_macs_share=0.5,
    samples=10,
    build_seconds=0.1,
    score_seconds=0.2,
    inference_seconds=0.1,
    quantities={"arena_bytes": 5.0, "npu_cycles": 6.0, "latency_ms": 7.0, "latency_low": 8.0, "latency_high": 9.0},
)


HELDOUT = Heldout(score=0.7, low=0.6, high=0.8, drop=0.1)


@pytest.mark.parametrize("name", [*(c for c in OTHERS if c not in ("m", "heldout_m")), "low", "high", "heldout"])
def test_a_metric_called_like_another_column_keeps_all_columns_apart(name: str) -> None:
    metric = metric_column(name)
    record = TrialRecord(number=7, origin="random", recipe=Recipe(), scores=SCORES)
    expected = Standing(id="a", drop=0.01, bound=0.02, fidelity=0.0, size_bytes=9, penalty=0.0)
    trial = trial_row(record, metric, [], COSTS)
    front = front_row(record, metric, HELDOUT, ["best"], expected, COSTS)
    for columns, row in ((trial_columns(metric, COSTS), trial), (front_columns(metric, COSTS), front)):
        assert len(set(columns)) == len(columns)
        assert list(row) == list(columns)
        assert (row[metric], row["size_bytes"], row["penalty"]) == (0.75, 1000, 3.0)
    assert (trial["number"], trial["error"], trial["samples"]) == (7, "", 10)
    assert (front[f"heldout_{metric}"], front["heldout_low"], front["heldout_high"]) == (0.7, 0.6, 0.8)
    assert (front["heldout_drop"], front["heldout_drop_low"], front["heldout_drop_high"]) == (0.1, "", "")
    assert front["file"] == f"front/{record.id}.tflite"


def test_a_metric_of_a_name_of_its_own_keeps_it() -> None:
    assert metric_column("accuracy") == "accuracy"
    assert metric_column("package.module:error") == "package.module:error"
