"""The penalty that would be recommended at each allowed drop, with what resamples recommend; computes no figures."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from autoselect.domain.words import SHARES, label
from autoselect.report.figures import drawing


def limits_figure(table: pd.DataFrame, metric: str, own: float) -> Figure:
    """Draw a panel for each target of ``run.limits()``; the run's own allowed drop is marked."""
    table = table[table["penalty"].notna()]
    table = table.assign(target=table.get("target", ""))
    targets = list(dict.fromkeys(table["target"]))
    figure = drawing.sheet(4.2, max(6.0 * len(targets), drawing.INCHES_WIDE))
    drawing.headline(figure, "What would be recommended at each allowed drop")
    panels = figure.subplots(1, max(len(targets), 1), squeeze=False)[0]
    drawing.frame(figure, left=0.85, right=0.4, top=0.75, bottom=0.75)
    for axes, target in zip(panels, targets, strict=True):
        _draw(axes, table[table["target"] == target], metric, own)
        axes.set_title(drawing.drawable(str(target)), fontsize=10, loc="left")
    return figure


def _draw(axes: Axes, rows: pd.DataFrame, metric: str, own: float) -> None:
    scale = 100.0 if metric in SHARES else 1.0
    drops = scale * rows["allowed_drop"]
    if rows["penalty_low"].notna().all():
        axes.fill_between(
            drops,
            rows["penalty_low"],
            rows["penalty_high"],
            step="post",
            alpha=0.25,
            color=drawing.BLUE,
            linewidth=0.0,
            label="nine in ten resamples",
            gid="resamples",
        )
    axes.step(drops, rows["penalty"], where="post", color=drawing.BLUE, label="recommended", gid="recommended")
    axes.axvline(scale * own, color=drawing.ORANGE, linestyle="--", label="limit of the run", gid="limit")
    unit = "points" if metric in SHARES else label(metric)
    axes.set_xlabel(drawing.drawable(f"allowed drop, {unit}"), fontsize=10)
    axes.set_ylabel("penalty   (less is better →)".replace("→", "↓"), fontsize=10)
    axes.set_ylim(bottom=0.0)
    axes.legend(frameon=False, loc="upper right")
    drawing.tidy(axes, grid="both")
