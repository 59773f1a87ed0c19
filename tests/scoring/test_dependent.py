"""Samples of one group are no independent samples: intervals and bounds are over groups."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autoselect.scoring.dependent import grouping
from autoselect.scoring.intervals import confidence_interval
from autoselect.scoring.metrics import make_metric
from autoselect.scoring.paired import paired_drop, resampled_drops, samples_needed

ACCURACY = make_metric("accuracy")
F1 = make_metric("f1_macro")
GROUPS, EACH = 30, 20


def population(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Hits of a model that loses whole groups of samples, and each sample's group; the true loss is 0.1."""
    lost = rng.random(GROUPS) < 0.2
    groups = np.repeat(np.arange(GROUPS), EACH)
    return (rng.random(GROUPS * EACH) >= 0.5 * lost[groups]).astype(float)[:, np.newaxis], groups


def test_bounds_hold_over_groups_where_those_over_samples_do_not() -> None:
    floats = np.ones((GROUPS * EACH, 1))
    alone, together = 0, 0
    for seed in range(200):
        rows, groups = population(np.random.default_rng(seed))
        alone += paired_drop(ACCURACY, rows, floats).bound >= 0.1
        together += paired_drop(ACCURACY, rows, floats, groups=groups).bound >= 0.1
    assert alone < 0.85 * 200
    assert together >= 0.94 * 200


def test_intervals_of_scores_hold_over_groups() -> None:
    alone, together = 0, 0
    for seed in range(200):
        rows, groups = population(np.random.default_rng(seed))
        for labels in (None, groups):
            low, high = confidence_interval(ACCURACY, rows, groups=labels)
            holds = low <= 0.9 <= high
            alone, together = alone + (holds and labels is None), together + (holds and labels is not None)
    assert alone < 0.85 * 200
    assert together >= 0.94 * 200


def test_a_score_that_is_no_mean_has_wider_bounds_over_groups() -> None:
    rng = np.random.default_rng(0)
    hits, groups = population(rng)
    labels = rng.integers(2, size=len(hits))
    floats = np.stack([labels, labels], axis=1).astype(float)
    rows = np.stack([labels, np.where(hits[:, 0] > 0, labels, 1 - labels)], axis=1).astype(float)
    alone, together = (paired_drop(F1, rows, floats, groups=g) for g in (None, groups))
    assert together.drop == pytest.approx(alone.drop)
    assert together.error > 1.5 * alone.error
    narrow, wide = (np.subtract(*confidence_interval(F1, rows, groups=g)[::-1]) for g in (None, groups))
    assert wide > 1.5 * narrow


def test_each_sample_as_its_own_group_changes_nothing() -> None:
    rows, _ = population(np.random.default_rng(1))
    floats, each = np.ones_like(rows), np.arange(len(rows))
    assert paired_drop(ACCURACY, rows, floats, groups=each) == paired_drop(ACCURACY, rows, floats)
    assert confidence_interval(ACCURACY, rows, groups=each) == confidence_interval(ACCURACY, rows)


def test_parts_of_groups_have_the_mean_of_the_samples() -> None:
    values = np.arange(10.0)
    parts = grouping(10, list("aaabbbbbbc")).parts(values)
    assert len(parts) == 3
    assert parts.mean() == pytest.approx(values.mean())


def test_resamples_are_of_groups_and_more_samples_are_needed() -> None:
    rows, groups = population(np.random.default_rng(2))
    floats = np.ones_like(rows)
    spread = [resampled_drops(ACCURACY, rows, floats, resamples=200, groups=g)[:, 0].std() for g in (None, groups)]
    assert spread[1] > 1.5 * spread[0]
    needed = [samples_needed(ACCURACY, rows, floats, allowed=0.2, groups=g) for g in (None, groups)]
    assert needed[1] > 2.0 * needed[0]


def test_a_single_group_tells_nothing_of_others() -> None:
    rows = np.ones((10, 1))
    assert math.isnan(paired_drop(ACCURACY, rows, rows, groups=["a"] * 10).bound)
    assert math.isnan(confidence_interval(ACCURACY, rows, groups=["a"] * 10)[0])


def test_hits_in_all_groups_are_not_certain() -> None:
    rows, groups = np.ones((100, 1)), np.repeat(np.arange(10), 10)
    low, high = confidence_interval(ACCURACY, rows, groups=groups)
    assert high == 1.0
    assert low == pytest.approx(0.025 ** (1 / 10))


def test_a_label_is_missing() -> None:
    with pytest.raises(ValueError, match="one group"):
        grouping(3, ["a", "b"])
