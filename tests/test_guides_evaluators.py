"""The evaluators of the guides score small models of the same form as those of the guides."""

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

Guide = Callable[..., ModuleType]


@pytest.fixture
def guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Guide:
    """Writes the blocks of a guide into a module of the current folder, which is new, and imports it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def written(page: str, module: str, further: str = "") -> ModuleType:
        blocks = re.findall(r"```{\.py \.evaluator}\n(.*?)```", (GUIDES / f"{page}.md").read_text("utf-8"), re.DOTALL)
        Path(f"{module}.py").write_text("\n\n".join([*blocks, further]), encoding="utf-8")
        monkeypatch.delitem(importlib.sys.modules, module, raising=False)  # type: ignore[attr-defined]
        return importlib.import_module(module)

    return written


def searched(model: bytes, direction: str, **given: Any) -> Any:
    return finished(model, direction, **given).summary["references"]["float"]


def finished(model: bytes, direction: str | None = None, **given: Any) -> autoselect.Run:
    run = autoselect.search(model, direction=direction, trials=3, workers=1, early_exit=False, **given)
    assert run.status == "complete"
    return run


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


@pytest.mark.slow
def test_the_detectors_guide_gives_the_map_of_pycocotools_and_its_interval(guide: Guide) -> None:
    """Truth is what float finds, without every third box and with some boxes moved or of another class."""
    from pycocotools.cocoeval import COCOeval

    module = guide("detector", "detector")
    runner, rng = Runner(detector()), np.random.default_rng(1)
    np.savez("calibration.npz", images=rng.normal(size=(8, 16, 16, 3)).astype(np.float32))
    for part in ("search", "heldout"):
        images = rng.normal(size=(40, 16, 16, 3)).astype(np.float32)
        boxes, kinds = np.zeros((40, 64, 4), np.float32), np.full((40, 64), -1)
        for number, image in enumerate(images):
            found = module.detections(next(iter(runner(image[None]).values())))
            kept = np.arange(len(found[0])) % 3 < 2
            boxes[number, : kept.sum()] = found[0][kept] + rng.normal(scale=0.3, size=(kept.sum(), 4))
            kinds[number, : kept.sum()] = np.where(rng.random(kept.sum()) < 0.2, 0, found[1][kept])
        np.savez(f"{part}.npz", images=images, boxes=boxes, kinds=kinds)
    parts = module.matched(runner)
    truth = [(b[k >= 0], k[k >= 0], np.ones((k >= 0).sum())) for b, k in zip(boxes, kinds, strict=True)]
    found = [module.detections(next(iter(runner(image[None]).values()))) for image in images]
    evaluation = COCOeval(module.as_coco(truth), module.as_coco(found), "bbox")
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    score = module.coco_map(module.matched(runner, "heldout").rows)
    assert score == pytest.approx(float(evaluation.stats[0]))
    assert 0.1 < score < 0.9
    assert module.coco_map(np.tile(parts.rows[:20], (2, 1))) != module.coco_map(parts.rows)
    run = finished(detector(), "maximize", calibration="calibration.npz", evaluator="detector:matched")
    assert run.summary["references"]["float"]["heldout"] == pytest.approx(score)
    assert run.front["drop_bound"].notna().all()
    assert run.front["heldout_drop_low"].le(run.front["heldout_drop_high"]).all()


def segmenter() -> bytes:
    """Three classes of each pixel of a picture of 8 by 8."""
    tf = zoo.tf()
    near, far = zoo.weights(3, 3, 3, 8), zoo.weights(1, 1, 8, 3, seed=1)

    def call(x: Any) -> Any:
        return tf.nn.softmax(tf.nn.conv2d(tf.nn.relu(tf.nn.conv2d(x, near, 1, "SAME")), far, 1, "SAME"))

    return zoo.from_function(call, (1, 8, 8, 3)).float_model


READER_OF_STEPS = """
def text_of(output):
    return " ".join("abcde"[place] for place in output[0].argmax(axis=1))
"""


def test_the_mean_iou_of_the_evaluators_guide_is_that_of_the_catalogue(guide: Guide) -> None:
    guide("evaluator", "parts")
    runner, rng = Runner(segmenter()), np.random.default_rng(0)
    np.savez("calibration.npz", x=rng.normal(size=(8, 8, 8, 3)).astype(np.float32))
    for part in ("search", "heldout"):
        images = rng.normal(size=(30, 8, 8, 3)).astype(np.float32)
        labels = np.stack([next(iter(runner(image[None]).values()))[0].argmax(axis=-1) for image in images])
        labels = np.where(rng.random(labels.shape) < 0.2, 1, labels)
        np.savez(f"{part}.npz", images=images, labels=labels)
        np.savez(f"{part}_y.npz", x=images, y=labels)
    ours = finished(segmenter(), "maximize", calibration="calibration.npz", evaluator="parts:confusions").front
    data = {"evaluation": "search_y.npz", "heldout": "heldout_y.npz"}
    theirs = finished(segmenter(), calibration="calibration.npz", metric="mean_iou", **data).front
    both = ours.merge(theirs, on="sha256", suffixes=("", "_theirs"))
    assert len(both)
    np.testing.assert_allclose(both["confusions"], both["mean_iou"])
    for column in ("drop_bound", "heldout_drop_low", "heldout_drop_high"):
        np.testing.assert_allclose(both[column], both[f"{column}_theirs"], rtol=1e-6)


def test_the_word_error_rate_of_the_evaluators_guide(guide: Guide) -> None:
    module = guide("evaluator", "parts", READER_OF_STEPS)
    runner, rng = Runner(recogniser()), np.random.default_rng(0)
    np.savez("calibration.npz", x=rng.normal(size=(8, 8, 40, 3)).astype(np.float32))
    for part in ("search", "heldout"):
        lines = rng.normal(size=(30, 8, 40, 3)).astype(np.float32)
        texts = [module.text_of(next(iter(runner(line[None]).values()))) for line in lines]
        wrong = [text.replace("a", "e", 1) if number % 2 else f"{text} a" for number, text in enumerate(texts)]
        np.savez(f"{part}.npz", x=lines, texts=np.array(wrong))
    parts = module.errors_and_words(runner)
    with np.load("search.npz") as data:
        heard = [module.text_of(next(iter(runner(line[None]).values()))) for line in data["x"]]
        assert module.word_error_rate(np.array(parts.rows)) == pytest.approx(
            module.jiwer.wer(data["texts"].tolist(), heard)
        )
    front = finished(recogniser(), "minimize", calibration="calibration.npz", evaluator="parts:errors_and_words").front
    assert front["drop_bound"].notna().all()
    assert front["heldout_drop_high"].notna().all()


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
