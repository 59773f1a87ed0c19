"""What is kept of compiling; the compiler itself is a fake."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autoselect.cases.compiling import Compiling, compile_report
from autoselect.domain.targets import Compiled, Target
from autoselect.domain.verdicts import Verdict
from autoselect.errors import TargetRefusal, WorkerDied
from autoselect.scoring import vela
from autoselect.scoring.target_file import read_target

U55 = read_target("ethos-u55-128")
DONE = Compiled(segments=2, host_ops={"CONV_2D": 1}, crossing_bytes=64, cycles=900, cost=1000.0)
PREDICTED = Verdict(
    placements=(), segments=2, crossings=(), crossing_bytes=64, accelerator_cost=0.0, host_cost=0.0, crossing_cost=0.0
)


class FakeVela:
    """Gives its answers one after the other and counts how often it is called."""

    def __init__(self, *answers: Compiled | Exception) -> None:
        self.answers, self.calls = list(answers), 0

    def __call__(self, content: bytes, target: Target, *, timeout_seconds: float) -> Compiled:
        self.calls += 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def install(monkeypatch: pytest.MonkeyPatch, *answers: Compiled | Exception) -> FakeVela:
    fake = FakeVela(*answers)
    monkeypatch.setattr(vela, "compile_model", fake)
    monkeypatch.setattr("importlib.metadata.version", lambda _name: "5.2.0")
    return fake


def report(tmp_path: Path | None, content: bytes = b"model", target: Target = U55) -> dict[str, object]:
    return compile_report(content, target, PREDICTED, Compiling(cache_root=tmp_path, timeout_seconds=1.0))


def test_equal_bytes_are_compiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = install(monkeypatch, DONE)
    first = report(tmp_path)
    assert (first["cost"], first["cycles"], first["agrees"]) == (1000.0, 900, True)
    assert report(tmp_path) == first
    assert fake.calls == 1


OTHERS = {
    "other bytes": {"content": b"another"},
    "another price": {"target": replace(U55, crossing_fixed=1.0)},
    "another system": {"target": replace(U55, compiler=read_target("ethos-u65-256").compiler)},
}


@pytest.mark.parametrize("changed", OTHERS.values(), ids=OTHERS)
def test_what_changes_the_result_is_compiled_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, changed: dict[str, object]
) -> None:
    fake = install(monkeypatch, DONE, replace(DONE, segments=3))
    report(tmp_path)
    assert not report(tmp_path, **changed)["agrees"]  # type: ignore[arg-type]
    assert fake.calls == 2


def test_without_a_cache_everything_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = install(monkeypatch, DONE, DONE)
    assert report(None) == report(None)
    assert fake.calls == 2


def test_a_refusal_is_kept_with_its_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = install(monkeypatch, TargetRefusal("Vela refuses the candidate: no float LSTM"))
    for _ in range(2):
        with pytest.raises(TargetRefusal, match="no float LSTM"):
            report(tmp_path)
    assert fake.calls == 1


def test_a_compiler_that_hung_is_asked_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = install(monkeypatch, WorkerDied("Vela took longer than 1 s"), DONE)
    with pytest.raises(WorkerDied):
        report(tmp_path)
    assert report(tmp_path)["segments"] == 2
    assert fake.calls == 2


def test_a_damaged_entry_is_compiled_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = install(monkeypatch, DONE, DONE)
    report(tmp_path)
    (entry,) = tmp_path.glob("*.json")
    entry.write_text("{")
    assert report(tmp_path)["segments"] == 2
    assert fake.calls == 2
