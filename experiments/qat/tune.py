"""Trains each net on in float and with quantization simulated by tfmot, and writes what the converter makes of it.

Runs in a process of its own: tfmot knows Keras 2 alone. A file that is there is not made again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import tensorflow as tf
import tensorflow_model_optimization as tfmot
import tf_keras
from tensorflow_model_optimization.python.core.quantization.keras.default_8bit import (
    default_8bit_quantize_configs,
    default_8bit_quantize_registry,
)

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "embedded_case")]
import qat_cases  # noqa: E402 - found by the path above
import train as pump_net  # noqa: E402

from autoselect.runs.files import write_bytes, write_json  # noqa: E402

quantization = tfmot.quantization.keras
OUTPUT_ONLY = default_8bit_quantize_configs.Default8BitOutputQuantizeConfig
WEIGHTED = (tf_keras.layers.Conv2D, tf_keras.layers.DepthwiseConv2D, tf_keras.layers.Dense)
BATCH_SIZE = 128


def pump_base() -> tf_keras.Model:
    """The pump monitor, trained as the shipped one was, but by Keras 2."""
    windows, labels = qat_cases.CASES["pump"].training()
    tf_keras.utils.set_random_seed(pump_net.SEED)
    axes = (0, 1, 2)
    model = pump_net.build_model(mean=windows.mean(axis=axes), variance=windows.var(axis=axes))
    pump_net.fit(model, windows, labels)
    return model


def keyword_base() -> tf_keras.Model:
    """DS-CNN with the benchmark's own weights."""
    return tf_keras.models.load_model(qat_cases.loaders.KWS / "saved_model", compile=False)


BASES: dict[str, Callable[[], tf_keras.Model]] = {"pump": pump_base, "ds_cnn": keyword_base}


def fine_tune(model: tf_keras.Model, samples: qat_cases.Samples, epochs: int, rate: float, seed: int) -> float:
    """Train in place; the processor seconds that this took."""
    tf_keras.utils.set_random_seed(seed)
    start, (inputs, labels) = time.process_time(), samples
    schedule = tf_keras.optimizers.schedules.CosineDecay(rate, epochs * (len(inputs) // BATCH_SIZE + 1))
    model.compile(tf_keras.optimizers.Adam(schedule), "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(inputs, labels, batch_size=BATCH_SIZE, epochs=epochs, verbose=2)
    return time.process_time() - start


def copy_of(model: tf_keras.Model) -> tf_keras.Model:
    """The same net with the same weights."""
    found = tf_keras.models.clone_model(model)
    found.set_weights(model.get_weights())
    return found


def simulated(model: tf_keras.Model) -> tf_keras.Model:
    """The net with tfmot's default 8-bit scheme; of layers that this does not know the output alone is rounded."""
    known = default_8bit_quantize_registry.Default8BitQuantizeRegistry()

    def annotate(layer: Any) -> Any:
        if isinstance(layer, tf_keras.layers.BatchNormalization):
            # Rounded with the weights before it, if there are any.
            is_known = isinstance(layer.inbound_nodes[0].inbound_layers, WEIGHTED)
        else:
            is_known = known.supports(layer)
        return quantization.quantize_annotate_layer(layer, None if is_known else OUTPUT_ONLY())

    annotated = tf_keras.models.clone_model(model, clone_function=annotate)
    annotated.set_weights(model.get_weights())
    with quantization.quantize_scope({OUTPUT_ONLY.__name__: OUTPUT_ONLY}):
        return quantization.quantize_apply(annotated)


def float_twin(trained: tf_keras.Model, model: tf_keras.Model) -> tf_keras.Model:
    """The net without the rounding: the weights that a simulated training ended with."""
    values = {weight.name: weight.numpy() for weight in trained.weights}
    found = tf_keras.models.clone_model(model)
    for weight in found.weights:
        weight.assign(values[weight.name])
    return found


def converted(model: tf_keras.Model, *, quantized: bool, calibration: Iterable[list[Any]] | None = None) -> bytes:
    """A ``.tflite`` for one sample; what training has given no range gets one from calibration samples."""
    one = tf.TensorSpec((1, *model.input_shape[1:]), tf.float32)
    function = tf.function(lambda x: model(x, training=False)).get_concrete_function(one)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], model)
    if quantized:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if calibration is not None:
        converter.representative_dataset = lambda: calibration
    return bytes(converter.convert())


def tune(name: str, case: qat_cases.Case, seeds: int, folder: Path) -> None:
    """Write the float net, and for each seed the one trained on, the simulated one twice, and its float twin."""
    base_file = folder / "base.keras"
    if not base_file.exists():
        start = time.process_time()
        base = BASES[name]()
        write_bytes(folder / "float.tflite", converted(base, quantized=False))
        write_json(folder / "seconds.json", {"base": time.process_time() - start})
        base.save(base_file)
    base = tf_keras.models.load_model(base_file, compile=False)
    for seed in range(seeds):
        if (folder / f"seconds_{seed}.json").exists():
            continue
        seconds = {}
        further, rounded = copy_of(base), simulated(base)
        for key, model in (("further", further), ("qat", rounded)):
            seconds[key] = fine_tune(model, case.training(), case.epochs, case.rate, seed)
        made = {
            "further": converted(further, quantized=False),
            "twin": converted(float_twin(rounded, base), quantized=False),
            "qat_partly": converted(rounded, quantized=True),
            "qat": converted(rounded, quantized=True, calibration=case.calibration()),
        }
        for key, content in made.items():
            write_bytes(folder / f"{key}_{seed}.tflite", content)
        write_json(folder / f"seconds_{seed}.json", seconds)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", required=True, choices=list(BASES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--folder", type=Path, required=True)
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    tune(options.case, qat_cases.CASES[options.case], options.seeds, options.folder)
    print(json.dumps({path.name: path.stat().st_size for path in sorted(options.folder.glob("*.tflite"))}, indent=1))


if __name__ == "__main__":
    main()
