"""The Quantization Debugger as its guide uses it, as a whole program: ``with_debugger.py MODEL.keras CALIBRATION``."""

from __future__ import annotations

import sys
from pathlib import Path

import loaders
import tensorflow as tf
import tf_keras  # Keras 2, in which the model is made

samples = list(getattr(loaders, sys.argv[2])())
converter = tf.lite.TFLiteConverter.from_keras_model(tf_keras.models.load_model(sys.argv[1]))
converter.optimizations = [tf.lite.Optimize.DEFAULT]
converter.representative_dataset = lambda: iter(samples)
debugger = tf.lite.experimental.QuantizationDebugger(converter=converter, debug_dataset=lambda: iter(samples))
debugger.run()
with Path(sys.argv[1]).with_suffix(".debugger.csv").open("w") as file:
    debugger.layer_statistics_dump(file)
