"""The weights of one node, channel by channel, against the int8 step; computes no figures."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from autoselect.report.figures import drawing
from autoselect.report.figures.layout import view
from autoselect.report.tables.frames import number
from autoselect.report.tables.layer_rows import Record, cell_numbers, name_of, op_type


def weights_figure(row: Record) -> Figure:
    """Draw the range of each channel above, and below the step of its int8 weights where it is known.

    Args:
        row: One node: ``weight_minima`` and ``weight_maxima`` of each output channel, ``weight_scales`` of each
            channel or of the tensor.

    Returns:
        A figure 1200 dots wide with one or two panels, or with a note where the node has no weights.
    """
    low, high = cell_numbers(row, "weight_minima"), cell_numbers(row, "weight_maxima")
    scales = cell_numbers(row, "weight_scales")
    figure = drawing.sheet(6.6 if scales.size else 4.6)
    figure.text(
        0.02,
        1.0 - 0.2 / figure.get_figheight(),
        drawing.drawable(f"Weights of {name_of(row, 60)}   {op_type(row)}"),
        va="top",
        fontsize=13,
        parse_math=False,
    )
    if not low.size or low.size != high.size:
        return drawing.note(figure, "This node has no weights.")
    panels = figure.subplots(2 if scales.size else 1, 1, sharex=True, squeeze=False)[:, 0]
    drawing.frame(figure, left=1.25, right=0.5, top=0.65, bottom=0.75)
    _draw_ranges(panels[0], low, high)
    if scales.size:
        _draw_steps(panels[1], scales, low.size)
    panels[-1].set_xlim(-0.7, low.size - 0.3)
    panels[-1].xaxis.get_major_locator().set_params(integer=True)
    panels[-1].set_xlabel(_channels(low.size, number(row.get("weight_range_ratio"))), fontsize=10)
    return figure


def _draw_ranges(axes: Axes, low: np.ndarray, high: np.ndarray) -> None:
    """Thick lines instead of bars: of thousands, each stays as wide as a dot."""
    points_wide = axes.bbox.width / drawing.DOTS_PER_INCH * 72
    width = max(0.8 * points_wide / (low.size + 0.4), 0.8)
    axes.vlines(
        np.arange(low.size), low, high, color=drawing.BLUE, linewidth=width, capstyle="butt", zorder=2, gid="range"
    )
    axes.set_ylim(*view([*low.tolist(), *high.tolist()], (), reach=0.0))
    axes.axhline(0.0, color=drawing.BLACK, linewidth=0.6, zorder=1)
    axes.set_ylabel("float weights,\nsmallest to largest", fontsize=10.5)
    drawing.tidy(axes)


def _draw_steps(axes: Axes, scales: np.ndarray, channels: int) -> None:
    drawing.set_values(axes, scales)
    if scales.size == channels:
        edges = np.arange(channels + 1) - 0.5
        width = 1.4 if channels <= drawing.MANY_NODES else 0.7
        axes.stairs(scales, edges, baseline=None, color=drawing.VERMILION, linewidth=width, zorder=2, gid="steps")
    else:
        for scale in scales:
            axes.axhline(float(scale), color=drawing.VERMILION, linewidth=1.6, zorder=2, gid="step of the tensor")
    kind = "of each channel" if scales.size == channels else "of the whole tensor"
    axes.set_ylabel(f"int8 step\n{kind}", fontsize=10.5)
    drawing.tidy(axes)


def _channels(count: int, ratio: float | None) -> str:
    told = f"output channel, {count} in all"
    return told if ratio is None else f"{told}; the widest is {ratio:.3g} times the narrowest"
