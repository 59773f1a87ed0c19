from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import zoo

from autoselect.cases import repeat_jobs
from autoselect.cases.files import FLOAT, CaseFiles
from autoselect.cases.open_case import open_case
from autoselect.cases.repeat_jobs import repeats
from autoselect.data.samples import SampleStore
from autoselect.domain.recipe import Recipe
from autoselect.embedded import model_bytes
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader, wide_kernels
from autoselect.tflite.runner import Outputs, Runner

SAMPLES = [{"x": np.array([float(i)], dtype=np.float32)} for i in range(3)]


def always(inputs: Mapping[str, np.ndarray]) -> Outputs:
    return {"y": inputs["x"] * 2}


def nothing(inputs: Mapping[str, np.ndarray]) -> Outputs:
    return {"y": inputs["x"] * np.float32(np.nan)}


def otherwise(inputs: Mapping[str, np.ndarray]) -> Outputs:
    return {"y": inputs["x"] * 3 + 1}


def last_bit(inputs: Mapping[str, np.ndarray]) -> Outputs:
    """Off by the last bit on the third sample."""
    return {"y": np.nextafter(inputs["x"] * 2, np.float32(9.0)) if inputs["x"][0] == 2.0 else inputs["x"] * 2}


ROWS: dict[str, tuple[list[Callable[[Mapping[str, np.ndarray]], Outputs]], bool]] = {
    "equal": ([always, always], True),
    "the last bit of the last sample": ([always, last_bit], False),
    "equal where none is a number": ([nothing, nothing], True),
    "the third of three": ([always, always, last_bit], False),
}


@pytest.mark.parametrize(("runners", "expected"), ROWS.values(), ids=ROWS)
def test_a_model_repeats_where_fresh_interpreters_agree_bit_for_bit(
    runners: list[Callable[[Mapping[str, np.ndarray]], Outputs]], expected: bool
) -> None:
    makers = iter(runners)
    assert repeats(lambda: next(makers, runners[-1]), SAMPLES, seconds=10.0) is expected


def test_a_rare_event_is_found() -> None:
    """One fresh interpreter in 66 answers otherwise, as LiteRT was seen to (7 of 459): two runs would find 1 in 30."""
    rng = np.random.default_rng(0)
    found = sum(
        not repeats(lambda: otherwise if rng.random() < 7 / 459 else always, SAMPLES, seconds=10.0) for _ in range(200)
    )
    assert found >= 0.9 * 200


def test_what_happens_on_one_sample_only_is_found_too() -> None:
    made = iter([*[always] * 49, last_bit, last_bit, last_bit])
    assert not repeats(lambda: next(made, always), SAMPLES, seconds=10.0)


TIMES = {"slow": (0.6, 3), "slower than allowed": (5.0, 2), "fast": (1e-4, repeat_jobs.MOST_RUNS)}


@pytest.mark.parametrize(("each", "runs"), TIMES.values(), ids=TIMES)
def test_it_takes_no_longer_than_it_may_but_runs_twice(each: float, runs: int) -> None:
    made: list[int] = []

    def make() -> Callable[[Mapping[str, np.ndarray]], Outputs]:
        made.append(1)
        return always

    assert repeats(make, SAMPLES, seconds=1.5, clock=lambda: each * len(made))
    assert len(made) == runs


@pytest.fixture
def files(tmp_path: Path) -> CaseFiles:
    """The embedded model with two samples."""
    files = CaseFiles(root=tmp_path)
    files.float_model.write_bytes(model_bytes())
    specs = reader.input_specs(fb.parse(model_bytes()))
    rng = np.random.default_rng(0)
    pairs = [({s.key: rng.normal(size=s.shape).astype(np.float32) for s in specs}, None) for _ in range(2)]
    SampleStore.write(files.samples("calibration"), iter(pairs), specs)
    return files


def test_what_repeats_stays_with_the_delegates(files: CaseFiles) -> None:
    assert repeat_jobs.check(files.root, FLOAT, 0.1)
    assert not files.plain_kernels(FLOAT).exists()


def test_what_does_not_repeat_runs_on_plain_kernels(files: CaseFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool | None] = []

    class Runner:
        """Each one gives outputs of its own."""

        def __init__(self, _content: bytes, *, delegates: bool | None = None, **_: object) -> None:
            asked.append(delegates)
            self.number = float(len(asked))

        def __call__(self, _inputs: Mapping[str, np.ndarray]) -> Outputs:
            return {"y": np.array([self.number])}

    monkeypatch.setattr("autoselect.cases.repeat_jobs.Runner", Runner)
    monkeypatch.setattr("autoselect.cases.open_case.Runner", Runner)
    assert not repeat_jobs.check(files.root, FLOAT, 0.1)
    case = open_case(files.root)
    case.cpu_runner(FLOAT)
    assert asked[-1] is False
    files.candidate("another").parent.mkdir()
    files.candidate("another").write_bytes(files.float_model.read_bytes())
    case.cpu_runner("another")
    assert asked[-1] is True


def test_what_is_scored_is_what_is_asked_to_repeat(files: CaseFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """LiteRT's 16-bit convolutions are never scored with where they are slow."""
    import tensorflow as tf

    source = zoo.from_function(lambda x: tf.nn.conv2d(x, zoo.weights(3, 1, 6, 4), 1, "SAME"), (1, 64, 1, 6))
    wide = source.prepared.builder.build(Recipe(int16_nodes=frozenset({"*"}))).content
    monkeypatch.setattr(wide_kernels, "WORTH_IT", 1)
    ran: list[bytes] = []
    monkeypatch.setattr(repeat_jobs, "Runner", lambda content: ran.append(content) or Runner(content))
    files.candidate("wide").parent.mkdir()
    files.candidate("wide").write_bytes(wide)
    assert repeat_jobs.check(files.root, "wide", 0.0)
    assert wide_kernels.slow_macs(wide) > 0
    assert {wide_kernels.slow_macs(content) for content in ran} == {0}
