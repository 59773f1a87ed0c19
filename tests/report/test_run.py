"""The volume over trials by hand, and that the view in HTML escapes."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from autoselect.api.run import Run
from autoselect.report.figures.run_figures import history_figure
from autoselect.report.tables.frames import volume_by_trial

SUMMARY = {
    "status": "complete",
    "metric": "accuracy",
    "direction": "maximize",
    "verdict": "a <script> b",
    "picks": {},
    "references": {"float": {"size_bytes": 100, "penalty": 80.0}},
}
TRIALS = pd.DataFrame(
    {
        "number": [0, 1, 2, 3, 4],
        "origin": ["baseline:fiq", "surrogate", "surrogate", "surrogate", "surrogate"],
        "state": ["complete", "dropped", "complete", "complete", "complete"],
        "feasible": [True, None, True, False, True],
        "accuracy": [0.5, float("nan"), 0.75, 1.1, 1.0],
        "size_bytes": [25, 30, 50, 10, 75],
        "penalty": [0.0, 0.0, 40.0, 0.0, 60.0],
    }
)


def test_volume_by_hand() -> None:
    """In units of the spread the trials are (1, 0, 0), (1/2, 1/2, 2/3) and (0, 1, 1) below the corner at 1.1."""
    first = 0.1 * 1.1 * 1.1
    second = first + (0.6 - 0.1) * 0.6 * (1.1 - 2 / 3)
    third = second + 0.1 * 0.1 * 0.5  # what it adds beside the second
    expected = [value / third for value in (first, first, second, second, third)]
    assert volume_by_trial(TRIALS, SUMMARY).tolist() == pytest.approx(expected)


def test_no_score_is_no_volume() -> None:
    failed = TRIALS.iloc[[1]].reset_index(drop=True)
    assert volume_by_trial(failed, SUMMARY).tolist() == [0.0]
    assert history_figure(failed, SUMMARY).axes
    assert not history_figure(TRIALS.iloc[:0], SUMMARY).axes


def test_the_view_escapes_and_leaves_out_what_is_missing(tmp_path: Path) -> None:
    front = pd.DataFrame(
        {"id": ["0a"], "accuracy": [0.5], "size_bytes": [30], "penalty": [2.0], "pick": ["recommended"]}
    )
    run = Run(
        directory=tmp_path / "<i>", manifest={}, summary=SUMMARY, trials=TRIALS, front=front, layer_statistics=TRIALS
    )
    shown = run._repr_html_()
    assert "a &lt;script&gt; b" in shown
    assert "<i>" not in shown
    assert "<td>recommended</td><td>50.0</td>" in shown
    assert repr(run).endswith("<i>', complete, 5 trials, front of 1, picks: none)")
