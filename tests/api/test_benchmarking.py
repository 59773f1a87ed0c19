"""A run on a device that a fake adb pretends to have; no device was ever there."""

from __future__ import annotations

import itertools
import json
import math
import shlex
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_adb import RECORDED, FakeAdb
from typer.testing import CliRunner

import autoselect
from autoselect.api import benchmarking
from autoselect.api.benchmarking import Benchmark, timed
from autoselect.cli.main import app
from autoselect.errors import AutoselectError, ModelError, PreparationError, RunFolderError, ScoreError, UsageError
from autoselect.runs.folder import RunFolder
from autoselect.scoring.intervals import median_interval
from autoselect.tflite import device
from autoselect.tflite.device import find_device, read_timing

RUN = Path(__file__).resolve().parents[1] / "cli" / "terminal" / "run"
"""Tables without models."""


@pytest.fixture
def adb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeAdb:
    fake = FakeAdb(tmp_path / "adb")
    monkeypatch.setenv("PATH", f"{fake.folder}:/usr/bin:/bin")
    monkeypatch.delenv("ANDROID_SERIAL", raising=False)
    return fake


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run whose float model has 4,000 bytes and whose members have 1,000, 1,001, ..."""
    folder = RunFolder(Path(shutil.copytree(RUN, tmp_path / "my run")))
    folder.calibrated(()).write_bytes(bytes(4000))
    folder.front.mkdir(exist_ok=True)
    for place, member in enumerate(autoselect.load_run(folder.root).front["id"]):
        (folder.front / f"{member}.tflite").write_bytes(bytes(1000 + place))
    return folder.root


def invoke(*args: object) -> Any:
    return CliRunner(env={"COLUMNS": "80"}).invoke(app, ["benchmark", *map(str, args)], prog_name="autoselect")


@pytest.mark.parametrize(
    ("name", "milliseconds", "statistic"),
    [("percentiles", 2.036, "median"), ("no_percentiles", 1266.47, "mean"), ("all_same", 0.055, "mean")],
)
def test_what_the_tool_prints_is_read(name: str, milliseconds: float, statistic: str) -> None:
    text = (RECORDED / f"{name}.txt").read_text(encoding="utf-8")
    for said in (text, text.replace("\n", "\r\n")):  # old devices end lines as terminals do
        found = read_timing(said)
        assert (found.milliseconds, found.statistic) == (pytest.approx(milliseconds), statistic)


@pytest.mark.parametrize(
    "said", ["", "\n", "hello\n", "count=3 avg=10\n", "count=1 avg=5\ncount=0 avg=nan\n", "count=2\ncount=2\n"]
)
def test_other_output_is_refused(said: str) -> None:
    with pytest.raises(ScoreError, match="got none"):
        read_timing(said)


@pytest.mark.parametrize(("count", "ends"), [(5, None), (6, (1, 6)), (8, (1, 8)), (9, (2, 8)), (20, (6, 15))])
def test_a_median_lies_between_two_of_the_values(count: int, ends: tuple[int, int] | None) -> None:
    # Of the table of the sign test at 95 %: ranks that as few values lie below as lie above.
    found = median_interval([float(value) for value in reversed(range(1, count + 1))])
    assert found == (pytest.approx(ends or (math.nan, math.nan), nan_ok=True))


def test_the_picks_are_timed_in_turns_and_told_with_intervals(adb: FakeAdb, run: Path) -> None:
    found = autoselect.benchmark(run, rounds=6, threads=4, flags="--use_gpu=true --gpu_backend='a b'")
    names = [model["name"] for model in found.models]
    assert names[:2] == ["float", "recommended"]
    assert found.device == "Pixel 7, Android 14, R58M"
    assert (found.rounds, found.statistic) == (6, "median")
    float_row, first = found.models[0], found.models[1]
    assert len(float_row["times_ms"]) == len(first["times_ms"]) == 6
    assert first["low"] < first["ms"] < first["high"]
    assert float_row["ratio"] == 1.0
    # Sizes are a quarter of the float model's; the device grows slower by a thousandth with each start.
    assert 0.24 < first["ratio_low"] <= first["ratio"] <= first["ratio_high"] < 0.26
    assert "<td>recommended</td>" in found._repr_html_()
    starts = [words[-1] for words in adb.asked() if "--graph=" in words[-1]]
    assert len(starts) == 6 * len(names)
    assert all(shlex.split(s)[1:4] == ["--num_threads=4", "--use_gpu=true", "--gpu_backend=a b"] for s in starts)
    turns = [int(s.rsplit("/")[-1].removesuffix(".tflite")) for s in starts]
    assert turns == [turn for n in range(6) for turn in benchmarking._order(n, len(names))]
    assert [path.name for path in adb.storage.iterdir()] == ["benchmark_model"]


def test_a_float_model_that_takes_no_time_has_no_ratios() -> None:
    """Of a model of a microsecond some versions print 0."""
    row = timed("mine", [0.002, 0.0], [0.001, 0.0])
    assert (row["ms"], row["ratio"], row["ratio_low"]) == (0.001, None, None)
    models = [timed("float", [0.0, 0.0], [0.0, 0.0]), row]
    lines = Benchmark(device="d", command="c", statistic="median", rounds=2, models=models).lines()
    assert lines[-1].split()[:2] == ["mine", "0.00100"]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8])
def test_each_model_follows_each_other_one_equally_often(count: int) -> None:
    rounds = [benchmarking._order(number, count) for number in range(count * (1 + count % 2))]
    assert all(sorted(order) == list(range(count)) for order in rounds)
    follows = Counter(pair for order in rounds for pair in itertools.pairwise(order))
    assert len(follows) == count * (count - 1)
    assert len(set(follows.values())) <= 1


@pytest.mark.slow
def test_the_table_fits_80_columns(adb: FakeAdb, run: Path, tmp_path: Path) -> None:
    extra = tmp_path / "all_integer.tflite"
    extra.write_bytes(bytes(900))
    done = invoke(run, "--all", "--also", extra, "--rounds", 6, "-o", tmp_path / "out.json")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    members = len(autoselect.load_run(run).front)
    assert [line.split()[0] for line in lines[3:]] == [
        "float",
        *[line.split()[0] for line in lines[4:-1]],
        "all_integer.tflite",
    ]
    assert len(lines) == 3 + 1 + members + 1
    kept = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert kept["models"][0]["name"] == "float"
    again = invoke(run, "-o", tmp_path / "out.json")
    assert again.exit_code == UsageError.exit_code
    assert "exists already" in again.stderr
    assert json.loads((tmp_path / "out.json").read_text(encoding="utf-8")) == kept
    assert invoke(run, "--rounds", 6, "-o", tmp_path / "out.json", "--force").exit_code == 0


@pytest.mark.slow
def test_a_model_that_does_not_run_is_told_and_the_others_are_timed(adb: FakeAdb, run: Path) -> None:
    adb.set(outputs={"1000": "refused", "1001": "killed"})
    done = invoke(run, "--all", "--rounds", 6)
    assert done.exit_code == PreparationError.exit_code
    assert "Didn't find op for builtin opcode 'CONV_2D'" in done.stdout
    assert "exit code 139" in done.stdout
    assert done.stderr.count("could not be timed") == 2
    starts = Counter(words[-1] for words in adb.asked() if "--graph=" in words[-1])
    assert sorted(starts.values()) == [1, 1] + [6] * (len(starts) - 2)  # what failed is not tried again
    adb.set(outputs={"4000": "refused"})
    found = autoselect.benchmark(run, rounds=6)
    assert found.models[0]["error"]
    assert found.models[1]["ms"] > 0
    assert found.models[1]["ratio"] is None
    assert "0.2" not in found.lines()[4]


def test_a_device_that_tells_no_exit_codes_is_understood(adb: FakeAdb, run: Path) -> None:
    size = autoselect.load_run(run).model_path("recommended").stat().st_size
    adb.set(tells_exit_codes=False, outputs={str(size): "refused"})
    found = autoselect.benchmark(run, rounds=6)
    assert [model["name"] for model in found.models if model["error"]] == ["recommended"]


Prepare = Callable[[FakeAdb, Path, pytest.MonkeyPatch], None]
FAILURES: dict[str, tuple[Prepare, type[AutoselectError], str]] = {
    "no adb": (lambda a, r, p: (a.folder / "adb").unlink(), UsageError, "adb is not on the PATH"),
    "no device": (lambda a, r, p: a.set(devices={}), UsageError, "lists none"),
    "unauthorized": (lambda a, r, p: a.set(devices={"A": "unauthorized"}), UsageError, "A is unauthorized"),
    "several": (lambda a, r, p: a.set(devices={"A": "device", "B": "device"}), UsageError, "A, B. Say which: --serial"),
    "other serial": (lambda a, r, p: p.setenv("ANDROID_SERIAL", "C"), UsageError, "device C is not ready"),
    "no tool": (
        lambda a, r, p: (a.storage / "benchmark_model").unlink(),
        UsageError,
        "no program /data/local/tmp/bench",
    ),
    "tool may not run": (lambda a, r, p: (a.storage / "benchmark_model").chmod(0o644), UsageError, "chmod \\+x"),
    "no folder": (lambda a, r, p: a.storage.rename(a.root / "gone"), UsageError, "no program"),
    "full": (lambda a, r, p: a.set(full=True), PreparationError, "No space left"),
    "unplugged": (lambda a, r, p: a.set(lost_after=3), PreparationError, "The device R58M is gone"),
    "unreadable": (lambda a, r, p: a.set(output="unreadable"), PreparationError, "No model could be timed"),
    "nothing runs": (lambda a, r, p: a.set(output="refused"), PreparationError, "Registration failed"),
    "no answer": (lambda a, r, p: p.setattr(device, "_TIMEOUT_SECONDS", 0.001), PreparationError, "did not end within"),
    "no float model": (lambda a, r, p: (r / "calibrated.tflite").unlink(), ModelError, "calibrated.tflite"),
    "no run": (lambda a, r, p: (r / "manifest.json").unlink(), RunFolderError, "holds no run"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_what_goes_wrong_is_one_sentence_and_an_exit_code(
    case: str, adb: FakeAdb, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare, kind, words = FAILURES[case]
    if case == "no adb":
        monkeypatch.setenv("PATH", str(adb.folder))
    prepare(adb, run, monkeypatch)
    with pytest.raises(kind, match=words):
        autoselect.benchmark(run, rounds=6)
    done = invoke(run, "--rounds", 6)
    assert done.exit_code == kind.exit_code
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith("Error: ")
    assert "Traceback" not in done.output
    if case != "unplugged":  # nobody can tidy up there
        assert [path.name for path in adb.root.glob("tmp/autoselect.*")] == []


def test_one_of_several_devices_is_chosen(adb: FakeAdb, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adb.set(devices={"A": "device", "B": "device", "C": "offline"})
    monkeypatch.setenv("ANDROID_SERIAL", "A")
    assert autoselect.benchmark(run, rounds=6).device.endswith("A")
    assert {words[1] for words in adb.asked() if words[0] == "-s"} == {"A"}
    assert find_device("B").serial == "B"
    with pytest.raises(UsageError, match="'offline'"):
        find_device("C")


def test_fewer_rounds_are_refused(run: Path) -> None:
    with pytest.raises(UsageError, match="6 or more, got 5"):
        autoselect.benchmark(run, rounds=5)


def test_flags_that_no_shell_takes_are_told_before_a_device_is_looked_for(adb: FakeAdb, run: Path) -> None:
    with pytest.raises(UsageError, match=r"flags: .*No closing"):
        autoselect.benchmark(run, flags="--a='b")
    assert list(adb.asked()) == []
