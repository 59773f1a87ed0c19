"""Any source in a file or in memory, as one float TFLite model."""

from __future__ import annotations

from pathlib import Path

from autoselect.errors import ModelError
from autoselect.sources.converters.kinds import kind_of
from autoselect.sources.keras_models import KERAS_SUFFIXES, from_keras, load_keras
from autoselect.sources.saved_models import from_saved_model
from autoselect.sources.tflite_files import FloatModel, from_bytes, is_ready
from autoselect.sources.wishes import NO_WISHES, Wishes
from autoselect.tflite import flatbuffer as fb


def needs_worker(source: Path | bytes, wishes: Wishes = NO_WISHES) -> bool:
    """True where the source is converted or run when it is loaded: both are native code, which may die."""
    if wishes:
        return True
    if isinstance(source, bytes):
        return not is_ready(source)
    if is_converted(source):
        return True
    return source.is_file() and not is_ready(fb.read_model_file(source))


def is_converted(source: Path) -> bool:
    """True for what becomes a ``.tflite`` only by a converter."""
    return source.suffix in KERAS_SUFFIXES or (source / "saved_model.pb").is_file() or kind_of(source) is not None


def float_model(source: Path | bytes, wishes: Wishes = NO_WISHES) -> FloatModel:
    """Load a source from disk or memory.

    Args:
        source: A ``.tflite`` file or its bytes, a ``.keras`` or ``.h5`` file, or a SavedModel folder. Keras files are
            loaded in safe mode: code inside them is never run.
        wishes: Which signature to take, and the sizes that the source leaves free.

    Returns:
        A float TFLite model, and what there is to say of how it came about.

    Raises:
        ModelError: If there is no such model, it cannot be read, or it is quantized already.
        FreeSizes: If sizes beside the batch stay free.
        UsageError: If a wish does not fit.
    """
    if isinstance(source, bytes):
        return from_bytes(source, wishes)
    if not source.exists():
        raise ModelError(
            f"There is no model at {source}. Expected a .tflite, .keras, .h5, .onnx or .pt2 file, or a SavedModel "
            "folder."
        )
    if source.is_dir():
        conversion = from_saved_model(source, wishes)
    elif source.suffix in KERAS_SUFFIXES:
        conversion = from_keras(load_keras(source), wishes)
    else:
        return from_bytes(fb.read_model_file(source), wishes)
    return from_bytes(conversion.content).noted(*conversion.notes)
