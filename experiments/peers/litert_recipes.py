"""One recipe of litert-quantizer on one model; it chooses no layers, so no sample is scored."""

from __future__ import annotations

import argparse
import importlib.metadata
import inspect
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from litert_quantizer import calibrator, qtyping, quantizer, recipe, recipe_manager
from litert_quantizer.utils import qsv_utils

from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader

RECIPES = (
    "static_wi8_ai8",
    "static_wi8_ai16",
    "dynamic_wi8_afp32",
    "dynamic_wi4_afp32",
    "weight_only_wi8_afp32",
    "weight_only_wi4_afp32",
)
"""Functions of ``litert_quantizer.recipe``."""
RANGES = {"average": qsv_utils.moving_average_update, "all": qsv_utils.min_max_update}
"""How activations are calibrated; the first is the default."""
PACKAGES = ("litert-quantizer", "ai-edge-litert", "numpy")


def quantized(content: bytes, name: str, samples: np.ndarray, update: Any) -> bytes:
    """The model by a recipe as it is offered, but for static ones: their weights have one scale a tensor.

    Inputs and outputs stay in float.
    """
    tool = quantizer.Quantizer(content)
    tool.load_quantization_recipe(getattr(recipe, name)())
    if not name.startswith("static"):
        return bytes(tool.quantize().quantized_model)
    every, bits = qtyping.TFLOperationName.ALL_SUPPORTED, 16 if name.endswith("ai16") else 8
    tool.add_static_config(".*", every, bits, 8, qtyping.QuantGranularity.TENSORWISE)
    for end in (qtyping.TFLOperationName.INPUT, qtyping.TFLOperationName.OUTPUT):
        tool.update_quantization_recipe(".*", end, algorithm_key=quantizer.AlgorithmName.NO_QUANTIZE)
    (spec,) = reader.input_specs(fb.parse(content))
    rules = recipe_manager.RecipeManager()
    rules.load_quantization_recipe(tool.get_quantization_recipe())
    ranges = calibrator.Calibrator(content, num_threads=1, qsv_update_func=update)
    ranges.calibrate({"serving_default": [{spec.key: sample[None]} for sample in samples]}, rules)
    return bytes(tool.quantize(ranges.get_model_qsvs()).quantized_model)


def main(arguments: Sequence[str] | None = None) -> None:
    """Quantize, and write the model and what made it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="The .tflite file.")
    parser.add_argument("--samples", type=Path, required=True, help="Folder of arrays, as compare.py writes it.")
    parser.add_argument("--recipe", choices=RECIPES, required=True)
    parser.add_argument("--ranges", choices=RANGES, default="average", help="Of activations, by a static recipe.")
    parser.add_argument("--output", type=Path, required=True, help="The .json file; the model lies beside it.")
    options = parser.parse_args(arguments)
    samples = np.load(options.samples / "calibration.npy")
    content = quantized(options.model.read_bytes(), options.recipe, samples, RANGES[options.ranges])
    options.output.with_suffix(".tflite").write_bytes(content)
    found = {
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "parameters": list(inspect.signature(quantizer.Quantizer.quantize).parameters),
        "gives": ".tflite",
        "samples_run": 0,
    }
    options.output.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
