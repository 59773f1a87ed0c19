"""What the pictures of a diagnosis show, asked of their artists."""

from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from layer_rows_made import made_rows
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle, StepPatch
from matplotlib.text import Text

from autoselect.report.figures.drawing import BLUE, VERMILION, drawable, save, sheet
from autoselect.report.figures.layer_figures import layers_figure, travel_figure
from autoselect.report.figures.suspects import suspects_figure, weights_figure
from autoselect.report.tables.layer_tables import common_folder, cut_middle

SIZES = (12, 111, 400)


def bars(axes: Axes) -> list[Rectangle]:
    return [patch for patch in axes.patches if isinstance(patch, Rectangle)]


def thresholds(axes: Axes, *, along: str = "y") -> list[float]:
    found = [line for line in axes.lines if str(line.get_gid()).startswith("threshold")]
    data = [line.get_ydata() if along == "y" else line.get_xdata() for line in found]
    return sorted(float(np.asarray(values)[0]) for values in data)


def same(heights: list[float], values: list[float | None]) -> bool:
    known = [math.nan if value is None else value for value in values]
    return bool(np.allclose(heights, known, rtol=1e-12, equal_nan=True))


def shown_texts(figure: Figure) -> list[Text]:
    figure.canvas.draw()  # type: ignore[attr-defined]
    return [text for text in figure.findobj(Text) if isinstance(text, Text) and text.get_text() and text.get_visible()]


def tick_labels(axes: Axes) -> list[Text]:
    """The labels that are drawn: a locator also gives ticks beyond the limits."""
    found = []
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        found += [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    return [label for label in found if label.get_text() and label.get_visible()]


@pytest.mark.parametrize("count", SIZES)
def test_every_node_is_a_bar_as_high_as_its_figure(count: int) -> None:
    rows = made_rows(count, bad=(5, 9))
    above, below = layers_figure(rows).axes
    for axes, name in ((above, "range"), (below, "rmse/scale")):
        assert len(bars(axes)) == count
        assert same([bar.get_height() for bar in bars(axes)], [row[name] for row in rows])
        assert same([bar.get_x() + bar.get_width() / 2 for bar in bars(axes)], list(range(count)))


def test_thresholds_are_drawn_and_in_view() -> None:
    for bad in ((), (5,)):
        above, below = layers_figure(made_rows(30, bad=bad)).axes
        assert thresholds(above) == [255.0]
        assert thresholds(below) == pytest.approx([1 / math.sqrt(12), 0.7])
        for axes in (above, below):
            low, high = axes.get_ylim()
            assert all(low < value < high for value in thresholds(axes))


def test_suspicious_nodes_are_coloured_and_the_worst_five_named() -> None:
    from matplotlib.colors import to_hex

    bad = (3, 8, 15, 22, 31, 38, 44)  # the errors rise from 2 at node 3 to 8 at node 44
    rows = made_rows(60, bad=bad)
    figure = layers_figure(rows)
    for axes in figure.axes:
        red = [place for place, bar in enumerate(bars(axes)) if to_hex(bar.get_facecolor()) == VERMILION.lower()]
        assert red == list(bad)
    named = [text.get_text() for text in figure.axes[1].texts if "#" in text.get_text()]
    assert [name.rpartition("#")[2] for name in named] == [str(2 * place) for place in reversed(bad[-5:])]
    assert "7 of 60 nodes have" in figure.get_suptitle()
    assert "1 of 60 nodes has" in layers_figure(made_rows(60, bad=(4,))).get_suptitle()


def test_accumulated_errors_are_pale() -> None:
    _, below = layers_figure(made_rows(12)).axes
    assert [place for place, bar in enumerate(bars(below)) if (bar.get_alpha() or 1.0) < 1.0] == [2]


def test_the_axis_is_logarithmic_only_where_the_spread_asks_for_it() -> None:
    rows = made_rows(30)
    assert layers_figure(rows).axes[1].get_yscale() == "linear"
    rows[7]["rmse/scale"] = 40.0
    assert layers_figure(rows).axes[1].get_yscale() == "log"


FIGURES = [
    pytest.param(layers_figure, id="layers"),
    pytest.param(suspects_figure, id="suspects"),
    pytest.param(travel_figure, id="travel"),
]


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("draw", FIGURES)
def test_no_tick_label_covers_another_and_all_text_is_on_the_paper(count: int, draw: Any) -> None:
    rows = made_rows(count, bad=tuple(range(3, count, 9)), ablated=True, whole=True)
    rows[4]["tensor_name"], rows[6]["travel_nsr"] = "W" * 200, 0.9
    figure = draw(rows)
    texts = shown_texts(figure)
    boxes = [label.get_window_extent() for axes in figure.axes for label in tick_labels(axes)]
    assert len(boxes) > 15
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    paper = figure.bbox
    for text in texts:
        box = Text.get_window_extent(text)
        if text.axes is None or box.width == 0:
            continue
        assert paper.x0 <= box.x0, text.get_text()
        assert box.x1 <= paper.x1, text.get_text()
        assert paper.y0 <= box.y0, text.get_text()


@pytest.mark.parametrize("count", SIZES)
def test_names_of_nodes_cover_no_other_name(count: int) -> None:
    figure = layers_figure(made_rows(count, bad=(3, 4, 5, 6, 7)))
    figure.canvas.draw()  # type: ignore[attr-defined]
    boxes = [Text.get_window_extent(text) for text in figure.axes[1].texts if "#" in text.get_text()]
    assert len(boxes) == 5
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_few_nodes_stand_on_the_axis_by_name_and_many_by_number() -> None:
    few, many = (layers_figure(made_rows(count)).axes[1].get_xticklabels() for count in (12, 400))
    assert len(few) == 12
    assert all(label.get_text().endswith(f"#{2 * place}") for place, label in enumerate(few))
    assert len(many) <= 25
    assert [label.get_text() for label in many][:3] == ["0", "40", "80"]  # every 20th node; op indices are even here


HOSTILE = "a_$\\frac{1}{$/<b>&amp;\x1b[31m\x00\u202e{}%s\n\u6f22$x^2$"


@pytest.mark.parametrize("draw", [layers_figure, suspects_figure, travel_figure])
def test_names_are_data(draw: Any, tmp_path: Path) -> None:
    rows = made_rows(12, bad=(5,), ablated=True, whole=True)
    rows[5]["tensor_name"] = rows[6]["tensor_name"] = HOSTILE
    rows[6]["error_growth"] = 50.0
    rows[5]["op_name"] = "$OP$"
    png, svg = save(draw(rows), tmp_path / "hostile")
    assert png.stat().st_size > 1000
    assert "\x1b" not in svg.read_text(encoding="utf-8")


@pytest.mark.parametrize("draw", FIGURES)
def test_no_name_is_read_as_a_formula(draw: Any) -> None:
    rows = made_rows(12, bad=(5,), whole=True)
    rows[5]["tensor_name"], rows[5]["error_growth"] = "$\\alpha_1$", 9.0
    texts = [text for text in shown_texts(draw(rows)) if "alpha" in text.get_text()]
    assert texts
    assert all(not text.get_parse_math() for text in texts)


def test_what_the_font_lacks_becomes_a_question_mark() -> None:
    assert drawable("caf\u00e9 \u6f22 $") == "caf\u00e9 ? $"


def test_suspects_are_ranked_with_name_type_and_error() -> None:
    rows = made_rows(111, bad=(50, 20, 70))
    axes = suspects_figure(rows, count=4).axes[0]
    assert [bar.get_width() for bar in bars(axes)][:3] == [4.0, 3.0, 2.0]
    assert len(bars(axes)) == 4
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert [label.split("#")[1].split() for label in labels[:3]] == [
        ["140", "ADD"],
        ["40", "CONV_2D"],
        ["100", "ADD"],
    ]
    assert all(label.endswith("BiasAdd #" + label.split("#")[1]) for label in labels)
    assert thresholds(axes, along="x") == pytest.approx([1 / math.sqrt(12), 0.7])
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the worst on top


def test_ablation_stands_beside_the_suspects_where_it_was_measured() -> None:
    rows = made_rows(12, bad=(5, 6), ablated=True)
    rows[5]["leave_one_in"] = float("nan")
    figure = suspects_figure(rows, count=2)
    assert len(figure.axes) == 3
    for axes, name in zip(figure.axes[1:], ("leave_one_in", "leave_one_out"), strict=True):
        (line,) = [line for line in axes.lines if line.get_gid() == name]
        assert same(list(np.asarray(line.get_xdata(), float)), [rows[6][name], rows[5][name]])
    for row in rows:
        del row["leave_one_in"], row["leave_one_out"]
    assert len(suspects_figure(rows).axes) == 1


@pytest.mark.parametrize("count", SIZES)
def test_travel_shows_the_error_and_marks_the_largest_growth(count: int) -> None:
    from matplotlib.colors import to_hex

    rows = made_rows(count, whole=True)
    rows[4]["error_growth"], rows[9]["error_growth"], rows[7]["error_growth"] = 30.0, 20.0, 10.0
    power, steps, growth = travel_figure(rows).axes
    assert power.get_yscale() == "log"
    for axes, name in ((power, "travel_nsr"), (steps, "travel_rmse/scale")):
        drawn = {line.get_gid(): line for line in axes.lines}
        assert same(list(np.asarray(drawn[name].get_ydata(), float)), [row[name] for row in rows])
        assert list(np.asarray(drawn[f"{name} marked"].get_xdata())) == [4, 9, 7]
    tops = [bar.get_y() + bar.get_height() for bar in bars(growth)]
    assert same(tops, [row["error_growth"] for row in rows])
    red = [place for place, bar in enumerate(bars(growth)) if to_hex(bar.get_facecolor()) == VERMILION.lower()]
    assert red == [4, 7, 9]
    assert thresholds(growth) == [1.0]
    assert [text.get_text().split("#")[1] for text in growth.texts if "#" in text.get_text()] == [
        "8  × 30",
        "18  × 20",
        "14  × 10",
    ]


@pytest.mark.parametrize("channels", [1, 8, 96, 3000])
def test_weight_ranges_and_steps_of_each_channel(channels: int) -> None:
    rng = np.random.default_rng(channels)
    low, high, steps = -rng.lognormal(size=channels), rng.lognormal(size=channels), rng.lognormal(size=channels) / 127
    row = {"tensor_name": "a", "weight_minima": [*low], "weight_maxima": [*high], "weight_scales": [*steps]}
    above, below = weights_figure(row).axes
    (drawn,) = [c for c in above.collections if isinstance(c, LineCollection) and c.get_gid() == "range"]
    assert np.allclose(np.array(drawn.get_segments())[:, :, 1], np.column_stack([low, high]))
    (outline,) = [patch for patch in below.patches if isinstance(patch, StepPatch)]
    assert np.allclose(outline.get_data().values, steps)
    bottom, top = above.get_ylim()
    assert bottom < low.min() < high.max() < top


def test_one_step_for_the_tensor_is_one_line() -> None:
    row = {"weight_minima": [-1.0, -2.0], "weight_maxima": [1.0, 3.0], "weight_scales": [0.02]}
    _, below = weights_figure(row).axes
    (line,) = [line for line in below.lines if line.get_gid() == "step of the tensor"]
    assert set(np.asarray(line.get_ydata(), float)) == {0.02}
    assert "whole tensor" in below.get_ylabel()
    assert len(weights_figure({**row, "weight_scales": []}).axes) == 1


@pytest.mark.parametrize(
    ("figure", "words"),
    [
        pytest.param(lambda: layers_figure([]), "No node", id="no layers"),
        pytest.param(lambda: layers_figure([{"tensor_name": "a"}]), "No node", id="nothing measured"),
        pytest.param(lambda: suspects_figure([]), "No node", id="no suspects"),
        pytest.param(lambda: travel_figure(made_rows(5)), "No accumulated error", id="no travel"),
        pytest.param(
            lambda: weights_figure({"tensor_name": "a", "weight_minima": None}), "no weights", id="no weights"
        ),
    ],
)
def test_where_there_is_nothing_to_draw_it_says_so(figure: Any, words: str) -> None:
    made = figure()
    assert not made.axes
    assert any(words in text.get_text() for text in made.texts)


@pytest.mark.parametrize("error", [0.0, float("inf"), 1e12], ids=str)
def test_extreme_errors_can_be_drawn(error: float, tmp_path: Path) -> None:
    rows = made_rows(12, ablated=True, whole=True)
    for row in rows[:6]:
        row.update(dict.fromkeys(("rmse/scale", "range", "leave_one_in", "travel_nsr", "error_growth"), error))
    for draw in (layers_figure, suspects_figure, travel_figure):
        png, _ = save(draw(rows), tmp_path / "extreme")
        assert png.stat().st_size > 1000


def test_a_data_frame_draws_as_its_rows_do() -> None:
    rows = made_rows(30, bad=(4,), whole=True)
    for draw in (layers_figure, suspects_figure, travel_figure):
        one, other = draw(rows), draw(pd.DataFrame(rows))
        for left, right in zip(one.axes, other.axes, strict=True):
            assert same([b.get_height() for b in bars(left)], [b.get_height() for b in bars(right)])


def test_both_files_are_written_and_equal_figures_give_equal_bytes(tmp_path: Path) -> None:
    rows = made_rows(12, bad=(3,))
    row = {"tensor_name": "a", "weight_minima": [-1.0], "weight_maxima": [1.0], "weight_scales": [0.1]}
    first, second = (
        [*save(layers_figure(rows), folder / "a.b"), *save(weights_figure(row), folder / "w")]
        for folder in (tmp_path / "one", tmp_path / "two")
    )
    assert [path.name for path in first] == ["a.b.png", "a.b.svg", "w.png", "w.svg"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert first[0].read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert b"<svg" in first[1].read_bytes()


def test_saving_leaves_the_users_settings_alone(tmp_path: Path) -> None:
    import matplotlib as mpl

    before = mpl.rcParams["svg.hashsalt"]
    save(sheet(2.0), tmp_path / "empty")
    assert mpl.rcParams["svg.hashsalt"] == before


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        pytest.param("short", 5, "short", id="fits"),
        pytest.param("abcdefghijkl", 8, "abc…ijkl", id="the end is longer"),
        pytest.param("abc", 2, "…c", id="hardly any room"),
    ],
)
def test_names_are_cut_in_the_middle(text: str, limit: int, expected: str) -> None:
    assert cut_middle(text, limit) == expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param(("m/a/x", "m/a/y", "m/b/z"), "m/", id="shared"),
        pytest.param(("net/conv_1", "net/conv_12"), "net/", id="whole folders only"),
        pytest.param(("a/b", "c/b"), "", id="nothing shared"),
        pytest.param(("a", "a/b"), "", id="no folder"),
        pytest.param(("a/b",), "", id="one name"),
        pytest.param(("m/a/x", "m/a/y", "m/a/z", "out:0"), "m/a/", id="all but the output"),
        pytest.param((), "", id="none"),
    ],
)
def test_common_folder(names: tuple[str, ...], expected: str) -> None:
    assert common_folder([{"tensor_name": name} for name in names]) == expected


def test_colours_are_of_a_palette_for_all_eyes() -> None:
    figure = layers_figure(made_rows(12, bad=(5,)))
    from matplotlib.colors import to_hex

    used = {to_hex(bar.get_facecolor()).upper() for bar in bars(figure.axes[0])}
    assert used == {BLUE, VERMILION}
