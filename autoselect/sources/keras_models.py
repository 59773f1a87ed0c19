"""Keras models, of Keras 3 and of tf-keras: loaded from files in safe mode, and as the bytes of a TFLite file."""

from __future__ import annotations

import contextlib
import inspect
import json
import logging
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from autoselect.errors import ModelError, UsageError, first_line, sentence
from autoselect.sources import recurrent
from autoselect.sources.saved_models import fixed_specs, from_saved_model, run_converter, traced
from autoselect.sources.tflite_files import FloatModel
from autoselect.sources.wishes import NO_WISHES, Wishes

_LOG = logging.getLogger(__name__)
_MIXED = frozenset({"mixed_float16", "mixed_bfloat16"})
_REFUSALS = (ModelError, ValueError, TypeError, LookupError, AttributeError, AssertionError, RuntimeError)
"""What Keras and TensorFlow raise if they cannot trace or save a model."""
KERAS_SUFFIXES = (".keras", ".h5", ".hdf5")


def load_keras(path: Path) -> Any:
    """Load a ``.keras`` or ``.h5`` file; code inside it is never run.

    Raises:
        ModelError: If Keras cannot load it, or the Keras that wrote it is missing.
    """
    keras = _keras_for(path)
    try:
        return keras.models.load_model(str(path), compile=False, safe_mode=True)
    except Exception as exc:  # Keras raises errors of many kinds.
        raise ModelError(
            f"Keras cannot load {path.name} in safe mode: {_cause(exc)} "
            "For custom layers, export a SavedModel (`model.export(folder)`) and pass the folder."
        ) from exc


def _cause(exc: Exception) -> str:
    """What Keras says is wrong: behind the object that it was in, and before that object's whole configuration."""
    message = str(exc).rpartition("Exception encountered: ")[2].partition(" Full object config: ")[0]
    return sentence(next(iter(message.strip().splitlines()), first_line(exc)))


def _keras_for(path: Path) -> Any:
    """The Keras that wrote the file: tf-keras for Keras 2 files, Keras 3 for the rest."""
    version = _h5_metadata(path) if path.suffix != ".keras" or _is_hdf5(path) else _keras_metadata(path)
    if version.startswith("1."):
        raise ModelError(
            f"{path.name} was written by Keras {version}, whose files neither Keras 3 nor tf-keras reads. Load it with "
            "Keras 2.2, save it again there, and pass that file."
        )
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


def _is_hdf5(path: Path) -> bool:
    """Whether the file is HDF5 by its content: older Keras 2 wrote HDF5 into files named ``.keras``, too."""
    import h5py

    return bool(h5py.is_hdf5(path))


def _keras_metadata(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo("metadata.json").file_size > 1 << 20:
                raise ValueError("metadata.json is too large")
            return str(json.loads(archive.read("metadata.json")).get("keras_version", ""))
    except (OSError, zipfile.BadZipFile, zlib.error, KeyError, ValueError, AttributeError, RuntimeError) as exc:
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
    text = config.decode(errors="replace") if isinstance(config, bytes) else str(config)
    try:
        layers = _walk(json.loads(text))
    except (ValueError, RecursionError) as exc:
        raise ModelError(f"{path.name} says what it is in no JSON: {first_line(exc)}. Save it again.") from exc
    if any(isinstance(layer, dict) and layer.get("class_name") == "Lambda" for layer in layers):
        raise ModelError(
            f"{path.name} has a Lambda layer: it holds code, which safe mode does not run. "
            "Export a SavedModel (`model.export(folder)`) and pass the folder."
        )
    return version.decode() if isinstance(version, bytes) else str(version)


def _walk(value: Any) -> list[Any]:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [value, *(descendant for child in children for descendant in _walk(child))]


def is_keras_model(source: object) -> bool:
    """True for a live Keras 3 or tf-keras model."""
    return _is_a(source, "keras.Model") or _is_a(source, "tf_keras.Model")


def _is_a(value: object, name: str) -> bool:
    """True if a base class is called ``package.Class``, without importing the package."""
    return name in {f"{c.__module__.split('.')[0]}.{c.__name__}" for c in type(value).__mro__}


def from_keras(model: Any, wishes: Wishes = NO_WISHES) -> FloatModel:
    """Convert a live Keras 3 or tf-keras model with its sizes fixed; inputs keep their names and their order.

    Recurrent layers that would become a loop are unrolled, see :mod:`autoselect.sources.recurrent`.

    Raises:
        ModelError: If the model cannot be converted.
        UsageError: If a wish does not fit.
    """
    if wishes.signature is not None:
        raise UsageError(
            f"--signature: a Keras model has no signatures, got {wishes.signature!r}. Leave the option out, or pass a "
            ".tflite or a SavedModel."
        )
    for layer in recurrent.flat_layers(model):
        if mode := getattr(layer, "quantization_mode", None):
            raise ModelError(
                f"Keras has quantized the model already: layer {layer.name!r} has the mode {mode}. Pass the model as "
                "it was before quantize()."
            )
    is_tf_keras = type(model).__module__.startswith("tf_keras") or _is_a(model, "tf_keras.Model")
    convert = _convert_tf_keras if is_tf_keras else _convert_keras_3
    with _in_float32(model, is_tf_keras=is_tf_keras) as notes:
        float_model = recurrent.converted(model, lambda: convert(model, wishes), is_tf_keras=is_tf_keras)
        return replace(float_model, content=recurrent.in_its_order(model, float_model.content)).noted(*notes)


@contextlib.contextmanager
def _in_float32(model: Any, *, is_tf_keras: bool) -> Iterator[tuple[str, ...]]:
    """Let layers of mixed precision compute in float32 inside the block; yields a note if there are any."""
    import tensorflow as tf

    layers = [layer for layer in recurrent.flat_layers(model) if hasattr(layer, "dtype_policy")]
    mixed = [(layer, layer.dtype_policy) for layer in layers if layer.dtype_policy.name in _MIXED]
    if not mixed:
        yield ()
        return
    # Normalization of tf-keras stores its mean in half precision. Masks of Keras 3 are behind Cast ops, no layers.
    held = [(layer, *pair) for layer, _ in mixed for pair in vars(layer).items() if isinstance(pair[1], tf.Tensor)]
    ops = [op for layer in layers for op in getattr(layer, "operations", ()) if type(op).__name__ == "Cast"]
    before = [(layer, name, value) for layer, name, value in held if value.dtype in (tf.float16, tf.bfloat16)]
    after = [(layer, name, tf.cast(value, tf.float32)) for layer, name, value in before]
    casts = [(op, "dtype", op.dtype) for op in ops if op.dtype in ("float16", "bfloat16")]

    def give(layer: Any, policy: Any) -> None:
        if is_tf_keras:
            layer._set_dtype_policy(policy)
        else:
            layer.dtype_policy = policy

    kinds = sorted({policy.name for _, policy in mixed})
    try:
        for layer, _ in mixed:
            give(layer, "float32")
        for part, name, value in (*after, *((op, name, "float32") for op, name, _ in casts)):
            setattr(part, name, value)
        yield (f"Layers of the policy {', '.join(kinds)} compute in float32, the type of their weights.",)
    finally:
        for layer, policy in mixed:
            give(layer, policy)
        for part, name, value in (*before, *casts):
            setattr(part, name, value)


def _convert_tf_keras(model: Any, wishes: Wishes) -> bytes:
    import tensorflow as tf

    if not model.inputs:
        raise ModelError(
            "The model does not say what its inputs are: it is a subclass of tf-keras's Model, or was never called. "
            "Call it on a sample, export a SavedModel (`model.export(folder)`) and pass the folder."
        )
    specs = fixed_specs([(t.name.split(":")[0], t) for t in model.inputs], wishes)

    def call(*tensors: Any) -> Any:
        return model(list(tensors) if len(tensors) > 1 else tensors[0], training=False)

    function = traced(tf.function(call, input_signature=specs, autograph=False).get_concrete_function, specs)
    return run_converter(tf.lite.TFLiteConverter.from_concrete_functions([function], model))


def _convert_keras_3(model: Any, wishes: Wishes) -> bytes:
    # A Keras 3 model given to the converter directly keeps its weights as variables; exported, they are constants.
    with tempfile.TemporaryDirectory(prefix="autoselect-") as folder:
        knows_inputs = bool(getattr(model, "inputs", None))
        needs_fixed = knows_inputs and _needs_fixed_export(model, wishes)
        if not needs_fixed:
            if knows_inputs and _is_exported_once(model, folder):
                return from_saved_model(Path(folder), wishes).content
            try:
                model.export(folder, format="tf_saved_model", verbose=False)
            except ValueError as exc:
                if not knows_inputs:
                    raise ModelError(
                        f"Keras cannot export the model: {sentence(first_line(exc))} Call it on a sample first."
                    ) from exc
            else:
                return from_saved_model(Path(folder), wishes).content
        # What Keras cannot export with a free batch, such as a layer with a state, may go with a fixed one. So may
        # layers that alter pictures at random: its export does not say that the model is not trained.
        _export_fixed(model, folder, wishes)
        return from_saved_model(Path(folder)).content


def _needs_fixed_export(model: Any, wishes: Wishes) -> bool:
    return bool(wishes.shapes or recurrent.layers_of(model, is_tf_keras=False)) or _trains_by_default(model)


def _trains_by_default(model: Any) -> bool:
    """Whether a layer, nested ones too, works as in training unless it is told otherwise: those of augmentation do."""
    parameters = (inspect.signature(layer.call).parameters.get("training") for layer in recurrent.flat_layers(model))
    return any(parameter is not None and parameter.default is True for parameter in parameters)


def _is_exported_once(model: Any, folder: str) -> bool:
    """Save a model with a free batch, traced once: Keras's own export traces it several times. False if that fails."""
    import tensorflow as tf

    if any(not tensor.shape for tensor in model.inputs):
        return False
    specs = [tf.TensorSpec([None, *tensor.shape[1:]], tensor.dtype, name=tensor.name) for tensor in model.inputs]
    try:
        _export(model, folder, specs)
    except (*_REFUSALS, tf.errors.OpError) as exc:
        _LOG.info("%s is exported by Keras, since a single trace of it failed: %s", model.name, first_line(exc))
        return False
    return True


def _export_fixed(model: Any, folder: str, wishes: Wishes) -> None:
    """Save a model with every size of its inputs fixed: Keras's own export leaves the batch free."""
    _export(model, folder, fixed_specs([(tensor.name, tensor) for tensor in model.inputs], wishes))


def _export(model: Any, folder: str, specs: Sequence[Any]) -> None:
    """Save a model as it is when it is not trained, for inputs of these specs in the order of the model's."""
    import keras
    import tensorflow as tf

    structure = getattr(model, "_inputs_struct", None)
    keys = recurrent.argument_names(spec.name for spec in specs)

    def call(**tensors: Any) -> Any:
        values = [tensors[key] for key in keys]
        given = values[0] if structure is None else keras.tree.pack_sequence_as(structure, values)
        return model(given, training=False)

    holder = tf.Module()
    holder.weights = [variable.value for variable in model.variables]
    made = tf.function(call, autograph=False)
    arguments = {key: tf.TensorSpec(spec.shape, spec.dtype, name=key) for key, spec in zip(keys, specs, strict=True)}
    function = traced(lambda: made.get_concrete_function(**arguments), specs)
    weight_ids = {id(variable) for variable in holder.weights}
    if states := [variable for variable in function.variables if id(variable) not in weight_ids]:
        holder.states = states
    tf.saved_model.save(holder, folder, signatures=function)
