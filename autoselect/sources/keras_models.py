"""Live Keras models, of Keras 3 and of tf-keras, as the bytes of a TFLite file."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from autoselect.errors import UsageError
from autoselect.sources import recurrent
from autoselect.sources.saved_models import fixed_specs, from_saved_model, run_converter, traced
from autoselect.sources.tflite_files import FloatModel
from autoselect.sources.wishes import NO_WISHES, Wishes


def is_keras_model(source: object) -> bool:
    """True for a live Keras 3 or tf-keras model."""
    return _is_a(source, "keras.Model") or _is_a(source, "tf_keras.Model")


def _is_a(value: object, name: str) -> bool:
    """True if a base class is called ``package.Class``, without importing the package."""
    return name in {f"{c.__module__.split('.')[0]}.{c.__name__}" for c in type(value).__mro__}


def from_keras(model: Any, wishes: Wishes = NO_WISHES) -> FloatModel:
    """Convert a live Keras 3 or tf-keras model with its sizes fixed; inputs keep their names.

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
    if type(model).__module__.startswith("tf_keras") or _is_a(model, "tf_keras.Model"):
        return recurrent.converted(model, lambda: _convert_tf_keras(model, wishes), is_tf_keras=True)
    return recurrent.converted(model, lambda: _convert_keras_3(model, wishes), is_tf_keras=False)


def _convert_tf_keras(model: Any, wishes: Wishes) -> bytes:
    import tensorflow as tf

    specs = fixed_specs([(t.name.split(":")[0], t) for t in model.inputs], wishes)

    def call(*tensors: Any) -> Any:
        return model(list(tensors) if len(tensors) > 1 else tensors[0], training=False)

    function = traced(tf.function(call, input_signature=specs, autograph=False).get_concrete_function, specs)
    return run_converter(tf.lite.TFLiteConverter.from_concrete_functions([function], model))


def _convert_keras_3(model: Any, wishes: Wishes) -> bytes:
    # A Keras 3 model given to the converter directly keeps its weights as variables; exported, they are constants.
    with tempfile.TemporaryDirectory(prefix="autoselect-") as folder:
        if getattr(model, "inputs", None) and (wishes.shapes or recurrent.layers_of(model, is_tf_keras=False)):
            _export_fixed(model, folder, wishes)
        else:
            model.export(folder, format="tf_saved_model", verbose=False)
        return from_saved_model(Path(folder), wishes).content


def _export_fixed(model: Any, folder: str, wishes: Wishes) -> None:
    """Save a model with every size of its inputs fixed: Keras's own export leaves the batch free."""
    import keras
    import tensorflow as tf

    specs = fixed_specs([(tensor.name, tensor) for tensor in model.inputs], wishes)
    structure = getattr(model, "_inputs_struct", None)

    def call(**tensors: Any) -> Any:
        values = [tensors[spec.name] for spec in specs]
        given = values[0] if structure is None else keras.tree.pack_sequence_as(structure, values)
        return model(given, training=False)

    holder = tf.Module()
    holder.weights = [variable.value for variable in model.variables]
    made = tf.function(call, autograph=False)
    function = traced(lambda: made.get_concrete_function(**{spec.name: spec for spec in specs}), specs)
    tf.saved_model.save(holder, folder, signatures=function)
