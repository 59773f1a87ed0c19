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

import numpy as np

from autoselect.scoring.class_metrics import Accuracy, Agreement, PairMetric, count_classes
from autoselect.scoring.intervals import confidence_interval
from autoselect.scoring.metric_base import Metric, Outputs, Row

METRICS: tuple[str, ...] = (
    "accuracy",
    "precision_macro",
    "recall_macro",
    "f1_macro",
    "balanced_accuracy",
    "cohen_kappa",
)
"""The figures of :func:`measures`, in order."""

_TOLERANCE = 1e-3
"""Probabilities may leave 0 to 1 by this much, by rounding."""


class Prediction(PairMetric):
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

    def _of_labels(self, y_true: np.ndarray, y_pred: np.ndarray) -> object:
        return np.mean(y_true == y_pred)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answers:
    """What one model answered on the samples, in their order.

    Attributes:
        y_true: Labels, int64 of shape (n_samples,).
        y_pred: The model's classes, int64 of shape (n_samples,).
        probability: What the model gives its class, float64 of shape (n_samples,), 0 to 1.
    """

    y_true: np.ndarray
    y_pred: np.ndarray
    probability: np.ndarray


def read_answers(rows: np.ndarray) -> Answers:
    """Read the evidence of :class:`Prediction`.

    Args:
        rows: Shape (n_samples, 6), at least one row.

    Returns:
        The answers. A model whose scores leave 0 to 1 on any sample gives logits; their softmax is the probability.
    """
    y_true, y_pred, score, share, lowest, highest = rows.T
    has_logits = lowest.min() < -_TOLERANCE or highest.max() > 1.0 + _TOLERANCE
    probability = share if has_logits else score.clip(0.0, 1.0)
    return Answers(y_true=y_true.astype(np.int64), y_pred=y_pred.astype(np.int64), probability=probability)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A figure with its 95 % interval; NaN bounds where there are too few samples."""

    metric: str
    value: float
    low: float
    high: float


def measures(answers: Answers) -> tuple[Measure, ...]:
    """The figures of :data:`METRICS`.

    Args:
        answers: Of one model.

    Returns:
        scikit-learn's figures. Accuracy has Wilson's interval, the others the percentile bootstrap over samples.
    """
    pairs = np.stack([answers.y_true, answers.y_pred], axis=1).astype(np.float64)
    hits = _mean_measure(Accuracy(), answers.y_true == answers.y_pred)
    values = _macro_values(answers.y_true, answers.y_pred)
    found = [hits]
    for name in METRICS[1:]:
        low, high = confidence_interval(_Resampled(name), pairs)
        found.append(Measure(metric=name, value=values[name], low=low, high=high))
    return tuple(found)


def agreement(answers: Answers, reference: Answers) -> Measure:
    """Share of samples on which two models give the same class, with Wilson's interval."""
    return _mean_measure(Agreement(), answers.y_pred == reference.y_pred)


def _mean_measure(metric: Metric, hits: np.ndarray) -> Measure:
    rows = hits.astype(np.float64)[:, np.newaxis]
    low, high = confidence_interval(metric, rows)
    return Measure(metric=metric.name, value=metric.summarise(rows), low=low, high=high)


def _macro_values(y_true: np.ndarray, y_pred: np.ndarray) -> Mapping[str, float]:
    from sklearn.metrics import balanced_accuracy_score, cohen_kappa_score, precision_recall_fscore_support

    with warnings.catch_warnings():
        # scikit-learn warns of classes that never occur as labels; the module says what happens to them.
        warnings.simplefilter("ignore")
        precision, recall, f1, _ = precision_recall_fscore_support(y_true, y_pred, average="macro", zero_division=0)
        balanced = balanced_accuracy_score(y_true, y_pred)
        # All labels and answers are one class: scikit-learn has no kappa for what is all agreement.
        kappa = 1.0 if np.unique([y_true, y_pred]).size == 1 else cohen_kappa_score(y_true, y_pred)
    values = (precision, recall, f1, balanced, kappa)
    return {name: float(value) for name, value in zip(METRICS[1:], values, strict=True)}


class _Resampled(PairMetric):
    """One macro figure from three counts a class: scikit-learn's, but fast enough for a thousand resamples.

    scikit-learn takes half a minute for these on 1000 classes. Rows [label, answer].
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def _of_labels(self, y_true: np.ndarray, y_pred: np.ndarray) -> float:
        size = int(max(y_true.max(), y_pred.max())) + 1
        support, answered = np.bincount(y_true, minlength=size), np.bincount(y_pred, minlength=size)
        hits = np.bincount(y_true[y_true == y_pred], minlength=size)
        occurs, labelled = support + answered > 0, support > 0
        if self.name == "balanced_accuracy":
            return float(np.mean(hits[labelled] / support[labelled]))
        if self.name == "cohen_kappa":
            observed = hits.sum() / len(y_true)
            expected = float(support.astype(np.float64) @ answered) / len(y_true) ** 2
            return 1.0 if expected == 1.0 else float((observed - expected) / (1.0 - expected))
        below = {"precision_macro": answered, "recall_macro": support, "f1_macro": (support + answered) / 2}[self.name]
        return float(np.mean(hits[occurs] / np.maximum(below[occurs], 0.5)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassRow:
    """One class of one model.

    Attributes:
        number: The class.
        support: Samples of this class.
        answered: Samples for which the model gives this class.
        precision: Share of these that are right; NaN where there are none.
        recall: Share of the class's samples that the model finds; NaN where there are none.
        f1: Harmonic mean of both; NaN for a class that is neither label nor answer.
        agreement: Share of the class's samples on which the model gives the float model's answer; NaN where there are
            none, or no float model.
    """

    number: int
    support: int
    answered: int
    precision: float
    recall: float
    f1: float
    agreement: float


def class_rows(answers: Answers, class_count: int, reference: Answers | None = None) -> tuple[ClassRow, ...]:
    """Precision, recall, F1 and support of each class, by scikit-learn, and the agreement with the float model.

    Args:
        answers: Of one model.
        class_count: Number of classes of the model; all get a row.
        reference: What the float model answered on the same samples.
    """
    from sklearn.metrics import precision_recall_fscore_support

    with warnings.catch_warnings():
        # What is undefined is NaN here, which is what the warning would say.
        warnings.simplefilter("ignore")
        precision, recall, f1, support = precision_recall_fscore_support(
            answers.y_true, answers.y_pred, labels=np.arange(class_count), zero_division=np.nan
        )
    answered = np.bincount(answers.y_pred, minlength=class_count)
    agreed = np.full(class_count, np.nan)
    if reference is not None:
        same = np.bincount(answers.y_true[answers.y_pred == reference.y_pred], minlength=class_count)
        np.divide(same, support, out=agreed, where=support > 0)
    return tuple(
        ClassRow(
            number=number,
            support=int(support[number]),
            answered=int(answered[number]),
            precision=float(precision[number]),
            recall=float(recall[number]),
            f1=float(f1[number]),
            agreement=float(agreed[number]),
        )
        for number in range(class_count)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Confusion:
    """How many samples of one class got one answer; at least one."""

    label: int
    answer: int
    count: int


def confusion(answers: Answers) -> tuple[Confusion, ...]:
    """The cells of the confusion matrix that are not 0, by label, then answer."""
    pairs = np.stack([answers.y_true, answers.y_pred], axis=1)
    cells, counts = np.unique(pairs, axis=0, return_counts=True)
    return tuple(
        Confusion(label=int(label), answer=int(answer), count=int(count))
        for (label, answer), count in zip(cells, counts, strict=True)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """A sample, by its number from 0 on, on which a model does not give the float model's answer."""

    index: int
    label: int
    float_answer: int
    float_probability: float
    answer: int
    probability: float


def disagreements(answers: Answers, reference: Answers) -> tuple[Disagreement, ...]:
    """The samples on which two models differ, in their order."""
    return tuple(
        Disagreement(
            index=int(i),
            label=int(answers.y_true[i]),
            float_answer=int(reference.y_pred[i]),
            float_probability=float(reference.probability[i]),
            answer=int(answers.y_pred[i]),
            probability=float(answers.probability[i]),
        )
        for i in np.flatnonzero(answers.y_pred != reference.y_pred)
    )
