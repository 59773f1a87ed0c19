"""What a metric is: evidence per sample, then one number; knows no particular metric."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from autoselect.domain.objectives import Direction
from autoselect.errors import DataError, MetricError, ScoreError
from autoselect.scoring.channel_groups import ChannelGroup

Row = np.ndarray
"""The evidence of one sample: 1-D float64, of one length for all samples of a metric."""

Outputs = Mapping[str, np.ndarray]
"""Float outputs of one sample by key, batch axis 1 included, in the order of the source."""


class Metric(ABC):
    """Collects a small row of evidence per sample and summarises any set of rows into one score.

    Rows of different processes may be mixed: a row tells everything that :meth:`summarise` needs.

    Attributes:
        name: What a user calls it.
        direction: Whether more or less is better.
        needs_targets: Whether :meth:`observe` needs the target of the sample.
        needs_reference: Whether :meth:`observe` needs the float model's outputs.
        reads_classes: Whether it takes the scored output for scores of classes.
        is_mean: Whether a row holds one value and the score is the mean of these values.
        counts_hits: Whether that value is 1 for a hit and 0 for a miss, so that the score is a share of hits. Rows of
            dense outputs may lie between.
        is_costly: Whether nobody knows how long a score takes, since a function of the user's makes it.
        best: What no sample's value passes, of a metric that is a mean; None where that is not known.
        output: Key of the scored output; None scores the first one.
    """

    name: str
    direction: Direction
    needs_targets: bool = False
    needs_reference: bool = False
    reads_classes: bool = False
    is_mean: bool = False
    counts_hits: bool = False
    is_costly: bool = False
    best: float | None = None

    def __init__(self, *, output: str | None = None) -> None:
        self.output = output

    def observe(self, outputs: Outputs, target: object | None, reference: Outputs | None) -> Row:
        """Reduce one sample to its evidence.

        Args:
            outputs: The candidate's outputs, see :func:`autoselect.domain.tensors.in_source_order`.
            target: The sample's target; None if the metric needs none.
            reference: The float model's outputs for this sample; None if the metric needs none.

        Returns:
            1-D float64 array.

        Raises:
            MetricError: If the metric does not suit outputs of this kind, or lacks what it needs.
            ScoreError: If an output is not a number.
            DataError: If the target does not suit the output; see :meth:`check_target`.
        """
        return self._observe(outputs, target, reference)

    def observe_block(
        self, outputs: Outputs, targets: Sequence[object] | None, reference: Outputs | None
    ) -> np.ndarray:
        """Reduce several samples at once, each to what :meth:`observe` makes of it.

        Args:
            outputs: The candidate's outputs, shape (n_samples, 1, ...).
            targets: One for each sample; None if the metric needs none.
            reference: The float model's outputs for these samples, shaped as ``outputs``.

        Returns:
            Shape (n_samples, row_length), float64.

        Raises:
            MetricError, ScoreError, DataError: As :meth:`observe`.
        """
        return self._observe_block(outputs, targets, reference)

    def informed(self, groups_of: Callable[[str | None], tuple[ChannelGroup, ...]]) -> Metric:
        """The metric for samples whose float outputs are known; most need not know more of them.

        Args:
            groups_of: The groups of channels of unlike ranges by output key; None is the first output.
        """
        return self

    def summarise(self, rows: Sequence[Row] | np.ndarray) -> float:
        """Turn the rows of at least one sample into a score, in the metric's own unit.

        Args:
            rows: Shape (n_samples, row_length), float64.

        Returns:
            A finite number.

        Raises:
            MetricError: If there are no rows, they differ in length, or there is no finite score.
        """
        return finite(self._score(as_matrix(rows, self.name)), self.name)

    def check_target(self, target: object | None, output_shape: tuple[int, ...]) -> None:
        """Refuse a target that the metric cannot compare with an output of this shape.

        Args:
            target: The target of one sample.
            output_shape: Shape of the scored output, batch axis included.

        Raises:
            DataError: If the target is missing, of another shape, NaN, or a label out of range.
        """
        if self.needs_targets:
            self._check_target(target, output_shape)

    def check_float_score(self, score: float, targets: Sequence[object]) -> None:
        """Refuse targets that are not of the outputs' scale, if the float model's score shows it.

        Args:
            score: Of the float model, in the metric's own unit.
            targets: Of all samples, checked.

        Raises:
            DataError: If the score tells that targets and outputs are not what the metric takes.
        """
        self._check_float_score(score, targets)

    def blind(self, targets: Sequence[object], output_shape: tuple[int, ...]) -> np.ndarray | None:
        """What one may answer to all samples without a look at any, such as the commonest class; None where unknown.

        Args:
            targets: Of at least one sample, checked.
            output_shape: Shape of the scored output, batch axis included.
        """
        return self._blind(targets, output_shape)

    def scored(self, outputs: Outputs, *, whose: str = "the model") -> np.ndarray:
        """Return the output that is scored, by :func:`in_reals`.

        Raises:
            MetricError: If there is no output of this key.
            ScoreError: If it holds a NaN or an infinite number.
        """
        key = next(iter(outputs), None) if self.output is None else self.output
        if key is None or key not in outputs:
            raise MetricError(
                f"metric {self.name!r}: expected an output {self.output or '(any)'!r}, got "
                f"{', '.join(map(repr, outputs)) or 'none'}. Choose one of these as the scored output."
            )
        values = in_reals(outputs[key])
        if not np.isfinite(values).all():
            bad = int(np.count_nonzero(~np.isfinite(values)))
            raise ScoreError(
                f"metric {self.name!r}: expected finite outputs, got {bad} NaN or infinite of {values.size} "
                f"in output {key!r} of {whose}. Look for an overflow in its float layers."
            )
        return values

    def scored_reference(self, reference: Outputs | None) -> np.ndarray:
        """Return the float model's output that is compared with, float64.

        Raises:
            MetricError: If there are no float outputs, or none of this key.
            ScoreError: If it holds a NaN or an infinite number.
        """
        if reference is None:
            raise MetricError(
                f"metric {self.name!r}: expected the float model's outputs, got none. "
                "Run the float model on the same samples first."
            )
        return self.scored(reference, whose="the float model")

    def reach(self, rows: np.ndarray) -> float | None:
        """The most by which another answer to one sample may change the score, times the number of samples.

        It is asked for only if all samples add the same to the score, so that their spread tells nothing.

        Args:
            rows: Evidence of the samples, shape (n_samples, row_length), float64.

        Returns:
            In the units of the score; None if the metric knows no such bound.
        """
        return None

    @abstractmethod
    def _observe(self, outputs: Outputs, target: object | None, reference: Outputs | None) -> Row:
        """Return the evidence of one sample."""

    def _observe_block(
        self, outputs: Outputs, targets: Sequence[object] | None, reference: Outputs | None
    ) -> np.ndarray:
        """Return the evidence of several samples; for metrics that have no quicker way, of one after the other."""
        rows = [
            self._observe(_one_of(outputs, i), targets[i] if targets else None, reference and _one_of(reference, i))
            for i in range(len(next(iter(outputs.values()), ())))
        ]
        return as_matrix(rows, self.name)

    def _check_float_score(self, score: float, targets: Sequence[object]) -> None:
        return

    def _blind(self, targets: Sequence[object], output_shape: tuple[int, ...]) -> np.ndarray | None:
        return None

    def _check_target(self, target: object | None, output_shape: tuple[int, ...]) -> None:
        target_array(target, self.name)

    @abstractmethod
    def _score(self, rows: np.ndarray) -> object:
        """Return the score of rows of shape (n_samples, row_length)."""


class MeanMetric(Metric):
    """A metric whose score is the mean of one value per sample."""

    is_mean = True

    def _score(self, rows: np.ndarray) -> object:
        return rows[:, 0].mean()


def in_reals(values: np.ndarray) -> np.ndarray:
    """The values in float64; a complex number is its two parts, along one more axis."""
    if np.iscomplexobj(values):
        values = np.stack([values.real, values.imag], axis=-1)
    return values.astype(np.float64)


def _one_of(outputs: Outputs, number: int) -> Outputs:
    return {key: values[number] for key, values in outputs.items()}


def as_matrix(rows: Sequence[Row] | np.ndarray, name: str) -> np.ndarray:
    """Stack rows of evidence.

    Args:
        rows: At least one row, all of one length.
        name: The metric's name, for messages.

    Returns:
        Shape (n_samples, row_length), float64.

    Raises:
        MetricError: If there are no rows, or they differ in length.
    """
    if isinstance(rows, np.ndarray) and rows.ndim == 2 and len(rows):
        return rows.astype(np.float64, copy=False)
    lengths = {len(row) for row in rows}
    if len(lengths) != 1:
        got = f"rows of {len(lengths)} different lengths" if lengths else "no rows"
        raise MetricError(
            f"metric {name!r}: expected at least one sample, and targets and outputs of one shape for all, "
            f"got {got}. Bring samples of one shape."
        )
    return np.asarray(rows, dtype=np.float64)


def finite(value: object, name: str) -> float:
    """Return a score as a Python float.

    Raises:
        MetricError: If it is no single finite number (a bool is none).
    """
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):
        array = np.empty(0)
    if array.size != 1 or array.dtype.kind not in "iuf" or not np.isfinite(array).all():
        raise MetricError(
            f"metric {name!r}: expected one finite number as the score, got {_shown(value)}. "
            "Return a float, and handle the cases in which the score is undefined."
        )
    return float(array.item())


def _shown(value: object) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 80 else text[:77] + '...'}"


def target_array(target: object | None, name: str) -> np.ndarray:
    """Return a target as an array of numbers.

    Raises:
        DataError: If it is missing, not numeric, or holds a NaN or an infinite number.
    """
    if target is None:
        raise DataError(
            f"metric {name!r}: expected a target for every sample, got none. "
            "Bring targets, or choose a label-free metric such as agreement."
        )
    array = np.asarray(target)
    if array.dtype.kind not in "biuf":
        raise DataError(
            f"metric {name!r}: expected a target of numbers, got dtype {array.dtype}. Convert it to numbers."
        )
    bad = int(np.count_nonzero(~np.isfinite(array)))
    if bad:
        raise DataError(
            f"metric {name!r}: expected finite targets, got {bad} NaN or infinite of {array.size}. "
            "Repair or leave out this sample."
        )
    return array


def whole_labels(target: object | None, class_count: int, name: str) -> np.ndarray:
    """Return a target as int64 labels.

    Args:
        target: Whole numbers from 0 to ``class_count - 1``, of any numeric dtype.
        class_count: Number of classes.
        name: The metric's name, for messages.

    Raises:
        DataError: If one is no whole number or out of range.
    """
    array = target_array(target, name)
    labels = array.astype(np.int64)
    if not np.array_equal(labels, array):
        raise DataError(
            f"metric {name!r}: expected whole numbers as labels, got {array.dtype} values such as "
            f"{array.flat[int(np.argmax(labels.ravel() != array.ravel()))]}. Give class numbers."
        )
    if labels.size and (labels.min() < 0 or labels.max() >= class_count):
        low, high = labels.min(), labels.max()
        raise DataError(
            f"metric {name!r}: expected labels from 0 to {class_count - 1}, got {low}"
            f"{f' to {high}' if high > low else ''}. Number the classes from 0 on, in the order of the model's outputs."
        )
    return labels


def squeezed(shape: Sequence[int]) -> tuple[int, ...]:
    """Return a shape without its axes of size 1."""
    return tuple(size for size in shape if size != 1)


def positions_by_classes(values: np.ndarray) -> np.ndarray:
    """Return an output as a table of shape (n_positions, n_classes).

    Args:
        values: With at most one axis larger than 1, one position whose classes lie along that axis; else
            classes in the last axis.
    """
    if len(squeezed(values.shape)) <= 1:
        return values.reshape(1, -1)
    return values.reshape(-1, values.shape[-1])
