"""Bars in notebooks, and the listeners of the documentation against fakes of what they write to."""

from __future__ import annotations

import logging
import runpy
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from autoselect import events
from autoselect.api.progress import Bars, told_to

LISTENERS = Path(__file__).resolve().parents[2] / "docs" / "listeners"
TRIAL = events.TrialFinished(
    number=3, origin="surrogate", score=0.9, size_bytes=500, penalty=2.0, reused=False, error=None, drop=0.01
)
FAILED = events.TrialFinished(
    number=4, origin="surrogate", score=None, size_bytes=None, penalty=None, reused=False, error="no kernel"
)
SEARCH: list[events.Event] = [
    events.StageStarted(stage="calibrate"),
    events.StageStarted(stage="trials", total=10),
    TRIAL,
    FAILED,
    events.Warned(message="few samples"),
    events.EndedEarly(stage="trials", reason="good enough"),
    events.StageStarted(stage="heldout", total=2),
    events.StepFinished(stage="heldout"),
]


class FakeBar:
    """Keeps what it was told; ``made`` has all bars."""

    made: list[FakeBar]

    def __init__(self, *, total: int | None, initial: int, desc: str, leave: bool) -> None:
        self.total, self.desc, self.leave, self.steps, self.is_open = total, desc, leave, initial, True
        type(self).made.append(self)

    def update(self, steps: int) -> None:
        assert self.is_open
        self.steps += steps

    def close(self) -> None:
        self.is_open = False


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[FakeBar]:
    FakeBar.made = []
    monkeypatch.setitem(sys.modules, "tqdm.auto", types.SimpleNamespace(tqdm=FakeBar))
    return FakeBar.made


def test_a_bar_a_stage(made: list[FakeBar]) -> None:
    heard: list[events.Event] = []
    with told_to(heard.append, True) as listener:
        for event in SEARCH:
            listener(event)
        assert [bar.is_open for bar in made] == [False, False, True]
    assert heard == SEARCH
    assert [(bar.desc, bar.total, bar.steps) for bar in made] == [
        ("calibrate", None, 0),
        ("trials", 10, 2),
        ("heldout", 2, 1),
    ]
    assert not any(bar.is_open for bar in made)


@pytest.mark.parametrize(("notebook", "progress", "bars"), [(True, None, 1), (True, False, 0), (False, None, 0)])
def test_where_bars_are_shown(
    made: list[FakeBar], monkeypatch: pytest.MonkeyPatch, notebook: bool, progress: bool | None, bars: int
) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    if not notebook:
        monkeypatch.delitem(sys.modules, "ipykernel")
    with told_to(lambda _: None, progress) as listener:
        listener(SEARCH[0])
    assert len(made) == bars


def test_without_tqdm_there_is_the_log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with caplog.at_level(logging.INFO, logger="autoselect"), told_to(lambda _: None, True) as listener:
        listener(TRIAL)
    assert "trial 3, surrogate: score 0.9" in caplog.text


def test_a_notebook_without_widgets_is_not_warned_of_them() -> None:
    notebook = """
import sys, types
shell = types.SimpleNamespace(config=["IPKernelApp"])
sys.modules |= {"ipywidgets": None, "ipykernel.zmqshell": None, "IPython.html": None, "IPython.html.widgets": None}
sys.modules["IPython"] = types.SimpleNamespace(get_ipython=lambda: shell)
import autoselect
autoselect.search
assert "optuna" in sys.modules and "tqdm.auto" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", notebook], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_real_bars_take_all_events(capsys: pytest.CaptureFixture[str]) -> None:
    from tqdm import tqdm

    bars = Bars(tqdm)
    for event in SEARCH:
        bars(event)
    bars.close()
    assert "trials:" in capsys.readouterr().err


def test_the_mlflow_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics: list[tuple[int, dict[str, float]]] = []
    tags: list[tuple[str, str]] = []
    fake = types.SimpleNamespace(
        log_metrics=lambda figures, step: metrics.append((step, figures)),
        set_tag=lambda name, value: tags.append((name, value)),
    )
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    listener = runpy.run_path(str(LISTENERS / "mlflow_listener.py"))["mlflow_listener"]
    for event in SEARCH:
        listener(event)
    assert metrics == [(3, {"score": 0.9, "drop": 0.01, "size_bytes": 500.0, "penalty": 2.0})]
    assert tags == [("stage", "calibrate"), ("stage", "trials"), ("warning 1", "few samples"), ("stage", "heldout")]


def test_the_wandb_listener() -> None:
    logged: list[dict[str, Any]] = []
    alerts: list[str] = []
    tracked = types.SimpleNamespace(log=logged.append, alert=lambda title, text: alerts.append(text))
    listener = runpy.run_path(str(LISTENERS / "wandb_listener.py"))["WandbListener"](tracked)
    for event in SEARCH:
        listener(event)
    assert [(row["number"], row.get("score"), row.get("error")) for row in logged] == [
        (3, 0.9, None),
        (4, None, "no kernel"),
    ]
    assert alerts == ["few samples"]
