"""The seam to TensorFlow's converter: calibrate and quantize, with its errors mapped; these parts are not public.

Everything that this module calls is native code and may kill the process, so callers run it in a worker.
"""

from __future__ import annotations

import importlib.util
import os
import re
import stat
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from autoselect.domain.recipe import Recipe
from autoselect.errors import BuildError, DataError, ModelError, PreparationError, first_line, sentence
from autoselect.tflite.tflite_file import TfliteFile

CHECK_VALUES = "Check that the samples have values that it takes: token ids below the size of its table, for example."
"""What to do where the float model itself fails on a sample."""


def calibrate(source: TfliteFile, samples: Iterable[Sequence[np.ndarray]]) -> TfliteFile:
    """Record the range of every activation.

    Args:
        source: A float model.
        samples: For each sample the inputs, in the model's order and shapes.

    Returns:
        The calibrated model: the float model with minimum and maximum on its tensors, and the
        intermediate tensors that fused recurrent ops need.

    Raises:
        ModelError: If it has custom ops.
        PreparationError: If the calibrator refuses the model or the data.
    """
    from tensorflow.lite.python.optimize import calibrator

    try:
        prepared = calibrator.add_intermediate_tensors(source.content)
        return TfliteFile(bytes(calibrator.Calibrator(prepared).calibrate(lambda: (list(s) for s in samples))))
    except DataError:  # of the samples
        raise
    except (ValueError, RuntimeError) as exc:
        if unknown := re.search(r"unresolved custom ops: \[(.*?)\]", str(exc)):
            raise ModelError(
                f"The model has custom ops that TensorFlow's calibrator does not know: {unknown[1]}. They need a "
                "runtime that brings kernels. Convert the model with builtin ops only, or without that part."
            ) from exc
        if "failed to invoke" in str(exc):
            raise PreparationError(
                f"The model fails on a calibration sample: {sentence(first_line(exc))} {CHECK_VALUES}"
            ) from exc
        raise PreparationError(f"TensorFlow's calibrator refuses the model: {first_line(exc)}") from exc


Verify = Literal["layer", "model"]


def quantize(
    calibrated: TfliteFile, *, denylisted: Sequence[str], recipe: Recipe, verify: Verify | None = None
) -> TfliteFile:
    """Quantize a calibrated model, leaving out the ops whose canonical names are in ``denylisted``.

    Args:
        calibrated: The calibrated model, with near masks.
        denylisted: Canonical names.
        recipe: For its granularity and the types of inputs and outputs.
        verify: Make a debug model, which compares integer with float outputs: ``layer`` on the same inputs, node by
            node; ``model`` with a float copy of the whole model.

    Raises:
        BuildError: If the converter refuses the recipe.
    """
    import tensorflow as tf
    from tensorflow.lite.python import convert

    io_type = {"float32": tf.float32, "int8": tf.int8, "uint8": tf.uint8}[recipe.io_type]
    begun = _size_of_stderr()
    try:
        built = bytes(
            convert.mlir_quantize(
                calibrated.content,
                disable_per_channel=not recipe.per_channel,
                input_data_type=io_type,
                output_data_type=io_type,
                enable_numeric_verify=verify is not None,
                enable_whole_model_verify=verify == "model",
                denylisted_nodes=list(denylisted) or None,
            )
        )
    except (ValueError, RuntimeError, convert.ConverterError) as exc:
        why = _first_error(str(exc)) or _first_error(_spoken(begun)) or first_line(exc)
        raise BuildError(f"TensorFlow's quantizer refuses the recipe: {why}") from exc
    return TfliteFile(built)


def _size_of_stderr() -> int:
    try:
        return os.fstat(2).st_size
    except OSError:  # It is closed.
        return 0


def _spoken(begun: int) -> str:
    """What stderr has after its first ``begun`` bytes; empty if it is no regular file."""
    try:
        if not stat.S_ISREG(os.fstat(2).st_mode):  # A pipe or a terminal holds nothing that could be read again.
            return ""
        spoken = Path("/proc/self/fd/2").read_bytes()
    except OSError:
        return ""
    return spoken[begun:].decode("utf-8", "replace")


def _first_error(text: str) -> str:
    """What follows ``error: `` in the first line that has it; empty if no line has."""
    return next((line.partition("error: ")[2] for line in text.splitlines() if "error: " in line), "")


def quantize_to_int16(calibrated: TfliteFile, *, per_channel: bool) -> TfliteFile:
    """Quantize all of a calibrated model to 16-bit activations and int8 weights; what has no such form stays float.

    This is what ``TFLiteConverter`` does for ``EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8``, with
    TensorFlow's older quantizer: what the newer one makes of ``inference_type=int16`` LiteRT refuses.

    Args:
        calibrated: The calibrated model, with near masks.
        per_channel: Whether weights have a scale for each output channel.

    Raises:
        BuildError: If the quantizer refuses the model.
    """
    from tensorflow.lite.python.optimize import calibrator

    in_float, wide, bias = (np.dtype(kind).num for kind in (np.float32, np.int16, np.int64))
    try:
        quantizer = calibrator.Calibrator(calibrated.content)._calibrator
        built = bytes(quantizer.QuantizeModel(in_float, in_float, True, wide, bias, not per_channel, False))
    except (ValueError, RuntimeError) as exc:
        raise BuildError(f"TensorFlow's 16-bit quantizer refuses the model: {first_line(exc)}") from exc
    return TfliteFile(built)


def import_tensorflow() -> None:
    """Warm a worker up, so that its first job does not wait for the import.

    Keras is half of the import, and few jobs use it: TensorFlow does without if it is missing. It can be imported
    afterwards like any module, also as ``tensorflow.keras``.
    """
    if "tensorflow" in sys.modules or "keras" in sys.modules or "TF_USE_LEGACY_KERAS" in os.environ:
        _import_tensorflow()
        return
    sys.modules["keras"] = None  # type: ignore[assignment] # How Python marks a module as missing.
    try:
        _import_tensorflow()
    finally:
        del sys.modules["keras"]
    import tensorflow

    spec = importlib.util.find_spec("keras")
    folders = () if spec is None else spec.submodule_search_locations or ()
    there = [path for path in tensorflow.__path__ if path is not None]
    tensorflow.__path__ = [*(os.path.join(folder, "_tf_keras") for folder in folders), *there]


def _import_tensorflow() -> None:
    import tensorflow  # noqa: F401 - the import is the purpose
    from tensorflow.lite.python import convert  # noqa: F401 - as above
