"""A classification report as a folder: its tables, its intervals and confusion matrices as figures; computes none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from autoselect.report.figures.drawing import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    VERMILION,
    dots,
    drawable,
    headline,
    panel,
    save,
    sheet,
    tidy,
)
from autoselect.report.figures.layout import view
from autoselect.report.tables.class_tables import (
    Report,
    frequent_confusions,
    interval_note,
    metric_words,
    of_models,
    ran,
    short_name,
)
from autoselect.runs.files import plain, write_json, write_table

TABLES: Mapping[str, tuple[str, ...]] = {
    "measures": ("model", "metric", "value", "low", "high"),
    "per_class": ("model", "number", "support", "answered", "precision", "recall", "f1", "agreement"),
    "confusion": ("model", "label", "answer", "count"),
    "disagreements": ("model", "index", "label", "float_answer", "float_probability", "answer", "probability"),
}
"""The columns of each table."""
_COLORS = (BLACK, BLUE, VERMILION, GREEN, ORANGE, "#CC79A7", "#56B4E9", GREY)
_MARKERS = "*osD^vP"
"""One fewer than the colours, so that both together tell many models apart."""


def write_class_report(report: Report, folder: Path) -> None:
    """Write a report; what is undefined is an empty cell, and null in ``report.json``.

    Raises:
        StorageError: If a file cannot be written.
    """
    content = plain(report)
    write_json(folder / "report.json", content)
    for name, columns in TABLES.items():
        write_table(folder / f"{name}.csv", columns, content[name])
    save(measures_figure(report), folder / "measures")
    save(confusion_figure(report), folder / "confusion")


def measures_figure(report: Report) -> Figure:
    """Draw each figure of each model as a mark with its interval as a bar."""
    # Share of a figure's band over which the models are spread.
    spread = 0.62
    names = ran(report)
    metrics = list(dict.fromkeys(row["metric"] for row in report["measures"]))
    figure = sheet(1.6 + len(metrics) * (0.35 + 0.2 * len(names)) + 0.25 * math.ceil(len(names) / 4))
    axes = figure.subplots()
    step = spread / max(len(names), 1)
    for place, name in enumerate(names):
        rows = {row["metric"]: row for row in of_models(report["measures"], [name])}
        ys = [metrics.index(metric) - spread / 2 + step * (place + 0.5) for metric in rows]
        _draw_marks(axes, name, place, list(rows.values()), ys)
    for edge in range(1, len(metrics)):
        axes.axhline(edge - 0.5, color="#D0D0D0", linewidth=0.8)
    axes.set_yticks(range(len(metrics)), [metric_words(metric) for metric in metrics], fontsize=11)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(metrics) - 0.5, -0.5)
    values = [row[key] for row in report["measures"] for key in ("value", "low", "high") if math.isfinite(row[key])]
    low, high = view(values, (), reach=0.0)
    low = min(low, high - 0.02)
    axes.set_xlim(low, high + 0.06 * (high - low))
    axes.set_xlabel("more is better →; bars are 95 % intervals", fontsize=11)
    tidy(axes, grid="x")
    title = f"{report['samples']} samples, {report['classes']} classes. {interval_note(report)}"
    _arrange(figure, axes, title.rstrip(". "), len(names))
    return figure


def _draw_marks(axes: Axes, name: str, place: int, rows: Sequence[Mapping[str, Any]], ys: Sequence[float]) -> None:
    color = _COLORS[place % len(_COLORS)]
    axes.hlines(ys, [r["low"] for r in rows], [r["high"] for r in rows], color=color, linewidth=2.0, alpha=0.55)
    dots(
        axes,
        zip([row["value"] for row in rows], ys, strict=True),
        marker=_MARKERS[place % len(_MARKERS)],
        color=color,
        markersize=8,
        label=drawable(short_name(name, 24)).replace("$", r"\$").lstrip("_"),
        gid=name,
    )
    for row, y in zip(rows, ys, strict=True):
        right = np.nanmax([row["value"], row["high"]])
        axes.annotate(
            f"{row['value']:.3f}",
            (right, y),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            color=color,
        )


def _arrange(figure: Figure, axes: Axes, title: str, count: int) -> None:
    height = figure.get_figheight()
    headline(figure, title)
    legend = 0.25 * math.ceil(count / 4)
    figure.subplots_adjust(left=0.165, right=0.975, top=1 - (0.65 + legend) / height, bottom=0.65 / height)
    figure.legend(
        loc="upper left",
        bbox_to_anchor=(0.0125, 1 - 0.5 / height),
        ncols=4,
        frameon=False,
        fontsize=10,
        borderaxespad=0.0,
    )


def confusion_figure(report: Report) -> Figure:
    """Draw the confusion matrix of each model: labels downwards, answers to the right.

    Returns:
        A figure 1200 dots wide. Up to 60 classes a cell's shade is the share of the label's samples, and up to 15 its
        count is written in it. Beyond, points stand for the cells that are not 0, and the most frequent wrong answers
        are listed below them.
    """
    room = 1.25
    names = ran(report)
    columns = min(len(names), 3)
    lines = math.ceil(len(names) / columns)
    # A matrix of more classes is drawn as points: a cell would be smaller than a dot.
    has_cells = report["classes"] <= 60
    side = min((12.0 - room * columns) / columns, 6.5)
    below = 0.75 if has_cells else 2.5
    figure = sheet(0.75 + lines * (side + 0.45 + below))
    for place, name in enumerate(names):
        line, column = divmod(place, columns)
        left, top = 0.85 + column * (side + room), 0.75 + line * (side + 0.45 + below) + 0.45
        axes = panel(figure, left=left, top=top, width=side, height=side)
        draw = _draw_cells if has_cells else _draw_points
        draw(axes, report, name, side)
        axes.set_title(drawable(short_name(name, int(side * 10))), loc="left", fontsize=11, parse_math=False)
        axes.set_xlabel("answer", fontsize=10)
        axes.set_ylabel("label", fontsize=10)
    headline(figure, _confusion_title(report, has_cells))
    return figure


def _confusion_title(report: Report, has_cells: bool) -> str:
    if has_cells:
        return "Confusion matrices: the darker, the larger a share of the label's samples"
    return (
        f"Confusion matrices of {report['classes']} classes: right answers blue, wrong ones red, larger where frequent"
    )


def _draw_cells(axes: Axes, report: Report, name: str, side: float) -> None:
    # Up to so many classes every cell says its count.
    counted_classes = 15
    count = report["classes"]
    matrix = np.zeros((count, count))
    for row in of_models(report["confusion"], [name]):
        matrix[row["label"], row["answer"]] = row["count"]
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1.0)
    # Shades go with the root of the share, so that rare answers are seen.
    axes.imshow(shares, cmap="Blues", norm=PowerNorm(0.5, 0.0, 1.0), aspect="equal", gid=name)
    axes.set_xticks(np.arange(count + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(count + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white" if count <= counted_classes else "#F2F2F2", linewidth=0.6)
    axes.tick_params(which="both", length=0)
    if count <= counted_classes:
        axes.set_xticks(range(count))
        axes.set_yticks(range(count))
        _write_counts(axes, matrix, shares, side)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(10, integer=True))


def _write_counts(axes: Axes, matrix: np.ndarray, shares: np.ndarray, side: float) -> None:
    """Write the counts into the cells, as large as the longest of them allows."""
    longest = len(f"{matrix.max():.0f}")
    size = min(72 * side / len(matrix) / (0.72 * longest + 0.5), 12.0)
    for label, answer in np.argwhere(matrix > 0):
        color = "white" if shares[label, answer] > 0.3 else BLACK  # Black is unreadable on a darker cell.
        axes.text(answer, label, f"{matrix[label, answer]:.0f}", ha="center", va="center", fontsize=size, color=color)


def _draw_points(axes: Axes, report: Report, name: str, side: float) -> None:
    rows = of_models(report["confusion"], [name])
    cells = np.array([[row["label"], row["answer"], row["count"]] for row in rows], dtype=np.float64)
    is_right = cells[:, 0] == cells[:, 1]
    for chosen, color, gid in ((cells[is_right], BLUE, "right"), (cells[~is_right], VERMILION, "wrong")):
        axes.scatter(
            chosen[:, 1],
            chosen[:, 0],
            s=3.0 + 40.0 * chosen[:, 2] / max(cells[:, 2].max(), 10.0),
            color=color,
            alpha=0.6,
            linewidths=0.0,
            rasterized=len(chosen) > 3000,
            gid=gid,
        )
    last = report["classes"] - 1
    axes.set_xlim(-0.02 * last, 1.02 * last)
    axes.set_ylim(1.02 * last, -0.02 * last)
    axes.grid(color="#E6E6E6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    _list_confusions(axes, report, name, side)


def _list_confusions(axes: Axes, report: Report, name: str, side: float) -> None:
    counts = {(row["label"], row["answer"]): row["count"] for row in of_models(report["confusion"], [name])}
    pairs = frequent_confusions(report, [name], 8)
    lines = [f"{label:>5} → {answer:<5} {counts[label, answer]:>5}" for label, answer in pairs]
    text = "\n".join(["label → answer  samples", *lines] if lines else ["no wrong answers"])
    axes.text(0.0, -0.55 / side, text, transform=axes.transAxes, ha="left", va="top", fontsize=9, family="monospace")
