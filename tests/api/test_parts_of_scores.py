"""Searches with an evaluator that returns what its score is made of, beside those with a metric of the catalogue."""

from __future__ import annotations

from typing import Any

import numpy as np
import pump
import pytest

import autoselect
from autoselect.errors import MetricError

COMMON = {"trials": 6, "racing": False, "early_exit": False, "sampler": "random"}
NO_SAMPLES = {"evaluation": None, "heldout": None}
GROUPS = {part: np.arange(len(data[1])) // 4 for part, data in (("search", pump.SEARCH), ("heldout", pump.HELDOUT))}


def answers(runner: Any, split: str, samples: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """Labels and the model's classes."""
    x, y = {"search": pump.SEARCH, "heldout": pump.HELDOUT}[split]
    numbers = range(len(x)) if samples is None else samples
    given = [next(iter(runner(x[n][np.newaxis]).values()))[0].argmax() for n in numbers]
    return np.array([y[n] for n in numbers]), np.array(given)


def f1_macro(counts: np.ndarray) -> float:
    confusion = counts.sum(axis=0)
    hits, both = np.diag(confusion), confusion.sum(axis=0) + confusion.sum(axis=1)
    return float(np.mean(2 * hits[both > 0] / both[both > 0]))


def counted(runner: Any, split: str = "search") -> autoselect.Parts:
    labels, given = answers(runner, split)
    counts = np.zeros((len(labels), 8, 8))
    counts[np.arange(len(labels)), labels, given] = 1
    return autoselect.Parts(counts, score=f1_macro)


def grouped_hits(runner: Any, split: str = "search") -> autoselect.Parts:
    labels, given = answers(runner, split)
    return autoselect.Parts(labels == given, groups=GROUPS[split])


def in_groups(part: str) -> Any:
    x, y = {"search": pump.SEARCH, "heldout": pump.HELDOUT}[part]
    return x, y, GROUPS[part]


LIKE = {
    "counts of which a function makes the score": (counted, "f1_macro", {}),
    "hits in groups": (
        grouped_hits,
        "accuracy",
        {"evaluation": in_groups("search"), "heldout": in_groups("heldout"), "allow_overlap": True},
    ),
}


@pytest.mark.parametrize(("evaluator", "metric", "data"), LIKE.values(), ids=LIKE)
def test_parts_are_as_sure_as_a_metric_of_the_catalogue(tmp_path: Any, evaluator: Any, metric: str, data: Any) -> None:
    ours = pump.search(tmp_path / "ours", **NO_SAMPLES, evaluator=evaluator, **COMMON)
    theirs = pump.search(tmp_path / "theirs", metric=metric, **data, **COMMON).front.set_index("sha256")
    both = [row for row in ours.front.to_dict("records") if row["sha256"] in theirs.index]
    assert len(both) >= 2
    for row in both:
        other = theirs.loc[row["sha256"]]
        assert row[evaluator.__name__] == pytest.approx(other[metric])
        # Of 300 held-out samples a function has 200 pseudo-values, a score of the catalogue's 300.
        for column, near in (("drop_bound", 1e-3), ("heldout_drop_low", 1e-2), ("heldout_drop_high", 1e-2)):
            assert row[column] == pytest.approx(other[column], abs=near), column
    assert "of resamples of the search samples" in ours.summary["verdict"]
    assert (ours.directory / "limits.csv").exists()


def each_hit(runner: Any, split: str = "search", samples: Any = None) -> np.ndarray:
    labels, given = answers(runner, split, samples)
    return labels == given


def each_hit_of_all(runner: Any, split: str = "search") -> np.ndarray:
    return each_hit(runner, split)


def test_an_evaluator_that_scores_some_samples_races(tmp_path: Any) -> None:
    settings = {**NO_SAMPLES, "trials": 24, "early_exit": False, "sampler": "random", "max_drop": 0.02}
    run = pump.search(tmp_path / "run", evaluator=each_hit, **settings)
    whole = pump.search(tmp_path / "whole", evaluator=each_hit_of_all, **settings)
    assert run.summary["counts"]["dropped"] >= 1
    assert whole.summary["counts"]["dropped"] == 0
    dropped = run.trials[run.trials["state"] == "dropped"]
    assert (dropped["samples"] < len(pump.SEARCH[1])).all()
    assert dropped["sqnr_db"].notna().all()
    assert run.picks["recommended"] == whole.picks["recommended"]


class Changing:
    """Returns what a function makes of the parts for every model but float, which it is asked about four times."""

    def __init__(self, change: Any) -> None:
        self.calls, self.change = 0, change

    def __call__(self, runner: Any) -> Any:
        self.calls += 1
        found = counted(runner)
        return found if self.calls <= 4 else self.change(found)


CHANGES = {
    "fewer samples": (lambda p: autoselect.Parts(p.rows[1:], p.score), "199 scores, and 200 of the float model"),
    "another shape": (lambda p: autoselect.Parts(p.rows[:, :4], p.score), "32 numbers for each sample, and 64 of"),
    "groups": (
        lambda p: autoselect.Parts(p.rows, p.score, groups=GROUPS["search"]),
        "other groups than for an earlier model",
    ),
    "NaN": (lambda p: autoselect.Parts(p.rows * np.nan, p.score), "must return a finite number"),
    "no score": (lambda p: autoselect.Parts(p.rows), "without a function that makes a score"),
}


@pytest.mark.parametrize(("change", "words"), CHANGES.values(), ids=CHANGES)
def test_parts_unlike_floats_fail_the_trial(tmp_path: Any, change: Any, words: str) -> None:
    with pytest.raises(MetricError, match=words):
        pump.search(tmp_path / "run", **NO_SAMPLES, evaluator=Changing(change), trials=3)


def test_a_score_of_parts_that_writes_into_them_is_refused(tmp_path: Any) -> None:
    def writes(rows: Any) -> float:
        rows *= 2.0
        return float(rows.mean())

    def judged(runner: Any) -> Any:
        return autoselect.Parts(counted(runner).rows, score=writes)

    with pytest.raises(MetricError):
        pump.search(tmp_path / "run", **NO_SAMPLES, evaluator=judged, trials=3)
