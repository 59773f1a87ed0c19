"""What a log says of a search while it goes on."""

from __future__ import annotations

import pytest

from autoselect.cases.events import TrialFinished
from autoselect.cli.progress import Tally


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
    "in order": ([0, 1, 2], 3),
    "the second ends first": ([1, 0, 2], 3),
    "a resumed search": ([40, 41], 42),
    "a resumed search out of order": ([41, 40, 42], 43),
}


@pytest.mark.parametrize(("numbers", "done"), NUMBERS.values(), ids=NUMBERS)
def test_trials_are_counted_with_those_of_earlier_processes(numbers: list[int], done: int) -> None:
    tally = Tally()
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
    assert tally.note() == "best 0.5, 2 saved, 1 failed"
