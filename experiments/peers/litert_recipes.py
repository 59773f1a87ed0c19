"""One recipe of litert-quantizer on one model; it chooses no layers, so no sample is scored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from litert_quantizer import calibrator, qtyping, quantizer, recipe, recipe_manager
from litert_quantizer.utils import qsv_utils
from peer import asking, write_note

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
    parser = asking(__doc__, "The .tflite file; the model that is made lies beside the note.")
    parser.add_argument("--recipe", choices=RECIPES, required=True)
    parser.add_argument("--ranges", choices=RANGES, default="average", help="Of activations, by a static recipe.")
    options = parser.parse_args(arguments)
    samples = np.load(options.samples / "calibration.npy")
    content = quantized(options.model.read_bytes(), options.recipe, samples, RANGES[options.ranges])
    options.output.with_suffix(".tflite").write_bytes(content)
    write_note(options.output, PACKAGES, quantizer.Quantizer.quantize, gives=".tflite", samples_run=0)


if __name__ == "__main__":
    main()
