"""What the figures of a diagnosis share: paper, colours, axes, names as plain text, and the two files."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from autoselect.report.tables.frames import Table
from autoselect.report.tables.layer_tables import common_folder, cut_middle, name_of, node_number
from autoselect.runs.files import write_bytes

# Okabe and Ito's colours, which readers with any common colour vision tell apart.
BLUE, ORANGE, VERMILION, GREEN, BLACK, GREY = "#0072B2", "#E69F00", "#D55E00", "#009E73", "#000000", "#8C8C8C"

DOTS_PER_INCH = 100
INCHES_WIDE = 12.0
NAMED_NODES = 40
"""The most nodes that stand on the x axis by name."""
MANY_NODES = 150
"""More nodes than this leave no room for gaps between bars, nor for dots on lines."""


def sheet(height: float, width: float = INCHES_WIDE) -> Figure:
    """An empty figure of so many inches, 1200 dots wide by default, ready to be measured."""
    figure = Figure(figsize=(width, height), dpi=DOTS_PER_INCH)
    FigureCanvasAgg(figure)
    return figure


def panel(figure: Figure, *, left: float, top: float, width: float, height: float) -> Axes:
    """A panel of this size, so many inches from the left and from the top of the figure."""
    across, down = figure.get_size_inches()
    return figure.add_axes((left / across, 1.0 - (top + height) / down, width / across, height / down))


def save(figure: Figure, stem: Path) -> tuple[Path, Path]:
    """Write a figure as PNG and as SVG; equal figures give equal bytes.

    Returns:
        The PNG and the SVG file, each written whole or not at all.

    Raises:
        StorageError: If a file cannot be written.
    """
    paths = stem.with_name(f"{stem.name}.png"), stem.with_name(f"{stem.name}.svg")
    with mpl.rc_context({"svg.hashsalt": "autoselect", "svg.fonttype": "path"}):
        for path, kind, metadata in zip(paths, ("png", "svg"), ({}, {"Date": None}), strict=True):
            image = io.BytesIO()
            figure.savefig(image, format=kind, dpi=DOTS_PER_INCH, metadata=metadata)
            write_bytes(path, image.getvalue())
    return paths


@cache
def _glyphs() -> frozenset[int]:
    return frozenset(get_font(findfont(FontProperties())).get_charmap())


def drawable(text: str) -> str:
    """The text with ``?`` for what the font cannot draw."""
    return "".join(char if ord(char) in _glyphs() else "?" for char in text)


def label_of(rows: Table, place: int, limit: int) -> str:
    """A node's name, at most ``limit`` characters that can be drawn, with its number, which no other node has.

    A name that is too long first loses the folder that most names of the table lie in, then its middle.
    """
    name = name_of(rows[place])
    if len(name) > limit:
        folder = common_folder(rows)
        name = cut_middle(f"…/{name.removeprefix(folder)}" if folder and name.startswith(folder) else name, limit)
    return f"{drawable(name)} #{node_number(rows[place], place)}"


def headline(figure: Figure, text: str) -> None:
    """Write what the figure shows above it, on the left."""
    figure.suptitle(text, x=0.02, y=1.0 - 0.2 / figure.get_figheight(), ha="left", va="top", fontsize=13)


def note(figure: Figure, text: str) -> Figure:
    """Write why there is nothing to draw."""
    figure.text(0.5, 0.45, drawable(text), ha="center", va="center", fontsize=12, color="#444444", parse_math=False)
    return figure


def tidy(axes: Axes, *, grid: str = "y") -> None:
    """Give a panel the project's frame and grid."""
    axes.grid(color="#E6E6E6", linewidth=0.8, axis=grid)  # type: ignore[arg-type]
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def dots(axes: Axes, points: Iterable[tuple[float, float]], **style: Any) -> None:
    """Draw marks without a line between them."""
    xs, ys = np.array(list(points), dtype=np.float64).reshape(-1, 2).T
    axes.plot(xs, ys, linestyle="none", **style)


def set_values(axes: Axes, values: np.ndarray, marks: Sequence[float] = (), *, along: str = "y") -> None:
    """Choose scale and limits of a value axis: in decades where the spread asks for it, else from 0.

    Args:
        axes: The panel.
        values: Of the bars, any shape; NaN is allowed.
        marks: Positive values of lines that must be seen too.
        along: ``y`` or ``x``.
    """
    positive = values[np.isfinite(values) & (values > 0)]
    high = max([*positive.tolist(), *marks], default=1.0)
    # A linear axis whose median bar would be lower than this part of the highest shows nothing: draw it in decades.
    if positive.size and high / float(np.median(positive)) > 20.0:
        low = min([*positive.tolist(), *marks])
        # Decades shown below the highest value; what is smaller still ends on the axis.
        set_decades(axes, max(low, high * 1e-6) / 2, high * 2, along=along)
    else:
        axes.set(**{f"{along}lim": (0.0, high * 1.12)})


def set_decades(axes: Axes, low: float, high: float, *, along: str = "y") -> None:
    """Make a value axis logarithmic, with plain numbers on it; zeros end on the axis."""
    scale, axis = (axes.set_yscale, axes.yaxis) if along == "y" else (axes.set_xscale, axes.xaxis)
    scale("log", nonpositive="clip")
    axes.set(**{f"{along}lim": (low, high)})
    axis.set_major_locator(LogLocator(subs=(1.0,) if high / low > 200.0 else (1.0, 2.0, 5.0)))
    axis.set_minor_locator(NullLocator())
    set_plain_numbers(axes, along=along)


def set_plain_numbers(axes: Axes, *, along: str) -> None:
    """Write the numbers of an axis without common factors or powers, as short as they are exact."""
    (axes.yaxis if along == "y" else axes.xaxis).set_major_formatter(FuncFormatter(lambda value, _: f"{value:.6g}"))


def raise_ceiling(axes: Axes, share: float) -> None:
    """Make room for labels above the bars: ``share`` of the panel's height, on either scale."""
    low, high = axes.get_ylim()
    if axes.get_yscale() == "log":
        set_decades(axes, low, high * (high / low) ** (share / (1 - share)))
    else:
        axes.set_ylim(low, high + (high - low) * share / (1 - share))


def draw_threshold(
    axes: Axes, value: float, text: str, *, color: str, va: Literal["center", "top", "bottom"] = "center"
) -> None:
    """Draw a horizontal line with its words in the right margin.

    Args:
        axes: The panel.
        value: Where the line is.
        text: What it means, one or two short lines.
        color: Of line and words.
        va: Which part of the words is at the line's height; not the centre where another line is near.
    """
    axes.axhline(value, color=color, linestyle="--", linewidth=1.1, zorder=3, gid=f"threshold {text}")
    axes.annotate(
        text,
        (1.0, value),
        xycoords=axes.get_yaxis_transform(),
        xytext=(5, 0),
        textcoords="offset points",
        va=va,
        fontsize=9,
        color=color,
        annotation_clip=False,
    )


def set_node_ticks(axes: Axes, rows: Table) -> None:
    """Label the nodes on the x axis: by name where there is room, else every so many by number."""
    axes.set_xlim(-0.7, len(rows) - 0.3)
    if len(rows) <= NAMED_NODES:
        texts = [label_of(rows, place, 26) for place in range(len(rows))]
        axes.set_xticks(range(len(rows)), texts, rotation=90, fontsize=8, parse_math=False)
        axes.set_xlabel("node, in graph order", fontsize=10)
        return
    steps = (step * 10**power for power in range(9) for step in (1, 2, 5))
    step = next(step for step in steps if len(rows) / step <= 25)
    places = range(0, len(rows), step)
    axes.set_xticks(places, [node_number(rows[place], place) for place in places], fontsize=9, parse_math=False)
    axes.set_xlabel("node, in graph order, by the index of its op", fontsize=10)


def bar_width(count: int) -> float:
    """Width of one of so many bars, in nodes."""
    return 0.8 if count <= MANY_NODES else 1.0


def key(figure: Figure, entries: Sequence[tuple[str, str, float]]) -> None:
    """Say what the colours mean, in the upper right corner: words, colour, opacity."""
    handles = [Patch(facecolor=color, alpha=alpha, label=words) for words, color, alpha in entries]
    figure.legend(
        handles=handles,
        loc="upper right",
        bbox_to_anchor=(0.985, 1.0 - 0.12 / figure.get_figheight()),
        ncols=len(handles),
        frameon=False,
        fontsize=9.5,
        columnspacing=1.4,
        handlelength=1.2,
    )


def fit_names(figure: Figure, axes: Axes) -> None:
    """Widen the margin so that the names on a panel's axis fit: those of x below, those of y on the left."""
    box, paper = axes.bbox, figure.bbox
    below = max((box.y0 - label.get_window_extent().y0 for label in axes.get_xticklabels()), default=0.0)
    beside = max((box.x0 - label.get_window_extent().x0 for label in axes.get_yticklabels()), default=0.0)
    # Inches for the words below the ticks.
    room = 0.35 * DOTS_PER_INCH
    figure.subplots_adjust(
        bottom=max((below + room) / paper.height, figure.subplotpars.bottom),
        left=max((beside + room) / paper.width, figure.subplotpars.left),
    )


def bar_points(axes: Axes, values: np.ndarray) -> list[tuple[float, float]]:
    """Points along vertical bars, near enough to each other that no label fits between; limits are final."""
    places = np.flatnonzero(np.isfinite(values))
    tops = axes.transData.transform(np.column_stack([places, np.maximum(values[places], axes.get_ylim()[0])]))
    floor, step = axes.bbox.y0, 8.0 * DOTS_PER_INCH / 72
    points = [(x, y) for x, top in tops for y in np.arange(top, floor, -step)]
    coordinates = axes.transData.inverted().transform(np.array(points).reshape(-1, 2))
    return [(float(x), float(y)) for x, y in coordinates]


def frame(figure: Figure, *, left: float, right: float, top: float, bottom: float) -> None:
    """Leave margins around the panels, all in inches."""
    height = figure.get_figheight()
    figure.subplots_adjust(
        left=left / INCHES_WIDE,
        right=1.0 - right / INCHES_WIDE,
        top=1.0 - top / height,
        bottom=bottom / height,
        hspace=0.12,
    )
