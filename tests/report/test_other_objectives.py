"""A run whose objectives are not the default ones, as it is shown."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import made_run as made
import pandas as pd
import pytest

from autoselect.report.figures.run_figures import pareto_figure
from autoselect.report.page import history as page_history
from autoselect.report.page import models as page_models
from autoselect.report.page.page import context, page_of
from autoselect.report.tables import frames as tables
from autoselect.report.tables.result_lines import all_rows, result_lines
from autoselect.runs.run import Run

TIMES = {"latency_ms": 2.0, "latency_low": 1.9, "latency_high": 2.2}


def run_with(folder: Path, *columns: str) -> Run:
    """A made-up run of these objectives; latency and arena are known of all but the all-DRQ model."""
    run = made.made_run(folder, trials=30)
    for table in (run.trials, run.front):
        for place, (name, value) in enumerate({**TIMES, "arena_bytes": 4096.0}.items()):
            table[name] = [value + 0.01 * place + 0.001 * row for row in range(len(table))]
    references = {name: {**row, **TIMES, "arena_bytes": 9000} for name, row in run.summary["references"].items()}
    references["drq"] |= {"latency_ms": None, "arena_bytes": None}
    summary = {**run.summary, "objectives": ["accuracy", *columns], "references": references}
    return dataclasses.replace(run, summary=summary)


CHOSEN = {
    "one": (("segments",), ["segments"]),
    "two": (("arena_bytes", "penalty"), ["peak activation in kB", "fragmentation penalty, integer-only"]),
    "three": (
        ("size_bytes", "penalty", "latency_ms"),
        ["file size in kB", "fragmentation penalty, integer-only", "latency here, ms, noisy"],
    ),
}


@pytest.mark.parametrize(("columns", "labels"), CHOSEN.values(), ids=CHOSEN)
def test_the_picture_has_a_panel_for_each_objective_but_the_metric(
    tmp_path: Path, columns: tuple[str, ...], labels: list[str]
) -> None:
    run = run_with(tmp_path, *columns)
    figure = pareto_figure(run.trials, run.front, run.summary)
    assert [axes.get_xlabel().split("   ")[0] for axes in figure.axes] == labels
    assert figure.get_size_inches().tolist() == [max(12.0, 6.0 * len(columns)), 6.0]
    drawn = [{line.get_gid() for line in axes.lines} for axes in figure.axes]
    # What the all-DRQ model takes is not known, so it has no place in those panels.
    assert ["all-DRQ" in gids for gids in drawn] == [
        c not in ("arena_bytes", "latency_ms", "segments") for c in columns
    ]
    assert all("all-integer" in gids for gids, c in zip(drawn, columns, strict=True) if c != "segments")


def test_rows_carry_further_costs(tmp_path: Path) -> None:
    run = run_with(tmp_path, "latency_ms", "size_bytes")
    member = next(row for row in tables.front_rows(run.front, run.summary) if row.label == run.front.loc[0, "id"])
    assert (member.cost("latency_ms"), member.cost("size_bytes")) == (2.0, run.front.loc[0, "size_bytes"])
    assert member.further["latency_high"] == pytest.approx(2.22)
    drq = next(row for row in tables.reference_rows(run.summary) if row.label == "all-DRQ")
    assert drq.cost("latency_ms") is None


TEXTS = {
    "bytes": ("arena_bytes", 4096.0, "4.1 kB"),
    "bytes of a compiled file": ("flash_bytes", 35952.0, "36.0 kB"),
    "bytes of a deflated file": ("download_bytes", 1234567.0, "1.23 MB"),
    "a count": ("segments", 3.0, "3"),
    "cycles": ("npu_cycles", 1234567.0, "1,234,567"),
    "unknown": ("segments", None, "–"),
    "milliseconds": ("latency_ms", 12.3456, "12.346"),
}


@pytest.mark.parametrize(("column", "value", "text"), TEXTS.values(), ids=TEXTS)
def test_a_cost_as_a_text(column: str, value: float | None, text: str) -> None:
    assert tables.format_cost(column, value) == text


HEADS = {
    "default": (("size_bytes", "penalty"), ["drop", "size", "penalty"]),
    "latency is noisy": (("latency_ms",), ["drop", "latency*"]),
    "three": (("size_bytes", "arena_bytes", "npu_cycles"), ["drop", "size", "arena", "cycles"]),
}


@pytest.mark.parametrize(("costs", "heads"), HEADS.values(), ids=HEADS)
def test_the_printed_lines_have_the_objectives(tmp_path: Path, costs: tuple[str, ...], heads: list[str]) -> None:
    run = run_with(tmp_path, *costs)
    rows = all_rows(tables.reference_rows(run.summary), tables.front_rows(run.front, run.summary))
    lines = result_lines(rows, run.summary, 80)
    assert lines[0].split() == ["held-out", "accuracy", "%", *heads]
    assert max(map(len, lines)) <= 80


def test_the_page_marks_latency_as_noisy(tmp_path: Path) -> None:
    run = run_with(tmp_path, "penalty", "latency_ms")
    found = context(run)
    assert found["data"]["costs"] == [
        {"key": "penalty", "label": "penalty", "bytes": False, "noisy": False, "possible": [0.0, None]},
        {"key": "latency_ms", "label": "latency", "bytes": False, "noisy": True, "possible": [0.0, None]},
    ]
    (card, *_) = found["cards"]
    assert [(one["name"], one["note"].endswith("noisy")) for one in card["further"]] == [("latency here, ms", True)]
    members = {row["id"]: row for row in found["data"]["models"] if row["front"]}
    assert members[run.front.loc[1, "id"]]["latency_ms"] == 2.001
    assert "latency here, ms" in page_of(run)


def test_a_page_of_a_run_from_before_there_were_objectives(tmp_path: Path) -> None:
    run = made.made_run(tmp_path)
    assert [axis["key"] for axis in page_models.cost_axes(run.summary)] == ["size_bytes", "penalty"]
    assert all(card["further"] == [] for card in context(run)["cards"])


def test_volumes_of_other_objectives_by_hand(tmp_path: Path) -> None:
    """Accuracy and segments, in units of their spread: (0, 1), (1/2, 1/3) and (1, 0), below the corner at 1.1."""
    rows: list[dict[str, Any]] = [
        {"drop": 0.0, "accuracy": 0.9, "segments": 4, "state": "complete", "feasible": True, "reused": False},
        {"drop": 0.05, "accuracy": 0.85, "segments": 2, "state": "complete", "feasible": True, "reused": False},
        {"drop": 0.1, "accuracy": 0.8, "segments": 1, "state": "complete", "feasible": True, "reused": False},
    ]
    trials = pd.DataFrame(rows)
    run = run_with(tmp_path, "segments")
    found = page_history.hypervolumes(dataclasses.replace(run, trials=trials))
    assert [count for count, _ in found] == [1, 2, 3]
    volumes = [1.1 * 0.1, 1.1 * 0.1 + 0.6 * (2 / 3), 1.1 * 0.1 + 0.6 * (2 / 3) + 0.1 * (1 / 3)]
    assert [share for _, share in found] == pytest.approx([volume / volumes[-1] for volume in volumes])
