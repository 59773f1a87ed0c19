"""How the front grew: the dominated volume after each trial, as rows and as a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from autoselect.domain.pareto import hypervolume
from autoselect.domain.quantities import DEFAULT_COSTS
from autoselect.report.figures import drawing
from autoselect.report.tables.frames import cost_columns

if TYPE_CHECKING:
    import pandas as pd

_HEIGHT = 4.2


def volume_by_trial(trials: pd.DataFrame, summary: Mapping[str, Any]) -> np.ndarray:
    """Share of the box that the models scored so far dominate.

    The box lies between no drop and no cost, and the largest drop of any trial, the size and the penalty of the float
    model, and of other objectives the largest value of any trial. A score above float's counts as no drop.

    Args:
        trials: The columns of ``trials.csv``.
        summary: The content of ``summary.json``.

    Returns:
        Shape (n_trials,), 0..1, never falling. Trials without a score and those beyond a limit add nothing.
    """
    base = summary["references"]["float"]
    columns = cost_columns(summary)
    losses = trials[["drop", *columns]].to_numpy(dtype=np.float64)
    losses[:, 0] = np.maximum(losses[:, 0], 0.0)
    counted = (trials["state"] == "complete").to_numpy() & (trials["feasible"].astype(str) == "True").to_numpy()
    largest = losses[counted].max(axis=0, initial=0.0)
    worst = [
        largest[0],
        *(base[c] if c in DEFAULT_COSTS else most for c, most in zip(columns, largest[1:], strict=True)),
    ]
    shares = losses / np.array([value or 1.0 for value in worst])
    # The worst of the trials is on the edge of the box, which dominates nothing: the edge is a little further out.
    edge = np.array([1.0 + 1e-9, *(1.0 if c in DEFAULT_COSTS else 1.0 + 1e-9 for c in columns)])
    volumes = np.zeros(len(trials))
    for i in range(len(trials)):
        seen = np.flatnonzero(counted[: i + 1])
        volumes[i] = volumes[i - 1] if not counted[i] and i else hypervolume(shares[seen], edge)
    return volumes


def history_figure(trials: pd.DataFrame, summary: Mapping[str, Any]) -> Figure:
    """Draw :func:`volume_by_trial`, the baselines marked.

    Returns:
        A figure 1200 dots wide.
    """
    figure = drawing.sheet(_HEIGHT)
    if trials.empty:
        return drawing.note(figure, "No trial has ended yet.")
    volumes = volume_by_trial(trials, summary)
    drawing.headline(figure, f"The front dominates {volumes[-1]:.1%} of the box after {len(trials)} trials")
    axes = figure.subplots()
    drawing.frame(figure, left=0.85, right=0.4, top=0.6, bottom=0.75)
    axes.step(trials["number"], volumes, where="post", color=drawing.BLUE, gid="dominated")
    baselines = trials["origin"].astype(str).str.startswith("baseline:").to_numpy()
    axes.plot(
        trials["number"][baselines],
        volumes[baselines],
        linestyle="none",
        marker="o",
        color=drawing.ORANGE,
        label="baseline",
        gid="baselines",
    )
    axes.set_xlabel("trial", fontsize=10)
    axes.set_ylabel("share of the box dominated   (more is better →)", fontsize=10)
    axes.set_ylim(0.0, 1.0)
    axes.legend(frameon=False, loc="lower right")
    axes.grid(color="#E6E6E6", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    return figure
