"""Single nodes: the worst ones as bars, and the weights of one against the int8 step; computes no figures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator

from autoselect.domain.layers import HEALTHY_RMSE_PER_SCALE, SUSPICIOUS_RMSE_PER_SCALE
from autoselect.report.figures import drawing
from autoselect.report.figures.layer_figures import FAINT, color_of, opacity_of
from autoselect.report.figures.layout import view
from autoselect.report.tables.frames import Record, Table, column, number, records
from autoselect.report.tables.layer_tables import Suspect, cell_numbers, is_accumulated, name_of, op_type, worst

_ABLATIONS = {
    "leave_one_in": ("outputs' error with this\nnode alone in integers", "large: it harms by itself"),
    "leave_one_out": ("outputs' error with this\nnode alone left float", "small: it is to blame"),
}
_PAPER = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5}


def suspects_figure(table: pd.DataFrame | Table, count: int = 20) -> Figure:
    """Draw the nodes of largest ``rmse/scale``, worst on top.

    Args:
        table: The wide layer table; with ``leave_one_in`` or ``leave_one_out`` each of these gets a panel beside.
        count: How many nodes at most.

    Returns:
        A figure 1200 dots wide, as high as the nodes need, or with a note where no node has a figure.
    """
    rows = records(table)
    suspects = worst(rows, count)
    figure = drawing.sheet(2.0 + 0.27 * max(len(suspects), 4))
    drawing.headline(figure, f"Largest errors in steps: {len(suspects)} of {len(rows)} nodes")
    if not suspects:
        return drawing.note(figure, "No node has a measured error.")
    names = [name for name in _ABLATIONS if np.isfinite(column([s.row for s in suspects], name)).any()]
    panels = figure.subplots(1, 1 + len(names), sharey=True, squeeze=False, width_ratios=[1.6, *(1.0 for _ in names)])
    drawing.frame(figure, left=0.5, right=0.35, top=0.85, bottom=0.85)
    figure.subplots_adjust(wspace=0.22)
    _draw_errors(panels[0, 0], suspects)
    _set_names(panels[0, 0], rows, suspects)
    drawing.fit_names(figure, panels[0, 0])
    for axes, name in zip(panels[0, 1:], names, strict=True):
        _draw_ablation(axes, suspects, name)
    if any(is_accumulated(s.row) for s in suspects):
        drawing.key(figure, [("pale: error accumulated up to here", drawing.VERMILION, FAINT)])
    return figure


def _draw_errors(axes: Axes, suspects: Sequence[Suspect]) -> None:
    errors = np.array([s.error for s in suspects])
    drawing.set_values(axes, errors, (HEALTHY_RMSE_PER_SCALE, SUSPICIOUS_RMSE_PER_SCALE), along="x")
    bars = axes.barh(np.arange(len(suspects)), errors, height=0.72, linewidth=0, zorder=2)
    for bar, suspect in zip(bars, suspects, strict=True):
        bar.set_facecolor(color_of(suspect.error))
        bar.set_alpha(opacity_of(suspect.row))
    axes.bar_label(bars, [f"{error:.3g}" for error in errors], padding=3, fontsize=8.5, zorder=4, bbox=_PAPER)
    for value, color, text, side in (
        (HEALTHY_RMSE_PER_SCALE, drawing.GREEN, "healthy", "right"),
        (SUSPICIOUS_RMSE_PER_SCALE, drawing.VERMILION, "suspicious", "left"),
    ):
        axes.axvline(value, color=color, linestyle="--", linewidth=1.1, zorder=3, gid=f"threshold {text}")
        axes.text(
            value,
            1.0,
            f" {value:.3g}: {text} ",
            transform=axes.get_xaxis_transform(),
            ha=side,
            va="bottom",
            fontsize=9,
            color=color,
        )
    low, high = axes.get_xlim()
    axes.set_xlim(low, high * (high / low) ** 0.1 if axes.get_xscale() == "log" else high * 1.1)
    axes.set_xlabel("error in steps (rmse/scale)", fontsize=10)
    drawing.tidy(axes, grid="x")


def _set_names(axes: Axes, rows: Table, suspects: Sequence[Suspect]) -> None:
    texts = [f"{drawing.label_of(rows, s.place, 38)}   {drawing.drawable(op_type(s.row))}" for s in suspects]
    axes.set_yticks(range(len(suspects)), texts, fontsize=8.5, parse_math=False)
    axes.set_ylim(len(suspects) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)


def _draw_ablation(axes: Axes, suspects: Sequence[Suspect], name: str) -> None:
    values = column([s.row for s in suspects], name)
    _set_view(axes, values)
    drawing.dots(
        axes,
        zip(values, range(len(suspects)), strict=True),
        marker="o",
        markersize=7,
        color=drawing.BLACK,
        gid=name,
        clip_on=False,
        zorder=3,
    )
    below, above = _ABLATIONS[name]
    axes.set_xlabel(below, fontsize=10)
    axes.set_title(above, fontsize=9, color="#444444", pad=4)
    axes.tick_params(axis="y", length=0)
    drawing.tidy(axes, grid="both")


def _set_view(axes: Axes, values: np.ndarray) -> None:
    """Show the dots from end to end: their order counts, not their distance from 0."""
    positive = values[values > 0]
    # Values farther apart than this factor are drawn in decades.
    if positive.size and positive.max() / positive.min() > 20.0:
        drawing.set_decades(axes, positive.min() / 2, positive.max() * 2, along="x")
        axes.xaxis.set_major_locator(LogLocator(numticks=3))
        return
    axes.set_xlim(*view(values[np.isfinite(values)].tolist(), (), reach=0.0))
    axes.xaxis.set_major_locator(MaxNLocator(2))
    drawing.set_plain_numbers(axes, along="x")


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
        _draw_int8_steps(panels[1], scales, low.size)
    panels[-1].set_xlim(-0.7, low.size - 0.3)
    panels[-1].xaxis.get_major_locator().set_params(integer=True)
    panels[-1].set_xlabel(_channels_text(low.size, number(row.get("weight_range_ratio"))), fontsize=10)
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


def _draw_int8_steps(axes: Axes, scales: np.ndarray, channels: int) -> None:
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


def _channels_text(count: int, ratio: float | None) -> str:
    text = f"output channel, {count} in all"
    return text if ratio is None else f"{text}; the widest is {ratio:.3g} times the narrowest"
