"""How the front grew: its hypervolume after each trial, as a line; computes no figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from autoselect.report.figures import drawing
from autoselect.report.tables.volumes import volume_by_trial

_HEIGHT = 4.2


def history_figure(trials: pd.DataFrame, summary: Mapping[str, Any]) -> Figure:
    """Draw :func:`autoselect.report.tables.volumes.volume_by_trial`, the baselines marked."""
    figure = drawing.sheet(_HEIGHT)
    if trials.empty:
        return drawing.note(figure, "No trial has ended yet.")
    volumes = volume_by_trial(trials, summary)
    drawing.headline(figure, f"How much of its hypervolume the front had after each of {len(trials)} trials")
    axes = figure.subplots()
    drawing.frame(figure, left=0.85, right=0.4, top=0.6, bottom=0.75)
    axes.step(trials["number"], volumes, where="post", color=drawing.BLUE, gid="hypervolume")
    baselines = trials["origin"].astype(str).str.startswith("baseline:").to_numpy()
    drawing.dots(
        axes,
        zip(trials["number"][baselines], volumes[baselines], strict=True),
        marker="o",
        color=drawing.ORANGE,
        label="baseline",
        gid="baselines",
    )
    axes.set_xlabel("trial", fontsize=10)
    axes.set_ylabel("share of the last hypervolume   (more is better →)", fontsize=10)
    axes.set_ylim(0.0, 1.02)
    axes.legend(frameon=False, loc="lower right")
    drawing.tidy(axes, grid="both")
    return figure
