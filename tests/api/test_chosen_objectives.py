"""Searches with other objectives than the metric, the size and the penalty, on the embedded case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pump
import pytest

import autoselect
from autoselect.domain.picks import PICK_NAMES
from autoselect.errors import UsageError

pytestmark = pytest.mark.drawn


def losses_of(table: Any, columns: list[str]) -> np.ndarray:
    return np.column_stack([-table["accuracy"], *(table[column] for column in columns)]).astype(float)


def assert_front(run: autoselect.Run, columns: list[str]) -> None:
    """Nothing dominates a member in objectives and closeness; what has float ops dominates none without."""
    scored = run.trials[run.trials["state"] == "complete"]
    rivals, members = (
        np.column_stack([losses_of(rows, columns), -rows["sqnr_db"], rows["float_ops"] > 0])
        for rows in (scored, run.front)
    )
    for member in members:
        assert not any(pump.dominates(tuple(other), tuple(member)) for other in rivals)


@pytest.mark.slow
def test_segments_instead_of_the_penalty_and_more_trials_later(tmp_path: Path) -> None:
    asked = {"objectives": ("accuracy", "size", "segments"), "early_exit": False}
    pump.search(tmp_path / "run", **asked, trials=7, seed=1)
    run = autoselect.resume(tmp_path / "run", trials=9)
    columns = ["size_bytes", "segments"]
    assert run.summary["objectives"] == ["accuracy", *columns]
    assert run.manifest["settings"]["objectives"] == ["accuracy", "size", "segments"]
    assert len(run.trials) == 9
    assert_front(run, columns)
    for trial in pump.journal(tmp_path / "run"):
        if trial.values is not None:
            row = run.trials.iloc[trial.number]
            assert trial.values == [row["accuracy"], row["size_bytes"], row["segments"]]
    assert "latency_ms" not in run.trials.columns
    assert set(run.picks) == set(PICK_NAMES)
    axes = [axis.get_xlabel() for axis in run.plot_pareto().axes]
    assert [label.split("   ")[0] for label in axes] == ["file size in kB", "segments"]
    assert "segments" in run._repr_html_()
    run.plot_history()
    data = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert '"costs":[{"key":"size_bytes"' in data


def test_latency_and_arena_are_measured(tmp_path: Path) -> None:
    run = pump.search(
        tmp_path / "run",
        objectives="accuracy,arena_bytes,latency",
        max_penalty=60.0,
        trials=8,
        racing=False,
    )
    assert run.summary["ended_early"] is None  # Integers are not the fastest by themselves.
    scored = run.trials[run.trials["state"] == "complete"]
    assert len(scored) == 8
    for table in (scored, run.front):
        assert (table["latency_low"] > 0).all()
        assert (table["latency_low"] <= table["latency_ms"]).all()
        assert (table["latency_ms"] <= table["latency_high"]).all()
    for row in run.front.itertuples():
        assert row.arena_bytes == autoselect.inspect(run.model_path(row.id))["target"]["arena_bytes"]
        assert row.penalty <= 60.0  # A limit of what is no objective.
    first = dict(zip(scored["id"], scored["latency_ms"], strict=True))
    assert any(first[row.id] != row.latency_ms for row in run.front.itertuples())  # Measured again at the end.
    assert {row["arena_bytes"] > 0 and row["latency_ms"] > 0 for row in run.summary["references"].values()} == {True}
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["objectives"][1:] == [
        "arena_bytes",
        "latency_ms",
    ]
    assert len(run.plot_pareto().axes) == 2


REFUSED = {
    "cycles without a compiler": ({"objectives": "accuracy,npu_cycles"}, "'integer-only' has no compiler"),
    "cycles without compiling": (
        {"objectives": "accuracy,npu_cycles", "target": "ethos-u55-128", "compiling": False},
        "'ethos-u55-128' is compiled only without --no-compiling",
    ),
    "an unknown one": ({"objectives": ("accuracy", "seize")}, "no objective 'seize'.*'size'"),
    "no metric": ({"objectives": "size,penalty"}, "must be the metric"),
    "another metric": ({"objectives": "psnr,penalty"}, "no objective 'psnr'"),
    "no threads": ({"latency_threads": 0}, "latency_threads: "),
}


@pytest.mark.parametrize(("changes", "words"), REFUSED.values(), ids=REFUSED)
def test_objectives_that_cannot_be_are_told_before_any_work(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        pump.search(tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()
