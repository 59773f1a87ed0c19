"""The page of `autoselect explore` in a real browser, served by the real command: clicks, keys, steps, reload."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from asked_page import Asked, served
from opened_explore import agrees, figures, op, press, settled, traces, window

import autoselect
from autoselect.api.run import Run
from autoselect.report.tables.frames import format_penalty
from autoselect.runs.records import TrialRecord
from autoselect.study.what_if.tried import Tried

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def server(explored: Path) -> Iterator[Asked]:
    with served(explored) as (_, asked):
        yield asked


@pytest.fixture(scope="module")
def run(explored: Path) -> Run:
    return autoselect.load_run(explored)


@pytest.fixture
def page(browser: Browser, server: Asked) -> Iterator[Page]:
    with window(browser, server.url) as opened:
        yield opened


def test_it_opens_with_the_recommended_model(page: Page, run: Run) -> None:
    agrees(page, run.what_if("recommended"))
    assert page.input_value("#start") == "recommended"
    assert page.locator("#canvas .op").count() >= page.locator("#nodes-list button").count() == 22
    assert page.title() == "What if: pump_monitor.tflite"


def test_a_click_moves_an_op_and_the_figures_are_those_of_the_file(page: Page, run: Run) -> None:
    page.locator("#canvas .op[aria-label^='LOGISTIC']").click()
    assert page.locator("#menu button").all_inner_texts()[0].split() == ["int8", "8"]
    page.locator("#menu button:has-text('float')").click()
    settled(page)
    answer = run.what_if("recommended", in_float=["LOGISTIC"])
    agrees(page, answer)
    assert page.locator("#canvas .op.float.decided").count() == 1
    assert "float · left to the CPU" in page.inner_text("#op")
    assert page.locator("#canvas .marks path").count() >= answer.crossing_tensors > 0
    assert page.locator("#canvas .island").count() == answer.segments
    content = answer.build()
    assert isinstance(content, bytes)
    assert len(content) == answer.size_bytes
    assert answer.drop is not None
    assert traces(page)["this candidate"]["x"] == [pytest.approx(answer.penalty)]
    assert traces(page)["this candidate"]["y"] == [pytest.approx(100 * answer.drop)]


def test_a_state_that_an_op_cannot_have_is_said_with_its_reason(page: Page) -> None:
    row = op(page, "LOGISTIC")
    row.click()
    hybrid = page.locator("#menu [data-state=hybrid]")
    assert hybrid.get_attribute("aria-disabled") == "true"
    assert "it has no hybrid form" in hybrid.inner_text()
    page.keyboard.press("Escape")
    assert page.locator("#menu").is_hidden()
    row.press("h")
    assert "cannot be hybrid: it has no hybrid form" in page.inner_text("#said")
    assert not page.locator("#undo").is_enabled()


def test_steps_are_undone_and_done_again_and_a_reload_keeps_them(page: Page, run: Run) -> None:
    agrees(page, run.what_if("recommended"))
    press(page, op(page, "LOGISTIC"), "f")
    press(page, op(page, "SOFTMAX"), "f")
    both = run.what_if("recommended", in_float=["LOGISTIC", "SOFTMAX"])
    agrees(page, both)
    page.keyboard.press("Control+z")
    settled(page)
    agrees(page, run.what_if("recommended", in_float=["LOGISTIC"]))
    page.click("#undo")
    settled(page)
    agrees(page, run.what_if("recommended"))
    page.keyboard.press("Control+Shift+Z")
    settled(page)
    page.click("#redo")
    settled(page)
    agrees(page, both)
    page.reload()
    settled(page)
    agrees(page, both)
    page.click("#undo")
    settled(page)
    agrees(page, run.what_if("recommended", in_float=["LOGISTIC"]))
    page.click("#reset")
    settled(page)
    agrees(page, run.what_if("recommended"))


def test_a_whole_model_is_compared_with_what_was_kept(page: Page, run: Run) -> None:
    page.select_option("#start", "int8")
    settled(page)
    page.select_option("#compare", "recommended")
    settled(page)
    mine, other = run.what_if("int8"), run.what_if("recommended")
    agrees(page, mine)
    shown = figures(page)
    assert shown["penalty"][:2] == [format_penalty(mine.penalty), format_penalty(other.penalty)]
    assert shown["penalty"][2].startswith("−")
    press(page, op(page, "SUB"), "f")
    page.click("#keep")
    settled(page)
    assert page.input_value("#compare") == "kept 0"
    assert [row[2] for row in figures(page).values()] == [""] * len(figures(page))
    page.keyboard.press("Control+z")
    settled(page)
    assert figures(page)["float ops"] == ["0", "1", "−1"]


def test_another_target_has_another_penalty(page: Page, run: Run) -> None:
    page.select_option("#target", "ethos-u65-256")
    settled(page)
    answer = run.what_if("recommended", target="ethos-u65-256")
    assert answer.penalty > 10_000  # Cycles, which have no use for decimals.
    agrees(page, answer)
    assert "Penalties of trials are those for integer-only" in page.inner_text("#plot-legend")


def test_a_compilers_penalty_and_a_forecast_are_not_compared(
    browser: Browser, explored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trials have what the compiler says, ten times the forecast; what was not scored has a forecast alone."""

    def compiled(_: Tried, trial: TrialRecord) -> dict[str, float]:
        return {} if trial.scores is None else {"penalty": 10.0 * trial.scores.penalty + 100.0}

    monkeypatch.setattr(Tried, "compiled", compiled)
    with autoselect.load_run(explored).explore(browser=False) as here, window(browser, here.url) as page:
        assert "forecast" not in page.inner_text("#plot-legend")
        page.locator("label:has(input[value=penalty])").last.click()
        settled(page)
        with Asked(here.url) as asked:
            moves = asked.post("/api/cheapest", start="recommended", changes={}, goal="penalty").json()["moves"]
            told = page.locator("#moves button").all_inner_texts()
            assert len(told) == len(moves) > 0
            for text, move in zip(told, moves, strict=True):
                assert f"penalty −{format_penalty(-move['more_penalty'])}" in text
            unscored = next(i for i, m in enumerate(moves) if not asked.ask(**{m["state"]: m["nodes"]})["compiled"])
        page.locator("#moves button").nth(unscored).click()
        settled(page)
        assert "forecast" in page.inner_text("#plot-legend")
        assert "forecast" in str(page.get_attribute("#plot", "aria-label"))


def test_the_cheapest_change_is_seen_before_it_is_made(page: Page, run: Run, server: Asked) -> None:
    page.select_option("#start", "int8")
    settled(page)
    moves = server.post("/api/cheapest", start="int8", changes={}, goal="drop").json()["moves"]
    assert page.locator("#moves button").count() == len(moves) > 0
    page.locator("#moves button").first.hover()
    assert page.locator(f"#canvas .op.preview.as-{moves[0]['state']}").count() == len(moves[0]["nodes"])
    page.locator("#moves button").first.click()
    settled(page)
    shown = figures(page)
    assert shown["penalty"][0] == format_penalty(moves[0]["penalty"])
    assert shown["size"][0] == f"{moves[0]['size_bytes'] / 1e3:.1f} kB"
    page.locator("label:has(input[value=penalty])").last.click()
    settled(page)
    assert all("penalty −" in text for text in page.locator("#moves button").all_inner_texts())


def test_a_click_on_a_trial_starts_from_it(page: Page, run: Run) -> None:
    page.locator("label:has(input[name=view][value=all])").click()
    page.locator("#plot").scroll_into_view_if_needed()
    x, y, id_ = page.locator("#plot").evaluate(
        """e => { const t = e.data.find(t => t.name === 'front'), {xaxis, yaxis} = e._fullLayout;
        const i = t.y.indexOf(Math.max(...t.y)), box = e.getBoundingClientRect();
        return [box.left + xaxis._offset + xaxis.d2p(t.x[i]), box.top + yaxis._offset + yaxis.d2p(t.y[i]),
                t.customdata[i]]; }"""
    )
    page.mouse.move(x, y)
    page.mouse.click(x, y)
    settled(page)
    assert page.input_value("#start") == id_
    agrees(page, run.what_if(id_))


def test_the_list_is_filtered_by_words(page: Page) -> None:
    page.fill("#filter", "conv_2d int8")
    types = page.locator("#nodes-list .type").all_inner_texts()
    assert 0 < len(types) < 22
    assert {*types} <= {"CONV_2D", "DEPTHWISE_CONV_2D"}
    assert page.inner_text("#nodes-count") == f"{len(types)} of 22"
    page.fill("#filter", "no such op")
    assert "No op has these words" in page.inner_text("#nodes-list")
