"""The lines that a diagnosis prints."""

from __future__ import annotations

import pandas as pd
import pytest
from layer_rows_made import made_rows
from reviewing import Reviewed

from autoselect.domain.findings import Advice
from autoselect.report.tables.layer_tables import ablation_lines, advice_lines, facts_line, metric_rows, suspect_lines


def advice(**changed: object) -> Advice:
    told = {
        "rule": "suspicious_error",
        "title": "Errors beyond rounding",
        "subjects": ("a/b", "c"),
        "evidence": "rmse/scale of 'a/b' is 2.5",
        "threshold": "0.7",
        "source": "the guide",
        "action": "Leave them out.",
    }
    return Advice(**{**told, **changed})  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [60, 80, 120, 300])
@pytest.mark.parametrize("count", [12, 400])
def test_the_suspects_fit_the_page_whatever_the_names(width: int, count: int) -> None:
    rows = made_rows(count, bad=(5, 9), ablated=True, whole=True)
    rows[5]["tensor_name"] = "x" * 500
    lines = suspect_lines(rows, width=width)
    assert max(map(len, lines)) <= width
    assert len(lines) == 11 + any(line.startswith("~") for line in lines)


def test_the_worst_come_first_with_their_figures() -> None:
    heading, first, second, *_ = suspect_lines(made_rows(12, bad=(5, 9)), width=80)
    assert heading.split()[:3] == ["op", "type", "rmse/scale"]
    assert first.split()[:3] == ["18", "DEPTHWISE_CONV_2D", "3"]
    assert second.split()[:3] == ["10", "DEPTHWISE_CONV_2D", "2"]
    assert first.endswith("BiasAdd")


def test_a_wide_page_shows_more_figures_and_whole_names() -> None:
    rows = made_rows(12, bad=(5,), ablated=True)
    narrow, wide = (suspect_lines(rows, width=width) for width in (80, 200))
    assert "range" not in narrow[0]
    assert {"alone in", "alone out", "range", "SQNR dB"} <= {word.strip() for word in wide[0].split("  ")}
    assert rows[5]["tensor_name"] in wide[1]
    assert "alone in" not in suspect_lines(made_rows(12), width=200)[0]


def test_accumulated_errors_are_marked_and_explained() -> None:
    rows = made_rows(12, bad=(2, 5))
    lines = suspect_lines(rows, count=3)
    assert lines[2].split()[2] == "~2"
    assert lines[-1].startswith("~ ")
    assert len(suspect_lines([row for row in rows if row["verified"]], count=3)) == 4


def test_nodes_without_an_error_are_no_suspects() -> None:
    rows = made_rows(12)
    assert len(suspect_lines(rows, count=50)) == 1 + 11 + 1
    assert suspect_lines([]) == ()
    assert suspect_lines([{"tensor_name": "a", "rmse/scale": float("nan")}]) == ()


def test_a_data_frame_reads_as_its_rows_do() -> None:
    rows = made_rows(12, bad=(2,), ablated=True)
    assert suspect_lines(pd.DataFrame(rows)) == suspect_lines(rows)
    assert ablation_lines(pd.DataFrame(rows)) == ablation_lines(rows)


def test_names_cannot_upset_the_terminal() -> None:
    rows = made_rows(12, bad=(5,))
    rows[5]["tensor_name"] = "a\x1b[31m\nb"
    hostile = advice(title="t\x1b[2J", subjects=("s\x07",), evidence="e\u202e", action="a\x00")
    text = "".join((*suspect_lines(rows), *advice_lines([hostile]), facts_line({"model": "m\x1b"})))
    assert text.isprintable()


def test_advice_is_a_numbered_paragraph(reviewed: Reviewed) -> None:
    reviewed("two pieces of advice", advice_lines([advice(), advice(subjects=(), source="")]))
    assert advice_lines([]) == ()


def test_many_subjects_are_counted() -> None:
    lines = advice_lines([advice(subjects=tuple("abcdefg"))])
    assert "   At: a, b, c, d and 3 more" in lines
    assert "   At: a, b, c, d" in advice_lines([advice(subjects=tuple("abcd"))])


def test_long_advice_is_wrapped_and_names_stay_whole() -> None:
    name = "n" * 100
    lines = advice_lines([advice(evidence="words and more words " * 20, action=f"Leave {name} out")], width=60)
    assert [line for line in lines if len(line) > 60] == [f"     {name} out".removesuffix(" out")]
    assert all(line.startswith("   ") for line in lines[1:])


def test_ablation_names_the_most_harmful_and_the_most_helpful(reviewed: Reviewed) -> None:
    nan = float("nan")
    rows = [
        {"tensor_name": "a", "leave_one_in": 0.5, "leave_one_out": 0.02},
        {"tensor_name": "b", "leave_one_in": nan, "leave_one_out": nan},
        {"tensor_name": "c", "leave_one_in": 0.25, "leave_one_out": 0.01},
    ]
    reviewed("ablation", ablation_lines(rows))
    assert ablation_lines(made_rows(12)) == ()


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param(
            {
                "model": "m.tflite",
                "nodes": 31,
                "calibration_samples": 100,
                "debug_samples": 50,
                "debug_data_given": False,
                "per_channel": True,
                "recipe": False,
                "seconds": {"model": 1.25, "measure": 2.0},
            },
            "m.tflite: 31 nodes, per-channel weights, calibrated on 100 samples, measured on 50 of them, 3.2 s.",
            id="calibration data",
        ),
        pytest.param(
            {"model": None, "nodes": 3, "debug_samples": 7, "debug_data_given": True, "per_channel": False},
            "3 nodes, per-tensor weights, measured on 7 debug samples.",
            id="debug data",
        ),
        pytest.param(
            {"model": "m", "recipe": True}, "m: per-channel weights, mixed by a recipe.", id="a recipe and little else"
        ),
    ],
)
def test_facts(facts: dict[str, object], expected: str) -> None:
    assert facts_line(facts) == expected


def test_metrics() -> None:
    assert metric_rows({"mae": 0.5, "bad\x1b": float("nan")}) == (("mae", "0.5000"), ("bad?", "–"))
