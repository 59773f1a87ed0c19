"""Jobs of the page in a real browser: build, score, search under pins, two tabs, and a server that is killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from asked_page import served
from opened_explore import SECONDS, agrees, job, op, press, settled, traces, window

import autoselect

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def test_what_is_built_is_downloaded_and_two_tabs_see_it(browser: Browser, explored: Path) -> None:
    with served(explored) as (_, server), window(browser, server.url) as page:
        with page.context.expect_page() as opened:
            page.evaluate("window.open('/')")
        other = opened.value
        settled(other)
        press(page, op(page, "LOGISTIC"), "f")
        page.click("#build")
        answer = autoselect.load_run(explored).what_if("recommended", in_float=["LOGISTIC"])
        assert job(other, "Build") == job(page, "Build")
        with other.expect_download() as download:
            other.locator("#jobs a:text-is('Download')").click()
        assert download.value.suggested_filename.endswith(".tflite")
        assert download.value.path().read_bytes() == answer.build()


@pytest.mark.slow
def test_what_is_scored_becomes_a_trial_and_a_point(browser: Browser, copied: Path) -> None:
    before = autoselect.load_run(copied).trials
    with served(copied) as (_, server), window(browser, server.url) as page:
        assert traces(page)["by hand"]["ids"] == []
        press(page, op(page, "LOGISTIC"), "f")
        page.click("#score")
        told = job(page, "Score")
        page.locator("#answer:has-text('Scored as trial')").wait_for()
        settled(page)
        run = autoselect.load_run(copied)
        new = run.trials[~run.trials["number"].isin(before["number"])].iloc[0]
        assert (len(run.trials), new["origin"]) == (len(before) + 1, "user")
        assert f"Trial {new['number']} " in told
        by_hand = traces(page)["by hand"]
        assert by_hand["ids"] == [new["id"]]
        assert by_hand["x"] == [new["penalty"]]
        answer = run.what_if(new["id"])
        assert answer.trial == new["number"]
        agrees(page, answer)
        assert f"Scored as trial {new['number']}" in page.inner_text("#answer")


@pytest.mark.slow
def test_the_search_goes_on_under_what_was_decided_and_can_be_stopped(browser: Browser, copied: Path) -> None:
    before = len(autoselect.load_run(copied).trials)
    with served(copied) as (_, server), window(browser, server.url) as page:
        assert not page.locator("#search").is_enabled()  # nothing is decided
        press(page, op(page, "SOFTMAX"), "f")
        press(page, op(page, "CONCATENATION"), "8")
        assert "2 ops decided" in page.inner_text("#pins")
        page.fill("#trials", "2")
        page.click("#search")
        assert "2 trials" in job(page, "Search")
        run = autoselect.load_run(copied)
        assert len(run.trials) == before + 2
        nodes = run.what_if().nodes
        for recipe in map(json.loads, run.trials["recipe"].iloc[before:]):
            out = {*recipe["denylisted_nodes"]}
            assert [node for node in nodes if node in out and "concat" in node] == []
            assert len([node for node in nodes if node in out and "StatefulPartitionedCall" in node]) == 1
        page.fill("#trials", "1000")
        page.click("#search")
        page.locator("#jobs button:text-is('Stop')").click(timeout=SECONDS * 1000)
        page.locator("#jobs li.stopped").wait_for(timeout=SECONDS * 1000)


@pytest.mark.slow
def test_a_killed_server_is_said_and_what_was_done_comes_back(browser: Browser, explored: Path) -> None:
    with served(explored) as (process, server), window(browser, server.url, quiet=False) as page:
        press(page, op(page, "LOGISTIC"), "f")
        process.kill()
        process.wait()
        page.locator("#banner:has-text('does not answer')").wait_for(timeout=20_000)
        op(page, "SOFTMAX").press("f")  # What is asked now is not answered, and nothing breaks.
        assert page.locator("#figures tbody tr").count() > 10
        port = server.base.rsplit(":", 1)[1]
        with served(explored, "--port", port) as (_, again):
            page.locator("#banner:has-text('started again')").wait_for(timeout=20_000)
            page.goto(again.url)
            page.wait_for_url(f"{again.base}/")
            settled(page)
            assert page.locator("#banner").is_hidden()
            agrees(page, autoselect.load_run(explored).what_if("recommended", in_float=["LOGISTIC", "SOFTMAX"]))


@pytest.mark.slow
def test_a_server_that_was_only_slow_is_back_by_itself(browser: Browser, explored: Path) -> None:
    with served(explored) as (_, server), window(browser, server.url, quiet=False) as page:
        page.context.set_offline(True)
        page.locator("#banner:has-text('does not answer')").wait_for(timeout=20_000)
        page.context.set_offline(False)
        page.locator("#banner").wait_for(state="hidden", timeout=20_000)
        press(page, op(page, "LOGISTIC"), "f")
        agrees(page, autoselect.load_run(explored).what_if("recommended", in_float=["LOGISTIC"]))


@pytest.mark.slow
def test_an_answer_that_was_given_up_while_it_was_read_is_asked_again(browser: Browser, explored: Path) -> None:
    slow = """() => {
      const fetched = window.fetch, wait = () => new Promise((then) => setTimeout(then, 1500));
      window.fetch = async (...given) => {
        const reply = await fetched(...given), read = reply.json.bind(reply);
        if (given[0] === "/api/ask") reply.json = async () => {
          document.documentElement.dataset.reading = "";
          await wait();
          return read();
        };
        return reply;
      };
    }"""
    with served(explored) as (_, server), window(browser, server.url) as page:
        page.evaluate(slow)
        op(page, "LOGISTIC").press("f")
        page.wait_for_selector("html[data-reading]", state="attached")
        page.click("#undo")
        page.wait_for_timeout(2000)  # The answer that nobody waits for has been read by now.
        page.click("#redo")
        settled(page)
        agrees(page, autoselect.load_run(explored).what_if("recommended", in_float=["LOGISTIC"]))
