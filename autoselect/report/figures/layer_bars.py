"""Range and error of every node in graph order, as bars; computes no figures."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure

from autoselect.domain.layers import HEALTHY_RMSE_PER_SCALE, SUSPICIOUS_RMSE_PER_SCALE
from autoselect.report.figures import drawing
from autoselect.report.figures.layout import name_point, place_labels
from autoselect.report.tables.layer_rows import ERROR, Record, Suspect, Table, column, is_accumulated, records, worst

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
    _name_worst(below, rows, suspects[:5])
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


def _name_worst(axes: Axes, rows: Table, suspects: list[Suspect]) -> None:
    if not suspects:
        return
    drawing.raise_ceiling(axes, 0.35)
    labels = [name_point(axes, drawing.label_of(rows, s.place, 30), (float(s.place), s.error)) for s in suspects]
    place_labels(axes, labels, drawing.bar_points(axes, column(rows, ERROR)), dots=drawing.DOTS_PER_INCH / 72)
