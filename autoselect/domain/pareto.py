"""Dominance and hypervolume; everything here minimises."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def non_dominated(losses: np.ndarray) -> np.ndarray:
    """Mark the rows that no other row dominates.

    Args:
        losses: Shape (n_trials, n_objectives), float, lower is better. NaN is not allowed.

    Returns:
        Bool mask of shape (n_trials,). Equal rows are all kept, so ties do not depend on order.

    Raises:
        ValueError: If ``losses`` is not two-dimensional or holds a NaN.
    """
    losses = _checked(losses)
    keep = np.zeros(len(losses), dtype=bool)
    # Whoever dominates a row comes before it in this order.
    order = np.lexsort(losses.T[::-1]) if losses.size else np.arange(len(losses))
    # Rows that are compared at once with all rows that may dominate them.
    size = 256
    for start in range(0, len(losses), size):
        block = order[start : start + size]
        keep[block] = True
        rivals, rows = losses[order[: start + size]][keep[order[: start + size]]], losses[block]
        no_worse = np.all(rivals[:, None, :] <= rows[None, :, :], axis=2)
        better = np.any(rivals[:, None, :] < rows[None, :, :], axis=2)
        keep[block] = ~np.any(no_worse & better, axis=0)
    return keep


def whole_steps(values: np.ndarray, steps: Sequence[float]) -> np.ndarray:
    """Values down to whole steps; a value that is nearly a whole number of steps is that.

    Args:
        values: Shape (n, n_columns).
        steps: Of each column; with 0 a column stays as it is.

    Returns:
        Of the same shape and in the same units.
    """
    widths = np.asarray(steps, dtype=np.float64)
    units = np.where(widths > 0.0, widths, 1.0)
    # Share of a step that counts as an error of rounding.
    return np.where(widths > 0.0, np.floor(values / units + 1e-9) * units, values)


def hypervolume(losses: np.ndarray, reference: np.ndarray) -> float:
    """Volume that the rows dominate, up to a reference point.

    Args:
        losses: Shape (n_trials, n_objectives), float, lower is better.
        reference: Shape (n_objectives,). Rows that do not lie below it in every objective add nothing.

    Returns:
        The dominated volume, 0 for no rows.

    Raises:
        ValueError: If ``losses`` is not two-dimensional or holds a NaN.
    """
    losses = _checked(losses)
    losses = losses[np.all(losses < reference, axis=1)]
    if not len(losses):
        return 0.0
    return _volume(losses[non_dominated(losses)], np.asarray(reference, dtype=np.float64))


def _volume(front: np.ndarray, reference: np.ndarray) -> float:
    """Slice along the last objective; each slice is a problem with one objective less."""
    if front.shape[1] == 1:
        return float(reference[0] - front[:, 0].min())
    if front.shape[1] == 2:
        return _area(front, reference)
    order = np.argsort(front[:, -1], kind="stable")
    front = front[order]
    ends = np.append(front[1:, -1], reference[-1])
    total = 0.0
    for i, (start, end) in enumerate(zip(front[:, -1], ends, strict=True)):
        if end > start:
            slab = front[: i + 1, :-1]
            total += (end - start) * _volume(slab, reference[:-1])
    return float(total)


def _area(points: np.ndarray, reference: np.ndarray) -> float:
    """Below a staircase."""
    points = points[np.argsort(points[:, 0], kind="stable")]
    widths = np.diff(np.append(points[:, 0], reference[0]))
    return float(widths @ (reference[1] - np.minimum.accumulate(points[:, 1])))


def _checked(losses: np.ndarray) -> np.ndarray:
    losses = np.asarray(losses, dtype=np.float64)
    if losses.ndim != 2:
        raise ValueError(f"losses must have shape (n_trials, n_objectives), not {losses.shape}")
    if np.isnan(losses).any():
        raise ValueError("losses must not hold NaN")
    return losses
