"""The tables, files and figures of a classification report."""

from __future__ import annotations

import csv
import json
import math
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from reviewing import Reviewed

from autoselect.errors import StorageError
from autoselect.report.figures.class_figures import TABLES, confusion_figure, measures_figure, write_class_report
from autoselect.report.tables.class_tables import Section, class_sections, frequent_confusions, ran, short_name


def made_up(
    classes: int = 3, models: int = 2, *, samples: int = 90, reference: bool = True, failed: bool = False
) -> dict[str, Any]:
    """A report whose numbers are made up, save that the confusion adds up to the samples.

    Each model answers right on all but its number of samples, and gives the next class on these.
    """
    names = ["float", *(f"model_{n}" for n in range(1, models))] if reference else [f"m{n}" for n in range(models)]
    report: dict[str, Any] = {
        "samples": samples,
        "classes": classes,
        "reference": "float" if reference else None,
        "models": [{"model": n, "path": f"{n}.tflite", "size_bytes": 49320, "error": None} for n in names],
        **{table: [] for table in TABLES},
    }
    for number, name in enumerate(names):
        compared = reference and number > 0
        for metric in ("accuracy", "f1_macro", *(["agreement"] if compared else [])):
            value = 0.9 - 0.05 * number
            row = {"model": name, "metric": metric, "value": value, "low": value - 0.02, "high": value + 0.02}
            report["measures"].append(row)
        for label in range(classes):
            support = samples // classes
            wrong = min(number, support) if label == 0 else 0
            row = {"model": name, "number": label, "support": support, "answered": support, "precision": 0.5}
            agreement = (1 - wrong / support) if compared else math.nan
            report["per_class"].append({**row, "recall": 0.25, "f1": 1 / 3, "agreement": agreement})
            cells = [(label, label, support - wrong), (label, (label + 1) % classes, wrong)]
            report["confusion"] += [
                {"model": name, "label": a, "answer": b, "count": count} for a, b, count in cells if count
            ]
        for index in range(number if compared else 0):
            row = {"model": name, "index": index, "label": 0, "float_answer": 0, "float_probability": 0.1 * index}
            report["disagreements"].append({**row, "answer": 1, "probability": 0.75})
    if failed:
        report["models"].append({"model": "dead", "path": "dead.tflite", "size_bytes": 1, "error": "It died."})
    return report


def section(report: dict[str, Any], start: str, width: int = 80) -> Section:
    (found,) = [s for s in class_sections(report, width) if s.title.startswith(start)]
    return found


# ----------------------------------------------------------------------------------------------- tables


@pytest.mark.parametrize("models", [1, 2, 3, 7])
@pytest.mark.parametrize("classes", [2, 8, 10, 11, 1000])
def test_everything_fits_80_columns(classes: int, models: int) -> None:
    report = made_up(classes, models, samples=9000)
    lines = [line for s in class_sections(report, 80) for line in (s.title, *s.lines)]
    assert max(map(len, lines)) <= 80


def test_measures_stand_side_by_side_with_their_intervals(reviewed: Reviewed) -> None:
    found = section(made_up(), "90 samples, 3 classes")
    reviewed("measures of two models", found.lines)


def test_an_interval_that_misses_its_figure_is_explained(reviewed: Reviewed) -> None:
    report = made_up()
    report["measures"][0]["low"] = 0.95
    reviewed("an interval misses its figure", section(report, "90 samples").lines[-1])


def test_undefined_figures_are_dashes() -> None:
    report = made_up(models=1)
    report["measures"][0] |= {"low": math.nan, "high": math.nan}
    report["per_class"][0]["precision"] = math.nan
    assert section(report, "90 samples").lines[2].split() == ["accuracy", "0.900"]
    assert section(report, "By class").lines[2].split() == ["0", "30", "–", "0.250", "0.333", "–"]


def test_of_many_classes_the_worst_are_shown(reviewed: Reviewed) -> None:
    report = made_up(100, 2, samples=300)
    for row in report["per_class"]:
        if row["model"] == "model_1" and row["number"] == 77:
            row["agreement"] = 0.0
    found = section(report, "By class")
    assert [line.split()[0] for line in found.lines[2:]][:3] == ["77", "0", "1"]
    assert len(found.lines) == 22
    other = section(made_up(100, 2, samples=300, reference=False), "By class")
    reviewed("titles of the worst classes", [found.title, other.title])


def test_small_matrices_are_written_out() -> None:
    found = section(made_up(), "Confusion matrix of model_1")
    assert [line.split() for line in found.lines] == [
        ["0", "1", "2"],
        ["0", "29", "1", "."],
        ["1", ".", "30", "."],
        ["2", ".", ".", "30"],
    ]


def test_of_large_matrices_the_most_frequent_wrong_answers() -> None:
    report = made_up(11, 3, samples=110)
    report["confusion"].append({"model": "float", "label": 5, "answer": 9, "count": 2})
    assert frequent_confusions(report, ran(report), 10) == ((0, 1), (5, 9))
    found = section(report, "Most frequent wrong answers")
    assert [line.split() for line in found.lines[1:]] == [
        ["0", "->", "1", "0", "1", "2"],
        ["5", "->", "9", "2", "0", "0"],
    ]


def test_disagreements_are_cut_to_those_of_which_float_is_surest(reviewed: Reviewed) -> None:
    report = made_up(2, 13, samples=90)
    found = section(report, "Where model_12")
    assert [int(line.split()[0]) for line in found.lines[2:]] == [11, 10, 9, 8, 7, 6, 5, 4, 3, 2]
    reviewed("disagreements with float", [found.title, found.lines[0], section(report, "Where model_3").title])
    assert not [s for s in class_sections(made_up(reference=False), 80) if s.title.startswith("Where")]


def test_a_failed_model_is_left_out() -> None:
    assert ran(made_up(failed=True)) == ("float", "model_1")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        pytest.param("short", "short", id="short"),
        pytest.param("a" * 10 + "b" * 10, "a" * 9 + "…" + "b" * 9, id="the middle goes"),
        pytest.param("tab\there", "tab?here", id="unprintable"),
    ],
)
def test_short_names(name: str, shown: str) -> None:
    assert short_name(name) == shown


# ------------------------------------------------------------------------------------------------ files


def test_the_folder_holds_all_of_it(tmp_path: Path) -> None:
    report = made_up(failed=True)
    write_class_report(report, tmp_path / "new" / "report")
    folder = tmp_path / "new" / "report"
    assert {path.name for path in folder.iterdir()} == {
        "report.json",
        *(f"{name}.csv" for name in TABLES),
        *(f"{name}.{kind}" for name in ("measures", "confusion") for kind in ("png", "svg")),
    }
    for name, columns in TABLES.items():
        with (folder / f"{name}.csv").open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert [tuple(row) for row in rows] == [columns] * len(report[name])
    assert (folder / "per_class.csv").read_text().splitlines()[1] == "float,0,30,30,0.5,0.25,0.3333333333333333,"


def test_json_has_null_for_what_is_undefined(tmp_path: Path) -> None:
    write_class_report(made_up(), tmp_path)

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    told = json.loads((tmp_path / "report.json").read_text(), parse_constant=refuse)
    assert told["per_class"][0]["agreement"] is None


def test_no_disagreements_still_have_a_heading(tmp_path: Path) -> None:
    write_class_report(made_up(models=1), tmp_path)
    assert (tmp_path / "disagreements.csv").read_text() == f"{','.join(TABLES['disagreements'])}\n"


def test_equal_reports_give_equal_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_class_report(made_up(), tmp_path / name)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path.name


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="could not"):
        write_class_report(made_up(), tmp_path / "file")


# ---------------------------------------------------------------------------------------------- figures


def artists(figure: Figure, gid: str) -> list[Any]:
    return figure.findobj(lambda artist: artist.get_gid() == gid)


def test_every_figure_has_its_mark_and_its_bar() -> None:
    report = made_up(models=3)
    figure = measures_figure(report)
    for name in ran(report):
        (marks,) = artists(figure, name)
        values = [row["value"] for row in report["measures"] if row["model"] == name]
        assert list(marks.get_xdata()) == values
    ends = [s[:, 0].tolist() for bars in figure.axes[0].collections for s in bars.get_segments()]  # type: ignore[attr-defined]
    assert ends == [[row["low"], row["high"]] for row in report["measures"]]
    low, high = figure.axes[0].get_xlim()
    assert low < min(map(min, ends)) < max(map(max, ends)) < high


def test_marks_of_many_models_differ() -> None:
    lines = measures_figure(made_up(models=20)).axes[0].lines
    looks = [(line.get_color(), line.get_marker()) for line in lines if line.get_marker() not in ("None", "", None)]
    assert len(set(looks)) == len(looks) == 20


@pytest.mark.parametrize("classes", [2, 6, 15])
def test_cells_of_small_matrices_say_their_counts(classes: int) -> None:
    report = made_up(classes, 3, samples=classes * 1000)
    figure = confusion_figure(report)
    for axes, name in zip(figure.axes, ran(report), strict=True):
        written = {(round(t.get_position()[1]), round(t.get_position()[0])): int(t.get_text()) for t in axes.texts}
        cells = [row for row in report["confusion"] if row["model"] == name]
        assert written == {(row["label"], row["answer"]): row["count"] for row in cells}


def test_counts_stay_within_their_cells() -> None:
    figure = confusion_figure(made_up(15, 3, samples=15000))
    figure.canvas.draw()  # type: ignore[attr-defined]
    axes = figure.axes[0]
    width = axes.bbox.width / 15
    assert max(text.get_window_extent().width for text in axes.texts) <= width


def test_shades_are_shares_of_the_label() -> None:
    (image,) = artists(confusion_figure(made_up(25, 2, samples=250)), "model_1")
    assert np.asarray(image.get_array())[0, :3].tolist() == pytest.approx([0.9, 0.1, 0.0])


def test_a_thousand_classes_are_points_and_a_list() -> None:
    report = made_up(1000, 2, samples=2000)
    figure = confusion_figure(report)
    right, wrong = (artists(figure, gid)[1].get_offsets() for gid in ("right", "wrong"))
    assert (len(right), wrong.tolist()) == (1000, [[1.0, 0.0]])
    (listed,) = figure.axes[1].texts
    assert listed.get_text().split("\n")[1].split() == ["0", "→", "1", "1"]


@pytest.mark.parametrize("classes", [2, 40, 61])
@pytest.mark.parametrize("models", [1, 4, 9])
def test_all_text_is_on_the_paper_and_no_title_covers_another(classes: int, models: int) -> None:
    report = made_up(classes, models, samples=classes * 20)
    report["models"][0]["model"] = report["reference"] = "a_name_$that$_does_not_end_" * 4
    for table in TABLES:
        for row in report[table]:
            row["model"] = report["reference"] if row["model"] == "float" else row["model"]
    for figure in (measures_figure(report), confusion_figure(report)):
        figure.canvas.draw()  # type: ignore[attr-defined]
        titles = [axes.get_title(loc="left") and axes._left_title for axes in figure.axes]  # type: ignore[attr-defined]
        boxes = [title.get_window_extent() for title in titles if title]
        boxes += [text.get_window_extent() for legend in figure.legends for text in legend.get_texts()]
        assert all(box.x1 <= figure.bbox.x1 and box.x0 >= 0 for box in boxes)
        assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
        assert figure.get_tightbbox().y0 >= 0
