"""Pictures of a run: the metric against each other objective, how the hypervolume grew, what each limit recommends.

It computes no figures.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation

from autoselect.domain.quantities import BY_COLUMN, possible
from autoselect.domain.words import SHARES, label
from autoselect.report.figures import drawing
from autoselect.report.figures.layout import name_point, place_labels, view
from autoselect.report.tables.frames import (
    BYTE_COLUMNS,
    ModelRow,
    best_in_panel,
    cost_columns,
    format_cost,
    format_score,
    front_rows,
    reference_rows,
    target_name,
    trial_rows,
    volume_by_trial,
)
from autoselect.runs.files import write_bytes


def history_figure(trials: pd.DataFrame, summary: Mapping[str, Any]) -> Figure:
    """Draw :func:`autoselect.report.tables.frames.volume_by_trial`, the baselines marked."""
    figure = drawing.sheet(4.2)
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


_NAME_SIZE = 10.0
_TRIAL, _FRONT, _PICK = drawing.GREY, drawing.BLUE, drawing.ORANGE
_REFERENCES: Mapping[str, tuple[str, str, float]] = {
    "float": ("*", drawing.BLACK, 19.0),
    "fiq": ("s", drawing.VERMILION, 9.0),
    "fiq+repairs": ("D", drawing.ORANGE, 8.0),
    "int16": ("v", "#CC79A7", 9.0),
    "drq": ("^", drawing.GREEN, 9.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """What a panel draws."""

    trials: Sequence[ModelRow]
    front: Sequence[ModelRow]
    references: Sequence[ModelRow]
    summary: Mapping[str, Any]

    def known(self, column: str) -> _Shown:
        """The models of which a column is known."""
        kinds = (self.trials, self.front, self.references)
        trials, front, references = ([row for row in rows if row.cost(column) is not None] for rows in kinds)
        return replace(self, trials=trials, front=front, references=references)


def draw_pareto(trials: pd.DataFrame, front: pd.DataFrame, summary: Mapping[str, Any], path: Path) -> None:
    """Draw the front and write it as a PNG file.

    Raises:
        StorageError: If the file cannot be written.
    """
    figure = pareto_figure(trials, front, summary)
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=drawing.DOTS_PER_INCH)
    write_bytes(path, image.getvalue())


def pareto_figure(trials: pd.DataFrame, front: pd.DataFrame, summary: Mapping[str, Any]) -> Figure:
    """Draw the front; see :func:`draw_pareto`.

    Returns:
        A figure of 600 dots height with a panel for each objective but the metric, 1200 dots wide or, with three
        panels, 1800.
    """
    panel_inches = 6.0
    shown = _Shown(
        trials=trial_rows(trials, summary),
        front=front_rows(front, summary),
        references=reference_rows(summary),
        summary=summary,
    )
    columns = cost_columns(summary)
    width = max(drawing.INCHES_WIDE, panel_inches * len(columns))
    figure = drawing.sheet(panel_inches, width)
    panels = list(figure.subplots(1, len(columns), sharey=True, squeeze=False)[0])
    figure.subplots_adjust(left=0.075, right=0.965, top=0.87, bottom=0.2, wspace=0.07)
    figure.suptitle(_title(shown), x=0.075, y=0.965, ha="left", fontsize=13)
    labels = [_draw_panel(axes, shown.known(column), column) for axes, column in zip(panels, columns, strict=True)]
    panels[0].set_ylabel(_score_axis(shown), fontsize=11)
    _draw_legend(figure, shown)
    for axes, (texts, markers) in zip(panels, labels, strict=True):
        place_labels(axes, texts, markers, dots=drawing.DOTS_PER_INCH / 72)
    return figure


def _draw_panel(axes: Axes, shown: _Shown, column: str) -> tuple[list[Annotation], list[tuple[float, float]]]:
    """Draw everything but the places of the labels; return these and the points to keep clear."""
    unit, name = _unit(shown, column)
    _set_view(axes, shown, column, unit)
    _draw_trials(axes, shown, column, unit)
    texts, markers = _draw_front(axes, shown, column, unit)
    for row in shown.references:
        if row.reference == "float":
            axes.axhline(row.score, color="#000000", linestyle=":", linewidth=1.0, zorder=1, gid="float level")
        text, marker = _draw_reference(axes, row, column, unit)
        texts.append(text)
        markers.append(marker)
    axes.set_xlabel(f"{name}   (← less is better)", fontsize=11)
    drawing.tidy(axes, grid="both")
    return texts, markers


def _set_view(axes: Axes, shown: _Shown, column: str, unit: float) -> None:
    xs = [_x(row, column, unit) for row in shown.front]
    other_xs = [_x(row, column, unit) for row in (*shown.references, *shown.trials)]
    ys = [row.score for row in (*shown.front, *shown.references)]
    metric = possible(str(shown.summary["metric"]))
    # References further away than this share of the front's width are drawn on the edge.
    axes.set_xlim(*view(xs, other_xs, reach=1.0, within=possible(column)))
    # Trials further below or above the front than this share of its height are out of view.
    axes.set_ylim(*view(ys, [row.score for row in shown.trials], reach=0.25, within=metric))


def _draw_trials(axes: Axes, shown: _Shown, column: str, unit: float) -> None:
    for feasible, marker in ((True, "o"), (False, "x")):
        rows = [row for row in shown.trials if row.feasible is feasible]
        drawing.dots(
            axes,
            ((_x(row, column, unit), row.score) for row in rows),
            marker=marker,
            markersize=5,
            markeredgewidth=1.0 if marker == "x" else 0.0,
            color=_TRIAL,
            alpha=0.45,
            zorder=2,
            gid="trials" if feasible else "trials beyond a limit",
        )


def _draw_front(
    axes: Axes, shown: _Shown, column: str, unit: float
) -> tuple[list[Annotation], list[tuple[float, float]]]:
    best = best_in_panel(shown.front, column, shown.summary)
    axes.plot(
        [_x(row, column, unit) for row in best],
        [row.score for row in best],
        drawstyle="steps-post",
        color=_FRONT,
        linewidth=1.4,
        alpha=0.7,
        zorder=3,
        gid="best in this panel",
    )
    points = [(_x(row, column, unit), row.score) for row in shown.front]
    _draw_members(axes, points, [bool(row.picks) for row in shown.front])
    texts = [
        name_point(axes, ", ".join(row.picks), point, fontsize=_NAME_SIZE)
        for row, point in zip(shown.front, points, strict=True)
        if row.picks
    ]
    return texts, points


def _draw_members(axes: Axes, points: Sequence[tuple[float, float]], picked: Sequence[bool]) -> None:
    for wanted, edge, size, gid in ((False, "white", 7.5, "front"), (True, _PICK, 10.0, "picks")):
        drawing.dots(
            axes,
            (point for point, is_pick in zip(points, picked, strict=True) if is_pick is wanted),
            marker="o",
            markersize=size,
            markerfacecolor=_FRONT,
            markeredgecolor=edge,
            markeredgewidth=2.4 if wanted else 0.8,
            zorder=5 if wanted else 4,
            clip_on=False,
            gid=gid,
        )


def _draw_reference(axes: Axes, row: ModelRow, column: str, unit: float) -> tuple[Annotation, tuple[float, float]]:
    """Draw a reference, on the edge with its value where it lies out of view."""
    marker, color, size = _REFERENCES[row.reference]
    value = _x(row, column, unit)
    low, high = axes.get_xlim()
    point = (min(max(value, low), high), row.score)
    drawing.dots(
        axes,
        [point],
        marker=marker,
        color=color,
        markersize=size,
        markeredgecolor="white",
        markeredgewidth=0.9,
        clip_on=False,
        zorder=6,
        gid=row.label,
    )
    text = row.label
    if value != point[0]:
        far = format_cost(column, row.cost(column)) if column in BYTE_COLUMNS else f"{row.cost(column):.3g}"
        text = f"{text}, at {far} →" if value > high else f"← {text}, at {far}"
    return name_point(axes, text, point, color=color, fontsize=_NAME_SIZE), point


def _draw_legend(figure: Figure, shown: _Shown) -> None:
    def dot(label: str, **style: Any) -> Line2D:
        return Line2D([], [], linestyle="none", label=label, **style)

    limits = [dot("beyond a limit", marker="x", color=_TRIAL)]
    entries = [
        dot(
            "tried (search samples)" if _held_out(shown) else "model tried",
            marker="o",
            color=_TRIAL,
            alpha=0.6,
            markersize=5,
        ),
        *(limits if any(not row.feasible for row in shown.trials) else []),
        dot("Pareto front", marker="o", color=_FRONT, markersize=7.5),
        dot("pick", marker="o", color=_FRONT, markeredgecolor=_PICK, markeredgewidth=2.4, markersize=10),
        Line2D([], [], color=_FRONT, linewidth=1.4, alpha=0.7, label=f"best up to this {_costs(shown)}"),
        *(
            dot(row.label, marker=_REFERENCES[row.reference][0], color=_REFERENCES[row.reference][1], markersize=9)
            for row in shown.references
        ),
    ]
    figure.legend(handles=entries, loc="lower center", ncols=len(entries), frameon=False, fontsize=9, columnspacing=1.0)


def _title(shown: _Shown) -> str:
    name = label(str(shown.summary["metric"]))
    text = f"The front shows {len(shown.front)} of {len(shown.trials)} models"
    base = next((row.score for row in shown.references if row.reference == "float"), None)
    return text if base is None else f"{text}; the float model has {name} {format_score(base)}"


def _score_axis(shown: _Shown) -> str:
    part, words = ("heldout", "held-out") if _held_out(shown) else ("search", "search")
    samples = (shown.summary.get("evaluated") or {}).get(part)
    where = f"{samples if samples else 'the'} {words} samples"
    better = "less" if shown.summary.get("direction") == "minimize" else "more"
    arrow = "←" if better == "less" else "→"
    return f"{label(str(shown.summary['metric']))} on {where}   ({better} is better {arrow})"


def _held_out(shown: _Shown) -> bool:
    return any(row.heldout is not None for row in shown.front)


def _costs(shown: _Shown) -> str:
    shorts = [BY_COLUMN[column].short for column in cost_columns(shown.summary)]
    return " or ".join(filter(None, (", ".join(shorts[:-1]), shorts[-1])))


def _unit(shown: _Shown, column: str) -> tuple[float, str]:
    """What the values are divided by, and the words of the axis."""
    label = BY_COLUMN[column].label
    if column == "penalty":
        return 1.0, f"{label}, {target_name(shown.summary)}"
    if column not in BYTE_COLUMNS:
        return 1.0, f"{label}{', noisy' if BY_COLUMN[column].noisy else ''}"
    rows = shown.front or (*shown.trials, *shown.references)
    large = max((_x(row, column, 1.0) for row in rows), default=0.0) >= 1e7
    return (1e6, f"{label.removesuffix(' bytes')} in MB") if large else (1e3, f"{label.removesuffix(' bytes')} in kB")


def _x(row: ModelRow, column: str, unit: float) -> float:
    value = row.cost(column)
    assert value is not None
    return value / unit


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
        _draw_limits(axes, table[table["target"] == target], metric, own)
        axes.set_title(drawing.drawable(str(target)), fontsize=10, loc="left")
    return figure


def _draw_limits(axes: Axes, rows: pd.DataFrame, metric: str, own: float) -> None:
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
    axes.set_ylabel("penalty   (less is better ↓)", fontsize=10)
    axes.set_ylim(bottom=0.0)
    axes.legend(frameon=False, loc="upper right")
    drawing.tidy(axes, grid="both")
