"""A run in optuna-dashboard, asked over HTTP as a browser asks it."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pump
import pytest
from typer.testing import CliRunner

import autoselect
from autoselect.api import reporting
from autoselect.cli.main import app
from autoselect.domain.recipe import Recipe
from autoselect.errors import UsageError
from autoselect.runs.records import TrialRecord
from autoselect.study.recording.dashboard import note_attributes, note_of, study_note

Ask = Callable[[str], Any]


@contextlib.contextmanager
def served(command: list[str], port: int) -> Iterator[Ask]:
    """Run the command; what it serves is asked for by path."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:

        def ask(path: str) -> Any:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as reply:
                content = reply.read()
                return json.loads(content) if path.startswith("/api") else content

        try:
            wait_until_answered(ask, process)
            yield ask
        finally:
            process.kill()


def wait_until_answered(ask: Ask, process: subprocess.Popen[bytes]) -> None:
    for _ in range(300):
        with contextlib.suppress(OSError):
            ask("/api/meta")
            return
        assert process.poll() is None, process.stderr and process.stderr.read().decode()
        time.sleep(0.1)
    raise AssertionError("the dashboard did not answer within 30 s")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_the_dashboard_shows_metrics_notes_and_artifacts(finished: autoselect.Run) -> None:
    port = free_port()
    command = reporting.watch(finished.directory, port=port)
    with served([reporting.find_program(), *command[1:]], port) as ask:
        (study,) = ask("/api/studies")["study_summaries"]
        found = ask(f"/api/studies/{study['study_id']}")
        assert found["objective_names"] == ["accuracy", "size_bytes", "penalty"]
        assert finished.summary["verdict"] in found["note"]["body"]
        trials = {trial["number"]: trial for trial in found["trials"]}
        assert sorted(trials) == finished.trials["number"].tolist()
        for row in finished.trials.itertuples():
            assert f"proposed by `{row.origin}`" in trials[row.number]["note"]["body"]
        first = finished.front["id"].iloc[0]
        number = int(finished.trials[finished.trials["id"] == first]["number"].iloc[0])
        files = {one["filename"]: one["artifact_id"] for one in trials[number]["artifacts"]}
        assert set(files) == {f"{first}.tflite", f"{first}.recipe.json"}
        place = f"/artifacts/{study['study_id']}/{trials[number]['trial_id']}/"
        assert ask(place + files[f"{first}.tflite"]) == finished.model_path(first).read_bytes()
        assert Recipe.from_json(ask(place + files[f"{first}.recipe.json"]).decode()).denylisted_nodes == set(
            pump.recipe_nodes((finished.directory / f"front/{first}.recipe.json").read_text())
        )
        others = [t for n, t in trials.items() if finished.trials["id"].iloc[n] not in set(finished.front["id"])]
        assert others
        assert not any(trial["artifacts"] for trial in others)


def test_the_command_is_printed_for_a_shell(finished: autoselect.Run) -> None:
    result = CliRunner().invoke(app, ["watch", str(finished.directory), "--port", "9000"])
    assert result.exit_code == 0
    folder = finished.directory
    assert (
        result.output.split()
        == (
            f"optuna-dashboard --storage-class JournalFileStorage --artifact-dir {folder}/artifacts "
            f"--host 127.0.0.1 --port 9000 {folder}/study.journal"
        ).split()
    )


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["watch", str(tmp_path)]).exit_code == 7


def test_a_missing_program_is_told_with_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"pip install 'autoselect\[dashboard\]'"):
        reporting.find_program()


def test_notes_read_back_by_the_dashboards_own_function() -> None:
    from optuna_dashboard._note import get_note_from_system_attrs

    body = "x" * 5000
    assert get_note_from_system_attrs(note_attributes(7, body), 7) == {"version": 1, "body": body}
    before = note_attributes(None, body)
    after = {**before, **study_note(before, "short")}
    assert get_note_from_system_attrs(after, None) == {"version": 2, "body": "short"}


def test_a_failed_trial_says_why_and_no_name_breaks_out_of_its_quotes() -> None:
    recipe = Recipe(denylisted_nodes=frozenset({"a`<script>"}))
    record = TrialRecord(number=0, origin="tpe", recipe=recipe, scores=None, reused=False, error="It\ndied.")
    note = note_of(record)
    assert "* failed: `It died.`" in note
    assert "* `a <script>`" in note
