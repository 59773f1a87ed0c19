"""Rows as Markdown and as a picture; runs no model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd

LIMITS = (0.005, 0.01, 0.02)
"""Of top-1 that may be lost, on the search samples."""
UNLIKE = 0.05
"""Share of samples that a model may answer otherwise than float."""
PUBLISHED = ((60, 62), (110, 114), (70, 72), (90, 91))
"""Nodes that SeQTO leaves out, of all, before its models answer less than :data:`UNLIKE` otherwise."""

TICKS = (-2, 0, 2, 5, 10, 20, 50, 100)


def table_of(rows: pd.DataFrame) -> str:
    """What each way finds at each limit, and the single models, as Markdown."""
    lines = []
    for mode, part in rows.groupby("mode", sort=False):
        points = [f"{100 * limit:g}" for limit in LIMITS]
        heads = [
            "tool",
            "seeds",
            "evaluations",
            "seconds",
            *(f"at {point}: penalty, kB, points lost" for point in points),
        ]
        lines += [f"**{mode}**, limits on the search images", "", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        for tool, own in part[part["part"] == "limits"].groupby("tool", sort=False):
            by_limit = own.set_index("limit")
            common = [str(int(own["runs"].iloc[0])), *(_each(own[name]) for name in ("evaluations", "seconds"))]
            cells = [_model(by_limit.loc[limit].to_dict()) for limit in LIMITS]
            lines.append(f"| {' | '.join([str(tool), *common, *cells])} |")
        lines += [
            "",
            f"**{mode}**, single models",
            "",
            "| model | top-1, % | points lost | unlike float, % | int8 of 28 | penalty | kB |".replace(
                "28", f"{part['weighted_ops'].max():.0f}"
            ),
            "|---" * 7 + "|",
        ]
        for row in part[part["part"] == "models"].to_dict("records"):
            figures = [f"{100 * row['top1']:.1f}", _points(row), f"{100 * row['unlike']:.1f}"]
            costs = [f"{row['weighted_int8']:.0f}", f"{row['penalty']:.1f}", f"{row['size_bytes'] / 1000:.0f}"]
            lines.append(f"| {' | '.join([row['tool'], *figures, *costs])} |")
        lines.append("")
    return "\n".join([*lines, *_shares(rows[rows["part"] == "shares"])])


def _shares(rows: pd.DataFrame) -> list[str]:
    """How many ops each way leaves out until its answers are close to float's, beside what is published."""
    modes = list(rows["mode"].unique())
    lines = [
        f"Ops left out when less than {100 * UNLIKE:g} % of the held-out answers are unlike float's",
        "",
        f"| tool | {' | '.join(modes)} |",
        "|---" * (1 + len(modes)) + "|",
    ]
    for tool, own in rows.groupby("tool", sort=False):
        by_mode = own.set_index("mode")
        lines.append(f"| {tool} | {' | '.join(_left_out(by_mode.loc[mode].to_dict()) for mode in modes)} |")
    published = ", ".join(f"{left_out} of {count}" for left_out, count in PUBLISHED)
    return [*lines, f"| SeQTO, published, on models of its own | {' | '.join([published] * len(modes))} |", ""]


def _left_out(row: Mapping[Any, Any]) -> str:
    return "not reached" if pd.isna(row["left_out"]) else f"{row['left_out']:.0f} of {row['ops']:.0f}"


def _each(values: pd.Series) -> str:
    """One figure if all limits share it."""
    return " / ".join(dict.fromkeys(f"{value:.0f}" for value in values))


def _model(row: Mapping[Any, Any]) -> str:
    if not row["found"]:
        return "none"
    spread = (
        "" if row["penalty_low"] == row["penalty_high"] else f" ({row['penalty_low']:.1f} to {row['penalty_high']:.1f})"
    )
    few = "" if row["found"] == row["runs"] else f", {row['found']:.0f} seeds"
    return f"{row['penalty']:.1f}{spread}, {row['size_bytes'] / 1000:.0f}, {_points(row)}{few}"


def _points(row: Mapping[Any, Any]) -> str:
    value, low, high = (round(100 * row[name], 1) + 0.0 for name in ("drop", "drop_low", "drop_high"))
    return f"{value:.1f} ({low:.1f} to {high:.1f})"


def draw(curve: pd.DataFrame, path: Path) -> None:
    """Points of top-1 lost, and answers unlike float's, over the share of ops that are left out."""
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    modes = list(curve["mode"].unique())
    figure, axes = plt.subplots(
        2, len(modes), figsize=(5.5 * len(modes), 7), squeeze=False, sharex=True, sharey="row", layout="constrained"
    )
    for column, mode in enumerate(modes):
        for axis, what in zip(axes[:, column], ("drop", "unlike"), strict=True):
            for tool, part in curve[curve["mode"] == mode].groupby("tool", sort=False):
                ordered = part.sort_values("share", kind="stable")
                axis.plot(ordered["share"], 100 * ordered[what], marker=".", label=tool)
            axis.set_yscale("symlog", linthresh=5)
            axis.set_yticks(TICKS, labels=map(str, TICKS))
            axis.minorticks_off()
            axis.grid(alpha=0.3)
        top, bottom = axes[:, column]
        top.set_title(mode)
        top.axhline(0.0, color="grey", linewidth=0.8)
        bottom.axhline(100 * UNLIKE, color="grey", linestyle=":")
        published = [left_out / count for left_out, count in PUBLISHED]
        bottom.plot(published, [100 * UNLIKE] * len(published), "kx", label="SeQTO, published")
        bottom.set_xlabel("share of ops left out of integers")
    axes[0, 0].set_ylabel("points of top-1 lost, held out")
    axes[1, 0].set_ylabel("unlike float, held out, %")
    axes[1, 0].legend(fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)
