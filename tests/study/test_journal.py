"""Entries of a journal that are written at once."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from autoselect.study.recording.optuna_study import Journal

NAMES = [f"node {i}" for i in range(5)]


def tried(backend: Any, together: Any) -> list[optuna.trial.FrozenTrial]:
    """Two trials of five parameters each, and what a study holds of them."""
    study = optuna.create_study(storage=JournalStorage(backend), sampler=optuna.samplers.RandomSampler(seed=0))
    for value in (1.0, 2.0):
        trial = study.ask()
        with together():
            for name in NAMES:
                trial.suggest_categorical(name, [False, True])
            trial.set_user_attr("origin", "here")
        study.tell(trial, value)
    return study.get_trials()


def without_times(trials: list[optuna.trial.FrozenTrial]) -> list[tuple[Any, ...]]:
    return [(t.number, t.state, t.values, t.params, t.distributions, t.user_attrs) for t in trials]


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(str(tmp_path / "together.log"))


def test_what_is_written_together_is_what_is_written_one_by_one(journal: Journal, tmp_path: Path) -> None:
    plain = tried(JournalFileBackend(str(tmp_path / "plain.log")), contextlib.nullcontext)
    assert without_times(tried(journal, journal.together)) == without_times(plain)
    again = JournalStorage(JournalFileBackend(str(tmp_path / "together.log")))
    [study] = again.get_all_studies()
    assert without_times(again.get_all_trials(study._study_id)) == without_times(plain)


def test_the_disk_is_waited_for_once(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", waits.append)
        tried(journal, journal.together)
    # Two entries start a study; a trial is started, described and ended.
    assert len(waits) <= 2 + 2 * 4


def test_what_waits_is_kept_where_the_body_fails(journal: Journal) -> None:
    study = optuna.create_study(storage=JournalStorage(journal))
    trial = study.ask()

    def fail_half_way() -> None:
        with journal.together():
            trial.set_user_attr("seen", 1)
            raise LookupError

    with pytest.raises(LookupError):
        fail_half_way()
    [kept] = study.get_trials()
    assert kept.user_attrs == {"seen": 1}


def test_nothing_written_together_is_nothing(journal: Journal, tmp_path: Path) -> None:
    with journal.together():
        pass
    assert (tmp_path / "together.log").read_bytes() == b""
