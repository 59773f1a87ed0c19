"""``autoselect explore`` from its start to its end, however it ends: a command in a process of its own."""

from __future__ import annotations

import _thread
import contextlib
import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from asked_page import SECONDS, Asked, command, served
from reviewing import Reviewed

import autoselect
from autoselect.errors import UsageError
from autoselect.explore import serving


def refused(*arguments: str) -> tuple[int, str]:
    """Exit code and message of a command that cannot start."""
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_told_to_end(explored: Path, number: signal.Signals) -> None:
    with served(explored) as (process, page):
        assert page.ask("int8")["size_bytes"] > 0
        process.send_signal(number)
        out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    assert "Traceback" not in err
    assert out == ""


def test_after_ctrl_c_the_server_ends_before_what_it_uses_is_closed() -> None:
    class Slow:
        should_exit = ended = False

        def run(self, _sockets: object) -> None:
            while not self.should_exit:
                time.sleep(0.05)
            time.sleep(0.5)
            self.ended = True

    server, closed = Slow(), list[bool]()
    with contextlib.ExitStack() as after, contextlib.ExitStack() as ends, socket.socket() as listening:
        # A shell leaves Ctrl-C without effect in what it runs in the background.
        after.callback(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        ends.callback(lambda: closed.append(server.ended))
        page = serving.Page("", server, listening, ends.pop_all())  # type: ignore[arg-type]
        threading.Timer(0.2, _thread.interrupt_main).start()
        with pytest.raises(KeyboardInterrupt):
            page.wait()
        page.close()
    assert closed == [True]


def test_it_listens_at_the_port_that_is_asked_for(explored: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with served(explored, "--port", str(port)) as (_, page):
        assert page.base == f"http://127.0.0.1:{port}"


def test_a_busy_port_is_told(reviewed: Reviewed, explored: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, message = refused(*command(explored, "--port", str(port)))
    assert code == 2
    reviewed("a port that is taken", message.replace(str(port), "4321"))


def test_a_folder_without_a_run_is_told(reviewed: Reviewed, tmp_path: Path) -> None:
    code, message = refused(*command(tmp_path))
    assert code == 7
    reviewed("a folder without a run", message.replace(str(tmp_path), "runs"))


def test_a_run_of_another_version_is_told(reviewed: Reviewed, copied: Path) -> None:
    manifest = json.loads((copied / "manifest.json").read_text())
    manifest["versions"]["builder"] = 1
    (copied / "manifest.json").write_text(json.dumps(manifest))
    code, message = refused(*command(copied))
    assert code == 2
    reviewed("a run of another version", message.replace(str(copied), "runs/a"), measured=True)


def test_a_run_that_keeps_no_model_is_told(reviewed: Reviewed, copied: Path) -> None:
    shutil.rmtree(copied / "kept")
    code, message = refused(*command(copied))
    assert code == 2
    reviewed("a run without its calibrated model", message.replace(str(copied), "runs/a"))


def test_what_is_missing_is_told(explored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_NEEDED", ("starlette", "no_such_package"))
    with pytest.raises(UsageError, match=r"not installed: no_such_package\. .* pip install 'autoselect\[explore\]'"):
        autoselect.load_run(explored).explore(browser=False)


def test_importing_the_command_line_needs_no_server() -> None:
    code = "import sys, autoselect.cli.main; sys.exit(bool({'starlette', 'uvicorn'} & {*sys.modules}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def descendants(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def are_gone(processes: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=20.0)
    return not [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["calibrating", "held-out check"])
def test_a_killed_server_leaves_the_run_whole(copied: Path, stage: str) -> None:
    """Before the trial is told the run is as it was; after that the trial stays, and the next job does what is left."""
    before = len(autoselect.load_run(copied).trials)
    with served(copied) as (process, page):
        id_ = page.order("score", "int8", changes={"deny": ["SOFTMAX"]})
        job = page.waited(id_, lambda job: job["progress"] == stage)
        assert job["state"] == "working"
        started = descendants(process.pid)
        assert started
        process.kill()
        process.wait()
        assert are_gone(started)
    told = stage != "calibrating"
    with served(copied) as (_, page):
        run = page.get("/api/run")
        assert len(run["points"]) == before + told
        assert run["status"] == ("interrupted" if told else "complete")
        assert page.get("/api/jobs")["jobs"] == []
        answer = page.ask("int8", deny=["SOFTMAX"])
        assert (answer["trial"] is not None) == told
        if told:
            page.done(page.order("search", trials=0))
            assert page.get("/api/run")["status"] == "complete"
    found = autoselect.load_run(copied)
    assert len(found.trials) == before + told
    assert found.status == "complete"
    assert "heldout" in found.front.columns[found.front.notna().any()].str.cat(sep=" ")


@pytest.mark.slow
def test_a_killed_search_goes_on(copied: Path) -> None:
    """Its pins were for its own trials: what is left of them is proposed freely."""
    run = autoselect.load_run(copied)
    before, node = len(run.trials), next(iter(run.what_if("int8").nodes))
    with served(copied) as (process, page):
        id_ = page.order("search", pins={"keep_int": [node]}, trials=30)
        page.waited(id_, lambda job: job["progress"] == "trials" and (job["share"] or 0.0) > 0.0)
        process.kill()
        process.wait()
    with served(copied) as (_, page):
        told = len(page.get("/api/run")["points"])
        assert before < told < before + 30
        assert page.get("/api/run")["status"] == "interrupted"
        assert page.done(page.order("search", trials=0))["result"]["trials"] == before + 30 - told
    run = autoselect.load_run(copied)
    assert (len(run.trials), run.status) == (before + 30, "complete")
    (pinned,) = run.manifest["pinned"]
    trials = run.trials[run.trials["number"].between(pinned["first_trial"], pinned["last_trial"])]
    assert len(trials) == told - before
    recipes = [autoselect.Recipe.from_json(text) for text in trials["recipe"]]
    assert not any(node in recipe.denylisted_nodes | recipe.int16_nodes for recipe in recipes)


@pytest.mark.slow
def test_two_pages_of_one_run(copied: Path) -> None:
    """The lock of the run folder tells the second job; no page ends by that."""
    with served(copied) as (_, first), served(copied) as (_, second):
        score = first.order("score", "int8", changes={"deny": ["SOFTMAX"]})
        first.waited(score, lambda job: job["progress"] not in ("waiting", "starting", "reading the model"))
        late = second.waited(second.order("score", "int8", changes={"deny": ["MEAN"]}))
        assert late["state"] == "failed"
        assert "Another process is working in" in late["error"]
        first.done(score)
        assert waited_for_trial(second)


def waited_for_trial(page: Asked) -> bool:
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline:
        page.get("/api/jobs")
        if page.ask("int8", deny=["SOFTMAX"])["trial"] is not None:
            return True
        time.sleep(0.2)
    return False
