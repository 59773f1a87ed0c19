"""Any source a user has, as the bytes of one float TFLite model with batch 1."""

from __future__ import annotations

import copy
import json
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.errors import ModelError, UsageError
from autoselect.quantize.converter import first_line
from autoselect.tflite import flatbuffer as fb

KERAS_SUFFIXES = (".keras", ".h5", ".hdf5")
_QUANTIZED_TYPES = (schema.TensorType.INT8, schema.TensorType.UINT8, schema.TensorType.INT16)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConverterOptions:
    """What a user's own ``TFLiteConverter`` asks for, in autoselect's words."""

    representative_dataset: Callable[[], Any] | None
    per_channel: bool
    io_type: str


def needs_tensorflow(source: Path | bytes) -> bool:
    """True where the source has to be converted first (anything but a TFLite file)."""
    return not isinstance(source, bytes) and (source.is_dir() or source.suffix in KERAS_SUFFIXES)


def float_model(source: Path | bytes) -> bytes:
    """Load a source from disk or memory.

    Args:
        source: A ``.tflite`` file or its bytes, a ``.keras`` or ``.h5`` file, or a SavedModel folder. Keras files are
            loaded in safe mode: code inside them is never run.

    Returns:
        Bytes of a float TFLite model whose batch is 1.

    Raises:
        ModelError: If there is no such model, it cannot be read, or it is quantized already.
    """
    if isinstance(source, bytes):
        return as_float_model(source)
    if not source.exists():
        raise ModelError(
            f"There is no model at {source}. Expected a .tflite, .keras or .h5 file, or a SavedModel folder."
        )
    if source.is_dir():
        return as_float_model(_convert_saved_model(source))
    if source.suffix in KERAS_SUFFIXES:
        return as_float_model(convert_keras(_load_keras(source)))
    return as_float_model(fb.read_model_file(source))


def as_float_model(content: bytes) -> bytes:
    """Check that a TFLite model is float and of one subgraph, and pin its batch to 1.

    Raises:
        ModelError: If it is not; the message says what was found.
    """
    model = fb.parse(content)
    _refuse_quantized(model)
    _refuse_several_signatures(model)
    if not model.subgraphs[0].operators:
        raise ModelError("The model has no ops, so there is nothing to quantize.")
    return fb.serialise(model) if _pin_batch(model) else content


def _refuse_quantized(model: fb.Model) -> None:
    quantized, halves = [], []
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            parameters = tensor.quantization
            if tensor.type in _QUANTIZED_TYPES and parameters is not None and parameters.scale is not None:
                quantized.append(fb.tensor_name(tensor))
            if tensor.type == schema.TensorType.FLOAT16:
                halves.append(fb.tensor_name(tensor))
    if quantized:
        raise ModelError(
            f"The model is quantized already: {len(quantized)} of its tensors are integers with a scale, the first is "
            f"{quantized[0]!r}. autoselect starts from the float model: convert it without `optimizations`."
        )
    if halves:
        raise ModelError(
            f"The model holds float16 weights ({len(halves)} tensors, the first is {halves[0]!r}). "
            "autoselect starts from float32: convert it without `target_spec.supported_types = [tf.float16]`."
        )


def _refuse_several_signatures(model: fb.Model) -> None:
    targets = {signature.subgraphIndex or 0 for signature in model.signatureDefs or []}
    if targets - {0}:
        keys = ", ".join((s.signatureKey or b"?").decode() for s in model.signatureDefs)
        raise ModelError(
            f"The model has several signatures ({keys}) in subgraphs of their own. "
            "Convert the one to be quantized by itself (`signature_keys=[...]`)."
        )


def _pin_batch(model: fb.Model) -> bool:
    """Set a free batch to 1; True if anything changed."""
    graph = model.subgraphs[0]
    for index in graph.inputs:
        tensor = graph.tensors[index]
        signature = [] if tensor.shapeSignature is None else [int(s) for s in tensor.shapeSignature]
        if any(size < 0 for size in signature[1:]):
            raise ModelError(
                f"Input {fb.tensor_name(tensor)!r} has free sizes beside its batch: {signature}. "
                "Convert the model with those sizes fixed."
            )
    free = [t for t in graph.tensors if t.shapeSignature is not None]
    for tensor in free:
        tensor.shapeSignature = None
    return bool(free)


def _load_keras(path: Path) -> Any:
    keras = _keras_for(path)
    try:
        return keras.models.load_model(str(path), compile=False, safe_mode=True)
    except (ValueError, TypeError, OSError, KeyError, AttributeError) as exc:
        first = first_line(exc)
        raise ModelError(
            f"Keras cannot load {path.name} in safe mode: {first} "
            "For custom layers, export a SavedModel (`model.export(folder)`) and pass the folder."
        ) from exc


def _keras_for(path: Path) -> Any:
    """The Keras that wrote the file: tf-keras for Keras 2 files, Keras 3 for the rest."""
    version = _h5_metadata(path) if path.suffix != ".keras" else _keras_metadata(path)
    if not version.startswith("2."):
        import keras

        return keras
    try:
        import tf_keras
    except ImportError as exc:
        raise ModelError(
            f"{path.name} was written by Keras {version}. Install the extra: pip install 'autoselect[legacy-keras]'."
        ) from exc
    return tf_keras


def _keras_metadata(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            return str(json.loads(archive.read("metadata.json")).get("keras_version", ""))
    except (OSError, zipfile.BadZipFile, KeyError, json.JSONDecodeError) as exc:
        raise ModelError(f"{path.name} is not a whole .keras file. Save or copy it again.") from exc


def _h5_metadata(path: Path) -> str:
    """Version of the Keras that wrote an HDF5 model; refuses Lambda layers, whose code would be run."""
    import h5py

    try:
        with h5py.File(path, "r") as file:
            config, version = file.attrs.get("model_config"), file.attrs.get("keras_version", "2.")
    except OSError as exc:
        raise ModelError(f"{path.name} is not a whole HDF5 file. Save or copy it again.") from exc
    if config is None:
        raise ModelError(f"{path.name} holds weights only. Save the whole model (`model.save(...)`).")
    text = config.decode() if isinstance(config, bytes) else str(config)
    if any(isinstance(layer, dict) and layer.get("class_name") == "Lambda" for layer in _walk(json.loads(text))):
        raise ModelError(
            f"{path.name} has a Lambda layer: it holds code, which safe mode does not run. "
            "Export a SavedModel (`model.export(folder)`) and pass the folder."
        )
    return version.decode() if isinstance(version, bytes) else str(version)


def _walk(value: Any) -> list[Any]:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [value, *(found for child in children for found in _walk(child))]


def convert_keras(model: Any) -> bytes:
    """Convert a live Keras 3 or tf-keras model, its batch pinned to 1; inputs keep their names."""
    if type(model).__module__.startswith("tf_keras") or _is_a(model, "tf_keras.Model"):
        return _convert_tf_keras(model)
    # A Keras 3 model given to the converter directly keeps its weights as variables; exported, they are constants.
    with tempfile.TemporaryDirectory(prefix="autoselect-") as folder:
        model.export(folder, format="tf_saved_model", verbose=False)
        return _convert_saved_model(Path(folder))


def _convert_tf_keras(model: Any) -> bytes:
    import tensorflow as tf

    inputs = list(model.inputs)
    specs = [_pinned(tf, t.shape, t.dtype, t.name.split(":")[0]) for t in inputs]

    def call(*tensors: Any) -> Any:
        return model(list(tensors) if len(tensors) > 1 else tensors[0], training=False)

    function = tf.function(call, input_signature=specs, autograph=False).get_concrete_function()
    return _run_converter(tf.lite.TFLiteConverter.from_concrete_functions([function], model))


def _convert_saved_model(folder: Path) -> bytes:
    import tensorflow as tf

    if not (folder / "saved_model.pb").exists():
        raise ModelError(f"{folder} is no SavedModel folder: it has no saved_model.pb.")
    try:
        loaded = tf.saved_model.load(str(folder))
    except (OSError, ValueError, RuntimeError, tf.errors.OpError) as exc:
        raise ModelError(f"TensorFlow cannot load the SavedModel {folder}: {first_line(exc)}") from exc
    signatures = dict(loaded.signatures)
    if not signatures:
        raise ModelError(f"The SavedModel {folder} has no signature. Export it with `model.export(folder)`.")
    key = "serving_default" if "serving_default" in signatures else next(iter(signatures))
    signature = signatures[key]
    arguments = signature.structured_input_signature[1]
    specs = {name: _pinned(tf, spec.shape, spec.dtype, name) for name, spec in sorted(arguments.items())}
    call = tf.function(lambda *tensors: signature(**dict(zip(specs, tensors, strict=True))), autograph=False)
    function = call.get_concrete_function(*specs.values())
    try:
        return _run_converter(tf.lite.TFLiteConverter.from_concrete_functions([function], loaded))
    except ModelError:
        # Fused recurrent ops survive only when the converter reads the folder itself, with a batch fixed by its author.
        converter = tf.lite.TFLiteConverter.from_saved_model(str(folder), signature_keys=[key])
        return _run_converter(converter)


def _pinned(tf: Any, shape: Any, dtype: Any, name: str) -> Any:
    sizes = [None if s is None else int(s) for s in shape]
    if sizes and sizes[0] is None:
        sizes[0] = 1
    if any(s is None for s in sizes):
        raise ModelError(
            f"Input {name!r} has free sizes beside its batch: {sizes}. Build the model with those sizes fixed."
        )
    return tf.TensorSpec(sizes, tf.as_dtype(dtype), name=name)


def _run_converter(converter: Any) -> bytes:
    from tensorflow.lite.python.convert import ConverterError

    try:
        return bytes(converter.convert())
    except (ConverterError, ValueError, RuntimeError) as exc:
        first = first_line(exc)
        hint = (
            " A recurrent layer needs a fixed batch: export it with batch 1, or pass the .keras file."
            if "TensorList" in first
            else " Convert it to a float .tflite yourself, and pass that."
        )
        raise ModelError(f"TensorFlow's converter refuses the float model: {first}{hint}") from exc


def is_keras_model(source: object) -> bool:
    """True for a live Keras 3 or tf-keras model."""
    return _is_a(source, "keras.Model") or _is_a(source, "tf_keras.Model")


def _is_a(value: object, name: str) -> bool:
    """True if a base class is called ``package.Class``, without importing the package."""
    return name in {f"{c.__module__.split('.')[0]}.{c.__name__}" for c in type(value).__mro__}


def is_converter(source: object) -> bool:
    """True for a ``tf.lite.TFLiteConverter``, however it was made."""
    return any(c.__name__.startswith("TFLiteConverterBase") for c in type(source).__mro__)


def from_converter(converter: Any) -> tuple[bytes, ConverterOptions]:
    """Convert with a user's own converter, which is left as it was.

    Returns:
        The float model and the options that the converter carries.
    """
    import tensorflow as tf

    work = copy.copy(converter)
    work.optimizations = []
    work.representative_dataset = None
    work.inference_input_type = tf.float32
    work.inference_output_type = tf.float32
    work.target_spec = copy.copy(converter.target_spec)
    kept = [o for o in converter.target_spec.supported_ops if o is not tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    work.target_spec.supported_ops = kept or [tf.lite.OpsSet.TFLITE_BUILTINS]
    io_type = np.dtype(tf.as_dtype(converter.inference_input_type).as_numpy_dtype).name
    if io_type not in ("float32", "int8", "uint8"):
        raise UsageError(f"The converter's inference_input_type is {io_type}; expected float32, int8 or uint8.")
    if converter.inference_output_type != converter.inference_input_type:
        raise UsageError(
            "The converter's inference_input_type and inference_output_type differ; candidates have one type for both."
        )
    dataset = converter.representative_dataset
    options = ConverterOptions(
        representative_dataset=getattr(dataset, "input_gen", dataset),
        per_channel=not getattr(converter, "_experimental_disable_per_channel", False),
        io_type=io_type,
    )
    return as_float_model(_run_converter(work)), options
