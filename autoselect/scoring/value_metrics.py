"""Metrics of output values: errors against targets, divergence from the float model; no ranks."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence

import numpy as np

from autoselect.domain.objectives import Direction
from autoselect.errors import DataError, MetricError
from autoselect.scoring.channel_groups import ChannelGroup, power_shares
from autoselect.scoring.metric_base import (
    MeanMetric,
    Metric,
    Outputs,
    Row,
    positions_by_classes,
    squeezed,
    target_array,
)


class _ErrorMetric(MeanMetric):
    """A mean over samples of an error against a target of the output's shape (axes of size 1 aside)."""

    direction: Direction = "minimize"
    needs_targets = True

    def _check_target(self, target: object | None, output_shape: tuple[int, ...]) -> None:
        self._values(target, output_shape)

    def _blind(self, targets: Sequence[object], output_shape: tuple[int, ...]) -> np.ndarray:
        return np.asarray(sum(self._values(target, output_shape) for target in targets) / len(targets))

    def _values(self, target: object | None, output_shape: tuple[int, ...]) -> np.ndarray:
        """Return the target in the shape of the output, float64."""
        array = target_array(target, self.name)
        if squeezed(array.shape) != squeezed(output_shape):
            raise DataError(
                f"metric {self.name!r}: expected a target of the output's shape {output_shape}, got "
                f"{array.shape}. Resize or reshape the target."
            )
        return self._scaled(array).reshape(output_shape)

    def _scaled(self, array: np.ndarray) -> np.ndarray:
        return array.astype(np.float64)

    def _errors(self, outputs: Outputs, target: object | None) -> np.ndarray:
        values = self.scored(outputs)
        return np.asarray(values - self._values(target, values.shape))


class MeanSquaredError(_ErrorMetric):
    """Mean over samples of the mean squared error, in the output's unit squared; rows [error]."""

    name = "mse"
    best = 0.0

    def _observe(self, outputs: Outputs, target: object | None, reference: Outputs | None) -> Row:
        return np.array([np.mean(self._errors(outputs, target) ** 2)])


class MeanAbsoluteError(_ErrorMetric):
    """Mean over samples of the mean absolute error, in the output's unit; rows [error]."""

    name = "mae"
    best = 0.0

    def _observe(self, outputs: Outputs, target: object | None, reference: Outputs | None) -> Row:
        return np.array([np.mean(np.abs(self._errors(outputs, target)))])


class PeakSignalToNoise(_ErrorMetric):
    """Mean over samples of 10 log10(1 / MSE), in dB, at most 200; rows [dB].

    Outputs are images of the range 0 to 1, and so are float targets. Integer targets are images of
    0 to 255: they are divided by 255, and the peak is 1 in both cases. A model that gives 0 to 255 needs
    float targets of that range too, by which all scores are 48.1 dB too low and all drops right.
    """

    name = "psnr"
    direction = "maximize"

    def _observe(self, outputs: Outputs, target: object | None, reference: Outputs | None) -> Row:
        return np.array([_decibel(1.0, float(np.mean(self._errors(outputs, target) ** 2)))])

    def _check_float_score(self, score: float, targets: Sequence[object]) -> None:
        if score < 0.0 and any(np.asarray(target).dtype.kind in "iu" for target in targets):
            raise DataError(
                f"metric {self.name!r}: the float model scores {score:.1f} dB, so its outputs are further from the "
                "targets than 0 is from 1. Integer targets are divided by 255, and outputs are taken to be from 0 to "
                "1. If the model gives 0 to 255, give the targets as float32 from 0 to 255."
            )

    def _scaled(self, array: np.ndarray) -> np.ndarray:
        integer_peak = 255.0
        if array.dtype.kind not in "iu":
            return array.astype(np.float64)
        if array.size and (array.min() < 0 or array.max() > integer_peak):
            raise DataError(
                f"metric {self.name!r}: expected integer targets from 0 to 255, got {array.min()} to "
                f"{array.max()}. Give float targets of the range 0 to 1 instead."
            )
        return array / integer_peak


class SignalToQuantizationNoise(MeanMetric):
    """Mean over samples of 10 log10(sum ref^2 / sum (ref - out)^2), in dB; rows [dB].

    A sample counts from -200 to 200 dB: 200 where candidate and float model are equal, -200 where the
    float model gives nothing but zeros and the candidate does not. If channels of the float outputs have
    unlike ranges, a sample counts with the worst group of them; see
    :func:`autoselect.scoring.channel_groups.channel_groups`.
    """

    name = "sqnr_db"
    direction = "maximize"
    needs_reference = True
    groups: tuple[ChannelGroup, ...] = ()

    def informed(self, groups_of: Callable[[str | None], tuple[ChannelGroup, ...]]) -> Metric:
        """This metric, by the groups of the scored output."""
        metric = copy.copy(self)
        metric.groups = groups_of(self.output)
        return metric

    def _observe(self, outputs: Outputs, target: object | None, reference: Outputs | None) -> Row:
        ours, theirs = _same_shape(self.scored(outputs), self.scored_reference(reference), self.name)
        return np.array([_decibel(*power_shares(ours, theirs, self.groups))])

    def _observe_block(
        self, outputs: Outputs, targets: Sequence[object] | None, reference: Outputs | None
    ) -> np.ndarray:
        ours, theirs = _same_shape(self.scored(outputs), self.scored_reference(reference), self.name)
        if self.groups:
            return np.array([[_decibel(*power_shares(*pair, self.groups))] for pair in zip(ours, theirs, strict=True)])
        powers = (np.sum(values.reshape(len(ours), -1) ** 2, axis=1) for values in (theirs, theirs - ours))
        return np.array([[_decibel(float(signal), float(noise))] for signal, noise in zip(*powers, strict=True)])


class KullbackLeibler(MeanMetric):
    """Mean over samples of KL(float model || candidate), in nats; rows [divergence].

    The float model's output decides for both: where it is not negative and sums to one (within 0.001) it
    holds probabilities, else logits, and the softmax of both is compared. Probabilities below 1e-10 count
    as 1e-10, and both sides are scaled to sum to one, since a quantized softmax does not. A single unit
    is the probability of class 1, or its logit where the float output is not from 0 to 1. A sample of
    several positions counts with their mean.
    """

    name = "kl_divergence"
    best = 0.0
    direction = "minimize"
    needs_reference = True
    reads_classes = True

    def _observe(self, outputs: Outputs, target: object | None, reference: Outputs | None) -> Row:
        ours, theirs = _same_shape(self.scored(outputs), self.scored_reference(reference), self.name)
        tables = _two_sided(positions_by_classes(theirs), positions_by_classes(ours))
        if not _are_probabilities(tables[0]):
            tables = _softmax(tables[0]), _softmax(tables[1])
        wanted, given = _floored(tables[0]), _floored(tables[1])
        divergence = np.sum(wanted * np.log(wanted / given), axis=1).mean()
        return np.array([max(0.0, float(divergence))])  # Rounding may leave equals a hair below zero.


def _decibel(signal: float, noise: float) -> float:
    # Bound of decibel values, in dB, in place of infinity where there is no error, or no signal.
    decibel_cap = 200.0
    if noise == 0.0:
        return decibel_cap
    if signal == 0.0:
        return -decibel_cap
    return min(max(10.0 * (math.log10(signal) - math.log10(noise)), -decibel_cap), decibel_cap)


def _same_shape(ours: np.ndarray, theirs: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    if ours.shape != theirs.shape:
        raise MetricError(
            f"metric {name!r}: expected candidate and float outputs of one shape, got {ours.shape} and "
            f"{theirs.shape}. Compare outputs of the same model and key."
        )
    return ours, theirs


def _two_sided(wanted: np.ndarray, given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Turn a single unit into two classes: probabilities (1 - p, p), or logits (0, z)."""
    if wanted.shape[1] != 1:
        return wanted, given
    is_probability = bool(np.all((wanted >= 0.0) & (wanted <= 1.0)))
    sides = [np.hstack([1.0 - unit if is_probability else 0.0 * unit, unit]) for unit in (wanted, given)]
    return sides[0], sides[1]


def _are_probabilities(table: np.ndarray) -> bool:
    return bool(np.all(table >= 0.0) and np.all(np.abs(table.sum(axis=1) - 1.0) <= 1e-3))


def _softmax(table: np.ndarray) -> np.ndarray:
    powers = np.exp(table - table.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _floored(table: np.ndarray) -> np.ndarray:
    clipped = np.clip(table, 1e-10, None)
    return np.asarray(clipped / clipped.sum(axis=1, keepdims=True))
