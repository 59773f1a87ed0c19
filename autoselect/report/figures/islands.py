"""The ops of models in graph order as strips of colour, so that float islands are seen at a glance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from autoselect.domain.graph import OpKind
from autoselect.domain.looks import LOOKS, OF_NODES
from autoselect.report.figures.drawing import INCHES_WIDE, drawable, panel, sheet
from autoselect.report.tables.frames import format_penalty
from autoselect.report.tables.model_tables import labels

_LETTERED = set(OF_NODES) - {OpKind.INTEGER.value}
"""Kinds whose cells hold their mark, too: it serves prints without colour."""
_LEFT = 0.7


def islands_figure(models: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the ops of the main subgraph of each model.

    Returns:
        A figure 1200 dots wide with one panel a model, each as high as its strip needs.
    """
    kinds = [[op["kind"] for op in model["subgraphs"][0]["ops"]] for model in models]
    per_row = min(max([20, *map(len, kinds)]), 80)
    rows = [max(-(-len(strip) // per_row), 1) for strip in kinds]
    top, title_height, row_height = 0.7, 0.5, 0.3
    figure = sheet(top + 0.15 + sum(title_height + row_height * count for count in rows))
    for model, name, strip, count in zip(models, labels([str(m["path"]) for m in models]), kinds, rows, strict=True):
        axes = panel(
            figure,
            left=_LEFT,
            top=top + title_height,
            width=INCHES_WIDE - _LEFT - 0.25,
            height=row_height * count,
        )
        _draw_strip(axes, strip, per_row, count)
        title = f"{name}: {_counts(strip)}; penalty {format_penalty(model['fragmentation']['penalty'])}"
        axes.set_title(drawable(title), loc="left", fontsize=10.5, parse_math=False)
        top += title_height + row_height * count
    _draw_heading(figure, {kind for strip in kinds for kind in strip})
    return figure


def _draw_strip(axes: Axes, kinds: Sequence[str], per_row: int, rows: int) -> None:
    """Draw one op a cell, the first row on top."""
    for kind, look in LOOKS.items():
        if kind not in kinds:
            continue
        places = [(i % per_row, i // per_row) for i, op_kind in enumerate(kinds) if op_kind == kind]
        cells = [Rectangle((x, y + 0.14), 1.0, 0.72) for x, y in places]
        axes.add_collection(PatchCollection(cells, facecolor=look.colour, edgecolor="white", linewidth=0.8, gid=kind))
        for x, y in places if kind in _LETTERED else ():
            axes.text(x + 0.5, y + 0.5, look.mark, color=look.ink, fontsize=7, ha="center", va="center_baseline")
    axes.set_xlim(0, per_row)
    axes.set_ylim(rows, 0)
    axes.set_yticks([row + 0.5 for row in range(rows)], [str(row * per_row) for row in range(rows)], fontsize=8)
    axes.set_xticks([])
    axes.tick_params(length=0, colors="#666666")
    axes.spines[:].set_visible(False)


def _draw_heading(figure: Figure, kinds: set[str]) -> None:
    height = figure.get_figheight()
    figure.suptitle(
        "Ops in graph order, with the number of each row's first op",
        x=_LEFT / figure.get_figwidth(),
        y=1.0 - 0.15 / height,
        ha="left",
        va="top",
        fontsize=13,
    )
    handles = [Patch(facecolor=look.colour, label=look.word) for kind, look in LOOKS.items() if kind in kinds]
    figure.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=((_LEFT - 0.1) / figure.get_figwidth(), 1.0 - 0.42 / height),
        ncols=len(LOOKS),
        frameon=False,
        fontsize=10,
        handlelength=1.2,
    )


def _counts(kinds: Sequence[str]) -> str:
    counts = Counter(kinds)
    return ", ".join(f"{counts[kind]} {look.word}" for kind, look in LOOKS.items() if counts[kind]) or "no ops"
