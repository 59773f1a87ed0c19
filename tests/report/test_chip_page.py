"""What the page and the terminal's lines say of a run for a chip whose compiler decides."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import made_run as made
import pytest
from chip_run import CHIP, LEFT, NO_KERNEL, PIECES, chip_run
from opened_page import open_page
from reviewing import Reviewed

from autoselect.report.card import card_of
from autoselect.report.page.page import context, page_of, write_page
from autoselect.report.tables import frames
from autoselect.report.tables.chip_results import asks_compiler, chip_lines, chips_of, most_left, reference_ids
from autoselect.report.tables.result_lines import all_rows

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def test_a_run_for_another_target_has_none_of_it(tmp_path: Path) -> None:
    run = made.made_run(tmp_path)
    for compiler in (None, {"compiled": 3, "refused": 0, "segments_agree": 3}):
        run.summary["compiler"] = compiler
        assert (chips_of(run.summary), asks_compiler(run.summary), most_left(run.summary)) == ((), False, {})
        html = page_of(run)
        assert 'id="chip"' not in html
        assert "ops left on the CPU</dt>" not in html
        assert "8-bit integers" in html
        assert chip_lines([], run.summary, {}) == ()


def test_a_run_that_was_stopped_has_partitions_but_no_chip(tmp_path: Path) -> None:
    run = made.made_run(tmp_path)
    run.summary["compiler"] = {}
    assert asks_compiler(run.summary)
    assert chips_of(run.summary) == ()
    html = page_of(run)
    assert "<dt>partitions</dt>" in html
    assert "<dt>segments</dt>" not in html


def test_the_section_has_each_model_once_with_texts(tmp_path: Path) -> None:
    run = chip_run(tmp_path)
    (section,) = context(run)["chips"]
    rows = {row["id"]: row for row in section["rows"]}
    assert (section["name"], section["samples"], len(rows)) == (CHIP, "1,000", len(section["rows"]))
    assert set(rows) == {*run.front["id"], run.trials["id"][0]}
    row = rows[run.front["id"][0]]
    assert (row["partitions"], row["left_ops"], row["ddr"], row["label"]) == (3, 3, "75.8 kB", "recommended, all-DRQ")
    assert (row["chip"], row["cpu"], row["chip_db"], row["cpu_db"]) == ("90.0 %", "95.0 %", "25.0 dB", "–")
    assert (row["between"], row["loses"], row["agreement"]) == ("2.0 points to 8.0 points lost", True, "78 %")
    assert [reason["why"] for reason in section["reasons"]] == ["too wide", NO_KERNEL]
    assert section["reasons"][0]["models"] == "2 of recommended, all-DRQ"


@pytest.mark.parametrize(("partitions", "told"), [(2, frames.MISSING), (0, "0 B")])
def test_bytes_that_a_compiler_does_not_tell_are_none(tmp_path: Path, partitions: int, told: str) -> None:
    run = chip_run(tmp_path)
    members = run.summary["compiler"]["members"]
    for made_of in members.values():
        made_of |= {"ddr_bytes": 0, "segments": partitions}
    rows = all_rows(frames.reference_rows(run.summary), frames.front_rows(run.front, run.summary))
    lines = [re.split(r"  +", line) for line in chip_lines(rows, run.summary, reference_ids(run.trials))]
    assert {row["ddr"] for row in context(run)["chips"][0]["rows"]} == {told}
    assert {cells[3] for cells in lines[1:] if len(cells) > 3} == {told}


def test_the_page_says_that_no_device_was_there(tmp_path: Path) -> None:
    html = page_of(chip_run(tmp_path))
    assert "No device" in html
    assert escape(NO_KERNEL) in html
    unemulated = page_of(chip_run(tmp_path / "other", emulated=False))
    assert "no device" in unemulated
    assert "emulated chip</th>" not in unemulated


def test_each_chip_has_a_section(tmp_path: Path) -> None:
    found = context(chip_run(tmp_path, others=True))
    assert [section["name"] for section in found["chips"]] == [CHIP, "qualcomm-sm8735"] == found["chip_names"]


def test_ops_of_the_graph_are_in_pieces(tmp_path: Path) -> None:
    run = chip_run(tmp_path)
    (graph,) = context(run)["graphs"]
    (side,) = graph["chips"]
    assert side["pieces"] == PIECES
    assert {i: side["reasons"][place] for i, place in side["why"].items()} == LEFT


def test_models_have_partitions_and_left_ops(tmp_path: Path) -> None:
    run = chip_run(tmp_path)
    found = context(run)
    assert found["data"]["on_chip"]
    left = {row["id"]: row["left_ops"] for row in found["data"]["models"] if row["front"]}
    assert left == {key: 3 if key == run.front["id"][0] else 0 for key in run.front["id"]}
    assert found["cards"][0]["left_ops"] == 3


def test_lines_hold_what_a_chip_does_with_each_model(tmp_path: Path) -> None:
    run = chip_run(tmp_path)
    ids = reference_ids(run.trials)
    assert ids["fiq"] == run.trials["id"][0]
    rows = all_rows(frames.reference_rows(run.summary), frames.front_rows(run.front, run.summary))
    heading, *lines, note = chip_lines(rows, run.summary, ids)
    assert re.split(r"  +", heading) == [f"on {CHIP}", "partitions", "left ops", "DDR", "emulated %", "CPU %"]
    (told,) = (line for line in lines if line.startswith("recommended"))
    assert re.split(r"  +", told) == ["recommended", "3", "3", "75.8 kB", "90.0", "95.0"]
    assert not any(line.startswith("float") for line in lines)  # Nobody compiled it.
    assert "No device" in note
    assert "emulated" not in chip_lines(rows, chip_run(tmp_path / "b", emulated=False).summary, {})[0]


def test_closeness_on_a_chip_is_held_against_the_cpus(tmp_path: Path) -> None:
    run = chip_run(tmp_path)
    run.summary["metric"] = "sqnr_db"
    for found in run.summary["compiler"]["emulated"].values():
        found |= {"chip": 30.0, "cpu": 34.0, "low": 3.0, "high": 5.0}
    assert {row["between"] for row in context(run)["chips"][0]["rows"]} == {"3 dB to 5 dB lost"}
    assert "| 3 dB to 5 dB lost |" in card_of(run, str(run.front["id"][0]), title="A model")


@pytest.mark.parametrize(
    ("drops", "told"),
    [
        ([(0.05, 0.06)], "{0} of the {0} emulated models break the limit"),
        ([(0.05, 0.06), (0.0, 0.001)], "1 of the {0} emulated models breaks the limit"),
        ([(0.05, 0.06), (0.05, None), (0.05, 0.06), (0.0, 0.001)], "2 of the {0} emulated models break the limit"),
        ([(0.011, 0.02)], ""),
        ([(None, None)], ""),
    ],
    ids=["all", "one", "two", "not for sure", "not known"],
)
def test_models_that_break_the_limit_on_the_chip_are_counted(
    tmp_path: Path, drops: list[tuple[float | None, float | None]], told: str
) -> None:
    run = chip_run(tmp_path)
    run.summary["allowed_drop"] = 0.01
    rows = all_rows(frames.reference_rows(run.summary), frames.front_rows(run.front, run.summary))
    ids, emulated = reference_ids(run.trials), run.summary["compiler"]["emulated"]
    shown = list(dict.fromkeys(key for _, row in rows if (key := ids.get(row.reference, row.label)) in emulated))
    for place, key in enumerate(shown):
        emulated[key] |= dict(zip(("drop", "bound"), drops[min(place, len(drops) - 1)], strict=True))
    said = f"On the emulation of {CHIP}, with 95 % confidence, {told.format(len(shown))}: the limit is 1.0 point."
    [section] = context(run)["chips"]
    for text in (" ".join(chip_lines(rows, run.summary, ids)), section["broken"], page_of(run)):
        assert (said in text) == bool(told)


@pytest.mark.parametrize(
    ("drop", "bound", "told"), [(0.005, 0.03, True), (0.005, 0.01, False), (0.05, 0.06, False), (None, None, False)]
)
def test_what_the_emulation_does_not_show_is_told(
    tmp_path: Path, drop: float | None, bound: float | None, told: bool, reviewed: Reviewed
) -> None:
    """The bound in the verdict is of scores on the CPU."""
    run = chip_run(tmp_path)
    run.summary["allowed_drop"] = 0.01
    run.summary["compiler"]["emulated"][run.summary["picks"]["recommended"]] |= {"drop": drop, "bound": bound}
    rows = all_rows(frames.reference_rows(run.summary), frames.front_rows(run.front, run.summary))
    found = [line for line in chip_lines(rows, run.summary, reference_ids(run.trials)) if "not show" in line]
    assert len(found) == told
    assert ("not show" in context(run)["chips"][0]["broken"]) == told
    if told:
        reviewed("a recommended model that may break the limit on the chip", found)


@pytest.mark.parametrize("width", [1280, 390])
def test_colours_say_who_runs_an_op(browser: Browser, tmp_path: Path, width: int) -> None:
    path = write_page(chip_run(tmp_path), tmp_path / "report.html")
    with browser.new_context(viewport={"width": width, "height": 900}) as window:
        page, errors = window.new_page(), list[str]()
        page.on("pageerror", lambda error: errors.append(str(error)))
        open_page(page, path)
        page.locator("#canvas").scroll_into_view_if_needed()
        page.wait_for_selector("#canvas .op")
        counts = {name: page.locator(f"#canvas .op.{name}").count() for name in ("npu", "cpu", "float")}
        assert counts == {"npu": len(PIECES) - len(LEFT), "cpu": len(LEFT), "float": 0}
        assert page.locator("#canvas .piece").count() == 3
        page.locator("#canvas .op.cpu").first.dispatch_event("click")
        assert "left on the CPU" in page.inner_text("#op")
        assert LEFT[3] in page.inner_text("#op")
        assert page.locator("#kind-legend").is_hidden()
        page.select_option("#graph-side", "")
        assert page.locator("#canvas .op.cpu, #canvas .piece").count() == 0
        assert page.locator("#side-legend").is_hidden()
        headings = page.locator("#table thead th").all_inner_texts()
        assert ("partitions" in headings, "segments" in headings) == (True, False)
        assert "ops left on the CPU" in page.locator("#compared").text_content()  # type: ignore[operator]
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert errors == []
