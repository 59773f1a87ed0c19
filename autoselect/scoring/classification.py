"""What a classifier's answers amount to, beyond one score; runs no model and draws nothing.

Rows of a class that has no samples, or that is never an answer, hold NaN where the figure is undefined. The macro
figures are means over the classes that occur as label or as answer, and count 0 for what is undefined, as F1 does in
:mod:`autoselect.scoring.class_metrics`; balanced accuracy is the mean of the recall over the classes that occur as
labels.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autoselect.scoring.class_metrics import (
    Accuracy,
    Agreement,
    BalancedAccuracy,
    CohenKappa,
    F1Macro,
    LabelMetric,
    PrecisionMacro,
    RecallMacro,
    count_classes,
)
from autoselect.scoring.dependent import Groups
from autoselect.scoring.intervals import confidence_interval
from autoselect.scoring.metric_base import Metric, Outputs, Row

_MACRO = (PrecisionMacro, RecallMacro, F1Macro, BalancedAccuracy, CohenKappa)


class Prediction(LabelMetric):
    """Keeps what a model answered; rows [label, winner, its score, its softmax share, lowest, highest score]."""

    name = "classification_report"

    def class_count(self, output_shape: Sequence[int]) -> int:
        """How many classes an output of this shape tells apart; a single unit tells two.

        Raises:
            MetricError: If it is no output of one score per class.
        """
        return max(count_classes(output_shape, self.name), 2)

    def _observe(self, outputs: Outputs, target: object | None, reference: Outputs | None) -> Row:
        label, winner = self._pair(outputs, target)
        scores = self.scored(outputs).ravel()
        if scores.size == 1:
            scores = np.array([1.0 - scores[0], scores[0]]).clip(0.0, 1.0)
        share = 1.0 / np.exp(scores - scores[winner]).sum()
        return np.array([label, winner, scores[winner], share, scores.min(), scores.max()])

    def _score(self, rows: np.ndarray) -> object:
        return np.mean(rows[:, 0] == rows[:, 1])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answers:
    """What one model answered on the samples, in their order.

    Attributes:
        y_true: Labels, int64 of shape (n_samples,).
        y_pred: The model's classes, int64 of shape (n_samples,).
        probability: What the model gives its class, float64 of shape (n_samples,), 0 to 1.
        groups: The group of each sample; None where all samples are independent.
    """

    y_true: np.ndarray
    y_pred: np.ndarray
    probability: np.ndarray
    groups: Groups | None = None


def read_answers(rows: np.ndarray, groups: Groups | None = None) -> Answers:
    """Read the evidence of :class:`Prediction`.

    Args:
        rows: Shape (n_samples, 6), at least one row.
        groups: The group of each sample.

    Returns:
        The answers. A model whose scores leave 0 to 1 on any sample gives logits; their softmax is the probability.
    """
    # Probabilities may leave 0 to 1 by this much, by rounding.
    tolerance = 1e-3
    y_true, y_pred, score, share, lowest, highest = rows.T
    has_logits = lowest.min() < -tolerance or highest.max() > 1.0 + tolerance
    probability = share if has_logits else score.clip(0.0, 1.0)
    return Answers(
        y_true=y_true.astype(np.int64), y_pred=y_pred.astype(np.int64), probability=probability, groups=groups
    )


def measures(answers: Answers) -> list[dict[str, Any]]:
    """Accuracy, then what classes are averaged to.

    Args:
        answers: Of one model.

    Returns:
        Rows of ``metric``, ``value``, ``low`` and ``high``, its 95 % interval; NaN where there are too few samples.
        See :func:`autoselect.scoring.intervals.confidence_interval`.
    """
    pairs = np.stack([answers.y_true, answers.y_pred], axis=1).astype(np.float64)
    hits = _hits(Accuracy(), answers.y_true == answers.y_pred, answers.groups)
    return [hits, *(_measure(kind(), pairs, answers.groups) for kind in _MACRO)]


def agreement(answers: Answers, reference: Answers) -> dict[str, Any]:
    """Share of samples on which two models give the same class, with its interval; a row of :func:`measures`."""
    return _hits(Agreement(), answers.y_pred == reference.y_pred, answers.groups)


def _hits(metric: Metric, hits: np.ndarray, groups: Groups | None) -> dict[str, Any]:
    return _measure(metric, hits.astype(np.float64)[:, np.newaxis], groups)


def _measure(metric: Metric, rows: np.ndarray, groups: Groups | None) -> dict[str, Any]:
    low, high = confidence_interval(metric, rows, groups=groups)
    return {"metric": metric.name, "value": metric.summarise(rows), "low": low, "high": high}


def class_rows(answers: Answers, class_count: int, reference: Answers | None = None) -> list[dict[str, Any]]:
    """Precision, recall, F1 and support of each class, by scikit-learn, and the agreement with the float model.

    Args:
        answers: Of one model.
        class_count: Number of classes of the model; all get a row.
        reference: What the float model answered on the same samples.

    Returns:
        Rows of ``number``, the class; ``support``, samples of it; ``answered``, samples for which the model gives it;
        ``precision``, share of these that are right, NaN where there are none; ``recall``, share of the class's samples
        that the model finds, NaN where there are none; ``f1``, harmonic mean of both, NaN for a class that is neither
        label nor answer; ``agreement``, share of the class's samples on which the model gives the float model's answer,
        NaN where there are none, or no float model.
    """
    from sklearn.metrics import precision_recall_fscore_support

    with warnings.catch_warnings():
        # What is undefined is NaN here, which is what the warning would say.
        warnings.simplefilter("ignore")
        precision, recall, f1, support = precision_recall_fscore_support(
            answers.y_true, answers.y_pred, labels=np.arange(class_count), zero_division=np.nan
        )
    agreed = np.full(class_count, np.nan)
    if reference is not None:
        same = np.bincount(answers.y_true[answers.y_pred == reference.y_pred], minlength=class_count)
        np.divide(same, support, out=agreed, where=support > 0)
    columns = {
        "number": np.arange(class_count),
        "support": support,
        "answered": np.bincount(answers.y_pred, minlength=class_count),
        "precision": precision,
        "recall": recall,
        "f1": f1,
        "agreement": agreed,
    }
    return _rows(columns)


def confusion(answers: Answers) -> list[dict[str, Any]]:
    """The cells of the confusion matrix that are not 0, by ``label``, then ``answer``, with their ``count``."""
    pairs = np.stack([answers.y_true, answers.y_pred], axis=1)
    cells, counts = np.unique(pairs, axis=0, return_counts=True)
    return _rows({"label": cells[:, 0], "answer": cells[:, 1], "count": counts})


def disagreements(answers: Answers, reference: Answers) -> list[dict[str, Any]]:
    """The samples on which a model does not give the float model's answer, in their order.

    Returns:
        Rows of ``index``, the sample's number from 0 on; ``label``; ``float_answer`` with its ``float_probability``;
        ``answer`` with its ``probability``.
    """
    at = np.flatnonzero(answers.y_pred != reference.y_pred)
    columns = {
        "index": at,
        "label": answers.y_true[at],
        "float_answer": reference.y_pred[at],
        "float_probability": reference.probability[at],
        "answer": answers.y_pred[at],
        "probability": answers.probability[at],
    }
    return _rows(columns)


def _rows(columns: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """A table by its columns as rows of plain numbers."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*(c.tolist() for c in columns.values()), strict=True)]
