"""What the picture shows, asked of its artists."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation, Text
from reviewing import Reviewed

from autoselect.domain.pareto import non_dominated
from autoselect.errors import StorageError
from autoselect.report.figures.run_figures import draw_pareto, pareto_figure

PICKS = ("accurate", "balanced", "compact", "integer")


def made_up(seed: int, *, count: int = 60, sign: int = 1, infeasible: bool = False) -> dict[str, Any]:
    """Frames like those of a run, with every tenth trial failed."""
    rng = np.random.default_rng(seed)
    share = rng.beta(0.7, 1.2, count)
    drop = 0.18 * np.exp(-6 * share) + rng.normal(0, 0.003, count)
    trials = pd.DataFrame(
        {
            "number": range(count),
            "id": [f"{n:010x}" for n in rng.integers(16**10, size=count)],
            "state": ["failed" if n % 10 == 9 else "complete" for n in range(count)],
            "accuracy": 0.93 - sign * drop,
            "drop": drop,
            "size_bytes": 49000 - 8000 * share + rng.normal(0, 500, count),
            "penalty": 8 * share + rng.uniform(0, 2, count),
            "feasible": drop < 0.1 if infeasible else np.ones(count, dtype=bool),
        }
    )
    scored = trials[(trials["state"] == "complete") & trials["feasible"]]
    front = scored[non_dominated(scored[["drop", "size_bytes", "penalty"]].to_numpy())].copy()
    names = [",".join(PICKS[n::3]) if n < 3 else "" for n in range(len(front))]
    front["pick"] = names
    summary = {
        "metric": "accuracy",
        "direction": "maximize" if sign > 0 else "minimize",
        "evaluated": {"search": 1000, "heldout": 2000},
        "references": {
            "float": {"accuracy": 0.93, "size_bytes": 102604, "penalty": 30.0},
            "fiq": {"accuracy": 0.93 - sign * 0.18, "size_bytes": 49320, "penalty": 0.0},
            "drq": {"accuracy": 0.931, "size_bytes": 41784, "penalty": 30.0},
        },
    }
    return {"trials": trials, "front": front, "summary": summary}


def lines(figure: Figure, panel: int) -> dict[str, Line2D]:
    return {str(line.get_gid()): line for line in figure.axes[panel].lines}


def labels(figure: Figure, panel: int) -> list[Annotation]:
    return [text for text in figure.axes[panel].texts if isinstance(text, Annotation)]


def points(line: Line2D) -> set[tuple[float, float]]:
    xs, ys = np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)
    return set(zip(xs.tolist(), ys.tolist(), strict=True))


@pytest.mark.parametrize(("panel", "column", "unit"), [(0, "size_bytes", 1e3), (1, "penalty", 1.0)])
def test_every_scored_trial_and_member_is_drawn(panel: int, column: str, unit: float) -> None:
    made = made_up(0)
    figure = pareto_figure(**made)
    drawn = lines(figure, panel)
    scored = made["trials"][made["trials"]["state"] == "complete"]
    assert points(drawn["trials"]) == set(zip(scored[column] / unit, scored["accuracy"], strict=True))
    members = set(zip(made["front"][column] / unit, made["front"]["accuracy"], strict=True))
    assert points(drawn["front"]) | points(drawn["picks"]) == members
    assert points(drawn["best in this panel"]) <= members


@pytest.mark.parametrize("panel", [0, 1])
def test_one_label_names_all_picks_of_a_member(panel: int) -> None:
    texts = [label.get_text() for label in labels(pareto_figure(**made_up(0)), panel)]
    assert {"accurate, integer", "balanced", "compact"} < set(texts)
    assert sum(text.startswith(("float", "all-integer", "all-DRQ")) for text in texts) == 3


def test_members_are_in_view() -> None:
    made = made_up(1)
    for axes, column, unit in zip(pareto_figure(**made).axes, ("size_bytes", "penalty"), (1e3, 1.0), strict=True):
        (low, high), values = axes.get_xlim(), made["front"][column] / unit
        assert low < values.min() < values.max() < high
        bottom, top = axes.get_ylim()
        assert bottom < made["front"]["accuracy"].min() < made["front"]["accuracy"].max() < top


def test_a_far_reference_stands_on_the_edge_and_says_where_it_is() -> None:
    figure = pareto_figure(**made_up(0))
    assert [float(x) for x, _ in points(lines(figure, 0)["float"])] == [figure.axes[0].get_xlim()[1]]
    assert "float, at 102.6 kB →" in [label.get_text() for label in labels(figure, 0)]
    assert "all-DRQ, at 30 →" in [label.get_text() for label in labels(figure, 1)]


@pytest.mark.parametrize("seed", range(8))
def test_labels_do_not_overlap_and_stay_inside(seed: int) -> None:
    figure = pareto_figure(**made_up(seed))
    figure.canvas.draw()  # type: ignore[attr-defined]
    for panel in (0, 1):
        boxes = [Text.get_window_extent(label) for label in labels(figure, panel)]
        assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
        assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes)


def test_trials_beyond_a_limit_have_their_own_marker(reviewed: Reviewed) -> None:
    plain, limited = pareto_figure(**made_up(2)), pareto_figure(**made_up(2, infeasible=True))
    assert not points(lines(plain, 0)["trials beyond a limit"])
    assert points(lines(limited, 0)["trials beyond a limit"])
    named = [text.get_text() for text in limited.legends[0].get_texts()]
    reviewed("the legend of trials beyond a limit", named)


@pytest.mark.parametrize(
    ("sign", "hint"), [pytest.param(1, "more is better", id="more"), pytest.param(-1, "less is better", id="less")]
)
def test_axes_say_unit_and_direction(reviewed: Reviewed, sign: int, hint: str) -> None:
    left, right = pareto_figure(**made_up(3, sign=sign)).axes
    # None of the made-up members was held out.
    reviewed(hint, [left.get_ylabel(), left.get_xlabel(), right.get_xlabel()])


def test_the_axis_says_which_samples_the_front_is_of() -> None:
    made = made_up(3)
    made["front"] = made["front"].assign(heldout_accuracy=made["front"]["accuracy"] - 0.01)
    made["summary"]["evaluated"] = {"search": 1000, "heldout": 2000}
    figure = pareto_figure(**made)
    assert "accuracy on 2000 held-out samples" in figure.axes[0].get_ylabel()
    assert "tried (search samples)" in [text.get_text() for text in figure.legends[0].get_texts()]


@pytest.mark.parametrize("seed", range(3))
def test_everything_fits_the_picture(seed: int) -> None:
    made = made_up(seed, infeasible=True)
    made["front"] = made["front"].assign(heldout_accuracy=made["front"]["accuracy"] - 0.01)
    figure = pareto_figure(**made)
    figure.canvas.draw()  # type: ignore[attr-defined]
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1


@pytest.mark.parametrize(
    "kept", [pytest.param(0, id="nothing scored"), pytest.param(1, id="one trial"), pytest.param(2, id="two")]
)
@pytest.mark.parametrize("with_references", [True, False])
def test_small_runs_can_be_drawn(kept: int, with_references: bool, tmp_path: Path) -> None:
    made = made_up(0)
    made["trials"], made["front"] = made["trials"].iloc[:kept], made["front"].iloc[:kept]
    if not with_references:
        made["summary"]["references"] = {}
    draw_pareto(**made, path=tmp_path / "pareto.png")
    assert (tmp_path / "pareto.png").stat().st_size > 1000


def test_the_file_is_a_png_of_1200_by_600(tmp_path: Path) -> None:
    draw_pareto(**made_up(0), path=tmp_path / "pareto.png")
    content = (tmp_path / "pareto.png").read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert (int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")) == (1200, 600)
    assert [path.name for path in tmp_path.iterdir()] == ["pareto.png"]


def test_a_failed_write_keeps_the_old_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pareto.png"
    path.write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(StorageError):
        draw_pareto(**made_up(0), path=path)
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["pareto.png"]


def test_drawing_leaves_no_pyplot_state() -> None:
    import sys

    pareto_figure(**made_up(0))
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or not pyplot.get_fignums()
