"""The values that an op's weights are multiplied with, for some of its output positions; knows arrays, no models."""

from __future__ import annotations

import numpy as np

from autoselect.quantize.repairing.mean_outputs import Geometry, rows_met

_GOLDEN = (5.0**0.5 - 1.0) / 2.0


def spread_places(count: int, most: int) -> np.ndarray:
    """So many of ``count`` places at most, spread evenly and out of step with rows: multiples of the golden ratio."""
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
