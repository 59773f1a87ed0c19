"""Where the parts of a figure go: limits of an axis, and labels that do not cover each other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.text import Annotation, Text

_RADII = (16.0, 26.0, 38.0, 52.0, 70.0, 92.0, 118.0)
_ANGLES = np.radians(np.arange(16) * 22.5)


def view(
    core: Sequence[float],
    extra: Iterable[float],
    *,
    reach: float,
    within: tuple[float, float] = (-math.inf, math.inf),
) -> tuple[float, float]:
    """Limits of an axis that show all core values, and the extra ones that lie near them.

    Args:
        core: Values that must be seen; if empty, all extra values are core.
        extra: Values that are seen if they lie within ``reach`` spans of the core.
        reach: How far the view may grow beyond the core on either side, in spans of the core.
        within: What is possible: the axis shows no more.

    Returns:
        Low and high with a margin, low < high.
    """
    others = list(extra)
    inner = list(core) or others or [0.0]
    low, high = min(inner), max(inner)
    span = high - low
    near = [v for v in others if not span or low - reach * span <= v <= high + reach * span]
    low, high = min([low, *near]), max([high, *near])
    margin = 0.08 * (high - low) or 0.08 * abs(high) or 1.0
    return max(low - margin, within[0]), min(high + margin, within[1])


def name_point(
    axes: Axes, text: str, point: tuple[float, float], *, color: str = "#000000", fontsize: float = 9.0
) -> Annotation:
    """Name a point; :func:`place_labels` moves the name to a free place, with a line to the point."""
    return axes.annotate(
        text,
        point,
        xytext=(0.0, 0.0),
        textcoords="offset points",
        ha="center",
        va="center",
        fontsize=fontsize,
        color=color,
        zorder=8,
        annotation_clip=False,
        parse_math=False,
        bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.85},
        arrowprops={"arrowstyle": "-", "color": "#666666", "linewidth": 0.8, "shrinkA": 1, "shrinkB": 4},
    )


def place_labels(
    axes: Axes,
    labels: Sequence[Annotation],
    markers: Sequence[tuple[float, float]],
    *,
    dots: float,
) -> None:
    """Move each label to the place near its point where it covers least.

    Args:
        axes: Where the labels are; its limits are final.
        labels: Centred annotations with ``xytext`` in offset points; the first ones choose first.
        markers: Points in data coordinates that no label should cover.
        dots: Display dots per point.
    """
    marker_radius = 4.5
    if not labels:
        return
    centres = axes.transData.transform(np.asarray(markers, dtype=np.float64).reshape(-1, 2))
    dodged = np.hstack([centres - marker_radius * dots, centres + marker_radius * dots])
    placed = np.empty((0, 4))
    for label in labels:
        point = axes.transData.transform(label.xy)
        size = Text.get_window_extent(label)  # without the arrow, which the annotation's own extent includes
        boxes = _boxes_around(point, (float(size.width), float(size.height)), dots)
        best = boxes[np.argmin(_costs(boxes, point, np.asarray(axes.bbox.extents), placed, dodged))]
        label.set_position(tuple(((best[:2] + best[2:]) / 2 - point) / dots))
        placed = np.vstack([placed, best])


def _boxes_around(point: np.ndarray, size: tuple[float, float], dots: float) -> np.ndarray:
    """Places for a text: shape (n_places, 4), x0, y0, x1, y1 in display coordinates, nearest first."""
    radius, angle = (grid.ravel() for grid in np.meshgrid(_RADII, _ANGLES, indexing="ij"))
    half = np.asarray(size) / 2
    outwards = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    centres = point + outwards * (radius[:, None] * dots + half)
    return np.hstack([centres - half, centres + half])


def _costs(
    boxes: np.ndarray, point: np.ndarray, frame: np.ndarray, placed: np.ndarray, markers: np.ndarray
) -> np.ndarray:
    """How bad each box is: other labels and the frame count most, then markers, then the distance."""
    label_gap = 4.0
    gap = np.array([-label_gap, -label_gap, label_gap, label_gap])
    area = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    covered = _shared_areas(boxes + gap, placed).sum(axis=1)
    outside = area - _shared_areas(boxes, frame[None, :]).sum(axis=1)
    hidden = _shared_areas(boxes, markers).sum(axis=1)
    nearest = np.clip(point, boxes[:, :2], boxes[:, 2:])
    steps = point + (nearest - point)[:, None, :] * np.linspace(0.25, 1.0, 8)[None, :, None]
    crossed = _count_inside(steps, placed) + _count_inside(steps, markers)
    distance = np.linalg.norm((boxes[:, :2] + boxes[:, 2:]) / 2 - point, axis=1)
    return np.asarray(100 * covered + 100 * outside + 4 * hidden + 40 * crossed + distance)


def _shared_areas(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Areas that boxes share with others: shape (n_boxes, n_others)."""
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    return np.asarray(np.prod(np.clip(high - low, 0.0, None), axis=2))


def _count_inside(steps: np.ndarray, others: np.ndarray) -> np.ndarray:
    """How many steps of each line lie inside other boxes: shape (n_lines,)."""
    above = np.all(steps[:, :, None, :] >= others[None, None, :, :2], axis=3)
    below = np.all(steps[:, :, None, :] <= others[None, None, :, 2:], axis=3)
    return np.asarray((above & below).sum(axis=(1, 2)))
