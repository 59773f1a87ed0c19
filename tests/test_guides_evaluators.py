"""The evaluators of the guides for detectors, recognisers and voice detectors score small models of the same form."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import zoo

import autoselect
from autoselect.tflite.runner import Runner

GUIDES = Path(__file__).resolve().parents[1] / "docs" / "how-to"

Guide = Callable[[str, str], ModuleType]


@pytest.fixture
def guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Guide:
    """Writes the blocks of a guide into a module of the current folder, which is new, and imports it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def written(page: str, module: str) -> ModuleType:
        blocks = re.findall(r"```{\.py \.evaluator}\n(.*?)```", (GUIDES / f"{page}.md").read_text("utf-8"), re.DOTALL)
        Path(f"{module}.py").write_text("\n\n".join(blocks), encoding="utf-8")
        monkeypatch.delitem(importlib.sys.modules, module, raising=False)  # type: ignore[attr-defined]
        return importlib.import_module(module)

    return written


def searched(model: bytes, direction: str, **given: Any) -> Any:
    run = autoselect.search(model, direction=direction, trials=3, workers=1, early_exit=False, **given)
    assert run.status == "complete"
    return run.summary["references"]["float"]


def detector() -> bytes:
    """Boxes and scores of 64 places of a picture of 16 by 16 pixels, three classes."""
    tf = zoo.tf()
    near, far = zoo.weights(3, 3, 3, 8), zoo.weights(1, 1, 8, 3, seed=1)
    grid = np.stack(np.meshgrid(np.arange(8), np.arange(8)), axis=-1).reshape(1, 64, 2).astype(np.float32) * 2 + 1

    def call(x: Any) -> Any:
        seen = tf.nn.relu(tf.nn.conv2d(x, near, 2, "SAME"))
        scores = tf.sigmoid(3 * tf.nn.conv2d(seen, far, 1, "SAME"))
        boxes = tf.concat([tf.constant(grid), tf.fill([1, 64, 2], 3.0)], axis=-1)
        return tf.transpose(tf.concat([boxes, tf.reshape(scores, (1, 64, 3))], axis=-1), (0, 2, 1))

    return zoo.from_function(call, (1, 16, 16, 3)).float_model


def test_the_detectors_guide_scores_detections(guide: Guide) -> None:
    module = guide("detector", "detector")
    runner, rng = Runner(detector()), np.random.default_rng(0)
    np.savez("calibration.npz", images=rng.normal(size=(8, 16, 16, 3)).astype(np.float32))
    for part in ("search", "heldout"):
        images = rng.normal(size=(6, 16, 16, 3)).astype(np.float32)
        boxes, kinds = np.zeros((6, 64, 4), np.float32), np.full((6, 64), -1)
        for number, image in enumerate(images):
            found = module.detections(next(iter(runner(image[None]).values())))
            boxes[number, : len(found[0])], kinds[number, : len(found[0])] = found[:2]
        np.savez(f"{part}.npz", images=images, boxes=boxes, kinds=kinds)
    assert module.score(runner) == [1.0] * 6
    given = searched(detector(), "maximize", calibration="calibration.npz", evaluator="detector:score")
    assert given["heldout"] == 1.0


def test_precision_of_a_photograph_is_that_by_hand(guide: Guide) -> None:
    module = guide("detector", "detector")
    boxes = np.array([[10, 10, 4, 4], [30, 30, 4, 4], [50, 50, 4, 4], [0, 0, 0, 0]], np.float32)
    kinds = np.array([0, 1, 1, -1])
    sure = np.array([0.9, 0.8, 0.7])

    def found(*rows: int, **changes: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        places = list(rows)
        return boxes[places], changes.get("kinds", kinds[places]), sure[: len(places)]

    assert module.average_precision(found(0, 1, 2), boxes, kinds) == 1.0
    assert module.average_precision(found(0, 1), boxes, kinds) == pytest.approx(2 / 3)
    assert module.average_precision(found(0, 0, 1), boxes, kinds) == pytest.approx((1 + 2 / 3) / 3)
    assert module.average_precision(found(0, kinds=np.array([1])), boxes, kinds) == 0.0
    assert module.average_precision(found(), boxes, kinds) == 0.0
    assert module.average_precision(found(), boxes, np.full(4, -1)) == 1.0
    assert module.average_precision(found(0), boxes, np.full(4, -1)) == 0.0


def recogniser() -> bytes:
    tf = zoo.tf()
    near, far = zoo.weights(8, 5, 3, 16), zoo.weights(16, 5, seed=1)

    def call(x: Any) -> Any:
        seen = tf.nn.relu(tf.nn.conv2d(x, near, (8, 4), "SAME"))
        return tf.nn.softmax(4 * tf.matmul(tf.reshape(seen, (1, 10, 16)), tf.constant(far)))

    return zoo.from_function(call, (1, 8, 40, 3)).float_model


def test_the_recognisers_guide_scores_texts(guide: Guide, tmp_path: Path) -> None:
    (tmp_path / "characters.txt").write_text("a\nb\nc\n", encoding="utf-8")
    module = guide("text-reader", "reader")
    steps = np.eye(5, dtype=np.float32)[[0, 1, 1, 0, 1, 2, 2, 4, 3, 0]][None]
    assert module.text_of(steps) == "aab c"
    for text, wanted, expected in (("abc", "abc", 0), ("", "abc", 3), ("kitten", "sitting", 3), ("ab", "ba", 2)):
        assert module.distance(text, wanted) == expected
    runner, rng = Runner(recogniser()), np.random.default_rng(0)
    np.savez("calibration.npz", x=rng.normal(size=(8, 8, 40, 3)).astype(np.float32))
    for part in ("search", "heldout"):
        lines = rng.normal(size=(6, 8, 40, 3)).astype(np.float32)
        texts = [module.text_of(next(iter(runner(line[None]).values()))) for line in lines]
        np.savez(f"{part}.npz", x=lines, texts=np.array(texts))
    assert module.score(runner) == [0.0] * 6
    given = searched(recogniser(), "minimize", calibration="calibration.npz", evaluator="reader:score")
    assert given["heldout"] == 0.0


def voice_detector() -> bytes:
    """A state that leaks, of the guide's shapes and names."""
    tf = zoo.tf()
    heard, told = zoo.weights(576, 128), zoo.weights(128, 1, seed=1)

    @tf.function(input_signature=[tf.TensorSpec((1, 576), name="input"), tf.TensorSpec((2, 1, 128), name="state")])
    def call(input: Any, state: Any) -> dict[str, Any]:  # noqa: A002  # The name is the model's.
        seen = tf.tanh(tf.matmul(input, heard))
        grown = 0.5 * state + tf.stack([seen, seen])
        return {"output": tf.sigmoid(4 * tf.matmul(tf.reshape(grown[0], (1, 128)), told)), "stateN": grown}

    return zoo.Source(call.get_concrete_function(), None).float_model


def test_the_voice_detectors_guide_feeds_the_state_back(guide: Guide) -> None:
    module, rng = guide("voice-detector", "voice"), np.random.default_rng(0)
    waves = rng.normal(size=(3, 1536)).astype(np.float32)
    for part in ("calibration", "search", "heldout"):
        np.savez(f"{part}.npz", waves=waves, voiced=np.array([[True, True, False]] * 3))
    (windows, _), *_ = module.recordings("search")
    assert windows.shape == (3, 1, 576)
    np.testing.assert_array_equal(windows[1, 0], waves[0, 512 - 64 : 1024])
    assert [set(one) for one in module.steps()] == [{"input", "state"}, {"input"}, {"input"}] * 3

    class Counting:
        """Says that there is a voice until its state has counted two windows."""

        def step(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            state = inputs["state"] + 1
            return {"stateN": state, "output": np.array([[float(state.max() <= 2)]])}

    assert module.score(Counting()) == [1.0] * 3
    searched(
        voice_detector(),
        "maximize",
        calibration=module.steps,
        feedback={"stateN": "state"},
        evaluator="voice:score",
    )
