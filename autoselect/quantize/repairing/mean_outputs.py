"""What the weights of an op are multiplied with, at some output positions or in the mean; knows arrays, no models.

A convolution is linear in its weights, so the mean of its output over all samples and positions is the sum of each
weight times the mean of all values that it is multiplied with: its *tap*. A weight at the edge of a kernel meets the
padding, which counts as zeros, and with strides or dilation only some of the input; so taps differ over the kernel,
and the mean of the input by channel alone would be wrong there.
"""

from __future__ import annotations

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


def kernel_taps(mean: np.ndarray, geometry: Geometry, *, transposed: bool = False) -> np.ndarray:
    """Taps of a convolution, ordinary or depthwise: sums over the rows and columns that each meets, by outputs.

    Args:
        mean: Mean input over samples, shape (batch, height, width, channels).
        geometry: Of the kernel.
        transposed: For a transposed convolution: what of the input each weight spreads into the output.

    Returns:
        Float64 of shape (kernel height, kernel width, channels).
    """
    image = np.asarray(mean, dtype=np.float64).mean(axis=0)
    masks = [
        np.stack([np.bincount(rows, minlength=size + 1)[:size] for rows in met]).astype(np.float64)
        for axis, size in enumerate(image.shape[:2])
        for met in [rows_met(np.arange(geometry.output[axis]), size, geometry, axis, transposed=transposed)]
    ]
    # In two steps, not one einsum: the first makes the image small. Rows and columns do not depend on each other.
    by_row = np.tensordot(masks[0], image, axes=(1, 0))
    return np.asarray(np.einsum("kw,hwc->hkc", masks[1], by_row) / np.prod(geometry.output))


def rows_met(outputs: np.ndarray, size: int, geometry: Geometry, axis: int, *, transposed: bool) -> np.ndarray:
    """Input rows by place in the kernel and output row, shape (places, outputs); ``size`` where there is none.

    Args:
        outputs: Rows of the output; columns where the axis is 1.
        size: Of the input along the axis.
        geometry: Of the kernel.
        axis: 0 for rows, 1 for columns.
        transposed: For a transposed convolution, which reads only some places of the kernel at an output.
    """
    stride, dilation, kernel = geometry.strides[axis], geometry.dilations[axis], geometry.kernel[axis]
    reach = (kernel - 1) * dilation + 1
    ends = (size, geometry.output[axis]) if transposed else (geometry.output[axis], size)
    before = max((ends[0] - 1) * stride + reach - ends[1], 0) // 2 if geometry.same else 0
    taps = np.arange(kernel)[:, None] * dilation - before
    rows, rest = np.divmod(outputs - taps, stride) if transposed else (outputs * stride + taps, np.zeros(1))
    return np.where((rest == 0) & (rows >= 0) & (rows < size), rows, size)


def dense_taps(mean: np.ndarray, depth: int) -> np.ndarray:
    """Taps of a fully connected op: the mean of each input feature, shape (depth,)."""
    return np.asarray(np.asarray(mean, dtype=np.float64).reshape(-1, depth).mean(axis=0))


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
    means: np.ndarray = np.einsum("gohwc,hwgc->go", grouped, met)
    return means.reshape(-1)


def depthwise_mean(weights: np.ndarray, taps: np.ndarray) -> np.ndarray:
    """Mean output by channel of a depthwise convolution, without its bias.

    Args:
        weights: Shape (1, kernel height, kernel width, inputs times multiplier).
        taps: Shape (kernel height, kernel width, inputs).

    Returns:
        Float64 of shape (inputs times multiplier,).
    """
    multiplier = weights.shape[-1] // taps.shape[-1]
    return np.asarray(np.einsum("hwc,hwc->c", weights[0].astype(np.float64), np.repeat(taps, multiplier, axis=-1)))


def dense_mean(weights: np.ndarray, taps: np.ndarray) -> np.ndarray:
    """Mean output of a fully connected op, without its bias.

    Args:
        weights: Shape (outputs, depth).
        taps: Shape (depth,).

    Returns:
        Float64 of shape (outputs,).
    """
    return np.asarray(weights.astype(np.float64) @ taps)


_GOLDEN = (5.0**0.5 - 1.0) / 2.0


def spread_places(count: int, most: int) -> np.ndarray:
    """At most ``most`` of ``count`` places, spread evenly and out of step with rows: multiples of the golden ratio."""
    if count <= most:
        return np.arange(count)
    return np.unique((np.arange(most) * _GOLDEN % 1.0 * count).astype(np.int64))


def dense_windows(values: np.ndarray, depth: int, most: int) -> np.ndarray:
    """What a fully connected op reads: some of its rows, shape (positions, depth)."""
    rows = values.reshape(-1, depth)
    return np.asarray(rows[spread_places(len(rows), most)])


def windows(values: np.ndarray, geometry: Geometry, most: int, *, transposed: bool = False) -> np.ndarray:
    """What each place of a kernel meets, where the padding counts as zeros.

    Args:
        values: Input of a convolution, shape (batch, height, width, channels).
        geometry: Of the kernel.
        most: Output positions of a batch that are taken at most.
        transposed: For a transposed convolution, which reads only some places of the kernel at a position.

    Returns:
        Shape (positions, places in the kernel, channels).
    """
    height, width = geometry.output
    at = np.divmod(spread_places(height * width, most), width)
    rows, columns = (
        rows_met(at[axis], values.shape[1 + axis], geometry, axis, transposed=transposed).T for axis in (0, 1)
    )
    is_padding = (rows == values.shape[1])[:, :, None] | (columns == values.shape[2])[:, None, :]
    met = values[:, rows[:, :, None] % values.shape[1], columns[:, None, :] % values.shape[2]]
    met[:, is_padding] = 0.0
    return np.asarray(met.reshape(-1, is_padding[0].size, values.shape[-1]))
