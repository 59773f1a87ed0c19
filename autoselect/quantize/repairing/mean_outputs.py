"""The mean output of a weighted op as a linear function of its weights; knows arrays, no models.

A convolution is linear in its weights, so the mean of its output over all samples and positions is the sum of each
weight times the mean of all values that it is multiplied with: its *tap*. A weight at the edge of a kernel meets the
padding, which counts as zeros, and with strides or dilation only some of the input; so taps differ over the kernel,
and the mean of the input by channel alone would be wrong there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """How a kernel moves over its input.

    Attributes:
        kernel: Height and width.
        strides: Height and width.
        dilations: Height and width.
        same: Padding ``SAME``, else ``VALID``.
        output: Height and width of the output.
    """

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    same: bool
    output: tuple[int, int]


def convolution_taps(mean: np.ndarray, geometry: Geometry) -> np.ndarray:
    """Taps of a convolution, ordinary or depthwise.

    Args:
        mean: Mean input over samples, shape (batch, height, width, channels).
        geometry: Of the kernel.

    Returns:
        Float64 of shape (kernel height, kernel width, channels).
    """
    return _separable(mean, geometry, _window_rows)


def transposed_taps(mean: np.ndarray, geometry: Geometry) -> np.ndarray:
    """Taps of a transposed convolution: what of the input each weight spreads into the output.

    Args:
        mean: Mean input over samples, shape (batch, height, width, channels).
        geometry: Of the kernel.

    Returns:
        Float64 of shape (kernel height, kernel width, channels).
    """
    return _separable(mean, geometry, _spread_rows)


def dense_taps(mean: np.ndarray, depth: int) -> np.ndarray:
    """Taps of a fully connected op: the mean of each input feature, shape (depth,)."""
    found: np.ndarray = np.asarray(mean, dtype=np.float64).reshape(-1, depth).mean(axis=0)
    return found


_Rows = Callable[[int, int, int, int, int, bool, int], np.ndarray]
"""Which rows a tap meets, from its place, the input's size, the kernel's, stride, dilation, padding, output's size."""


def _separable(mean: np.ndarray, geometry: Geometry, rows: _Rows) -> np.ndarray:
    """Sum over the rows and columns that each tap meets, which do not depend on each other, by outputs."""
    image = np.asarray(mean, dtype=np.float64).mean(axis=0)
    masks = [
        np.stack(
            [
                np.bincount(rows(k, size, kernel, stride, dilation, geometry.same, output), minlength=size)
                for k in range(kernel)
            ]
        )
        for size, kernel, stride, dilation, output in zip(
            image.shape[:2],
            geometry.kernel,
            geometry.strides,
            geometry.dilations,
            geometry.output,
            strict=True,
        )
    ]
    # In two steps, not one einsum: the first makes the image small.
    by_row = np.tensordot(masks[0].astype(np.float64), image, axes=(1, 0))
    sums: np.ndarray = np.einsum("kw,hwc->hkc", masks[1].astype(np.float64), by_row)
    return sums / np.prod(geometry.output)


def _window_rows(place: int, size: int, kernel: int, stride: int, dilation: int, same: bool, output: int) -> np.ndarray:
    """Input rows that a tap of a convolution meets, once for each output row; the padding left out."""
    reach = (kernel - 1) * dilation + 1
    before = max((output - 1) * stride + reach - size, 0) // 2 if same else 0
    rows = np.arange(output) * stride + place * dilation - before
    return rows[(rows >= 0) & (rows < size)]


def _spread_rows(place: int, size: int, kernel: int, stride: int, dilation: int, same: bool, output: int) -> np.ndarray:
    """Input rows whose product with a tap of a transposed convolution lies in the output."""
    reach = (kernel - 1) * dilation + 1
    before = max((size - 1) * stride + reach - output, 0) // 2 if same else 0
    rows = np.arange(size)
    targets = rows * stride + place * dilation - before
    return rows[(targets >= 0) & (targets < output)]


def convolution_mean(weights: np.ndarray, taps: np.ndarray) -> np.ndarray:
    """Mean output by channel of a convolution, ordinary, grouped or transposed, without its bias.

    Args:
        weights: Shape (outputs, kernel height, kernel width, inputs of a group).
        taps: Shape (kernel height, kernel width, inputs).

    Returns:
        Float64 of shape (outputs,).
    """
    groups = taps.shape[-1] // weights.shape[-1]
    grouped = weights.reshape(groups, -1, *weights.shape[1:]).astype(np.float64)
    met = taps.reshape(*taps.shape[:2], groups, weights.shape[-1])
    found: np.ndarray = np.einsum("gohwc,hwgc->go", grouped, met)
    return found.reshape(-1)


def depthwise_mean(weights: np.ndarray, taps: np.ndarray) -> np.ndarray:
    """Mean output by channel of a depthwise convolution, without its bias.

    Args:
        weights: Shape (1, kernel height, kernel width, inputs times multiplier).
        taps: Shape (kernel height, kernel width, inputs).

    Returns:
        Float64 of shape (inputs times multiplier,).
    """
    multiplier = weights.shape[-1] // taps.shape[-1]
    found: np.ndarray = np.einsum("hwc,hwc->c", weights[0].astype(np.float64), np.repeat(taps, multiplier, axis=-1))
    return found


def dense_mean(weights: np.ndarray, taps: np.ndarray) -> np.ndarray:
    """Mean output of a fully connected op, without its bias.

    Args:
        weights: Shape (outputs, depth).
        taps: Shape (depth,).

    Returns:
        Float64 of shape (outputs,).
    """
    found: np.ndarray = weights.astype(np.float64) @ taps
    return found
