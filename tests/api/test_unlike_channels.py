"""A detector whose one output holds boxes of 0 to 320 and scores of 0 to 1: what a whole output's closeness hides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autoselect
from autoselect.cases.events import Warned

ANCHORS = 40
DATA = np.random.default_rng(5).normal(size=(36, ANCHORS, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def detector() -> bytes:
    """Boxes (4) and scores (3) of each anchor in one output of shape (1, 7, anchors), as YOLO heads have it."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(2)
    given = keras.Input((ANCHORS, 8), batch_size=1, name="features")
    x = keras.layers.Dense(16, activation="relu")(given)
    boxes = keras.layers.Dense(4, activation="sigmoid")(x) * 320.0
    scores = keras.layers.Dense(3, activation="sigmoid")(x)
    joined = keras.layers.Permute((2, 1))(keras.layers.Concatenate(axis=-1)([boxes, scores]))
    return bytes(tf.lite.TFLiteConverter.from_keras_model(keras.Model(given, joined)).convert())


def test_scores_that_all_int8_loses_are_told_and_count(detector: bytes, tmp_path: Path) -> None:
    events: list[Any] = []
    (tmp_path / "model.tflite").write_bytes(detector)
    run = autoselect.search(
        tmp_path / "model.tflite",
        output=tmp_path / "run",
        calibration=DATA[:12],
        evaluation=DATA[12:],
        metric="sqnr_db",
        trials=6,
        listener=events.append,
    )
    told = [event.message for event in events if isinstance(event, Warned)]
    [narrow] = [message for message in told if "integer steps" in message]
    assert "channels 4 to 6" in narrow
    assert narrow in run.manifest["warnings"]
    assert run.summary["references"]["fiq"]["sqnr_db"] < 12.0  # The whole output has about 40 dB.


def test_the_verdict_names_the_group_that_another_metric_does_not_see(detector: bytes, tmp_path: Path) -> None:
    """Mean errors of boxes say nothing of scores."""
    (tmp_path / "model.tflite").write_bytes(detector)
    run = autoselect.search(
        tmp_path / "model.tflite",
        output=tmp_path / "run",
        calibration=DATA[:12],
        evaluation=(DATA[12:], np.full((24, 7, ANCHORS), 100.0, np.float32)),
        metric="mae",
        trials=2,
        early_exit=True,
    )
    [told] = [message for message in run.summary["warnings"] if "as a whole" in message]
    assert "channels 4 to 6" in told
    assert told in run.summary["verdict"]


def test_a_diagnosis_names_the_group(detector: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.tflite").write_bytes(detector)
    found = autoselect.diagnose(tmp_path / "model.tflite", calibration=DATA[:12])
    [advice] = [one for one in found.advice if one.rule == "unlike_channels"]
    assert "channels 4 to 6" in advice.evidence
    assert "--int16" in advice.action


@pytest.fixture(scope="module")
def landmarks() -> bytes:
    """Points as vectors, a coordinate of which is next to 0, and another output that 8 bits harm more."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(4)
    x = given = keras.Input((ANCHORS, 8), batch_size=1, name="features")
    for _ in range(4):
        x = keras.layers.Dense(16, activation="relu")(x)
    flat = keras.layers.Flatten()(x)
    points, steep = keras.layers.Dense(9, name="points"), keras.layers.Dense(3)
    outputs = [points(flat), keras.ops.exp(60.0 * steep(keras.layers.Dense(8, activation="relu")(flat)))]
    kernel, bias = points.get_weights()
    points.set_weights([kernel * np.where(np.arange(9) == 2, 1e-6, 1.0), bias])
    return bytes(tf.lite.TFLiteConverter.from_keras_model(keras.Model(given, outputs)).convert())


def test_the_node_that_loses_a_channel_of_the_scored_output_is_found(landmarks: bytes, tmp_path: Path) -> None:
    """Each sample has one value of each channel, so that a probe's few samples show no groups."""
    data = np.random.default_rng(6).normal(size=(56, ANCHORS, 8)).astype(np.float32)
    (tmp_path / "model.tflite").write_bytes(landmarks)
    run = autoselect.search(
        tmp_path / "model.tflite",
        output=tmp_path / "run",
        calibration=data[:16],
        evaluation=data[16:],
        metric="sqnr_db",
        trials=10,
    )
    recommended = run.front[run.front["id"] == run.picks["recommended"]].iloc[0]
    assert run.summary["references"]["fiq"]["sqnr_db"] < 1.0
    assert recommended["sqnr_db"] > 20.0
    assert recommended["float_ops"] <= 2
    [told] = [message for message in run.summary["warnings"] if "not score" in message]
    assert "'output_1'" in told
