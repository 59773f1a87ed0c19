"""Figures of a diagnosis: its worst nodes as bars, and how far errors travel as a line; computes no figures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator

from autoselect.domain.layers import HEALTHY_RMSE_PER_SCALE, SUSPICIOUS_RMSE_PER_SCALE
from autoselect.report.figures import drawing
from autoselect.report.figures.layer_bars import FAINT, color_of, opacity_of
from autoselect.report.figures.layout import name_point, place_labels, view
from autoselect.report.tables.layer_rows import Suspect, Table, column, is_accumulated, op_type, records, worst


def travel_figure(table: pd.DataFrame | Table) -> Figure:
    """Draw ``travel_nsr``, ``travel_rmse/scale`` and ``error_growth`` by node; mark where the growth is largest.

    Args:
        table: The wide layer table of a diagnosis of the whole model, in graph order.

    Returns:
        A figure 1200 dots wide with three panels, or with a note where the columns are missing or empty.
    """
    rows = records(table)
    named = len(rows) <= drawing.NAMED_NODES
    figure = drawing.sheet(9.4 if named else 8.2)
    drawing.headline(figure, "The error on its way through the graph; marked: where it grows most")
    if not np.isfinite(column(rows, "travel_nsr")).any():
        return drawing.note(figure, "No accumulated error was measured.")
    power, steps, growth = figure.subplots(3, 1, sharex=True, height_ratios=[3, 2, 2.4])
    drawing.frame(figure, left=1.25, right=1.1, top=0.55, bottom=0.75)
    places = _steepest(column(rows, "error_growth"))
    _draw_power(power, rows, places)
    _draw_steps(steps, rows, places)
    _draw_growth(growth, rows, places)
    drawing.set_node_ticks(growth, rows)
    drawing.fit_names(figure, growth)
    _name_steepest(growth, rows, places)
    return figure


def _steepest(growth: np.ndarray) -> list[int]:
    """Rows of the largest growth above 1, largest first."""
    known = [int(place) for place in np.argsort(-growth, kind="stable") if growth[place] > 1]
    return known[:3]


def _draw_power(axes: Axes, rows: Table, places: list[int]) -> None:
    values = column(rows, "travel_nsr")
    positive = values[values > 0] if (values > 0).any() else np.ones(1)
    drawing.set_decades(axes, positive.min() / 2, positive.max() * 2)
    _draw_line(axes, values, "travel_nsr", places)
    if axes.get_ylim()[1] > 1:
        drawing.draw_threshold(axes, 1.0, "1: as strong\nas the signal", color=drawing.GREY)
    axes.set_ylabel("accumulated error:\npower over signal power", fontsize=10.5)
    drawing.tidy(axes)


def _draw_steps(axes: Axes, rows: Table, places: list[int]) -> None:
    values = column(rows, "travel_rmse/scale")
    drawing.set_values(axes, values)
    _draw_line(axes, values, "travel_rmse/scale", places)
    axes.set_ylabel("accumulated error\nin steps (rmse/scale)", fontsize=10.5)
    drawing.tidy(axes)


def _draw_line(axes: Axes, values: np.ndarray, what: str, places: list[int]) -> None:
    """A line through the nodes; gaps where there is no figure, the marked nodes in their colour."""
    marker = "o" if len(values) <= drawing.MANY_NODES else ""
    xs = np.arange(len(values))
    axes.plot(xs, values, color=drawing.BLUE, linewidth=1.3, marker=marker, markersize=3.5, gid=what, zorder=2)
    drawing.dots(
        axes,
        zip(places, values[places], strict=True),
        marker="o",
        markersize=7,
        color=drawing.VERMILION,
        markeredgecolor="white",
        gid=f"{what} marked",
        zorder=4,
    )
    for place in places:
        axes.axvline(place, color=drawing.VERMILION, linewidth=0.8, alpha=0.5, zorder=1)


def _draw_growth(axes: Axes, rows: Table, places: list[int]) -> None:
    """Bars from 1, where the error neither grows nor shrinks."""
    values = column(rows, "error_growth")
    positive = [1.0, *values[values > 0].tolist()]
    # Lowest growth that the axis shows.
    drawing.set_decades(axes, max(min(positive), 1e-3) / 1.5, max(positive) * 1.5)
    bars = axes.bar(
        np.arange(len(rows)), values - 1.0, bottom=1.0, width=drawing.bar_width(len(rows)), linewidth=0, zorder=2
    )
    for place, bar in enumerate(bars):
        bar.set_facecolor(drawing.VERMILION if place in places else drawing.BLUE)
    drawing.draw_threshold(axes, 1.0, "1: as it\ncame in", color=drawing.GREY)
    for place in places:
        axes.axvline(place, color=drawing.VERMILION, linewidth=0.8, alpha=0.5, zorder=1)
    axes.set_ylabel("growth of that power\nin this node", fontsize=10.5)
    drawing.tidy(axes)


def _name_steepest(axes: Axes, rows: Table, places: list[int]) -> None:
    if not places:
        return
    drawing.raise_ceiling(axes, 0.45)
    values = column(rows, "error_growth")
    labels = [
        name_point(
            axes,
            f"{drawing.label_of(rows, place, 30)}  × {values[place]:.3g}",
            (float(place), float(values[place])),
        )
        for place in places
    ]
    place_labels(axes, labels, drawing.bar_points(axes, values), dots=drawing.DOTS_PER_INCH / 72)


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
    found = [name for name in _ABLATIONS if np.isfinite(column([s.row for s in suspects], name)).any()]
    panels = figure.subplots(1, 1 + len(found), sharey=True, squeeze=False, width_ratios=[1.6, *(1.0 for _ in found)])
    drawing.frame(figure, left=0.5, right=0.35, top=0.85, bottom=0.85)
    figure.subplots_adjust(wspace=0.22)
    _draw_errors(panels[0, 0], suspects)
    _set_names(panels[0, 0], rows, suspects)
    drawing.fit_names(figure, panels[0, 0])
    for axes, name in zip(panels[0, 1:], found, strict=True):
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
