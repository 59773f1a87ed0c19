"""Outputs that are fed back as inputs: calibration sees the states that this reaches; evaluators are watched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zoo

import autoselect
from autoselect.cases.calibrate import start_calibration
from autoselect.cases.events import Event, Warned
from autoselect.cases.feedback import fed_inputs, question_of
from autoselect.cases.files import CaseFiles
from autoselect.cases.ingredients import Ingredients
from autoselect.data.samples import SampleStore
from autoselect.domain.tensors import TensorSpec
from autoselect.errors import DataError, UsageError
from autoselect.isolation.pool import WorkerPool
from autoselect.sources.wishes import parse_feedback
from autoselect.tflite.reader import Interface

STEPS = np.abs(np.random.default_rng(0).normal(0.0, 1.0, (60, 4))).astype(np.float32)
KEPT = 0.9
FEEDBACK = {"output_1": "x1"}


def leaky(x: Any, state: Any) -> Any:
    """A sum that forgets a tenth at each step: fed back, it grows to ten times of what one step adds."""
    import tensorflow as tf

    state = KEPT * state + x
    return tf.tanh(0.02 * state @ np.ones((4, 2), np.float32)), state


@pytest.fixture(scope="module")
def model() -> bytes:
    return zoo.from_function(leaky, (1, 4), (1, 4)).float_model


def states(steps: np.ndarray, first: np.ndarray | float = 0.0) -> np.ndarray:
    """The state before each step, shape (n_steps, 4)."""
    found = [np.broadcast_to(np.float32(first), 4)]
    for x in steps[:-1]:
        found.append(np.float32(KEPT) * found[-1] + x)
    return np.array(found, np.float32)


def calibrated(model: bytes, samples: Any, feedback: Any, root: Path, pool: WorkerPool) -> SampleStore:
    ingredients = Ingredients(model=model, calibration=samples, feedback=feedback)
    with pool.lent(root / "worker.log") as lent:
        started = start_calibration(ingredients, CaseFiles(root=root), lent, None, debug_samples=1, per_channel=True)
        started.result()
    return started.calibration


def first() -> Iterator[dict[str, np.ndarray]]:
    """Two sequences: one from a state of ones, one from zeros."""
    for number, x in enumerate(STEPS):
        begins = {0: {"x1": np.ones(4, np.float32)}, 40: {"x1": np.zeros(4, np.float32)}}
        yield {"x0": x, **begins.get(number, {})}


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        pytest.param({"x0": STEPS}, states(STEPS), id="arrays without the state"),
        pytest.param([[x] for x in STEPS], states(STEPS), id="lists without the state"),
        pytest.param(first, np.concatenate([states(STEPS[:40], 1.0), states(STEPS[40:])]), id="sequences"),
    ],
)
def test_calibration_sees_the_states_that_feedback_reaches(
    model: bytes, samples: Any, expected: np.ndarray, tmp_path: Path, session_workers: WorkerPool
) -> None:
    store = calibrated(model, samples, FEEDBACK, tmp_path, session_workers)
    found = {tuple(np.round(sample["x0"].ravel(), 5)): sample["x1"] for sample in map(store.inputs, range(len(store)))}
    for x, state in zip(STEPS, expected, strict=True):
        np.testing.assert_allclose(found[tuple(np.round(x, 5))][0], state, rtol=1e-4, atol=1e-5)


def grows(x: Any, state: Any) -> Any:
    return x * 2.0, state * state * 1e9 + x


@pytest.mark.parametrize(
    ("call", "samples", "error"),
    [
        pytest.param(leaky, {"x0": STEPS, "x1": 0 * STEPS}, "holds 'x1', so nothing is fed back", id="all hold it"),
        pytest.param(grows, {"x0": STEPS}, r"after calibration sample \d .*no numbers for 'x1'", id="it grows"),
    ],
)
def test_states_that_teach_nothing_are_refused(
    call: Any, samples: Any, error: str, tmp_path: Path, session_workers: WorkerPool
) -> None:
    with pytest.raises(DataError, match=error):
        calibrated(zoo.from_function(call, (1, 4), (1, 4)).float_model, samples, FEEDBACK, tmp_path, session_workers)


def ends(inputs: dict[str, tuple[int, ...]], outputs: dict[str, tuple[int, ...]]) -> Interface:
    inside, outside = (
        tuple(TensorSpec(key=key, name=key, shape=shape, dtype=np.dtype(np.float32)) for key, shape in side.items())
        for side in (inputs, outputs)
    )
    return Interface(inputs=inside, outputs=outside, is_stateful=False, has_resources=False)


DTLN = ends({"frame": (1, 1, 257), "in": (1, 2, 128, 2)}, {"mask": (1, 1, 257), "out": (1, 2, 128, 2)})
GRU = ends({"x": (1, 8), "state_in": (1, 8)}, {"y": (1, 2), "state_out": (1, 8)})
LSTM = ends({"x": (1, 3), "h": (1, 8), "c": (1, 9)}, {"y": (1, 3), "h_next": (1, 8), "cell_next": (1, 9)})
IMAGE = ends({"x": (1, 8, 8, 3)}, {"y": (1, 8, 8, 3)})
PLAIN = ends({"x": (1, 8), "z": (1, 4)}, {"y": (1, 2)})


@pytest.mark.parametrize(
    ("interface", "options"),
    [
        pytest.param(DTLN, "--feedback mask=frame or --feedback out=in", id="names tell nothing"),
        pytest.param(LSTM, "--feedback cell_next=c", id="a name tells of one"),
        pytest.param(IMAGE, "", id="one input"),
        pytest.param(GRU, "", id="two inputs of that shape"),
        pytest.param(PLAIN, "", id="no such shape"),
    ],
)
def test_what_looks_fed_back_is_asked_for(interface: Interface, options: str) -> None:
    question = question_of(interface)
    assert question.endswith(f" {options}.") if options else question == ""


@pytest.mark.parametrize(
    ("feedback", "message"),
    [
        ({"state": "in"}, "the model has no output 'state'. Its outputs: 'mask', 'out'"),
        ({"out": "state"}, "the model has no input 'state'. Its inputs: 'frame', 'in'"),
        ({"mask": "in"}, r"float32 \(1, 2, 128, 2\); output 'mask' is float32 \(1, 1, 257\)"),
        ({"mask": "frame", "out": "in"}, "all inputs are fed back"),
    ],
)
def test_feedback_that_cannot_be_is_refused(feedback: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fed_inputs(feedback, DTLN)
    assert fed_inputs({"out": "in"}, DTLN) == {"in": "out"}


@pytest.mark.parametrize(
    ("texts", "expected"),
    [(None, None), ([], None), (["a=b"], {"a": "b"}), (["a:0 = in", "c=d"], {"a:0": "in", "c": "d"})],
)
def test_texts_of_feedback(texts: list[str] | None, expected: dict[str, str] | None) -> None:
    assert parse_feedback(texts) == expected


@pytest.mark.parametrize("texts", [["a"], ["=b"], ["a="], ["a=b", "a=c"]], ids=str)
def test_texts_that_are_no_feedback(texts: list[str]) -> None:
    with pytest.raises(UsageError, match=r"^--feedback: "):
        parse_feedback(texts)


@pytest.mark.parametrize("samples", [{"x0": STEPS}, [[x] for x in STEPS]], ids=["arrays", "lists"])
def test_who_leaves_the_state_out_is_asked_for_feedback(
    samples: Any, tmp_path: Path, session_workers: WorkerPool
) -> None:
    into, onward = zoo.weights(4, 2), zoo.weights(4, 3)
    net = zoo.from_function(lambda x, state: (x @ into, KEPT * state + x @ onward), (1, 4), (1, 3))
    with pytest.raises(DataError, match=r"--feedback output_1=x1\.$"):
        calibrated(net.float_model, samples, None, tmp_path, session_workers)


def test_a_diagnosis_calibrates_with_feedback_too(model: bytes, tmp_path: Path) -> None:
    common: dict[str, Any] = {"debug_samples": 20, "figures": False, "cache": False, "workers": 1}
    at_rest = autoselect.diagnose(model, calibration=samples_at_rest, **common)
    fed = autoselect.diagnose(model, calibration={"x0": STEPS}, feedback=FEEDBACK, **common)
    ranges = [found.layer_statistics["range"].max() for found in (at_rest, fed)]
    assert ranges[1] > 2 * ranges[0]


def answered(runner: Any, split: str = "search") -> list[float]:
    """Of each step how near the answer is to what this arithmetic says, as minus the error."""
    steps, state, found = np.roll(STEPS, 7 if split == "search" else 31, 0), np.zeros((1, 4), np.float32), []
    for x in steps:
        expected = np.tanh(0.02 * (np.float32(KEPT) * state + x) @ np.ones((4, 2), np.float32))
        answer, state = runner.step({"x0": x[None], "x1": state}).values()
        found.append(-float(np.abs(answer - expected).mean()))
    return found


def samples_at_rest() -> Iterator[list[np.ndarray]]:
    """Steps whose states are those of a sequence that has just begun."""
    yield from ([x[None], np.zeros((1, 4), np.float32)] for x in STEPS)


def test_an_evaluators_runs_beyond_the_calibrated_ranges_are_warned_of(model: bytes, tmp_path: Path) -> None:
    common = {"evaluator": answered, "workers": 1, "cache": False}
    events: list[Event] = []
    told = autoselect.check(model, calibration=samples_at_rest, **common, listener=events.append)
    [message] = [text for text in told.warnings if text.startswith("Values leave")]
    assert "input 'x1'" in message
    assert " of 60 runs" in message
    assert "output 'output_1'" in message
    assert message.endswith(" --feedback.")
    assert [e.message for e in events if isinstance(e, Warned)].count(message) == 1
    fed = autoselect.check(model, calibration={"x0": STEPS}, feedback=FEEDBACK, **common)
    assert not [text for text in fed.warnings if text.startswith("Values leave")]
    assert not any("feedback" in note for note in fed.notes)


def test_a_search_says_so_in_its_verdict_and_feedback_mends_it(model: bytes, tmp_path: Path) -> None:
    common: dict[str, Any] = {"evaluator": answered, "workers": 1, "cache": False, "trials": 4, "repairs": False}
    before = autoselect.search(model, calibration=samples_at_rest, **common, output=tmp_path / "before")
    after = autoselect.search(model, calibration={"x0": STEPS}, feedback=FEEDBACK, **common, output=tmp_path / "after")
    assert "input 'x1' is beyond" in before.summary["verdict"]
    assert "beyond" not in after.summary["verdict"]
    assert after.manifest["settings"]["feedback"] == FEEDBACK
    errors = [-run.summary["references"]["fiq"]["answered"] for run in (before, after)]
    assert errors[1] < errors[0] / 5
    built = autoselect.build(
        after.directory / "front" / f"{after.front['id'].iloc[0]}.recipe.json",
        model=model,
        calibration={"x0": STEPS},
        feedback=FEEDBACK,
        output=tmp_path / "built.tflite",
    )
    assert built.sha256 == after.front["sha256"].iloc[0]
