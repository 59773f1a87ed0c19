"""Metrics of classifiers: which class wins, against labels or the float model; knows no values beyond ranks.

A classification output holds one score per class, whatever its axes of size 1: (1, C), (1, 1, 1, C). Equal
scores, common after quantization, go to the class of the lower number. An output of a single unit is a
probability: above 0.5 it means class 1, else class 0.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from autoselect.errors import DataError, MetricError
from autoselect.scoring.metric_base import (
    MeanMetric,
    Metric,
    Outputs,
    Row,
    positions_by_classes,
    squeezed,
    target_array,
    whole_labels,
)


class LabelMetric(Metric):
    """A metric of one label per sample."""

    direction = "maximize"
    needs_targets = True
    reads_classes = True

    def _check_target(self, target: object | None, output_shape: tuple[int, ...]) -> None:
        self._label(target, count_classes(output_shape, self.name))

    def _blind(self, targets: Sequence[object], output_shape: tuple[int, ...]) -> np.ndarray:
        class_count = count_classes(output_shape, self.name)
        labels = [self._label(target, class_count) for target in targets]
        shares = np.bincount(labels, minlength=max(class_count, 2)) / len(targets)
        return (shares if class_count > 1 else shares[1:].round()).reshape(output_shape)

    def _label(self, target: object | None, class_count: int) -> int:
        if isinstance(target, (int, np.integer)) and 0 <= target < class_count:
            return int(target)  # Nearly every target, at each sample of each candidate.
        array = target_array(target, self.name)
        if array.size != 1:
            raise DataError(
                f"metric {self.name!r}: expected one label per sample, got shape {array.shape}. "
                "Turn one-hot targets into class numbers with numpy.argmax. If the targets are numbers that the "
                "model predicts, take the metric mae or mse."
            )
        return int(whole_labels(array, max(class_count, 2), self.name).item())

    def _scores(self, outputs: Outputs) -> np.ndarray:
        """Return shape (n_classes,)."""
        values = self.scored(outputs)
        count_classes(values.shape, self.name)
        return values.ravel()

    def _pair(self, outputs: Outputs, target: object | None) -> tuple[int, int]:
        """Return the true and the predicted label."""
        scores = self._scores(outputs)
        return self._label(target, scores.size), int(_winners(scores[np.newaxis])[0])


class Accuracy(LabelMetric, MeanMetric):
    """Share of samples whose winning class is the label; rows [hit]."""

    name = "accuracy"
    counts_hits = True
    best = 1.0

    def _observe(self, outputs: Outputs, target: object | None, reference: Outputs | None) -> Row:
        label, winner = self._pair(outputs, target)
        return np.array([label == winner], dtype=np.float64)

    def _observe_block(
        self, outputs: Outputs, targets: Sequence[object] | None, reference: Outputs | None
    ) -> np.ndarray:
        values = self.scored(outputs)
        class_count = count_classes(values.shape[1:], self.name)
        labels = np.array([self._label(target, class_count) for target in targets or [None] * len(values)])
        hits: np.ndarray = labels[:, None] == _winners(values.reshape(len(values), class_count))[:, None]
        return hits.astype(np.float64)


class Top5Accuracy(LabelMetric, MeanMetric):
    """Share of samples whose label is among the five highest scores; rows [hit]."""

    name = "top5_accuracy"
    counts_hits = True
    best = 1.0

    def _observe(self, outputs: Outputs, target: object | None, reference: Outputs | None) -> Row:
        top = 5
        scores = self._scores(outputs)
        if scores.size <= top:
            raise MetricError(
                f"metric {self.name!r}: expected more than {top} classes, got {scores.size}. Use 'accuracy'."
            )
        label = self._label(target, scores.size)
        ahead = np.count_nonzero(scores > scores[label]) + np.count_nonzero(scores[:label] == scores[label])
        return np.array([ahead < top], dtype=np.float64)


def _counts(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Hits of each class, samples that have its label, and samples that are given it; shape (n_classes,) each."""
    y_true, y_pred = rows.astype(np.int64).T
    size = int(rows.max()) + 1
    hits = np.bincount(y_true[y_true == y_pred], minlength=size)
    return hits, np.bincount(y_true, minlength=size), np.bincount(y_pred, minlength=size)


class PairMetric(LabelMetric):
    """A metric of the true and predicted labels of all samples, from three counts a class; rows [y_true, y_pred].

    The figures are scikit-learn's, which takes half a minute for a thousand resamples of them on 1000 classes.
    """

    def _observe(self, outputs: Outputs, target: object | None, reference: Outputs | None) -> Row:
        return np.array(self._pair(outputs, target), dtype=np.float64)

    def _score(self, rows: np.ndarray) -> object:
        return self._of_counts(*_counts(rows))

    def reach(self, rows: np.ndarray) -> float | None:
        """What the dearest hit costs if its answer becomes the commonest other class, or the rarest.

        Classes that no sample has do not count.
        """
        hits, labelled, answered = _counts(rows)
        order = np.argsort(-labelled, kind="stable")[: np.count_nonzero(labelled)]
        before, worst = self.summarise(rows), 0.0
        for place in np.flatnonzero(hits).tolist():
            for other in {int(order[order != place][end]) for end in (0, -1) if len(order) > 1}:
                step = np.zeros_like(hits)
                step[place], step[other] = -1, 1
                after = self._of_counts(np.minimum(hits, hits + step), labelled, answered + step)
                worst = max(worst, abs(before - float(after)))  # type: ignore[arg-type]
        return worst * len(rows) or None

    @abstractmethod
    def _of_counts(self, hits: np.ndarray, labelled: np.ndarray, answered: np.ndarray) -> object:
        """Return the score of samples of which so many of each class are hits, have its label, and are given it."""


def _macro(hits: np.ndarray, of: np.ndarray, occurs: np.ndarray) -> object:
    """Mean over the classes that occur; one without what its hits are a share of counts 0."""
    return np.mean(hits[occurs] / np.maximum(of[occurs], 0.5))


class BalancedAccuracy(PairMetric):
    """Mean over the classes that occur as labels of the share of their samples that are recognised."""

    name = "balanced_accuracy"

    def _of_counts(self, hits: np.ndarray, labelled: np.ndarray, answered: np.ndarray) -> object:
        return _macro(hits, labelled, labelled > 0)


class PrecisionMacro(PairMetric):
    """Mean precision over the classes that occur as label or prediction; a class that is never predicted counts 0."""

    name = "precision_macro"

    def _of_counts(self, hits: np.ndarray, labelled: np.ndarray, answered: np.ndarray) -> object:
        return _macro(hits, answered, labelled + answered > 0)


class RecallMacro(PairMetric):
    """Mean recall over the classes that occur as label or prediction; a class that is never a label counts 0."""

    name = "recall_macro"

    def _of_counts(self, hits: np.ndarray, labelled: np.ndarray, answered: np.ndarray) -> object:
        return _macro(hits, labelled, labelled + answered > 0)


class F1Macro(PairMetric):
    """Mean F1 over the classes that occur as label or prediction; a class never both counts 0."""

    name = "f1_macro"

    def _of_counts(self, hits: np.ndarray, labelled: np.ndarray, answered: np.ndarray) -> object:
        return _macro(hits, (labelled + answered) / 2, labelled + answered > 0)


class CohenKappa(PairMetric):
    """Agreement with the labels beyond chance; 1 where only one class occurs, which is all agreement."""

    name = "cohen_kappa"

    def _of_counts(self, hits: np.ndarray, labelled: np.ndarray, answered: np.ndarray) -> object:
        count = labelled.sum()
        by_chance = float(labelled.astype(np.float64) @ answered) / count**2
        return 1.0 if by_chance == 1.0 else (hits.sum() / count - by_chance) / (1.0 - by_chance)


class MeanIoU(Metric):
    """Mean over classes of intersection over union of all pixels; rows are flattened confusion matrices.

    The last axis of the output holds the classes, (1, H, W, C); with C = 1 it is a probability, binary at
    0.5. The target holds one label per pixel, (H, W) or (H, W, 1). Classes that occur neither as label nor
    as prediction are left out of the mean.

    Pixels of the label 255 are void and left out, where there are more than two classes and no class has this number:
    in masks of two classes 255 is often the foreground. Pixels of ``ignore_label`` are left out, too, and where it is
    a class, this class is left out of the mean.
    """

    name = "mean_iou"
    direction = "maximize"
    needs_targets = True
    reads_classes = True

    def __init__(self, *, output: str | None = None, ignore_label: int | None = None) -> None:
        super().__init__(output=output)
        self._ignored = ignore_label

    def _check_target(self, target: object | None, output_shape: tuple[int, ...]) -> None:
        self._labels(target, output_shape)

    def _observe(self, outputs: Outputs, target: object | None, reference: Outputs | None) -> Row:
        values = self.scored(outputs)
        labels, is_counted = self._labels(target, values.shape)
        winners = _winners(values.reshape(-1, values.shape[-1]))[is_counted]
        class_count = max(values.shape[-1], 2)
        counts = np.bincount(labels * class_count + winners, minlength=class_count**2)
        return counts.astype(np.float64)

    def _labels(self, target: object | None, output_shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Return the labels of the pixels that count, and which pixels these are."""
        # Label of the pixels of no class in most data sets of label maps.
        void = 255
        array = target_array(target, self.name)
        if squeezed(array.shape) != squeezed(output_shape[:-1]):
            raise DataError(
                f"metric {self.name!r}: expected one label per pixel, shape {output_shape[1:-1]}, got "
                f"{array.shape} for an output of shape {output_shape}. Resize the target, or turn one-hot "
                "targets into class numbers."
            )
        labels, class_count = array.ravel(), max(output_shape[-1], 2)
        is_void = (labels == void) & (2 < class_count <= void)
        if class_count == 2 and self._ignored is None and (labels == void).any():
            raise DataError(
                f"metric {self.name!r}: expected labels from 0 to 1, got {void}. Write 1 if it is the foreground. "
                f"If it is void, say so (--ignore-label {void}, ignore_label={void})."
            )
        is_counted = ~(is_void | (labels == self._ignored))
        return whole_labels(labels[is_counted], class_count, self.name), is_counted

    def _score(self, rows: np.ndarray) -> object:
        class_count = round(rows.shape[1] ** 0.5)
        confusion = rows.sum(axis=0).reshape(class_count, class_count)
        hits = np.diag(confusion)
        union = confusion.sum(axis=0) + confusion.sum(axis=1) - hits
        occurs = (union > 0) & (np.arange(class_count) != self._ignored)
        if not occurs.any():
            raise MetricError(
                f"metric {self.name!r}: expected at least one pixel that is not void, got none. "
                "Check the targets and the label to ignore."
            )
        return (hits[occurs] / union[occurs]).mean()


class Agreement(MeanMetric):
    """Share of samples on which candidate and float model choose the same class; rows [share].

    For dense outputs (several positions, classes in the last axis) a row is the share of positions. Whole numbers, as
    ARG_MAX writes them, are the classes chosen.
    """

    name = "agreement"
    counts_hits = True
    best = 1.0
    direction = "maximize"
    needs_reference = True

    def _observe(self, outputs: Outputs, target: object | None, reference: Outputs | None) -> Row:
        (row,) = self._shares(self.scored(outputs)[None], self.scored_reference(reference)[None], outputs)
        return np.asarray(row)

    def _observe_block(
        self, outputs: Outputs, targets: Sequence[object] | None, reference: Outputs | None
    ) -> np.ndarray:
        return self._shares(self.scored(outputs), self.scored_reference(reference), outputs)

    def _shares(self, ours: np.ndarray, theirs: np.ndarray, outputs: Outputs) -> np.ndarray:
        """Rows of arrays of samples, shape (n_samples, 1)."""
        count = len(ours)
        if outputs[self.output or next(iter(outputs))].dtype.kind not in "iu":
            class_count = positions_by_classes(ours[0]).shape[1]
            ours, theirs = (_winners(values.reshape(-1, class_count)) for values in (ours, theirs))
        return np.asarray(np.mean((ours == theirs).reshape(count, -1), axis=1, keepdims=True))


def count_classes(output_shape: Sequence[int], name: str) -> int:
    """Return how many scores an output holds, 1 for a single unit.

    Raises:
        MetricError: If it is no output of one score per class.
    """
    sizes = squeezed(output_shape)
    if len(sizes) > 1:
        raise MetricError(
            f"metric {name!r}: expected an output of one score per class, got shape {tuple(output_shape)}. "
            "Choose another output, or a metric of dense outputs such as mean_iou, mse or sqnr_db."
        )
    return sizes[0] if sizes else 1


def _winners(table: np.ndarray) -> np.ndarray:
    """Return the winning class of each position of a table (n_positions, n_classes)."""
    is_single_unit = table.shape[1] == 1
    winners: np.ndarray = table[:, 0] > 0.5 if is_single_unit else np.argmax(table, axis=1)
    return winners.astype(np.int64)
