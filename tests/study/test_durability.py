"""What is on disk of a study survives cuts at any byte, and clocks that go backwards."""

from __future__ import annotations

import datetime
import itertools
from pathlib import Path

import pytest
import test_optuna_study as made

from autoselect.study.recording.optuna_study import read_records


@pytest.mark.parametrize("step", [61, pytest.param(1, marks=pytest.mark.slow)])
def test_a_journal_cut_at_any_byte_of_its_last_records_keeps_all_before(step: int, tmp_path: Path) -> None:
    """At every byte, or, in less time, at some of them and about each line's end."""
    path, cut_off = tmp_path / "study.journal", tmp_path / "cut.journal"
    study = made.open_study(path)
    records, ends = [], []
    for value in (0.9, 0.8, 0.7):
        records.append(made.told(study, value)[1])
        ends.append(path.stat().st_size)
    content = path.read_bytes()
    lines = {place + beside for place, byte in enumerate(content) if byte == ord("\n") for beside in (0, 1)}
    for end in (e for e in range(ends[0], len(content) + 1) if e % step == 0 or e in lines):
        cut_off.write_bytes(content[:end])
        kept = records[: sum(end >= told for told in ends)]
        # Its last line may be whole but for the line's end.
        assert read_records(cut_off) in (kept, records[: sum(end + 1 >= told for told in ends)])
        if end % 427 == 0 or end + 1 in ends:
            again = made.open_study(cut_off)
            again.close_abandoned()
            assert again.records() == kept
            _, more = made.told(again, 0.6)
            assert read_records(cut_off) == [*kept, more]


def test_a_clock_that_goes_backwards_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    days = itertools.count()

    class Backwards(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
            return datetime.datetime(2030, 1, 1, tzinfo=tz) - datetime.timedelta(days=next(days))

    monkeypatch.setattr("optuna.storages.journal._storage.datetime", Backwards)
    path = tmp_path / "study.journal"
    told = [made.told(made.open_study(path), value)[1] for value in (0.9, 0.8, 0.7)]
    assert next(days) > 3
    assert read_records(path) == told
    assert made.open_study(path).close_abandoned() == 0
