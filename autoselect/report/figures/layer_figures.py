"""Every node in graph order: its range and error as bars, and how far errors travel as a line; computes no figures."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure

from autoselect.domain.layers import HEALTHY_RMSE_PER_SCALE, SUSPICIOUS_RMSE_PER_SCALE
from autoselect.report.figures import drawing
from autoselect.report.figures.layout import name_point, place_labels
from autoselect.report.tables.frames import Record, Table, column, records
from autoselect.report.tables.layer_tables import ERROR, is_accumulated, worst

WIDE_RANGE = 255.0
"""The range of an int8 tensor of step 1: the line that the range is held against."""
FAINT = 0.4
"""Opacity of errors that are accumulated, not the node's own."""


def layers_figure(table: pd.DataFrame | Table) -> Figure:
    """Draw ``range`` above and ``rmse/scale`` below, sharing the nodes.

    Args:
        table: The wide layer table, in graph order; columns may be missing, cells empty.

    Returns:
        A figure 1200 dots wide with two panels, or with a note where no node has a figure.
    """
    rows = records(table)
    named = len(rows) <= drawing.NAMED_NODES
    figure = drawing.sheet(7.6 if named else 6.6)
    suspects = [suspect for suspect in worst(rows, len(rows)) if suspect.suspicious]
    drawing.headline(
        figure, f"{len(suspects)} of {len(rows)} nodes {'has' if len(suspects) == 1 else 'have'} a suspicious error"
    )
    if not np.isfinite(column(rows, ERROR)).any():
        return drawing.note(figure, "No node has a measured error.")
    above, below = figure.subplots(2, 1, sharex=True)
    drawing.frame(figure, left=0.85, right=1.25, top=0.6, bottom=0.75)
    _draw_ranges(above, rows)
    _draw_errors(below, rows)
    drawing.set_node_ticks(below, rows)
    drawing.fit_names(figure, below)
    _draw_key(figure, rows)
    names = {suspect.place: drawing.label_of(rows, suspect.place, 30) for suspect in suspects[:5]}
    _name_bars(below, column(rows, ERROR), names, 0.35)
    return figure


def _draw_ranges(axes: Axes, rows: Table) -> None:
    values = column(rows, "range")
    drawing.set_values(axes, values, (WIDE_RANGE,))
    _draw_bars(axes, rows, values, what="range")
    drawing.draw_threshold(axes, WIDE_RANGE, "255: step of 1", color=drawing.GREY)
    axes.set_ylabel("range (255 × scale)", fontsize=10.5)
    drawing.tidy(axes)


def _draw_errors(axes: Axes, rows: Table) -> None:
    values = column(rows, ERROR)
    drawing.set_values(axes, values, (HEALTHY_RMSE_PER_SCALE, SUSPICIOUS_RMSE_PER_SCALE))
    for bar, row in zip(_draw_bars(axes, rows, values, what=ERROR), rows, strict=True):
        bar.set_alpha(opacity_of(row))
    drawing.draw_threshold(axes, HEALTHY_RMSE_PER_SCALE, "0.289: healthy", color=drawing.GREEN, va="top")
    drawing.draw_threshold(axes, SUSPICIOUS_RMSE_PER_SCALE, "0.7: suspicious", color=drawing.VERMILION, va="bottom")
    axes.set_ylabel("error in steps (rmse/scale)", fontsize=10.5)
    drawing.tidy(axes)


def _draw_bars(axes: Axes, rows: Table, values: np.ndarray, *, what: str) -> BarContainer:
    bars = axes.bar(np.arange(len(rows)), values, width=drawing.bar_width(len(rows)), linewidth=0, zorder=2, label=what)
    for bar, error in zip(bars, column(rows, ERROR), strict=True):
        bar.set_facecolor(color_of(error))
    return bars


def color_of(error: float) -> str:
    """The colour of a node: suspicious or not."""
    return drawing.VERMILION if error > SUSPICIOUS_RMSE_PER_SCALE else drawing.BLUE


def opacity_of(row: Record) -> float:
    """How dark a node is: its own error, or an accumulated one."""
    return FAINT if is_accumulated(row) else 1.0


def _draw_key(figure: Figure, rows: Table) -> None:
    entries = [("as expected", drawing.BLUE, 1.0), ("suspicious", drawing.VERMILION, 1.0)]
    if any(is_accumulated(row) for row in rows):
        entries.append(("pale: error accumulated up to here", drawing.BLUE, FAINT))
    drawing.key(figure, entries)


def _name_bars(axes: Axes, values: np.ndarray, texts: Mapping[int, str], ceiling: float) -> None:
    """Write texts near bars, by the places of the bars; ``ceiling`` is the share of the panel that they get."""
    if not texts:
        return
    drawing.raise_ceiling(axes, ceiling)
    labels = [name_point(axes, text, (float(place), float(values[place]))) for place, text in texts.items()]
    place_labels(axes, labels, drawing.bar_points(axes, values), dots=drawing.DOTS_PER_INCH / 72)


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
    growths = column(rows, "error_growth")
    places = _steepest(growths)
    _draw_power(power, rows, places)
    _draw_steps(steps, rows, places)
    _draw_growth(growth, rows, places)
    drawing.set_node_ticks(growth, rows)
    drawing.fit_names(figure, growth)
    names = {place: f"{drawing.label_of(rows, place, 30)}  × {growths[place]:.3g}" for place in places}
    _name_bars(growth, growths, names, 0.45)
    return figure


def _steepest(growth: np.ndarray) -> list[int]:
    """Rows of the largest growth above 1, largest first."""
    places = [int(place) for place in np.argsort(-growth, kind="stable") if growth[place] > 1]
    return places[:3]


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
