"""The seam to litert-quantizer: a whole model in integers of 8 bits, by its static recipe.

The package is not installed by default: ``pip install 'autoselect[litert]'``. It runs native code, so callers run this
module in a worker.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.errors import BuildError, UsageError, first_line
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader

_PACKAGE = "litert_quantizer"
_KEY = "main"


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


def integer_model(float_model: bytes, samples: Iterable[Mapping[str, np.ndarray]], *, per_channel: bool) -> bytes:
    """Calibrate and quantize a float model; ops that the package cannot quantize stay float.

    Args:
        float_model: Bytes of the float model.
        samples: Representative inputs by key, float32, the batch first.
        per_channel: One scale per output channel of the weights, or one per tensor.

    Returns:
        Bytes of the model, whose inputs and outputs are integers.

    Raises:
        BuildError: If the package refuses the model.
    """
    from litert_quantizer import qtyping, quantizer

    model = fb.parse(float_model)
    if not model.signatureDefs:
        model.signatureDefs = [_signature(model)]
    key = model.signatureDefs[0].signatureKey.decode("utf-8")
    granularity = qtyping.QuantGranularity.CHANNELWISE if per_channel else qtyping.QuantGranularity.TENSORWISE
    try:
        tool = quantizer.Quantizer(fb.serialise(model))
        tool.add_static_config(".*", qtyping.TFLOperationName.ALL_SUPPORTED, 8, 8, granularity)
        ranges = tool.calibrate({key: [dict(sample) for sample in samples]}, num_threads=1)
        return bytes(tool.quantize(ranges).quantized_model)
    except (ValueError, RuntimeError, NotImplementedError) as exc:
        raise BuildError(f"litert-quantizer refuses the model: {first_line(exc)}") from exc


def _signature(model: fb.Model) -> fb.SignatureDef:
    """One for the main subgraph of a file that has none; the package runs no other files."""
    ends = reader.read_interface(fb.serialise(model))
    graph = model.subgraphs[0]
    found: fb.SignatureDef = schema.SignatureDefT()
    found.signatureKey, found.subgraphIndex = _KEY.encode(), 0
    found.inputs, found.outputs = (
        [_entry(spec.key, int(index)) for spec, index in zip(specs, indices, strict=True)]
        for specs, indices in ((ends.inputs, graph.inputs), (ends.outputs, graph.outputs))
    )
    return found


def _entry(name: str, index: int) -> schema.TensorMapT:
    found = schema.TensorMapT()
    found.name, found.tensorIndex = name.encode(), index
    return found
