"""What a log says of a search while it goes on."""

from __future__ import annotations

import inspect
import io
import re

import pytest
from reviewing import Reviewed
from rich.console import Console

from autoselect.cases.events import (
    STAGES,
    EndedEarly,
    Event,
    Noted,
    StageStarted,
    StepFinished,
    TrialFinished,
    Warned,
    logged,
)
from autoselect.cli.console import Watcher, _bars, watching
from autoselect.cli.progress import WAITS, PlainLog, Tally, clock


def finished(number: int, **changes: object) -> TrialFinished:
    plain = {
        "origin": "tpe",
        "score": 0.5,
        "drop": 0.1,
        "size_bytes": 1,
        "penalty": 0.0,
        "reused": False,
        "error": None,
    }
    return TrialFinished(**{"number": number, **plain, **changes})  # type: ignore[arg-type]


NUMBERS = {
    "in order": (0, [0, 1, 2], 3),
    "the second ends first": (0, [1, 0, 2], 3),
    "a resumed search": (40, [40, 41], 42),
    "one with trials that Ctrl-C cut off": (36, [40, 41], 38),
    "one of a recipe of the user's": (0, [40], 1),
}


@pytest.mark.parametrize(("before", "numbers", "done"), NUMBERS.values(), ids=NUMBERS)
def test_trials_are_counted_with_those_of_earlier_processes(before: int, numbers: list[int], done: int) -> None:
    tally = Tally()
    tally.begin(StageStarted(stage="trials", done=before))
    for number in numbers:
        tally.add(finished(number))
    assert tally.done == done


def test_what_was_not_needed_and_what_failed_are_counted_apart() -> None:
    tally = Tally()
    for number, changes in enumerate(
        [
            {"drop": 0.2, "score": 0.4},
            {"reused": True},
            {"dropped": True, "score": None, "drop": None},
            {"error": "died"},
        ]
    ):
        tally.add(finished(number, **changes))
    assert (tally.saved, tally.failed) == (2, 1)
    assert tally.note() == "best 0.5, 2 evaluations saved, 1 failed"


def lines_of(*steps: tuple[float, Event]) -> list[str]:
    """What a log says of events, each so many seconds after the one before."""
    now, lines = [0.0], []
    log = PlainLog(lines.append, clock=lambda: now[0])
    for seconds, event in steps:
        now[0] += seconds
        log(event)
    return lines


def test_the_time_left_is_by_the_pace_of_the_stage_that_begins_again() -> None:
    """A search starts its trials with the first models, and goes on once repairs are chosen."""
    first, again = (StageStarted(stage="trials", total=10, done=done) for done in (0, 2))
    lines = lines_of(
        *((0.0, first), (1.0, finished(0)), (1.0, finished(1)), (0.0, StageStarted(stage="repairs"))),
        *((65.0, again), (12.0, finished(2))),
    )
    assert [line.rpartition("about ")[2] for line in lines if "about" in line] == ["0:08 left", "1:24 left"]


def test_a_log_says_how_long_a_stage_without_steps_took(reviewed: Reviewed) -> None:
    lines = lines_of(
        (0.0, StageStarted(stage="model")),
        (32.0, StageStarted(stage="calibrate")),
        (2.0, StageStarted(stage="trials", total=9)),
    )
    reviewed("a stage without steps takes half a minute", lines)


def test_a_log_says_how_far_a_stage_with_steps_is(reviewed: Reviewed) -> None:
    lines = lines_of(
        (0.0, StageStarted(stage="probes", total=9)),
        *((4.0, StepFinished(stage="probes")) for _ in range(9)),
        (0.0, StageStarted(stage="picks")),
        *((6.0, StepFinished(stage="picks")) for _ in range(2)),
    )
    reviewed("a stage with steps", lines)


def test_a_log_says_why_trials_end_early(reviewed: Reviewed) -> None:
    lines = lines_of(
        (0.0, StageStarted(stage="trials", total=10)),
        *((1.0, finished(number)) for number in range(4)),
        (0.0, EndedEarly(stage="trials", reason="the all-integer model is good enough")),
        (0.0, StageStarted(stage="picks")),
    )
    assert lines[1].startswith("trials 4/10, best 0.5")
    reviewed("trials end early", lines[2:])


@pytest.mark.parametrize(("seconds", "text"), [(0.2, "0:00"), (7, "0:07"), (750, "12:30"), (3723, "1:02:03")])
def test_a_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


@pytest.mark.parametrize("form", ["lines", "bars", "quiet", "json"])
def test_what_is_only_news_is_no_warning(
    form: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    note = Noted(message="Is MUL: 1 SQUARE.")
    if form == "lines":
        assert lines_of((0.0, note)) == ["Note: Is MUL: 1 SQUARE."]
    elif form == "bars":
        assert "Note: Is MUL: 1 SQUARE." in bars_after(monkeypatch, StageStarted(stage="calibrate"), note)
    else:
        stream = io.StringIO() if form == "quiet" else None
        with watching(stream, quiet=form == "quiet", as_json=form == "json") as told:
            told(note)
        said = '{"event": "note", "message": "Is MUL: 1 SQUARE."}\n'
        assert capsys.readouterr() == ("" if form == "quiet" else said, "")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def bars_after(monkeypatch: pytest.MonkeyPatch, *events: Event) -> list[str]:
    """The lines of the bars as they stand at the end."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    stream = Terminal()
    with watching(stream) as watcher:
        for event in events:
            watcher(event)
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())
    return [line.rstrip() for line in re.split(r"[\r\n]+", shown) if line.strip()]


def test_the_bar_of_trials_is_closed_where_they_end_early(reviewed: Reviewed, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = bars_after(
        monkeypatch,
        StageStarted(stage="trials", total=10),
        *(finished(number) for number in range(4)),
        EndedEarly(stage="trials", reason="the all-integer model is good enough"),
        StageStarted(stage="picks"),
    )
    reviewed("the bar of trials ends early", [line for line in lines if "early" in line])
    assert re.fullmatch(r"✓ trials +━+ +4/10 0:00 best 0\.5", lines[-2])
    assert re.fullmatch(r"✓ [a-z ]+ +━+ +0:00", lines[-1])


def test_a_stage_without_steps_shows_its_time_and_what_it_waits_for(reviewed: Reviewed) -> None:
    progress = _bars(Console(file=io.StringIO(), width=80))
    now = [0.0]
    progress.get_time = lambda: now[0]  # type: ignore[method-assign]
    Watcher(Console(file=io.StringIO()), progress)(StageStarted(stage="calibrate"))
    shown = []
    for now[0] in (1.0, 21.0):
        console = Console(file=io.StringIO(), width=80)
        console.print(progress.get_renderable())
        shown.append(console.file.getvalue())  # type: ignore[attr-defined]
    assert "0:01" in shown[0]
    assert "0:21" in shown[1]
    reviewed("the bar of a stage without steps", shown[1])
    assert "/" not in shown[1]


def test_every_stage_of_a_search_has_words() -> None:
    source = inspect.getdoc(StageStarted) or ""
    named = set(re.findall(r"``(\w+)``", source)) - {"total", "done"}
    assert named | {"latency"} == set(STAGES)
    assert set(WAITS) <= set(STAGES)


def test_verbose_tells_each_trial_and_no_warning_twice(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    with watching(stream, quiet=True, verbose=True) as watcher:
        listener = logged(watcher)
        listener(finished(0))
        listener(Warned(message="Be careful."))
    logged(lambda event: None)(finished(1))
    assert stream.getvalue().splitlines() == [
        "trial 0, tpe: score 0.5, penalty 0, 1 bytes",
        "Warning: Be careful.",
    ]
