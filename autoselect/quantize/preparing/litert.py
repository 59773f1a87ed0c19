"""The seam to litert-quantizer: a whole model in integers, by its static recipes.

The package is not installed by default: ``pip install 'autoselect[litert]'``. It runs native code, so callers run this
module in a worker.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from autoselect.errors import BuildError, UsageError, first_line
from autoselect.tflite import editing, reader
from autoselect.tflite import flatbuffer as fb

_PACKAGE = "litert_quantizer"
_KEY = "main"
_REFUSALS = (ValueError, RuntimeError, NotImplementedError, KeyError, IndexError)
"""What it ends with on models that it was not made for: KeyError where an op runs other subgraphs."""


def refuse_missing() -> None:
    """Refuse before any work where the package is not installed.

    Raises:
        UsageError: With the command that installs it.
    """
    if importlib.util.find_spec(_PACKAGE) is None:
        raise UsageError(
            "quantizer: litert-quantizer is missing. Install it with: pip install 'autoselect[litert]'. Or leave the "
            "option out: TensorFlow's quantizer is part of autoselect."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerModels:
    """What the package makes of a float model; inputs and outputs are float.

    Attributes:
        int8: Bytes of the model with 8-bit activations.
        int16: The same with 16-bit activations, and with 8-bit weights too; None where the package refuses it.
    """

    int8: bytes
    int16: bytes | None


def integer_models(
    float_model: bytes, samples: Iterable[Mapping[str, np.ndarray]], *, per_channel: bool
) -> IntegerModels:
    """Calibrate a float model once and quantize it; ops that the package cannot quantize stay float.

    Args:
        float_model: Bytes of the float model.
        samples: Representative inputs by key, float32, the batch first.
        per_channel: One scale per output channel of the weights, or one per tensor.

    Raises:
        BuildError: If the package refuses the model.
    """
    from litert_quantizer import calibrator, qtyping, quantizer, recipe_manager
    from litert_quantizer.utils import qsv_utils

    model = fb.parse(float_model)
    if not model.signatureDefs:
        ends = reader.input_specs(model), reader.output_specs(model)
        model.signatureDefs = [editing.new_signature(_KEY, model, *([spec.key for spec in specs] for specs in ends))]
    key, content = model.signatureDefs[0].signatureKey.decode("utf-8"), fb.serialise(model)
    granularity = qtyping.QuantGranularity.CHANNELWISE if per_channel else qtyping.QuantGranularity.TENSORWISE

    def tool(bits: int) -> Any:
        static_quantizer = quantizer.Quantizer(content)
        static_quantizer.add_static_config(".*", qtyping.TFLOperationName.ALL_SUPPORTED, bits, 8, granularity)
        for end in (qtyping.TFLOperationName.INPUT, qtyping.TFLOperationName.OUTPUT):
            static_quantizer.update_quantization_recipe(".*", end, algorithm_key=quantizer.AlgorithmName.NO_QUANTIZE)
        return static_quantizer

    try:
        rules = recipe_manager.RecipeManager()
        rules.load_quantization_recipe(tool(8).get_quantization_recipe())
        # All of each range, as TensorFlow's calibrator. Its own moving average cuts what few samples reach.
        range_calibrator = calibrator.Calibrator(content, num_threads=1, qsv_update_func=qsv_utils.min_max_update)
        range_calibrator.calibrate({key: [dict(sample) for sample in samples]}, rules)
        ranges = range_calibrator.get_model_qsvs()
        int8 = bytes(tool(8).quantize(ranges).quantized_model)
    except _REFUSALS as exc:
        raise BuildError(f"litert-quantizer refuses the model: {first_line(exc)}") from exc
    try:
        return IntegerModels(int8=int8, int16=bytes(tool(16).quantize(ranges).quantized_model))
    except _REFUSALS:
        return IntegerModels(int8=int8, int16=None)
