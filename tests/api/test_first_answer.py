"""No question is asked that cannot change the answer any more: whole models first, then repairs, then units."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pump
import pytest

import autoselect
from autoselect.cases.events import Event, StageStarted
from autoselect.cases.settled import RepairChoice
from autoselect.isolation import machine
from autoselect.isolation.pool import result_of
from autoselect.study import search
from autoselect.study.stage_clock import StageClock


def stages(events: list[Event]) -> list[str]:
    return [event.stage for event in events if isinstance(event, StageStarted)]


def test_an_integer_model_that_is_good_enough_is_the_only_one(tmp_path: Path) -> None:
    events: list[Event] = []
    found = pump.search(tmp_path / "run", trials=20, repairs=True, max_drop=0.5, listener=events.append)
    assert found.trials["origin"].tolist() == ["baseline:fiq"]
    assert {"repairs", "plan", "probes"}.isdisjoint(stages(events))
    assert "neither repairs nor" in found.summary["verdict"]
    assert found.picks["recommended"] == found.front["id"].tolist()[0]
    assert found.status == "complete"
    assert autoselect.resume(tmp_path / "run").trials["origin"].tolist() == ["baseline:fiq"]
    again = autoselect.resume(tmp_path / "run", trials=5)
    assert (len(again.trials), again.summary["ended_early"]) == (5, None)


def test_a_repaired_model_that_is_good_enough_is_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop_of(*_: Any) -> Any:
        return lambda scored: "three are enough" if len(scored) >= 3 else None

    monkeypatch.setattr(search, "stop_of", stop_of)
    events: list[Event] = []
    found = pump.search(tmp_path / "run", trials=20, seed=1, repairs=True, listener=events.append)
    assert found.trials["origin"].tolist() == ["baseline:fiq", "baseline:drq", "baseline:fiq+repairs"]
    assert {"plan", "probes"}.isdisjoint(stages(events))
    assert "repairs" in stages(events)
    assert "Ended early: three are enough; no unit was tried alone." in found.summary["verdict"]
    assert found.manifest["settings"]["repair_sets"]


def test_no_unit_is_tried_once_the_time_has_passed_though_no_repair_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = [False]

    def with_repairs(*_: Any, **__: Any) -> RepairChoice:
        late[0] = True
        return RepairChoice()

    monkeypatch.setattr(search, "with_repairs", with_repairs)
    monkeypatch.setattr(StageClock, "elapsed", lambda _: 1e9 if late[0] else 0.0)
    events: list[Event] = []
    common = {"repairs": True, "early_exit": False, "timeout": 60.0}
    found = pump.search(tmp_path / "run", trials=20, **common, listener=events.append)
    assert {"plan", "probes"}.isdisjoint(stages(events))
    assert found.trials["origin"].tolist() == ["baseline:fiq", "baseline:drq"]
    assert "60 s" in found.summary["verdict"]
    late[0] = False
    events.clear()
    monkeypatch.setattr(StageClock, "elapsed", lambda _: 0.0)
    assert len(autoselect.resume(tmp_path / "run", trials=5, listener=events.append).trials) == 5
    assert next(event.done for event in events if isinstance(event, StageStarted) and event.stage == "trials") == 2


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["with_repairs", "make_problem"])
def test_a_timeout_ends_a_phase_that_is_under_way(phase: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole models are scored; what the phase had asked is given up, and a resume asks it."""
    asked = getattr(search, phase)
    now = [0.0]

    def endless(*given: Any, **named: Any) -> Any:
        workers = next(each for each in given if hasattr(each, "submit"))
        now[0] = 1e9
        result_of(workers.submit(time.sleep, 600))
        return asked(*given, **named)

    monkeypatch.setattr(search, phase, endless)
    monkeypatch.setattr(StageClock, "elapsed", lambda _: now[0])
    began = time.monotonic()
    found = pump.search(tmp_path / "run", trials=6, repairs=True, early_exit=False, timeout=5.0)
    assert time.monotonic() - began < 300
    assert {origin.split(":")[0] for origin in found.trials["origin"]} == {"baseline"}
    assert not found.front.empty
    assert "5 s" in found.summary["ended_early"]
    monkeypatch.undo()
    assert len(autoselect.resume(tmp_path / "run", timeout=3600.0).trials) == 6


def test_a_budget_of_one_trial_is_the_integer_model(tmp_path: Path) -> None:
    events: list[Event] = []
    found = pump.search(tmp_path / "run", trials=1, repairs=True, listener=events.append)
    assert found.trials["origin"].tolist() == ["baseline:fiq"]
    assert {"repairs", "plan", "probes"}.isdisjoint(stages(events))


def test_a_search_says_that_memory_holds_fewer_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_cpus", lambda: 2)
    monkeypatch.setattr(machine, "memory_bytes", lambda: 2e9)
    found = pump.search(tmp_path / "run", trials=1, workers=None)
    assert machine.why_fewer(1) in found.manifest["notes"]
    assert found.manifest["settings"]["workers"] == 1


def test_a_search_says_that_nothing_is_kept_for_later_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("AUTOSELECT_CACHE_DIR", str(tmp_path / "file"))
    for cache in (True, False):
        found = pump.search(tmp_path / f"run-{cache}", trials=1, cache=cache)
        assert any(str(tmp_path / "file") in text for text in found.manifest.get("notes", ())) is cache
