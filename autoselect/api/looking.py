"""What a search would work on, told before any data are there."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autoselect.api.source import Source, describe, load_source
from autoselect.api.told import explained
from autoselect.cases.calibrate import load_float
from autoselect.cases.files import CaseFiles
from autoselect.domain.tensors import TensorSpec, in_source_order
from autoselect.isolation.pool import open_pool
from autoselect.quantize.preparing import converter
from autoselect.runs.cache import cache_directory
from autoselect.sources.loading import is_converted
from autoselect.sources.wishes import NO_WISHES, Shapes, Wishes, wishes_of
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader

_RECURRENT = ("UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_LSTM")


@explained
def look(
    model: Source,
    *,
    signature: str | None = None,
    shapes: Shapes | None = None,
    converter_python: str | None = None,
) -> dict[str, Any]:
    """Look at a float model without running it.

    Returns:
        ``model``; ``size_bytes`` of its float ``.tflite``; ``inputs`` and ``outputs`` with ``name``, ``shape`` and
        ``dtype``; ``ops``, a count by type; ``recurrent``; ``metric`` that its outputs suggest, and ``why``.

    Raises:
        ModelError: If it cannot be read, or is quantized already.
    """
    content = float_content(model, wishes_of(signature, shapes, converter_python))
    parsed = fb.parse(content)
    inputs, outputs = reader.input_specs(parsed), in_source_order(reader.output_specs(parsed))
    ops = Counter(op.op_type for op in reader.read_graph(parsed).ops)
    metric, why = _metric(inputs, outputs)
    return {
        "model": describe(model),
        "size_bytes": len(content),
        "inputs": [_spec(spec) for spec in inputs],
        "outputs": [_spec(spec) for spec in outputs],
        "ops": dict(ops.most_common()),
        "recurrent": any(op in ops for op in _RECURRENT),
        "metric": metric,
        "why": why,
    }


def float_content(model: Source, wishes: Wishes) -> bytes:
    """The bytes of the float ``.tflite`` of any source; what needs TensorFlow is done in a worker.

    Raises:
        ModelError: If it cannot be read, or is quantized already.
    """
    loaded = load_source(model, wishes)
    with tempfile.TemporaryDirectory(prefix="autoselect-") as name:
        files = CaseFiles(root=Path(name))
        with open_pool(1, log=files.root / "worker.log", warm_up=converter.import_tensorflow) as pool:
            root = cache_directory()
            return load_float(loaded.model, files, pool, wishes=loaded.wishes, cache_root=root).content


def file_content(model: str | Path | bytes, wishes: Wishes = NO_WISHES) -> bytes:
    """The bytes of a ``.tflite`` file, quantized or not; another kind of model is converted first.

    Raises:
        ModelError: If it cannot be read.
    """
    if isinstance(model, bytes):
        return model
    path = Path(model)
    if is_converted(path):
        return float_content(path, wishes)
    return fb.read_model_file(path)


def _spec(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.key, "shape": list(spec.shape), "dtype": str(spec.dtype)}


def _metric(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> tuple[str, str]:
    """Guess a metric from the shape of the first output."""
    shape = outputs[0].shape
    if any(shape == spec.shape for spec in inputs):
        return "mse", "the output is shaped like an input; psnr suits images"
    if len(shape) == 2 and shape[-1] > 1:
        return "accuracy", f"the output has {shape[-1]} values a sample, which may be the scores of classes"
    if len(shape) == 4 and shape[-1] > 1 and any(shape[1:3] == spec.shape[1:3] for spec in inputs):
        return "mean_iou", f"the output has {shape[-1]} values a pixel, which may be the scores of classes"
    return "mae", "the output is no row of class scores; sqnr_db needs no targets"
