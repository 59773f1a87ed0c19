"""How the error grows on its way through the graph; computes no figures."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from autoselect.report.figures import drawing
from autoselect.report.figures.layout import name_point, place_labels
from autoselect.report.tables.layer_rows import Table, column, records

_MARKED = 3
_NAME = 30
_SHRUNK = 1e-3
"""Lowest growth that the axis shows."""


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
    return known[:_MARKED]


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
    drawing.set_decades(axes, max(min(positive), _SHRUNK) / 1.5, max(positive) * 1.5)
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
            axes, f"{drawing.label_of(rows, place, _NAME)}  × {values[place]:.3g}", (float(place), float(values[place]))
        )
        for place in places
    ]
    place_labels(axes, labels, drawing.bar_points(axes, values), dots=drawing.DOTS_PER_INCH / 72)
