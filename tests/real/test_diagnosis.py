"""The diagnosis of real models against TensorFlow's own debugger, where the folder of models and data is there."""

from __future__ import annotations

import csv
import importlib
import io
import itertools
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import autoselect

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("AUTOSELECT_REAL_DATA", ROOT.parent / "shared" / "data"))
IMAGENET = DATA / "mobilenet_v1_025_imagenet"

pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.skipif(not IMAGENET.exists(), reason="no folder of real models (AUTOSELECT_REAL_DATA)"),
]
FIGURES = ("num_elements", "stddev", "mean_error", "max_abs_error", "mean_squared_error")
FIXED = ("scale", "zero_point")


@pytest.fixture
def images(loaders: ModuleType) -> list[list[np.ndarray]]:
    return list(itertools.islice(loaders.imagenet_calibration(), 20))


@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated")
def test_the_table_equals_the_quantization_debuggers_from_end_to_end(images: list[list[np.ndarray]]) -> None:
    import tensorflow as tf
    import tf_keras

    model = tf_keras.models.load_model(IMAGENET / "mobilenet_v1_025_224.h5", compile=False)
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: iter(images)
    debugger = tf.lite.experimental.QuantizationDebugger(converter=converter, debug_dataset=lambda: iter(images))
    debugger.run()
    dumped = _dumped(debugger)

    ours = autoselect.diagnose(IMAGENET / "mobilenet_v1_025_224.h5", calibration=images, cache=False).layer_statistics
    assert len(ours) == len(dumped) == 31
    assert ours["op_name"].tolist() == [row["op_name"] for row in dumped]
    assert ours["tensor_name"].tolist() == [row["tensor_name"] for row in dumped]
    for column in FIGURES:
        theirs = [float(row[column]) for row in debugger.layer_statistics.values()]
        assert ours[column].tolist() == pytest.approx(theirs, rel=1e-6, abs=0)
    for column in FIXED:
        assert ours[column].tolist() == pytest.approx([float(row[column]) for row in dumped], rel=1e-6)


def _dumped(debugger: Any) -> list[dict[str, str]]:
    text = io.StringIO()
    debugger.layer_statistics_dump(text)
    return list(csv.DictReader(io.StringIO(text.getvalue())))


def test_weights_are_broken_in_mobilenet_and_activations_in_a_denoiser(
    images: list[list[np.ndarray]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As searches found: bias correction and rounding save the first, 16 bits the second."""
    model = IMAGENET / "mobilenet_v1_025_224_float.tflite"
    found = autoselect.diagnose(model, calibration=images, debug_samples=4, figures=False).layer_statistics
    told = found["cure"].value_counts()
    assert set(told.index) == {"none", "bias", "rounding"}
    assert told["bias"] > 5

    monkeypatch.syspath_prepend(str(ROOT / "experiments" / "streaming_denoiser"))
    monkeypatch.delitem(sys.modules, "denoiser", raising=False)
    case = importlib.import_module("denoiser")
    frames = list(case.calibration())[::8]
    found = autoselect.diagnose(case.MODEL, calibration=frames, figures=False).layer_statistics
    told = found["cure"].value_counts()
    assert set(told.index) == {"none", "range", "16 bit"}
    assert told["16 bit"] > 0.5 * len(found)
    dense = found[found["op_name"] == "FULLY_CONNECTED"]
    assert (dense["weights_sqnr_db"] > 40.0).all()
    assert (dense["activations_sqnr_db"] < 30.0).all()
