"""What an evaluator may return, and what is said of anything else."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from reviewing import Reviewed

from autoselect import Parts
from autoselect.errors import MetricError
from autoselect.scoring.class_metrics import MeanIoU
from autoselect.scoring.evaluate import call_evaluator
from autoselect.scoring.evaluator_parts import Evaluated
from autoselect.scoring.intervals import confidence_interval
from autoselect.scoring.paired import paired_drop


def mean_iou(counts: np.ndarray) -> float:
    confusion = counts.sum(axis=0)
    hits = np.diag(confusion)
    union = confusion.sum(axis=0) + confusion.sum(axis=1) - hits
    return float(np.mean(hits[union > 0] / union[union > 0]))


def confusions(seed: int) -> np.ndarray:
    """Confusion counts of 40 images, three classes."""
    rng = np.random.default_rng(seed)
    return rng.poisson(np.eye(3) * 80 + 5, size=(40, 3, 3)).astype(np.float64)


def test_parts_are_resampled_as_the_products_own_metric_is() -> None:
    groups = np.repeat(np.arange(20), 2)
    ours, floats = (Evaluated.of(Parts(confusions(seed), mean_iou, groups=groups), "score") for seed in (1, 2))
    metric, own = ours.judging.metric("maximize"), MeanIoU()
    labels = ours.judging.groups
    assert labels == tuple(map(str, groups))
    assert ours.rows.shape == (40, 9)
    assert metric.summarise(ours.rows) == pytest.approx(own.summarise(ours.rows))
    for given in (None, labels):
        found, expected = (paired_drop(m, ours.rows, floats.rows, groups=given) for m in (metric, own))
        assert found == expected
        assert found.low < found.drop < found.high
    assert np.allclose(confidence_interval(metric, ours.rows), confidence_interval(own, ours.rows), atol=0.01)


MEANS: dict[str, tuple[Any, float]] = {
    "a number": (0.25, 0.25),
    "a list": ([1, 0, 0, 0], 0.25),
    "parts of one number each": (Parts([1, 0, 0, 0]), 0.25),
    "a score of one number each": (Parts([1, 0, 0, 0], score=lambda rows: rows.max() / 4), 0.25),
    "a score that is a NumPy number": (Parts([[1, 4], [0, 0]], score=lambda rows: np.divide(*rows.sum(axis=0))), 0.25),
}


@pytest.mark.parametrize(("value", "expected"), MEANS.values(), ids=MEANS)
def test_what_an_evaluator_may_return(value: Any, expected: float) -> None:
    found = Evaluated.of(value, "mine")
    assert found.judging.metric("minimize").summarise(found.rows) == expected
    assert found.judging.metric("minimize").direction == "minimize"


BAD: dict[str, tuple[Any, str]] = {
    "text": ("high", "it returned 'high'"),
    "nothing": ([], r"it returned an array of shape \(0,\)"),
    "NaN": (float("nan"), "it returned nan"),
    "nothing returned": (None, "`return`"),
    "a number as text": ("0.06", "'0.06'"),
    "None among numbers": ([0.5, None], "None"),
    "text among objects": (np.array(["0.06", 1], dtype=object), "'0.06'"),
    "complex numbers": ((-8.0) ** (1 / 3), r"1.7\d+j"),
    "a NaN among parts": (Parts([[1.0, np.nan]], score=np.sum), r"it returned an array of shape \(1, 2\) with 1 of 2 "),
    "rows without a score": ([[1, 2], [3, 4]], r"shape \(2, 2\) without a function .* Return autoselect.Parts"),
    "parts without a score": (Parts([[1, 2], [3, 4]]), "without a function that makes a score"),
    "parts of a number": (Parts(0.5), "Parts of the single number 0.5"),
    "ragged parts": (Parts([[1, 2], [3]], score=np.sum), "it returned"),
    "a score that is none": (Parts([1, 2], score=0.5), "Parts whose score is float, and no function"),  # type: ignore[arg-type]
    "too few groups": (Parts([1, 2], groups=["a"]), "Parts of 2 samples with 1 groups"),
}


@pytest.mark.parametrize(("value", "words"), BAD.values(), ids=BAD)
def test_what_an_evaluator_may_not_return(value: Any, words: str) -> None:
    with pytest.raises(MetricError, match=rf"(?s)evaluator mine .*{words}"):
        Evaluated.of(value, "mine")


BAD_SCORES: dict[str, tuple[Any, str]] = {
    "raises": (lambda rows: rows[99], "raised IndexError.*rows of shape"),
    "NaN": (lambda rows: np.nan, "one finite number"),
    "several": (lambda rows: rows[:2], "one finite number"),
}


@pytest.mark.parametrize(("score", "words"), BAD_SCORES.values(), ids=BAD_SCORES)
def test_a_score_that_is_no_number(score: Any, words: str) -> None:
    found = Evaluated.of(Parts([1, 2, 3], score=score), "mine")
    with pytest.raises(MetricError, match=words):
        found.judging.metric("maximize").summarise(found.rows)


def test_an_evaluator_that_leaves_is_named() -> None:
    def leaves(runner: Any) -> Any:
        sys.exit(3)

    runner: Any = None
    with pytest.raises(MetricError, match="leaves"):
        call_evaluator(leaves, runner, split="search")


def test_an_evaluator_gets_what_it_has_parameters_for(reviewed: Reviewed) -> None:
    def whole(runner: Any) -> Any:
        return [1.0, 2.0]

    def some(runner: Any, split: str = "search", samples: Any = None) -> Any:
        assert split == "heldout"
        return np.arange(5.0) if samples is None else np.arange(5.0)[samples]

    runner: Any = None
    assert call_evaluator(whole, runner, split="heldout").rows.tolist() == [[1.0], [2.0]]
    assert call_evaluator(some, runner, split="heldout").rows[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert call_evaluator(some, runner, split="heldout", samples=[3, 1]).rows[:, 0].tolist() == [3, 1]

    def heedless(runner: Any, samples: Any = None) -> Any:
        return [1.0, 2.0, 3.0]

    with pytest.raises(MetricError) as caught:
        call_evaluator(heedless, runner, split="search", samples=[0, 1])
    reviewed("an evaluator that heeds no samples", str(caught.value))
