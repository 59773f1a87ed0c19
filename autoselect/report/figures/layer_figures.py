"""The pictures of a diagnosis as files, each a PNG and an SVG of the same name; draws what it is given."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from autoselect.report.figures.drawing import save
from autoselect.report.figures.layer_bars import layers_figure
from autoselect.report.figures.suspect_bars import suspects_figure
from autoselect.report.figures.travel_lines import travel_figure
from autoselect.report.figures.weight_ranges import weights_figure

if TYPE_CHECKING:
    import pandas as pd

    from autoselect.report.tables.layer_rows import Record, Table


def draw_layers(table: pd.DataFrame | Table, stem: Path) -> tuple[Path, Path]:
    """Draw range and error of every node; see :func:`autoselect.report.figures.layer_bars.layers_figure`.

    Args:
        table: The wide layer table, one row a node in graph order.
        stem: Folder and name of the files, without ending.

    Returns:
        The PNG and the SVG file.

    Raises:
        StorageError: If a file cannot be written.
    """
    return save(layers_figure(table), stem)


def draw_suspects(table: pd.DataFrame | Table, stem: Path, count: int = 20) -> tuple[Path, Path]:
    """Draw the ``count`` worst nodes; arguments, result and errors as :func:`draw_layers`."""
    return save(suspects_figure(table, count), stem)


def draw_travel(table: pd.DataFrame | Table, stem: Path) -> tuple[Path, Path]:
    """Draw how the error travels down the graph; arguments, result and errors as :func:`draw_layers`."""
    return save(travel_figure(table), stem)


def draw_node_weights(row: Record, stem: Path) -> tuple[Path, Path]:
    """Draw the weight ranges of one row of the table; result and errors as :func:`draw_layers`."""
    return save(weights_figure(row), stem)
