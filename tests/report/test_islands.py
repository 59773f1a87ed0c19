"""The ops of models as strips of colour."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from reviewing import Reviewed

from autoselect.report.figures.drawing import save
from autoselect.report.figures.islands import islands_figure

KINDS = ("integer", "hybrid", "float", "boundary", "neutral")


def model(kinds: list[str], path: str = "model.tflite") -> dict[str, Any]:
    return {
        "path": path,
        "subgraphs": [{"ops": [{"kind": kind} for kind in kinds]}],
        "fragmentation": {"penalty": 12.5},
    }


def cells(figure: Figure, panel: int = 0) -> dict[str, list[tuple[int, int]]]:
    """Column and row of the cells of each kind."""
    found = {}
    for collection in figure.axes[panel].collections:
        corners = [path.get_extents() for path in collection.get_paths()]
        found[str(collection.get_gid())] = [(round(box.x0), int(box.y0)) for box in corners]
    return found


def test_each_op_is_a_cell_of_its_kind_in_graph_order() -> None:
    assert cells(islands_figure([model(["boundary", "integer", "float", "integer", "hybrid", "neutral"])])) == {
        "boundary": [(0, 0)],
        "integer": [(1, 0), (3, 0)],
        "float": [(2, 0)],
        "hybrid": [(4, 0)],
        "neutral": [(5, 0)],
    }


def test_long_graphs_are_wrapped_and_rows_are_numbered() -> None:
    figure = islands_figure([model(["integer"] * 200 + ["float"])])
    assert cells(figure)["float"] == [(40, 2)]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["0", "80", "160"]


def test_one_panel_a_model_with_equal_cells() -> None:
    figure = islands_figure([model(["float"] * 30, "a/float.tflite"), model(["integer"] * 45, "b/int8.tflite")])
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "float: 30 float; penalty 12.50",
        "int8: 45 integer; penalty 12.50",
    ]
    assert [axes.get_xlim() for axes in figure.axes] == [(0, 45), (0, 45)]


def test_the_legend_names_the_kinds_that_occur_in_distinct_colours(reviewed: Reviewed) -> None:
    (legend,) = islands_figure([model(list(KINDS))]).legends
    reviewed("the legend of islands", [text.get_text() for text in legend.get_texts()])
    assert len({to_hex(patch.get_facecolor()) for patch in legend.get_patches()}) == len(KINDS)
    (legend,) = islands_figure([model(["float"])]).legends
    assert [text.get_text() for text in legend.get_texts()] == ["float"]


def test_float_and_hybrid_can_be_told_without_colour() -> None:
    texts = islands_figure([model(list(KINDS))]).axes[0].texts
    assert {text.get_text(): round(text.get_position()[0] - 0.5) for text in texts} == {"h": 1, "F": 2}


def test_panels_do_not_cover_each_other_and_stay_on_the_paper() -> None:
    figure = islands_figure([model(["float"] * n, f"{n}.tflite") for n in (1, 100, 300, 5)])
    figure.canvas.draw()  # type: ignore[attr-defined]
    boxes = [axes.get_tightbbox() for axes in figure.axes]
    tops = [(box.y1, box.y0) for box in boxes if box is not None]
    assert all(upper[1] > lower[0] for upper, lower in pairwise(tops))
    assert tops[-1][1] >= 0
    assert figure.legends[0].get_window_extent().y0 > tops[0][0]


@pytest.mark.parametrize("kinds", [[], ["float"]], ids=["no ops", "one op"])
def test_small_models_can_be_drawn(kinds: list[str], tmp_path: Path) -> None:
    png, svg = save(islands_figure([model(kinds)]), tmp_path / "islands")
    assert png.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert b"<svg" in svg.read_bytes()[:500]
    assert {path.name for path in tmp_path.iterdir()} == {"islands.png", "islands.svg"}
