"""Live Keras models, of Keras 3 and of tf-keras, as the bytes of a TFLite file."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from autoselect.errors import ModelError, UsageError, first_line, sentence
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
        if not (knows_inputs and (wishes.shapes or recurrent.layers_of(model, is_tf_keras=False))):
            try:
                model.export(folder, format="tf_saved_model", verbose=False)
            except ValueError as exc:
                if not knows_inputs:
                    raise ModelError(
                        f"Keras cannot export the model: {sentence(first_line(exc))} Call it on a sample first."
                    ) from exc
            else:
                return from_saved_model(Path(folder), wishes).content
        # What Keras cannot export with a free batch, such as a layer with a state, may go with a fixed one.
        _export_fixed(model, folder, wishes)
        return from_saved_model(Path(folder)).content


def _export_fixed(model: Any, folder: str, wishes: Wishes) -> None:
    """Save a model with every size of its inputs fixed: Keras's own export leaves the batch free."""
    import keras
    import tensorflow as tf

    specs = fixed_specs([(tensor.name, tensor) for tensor in model.inputs], wishes)
    structure = getattr(model, "_inputs_struct", None)
    keys = [recurrent.argument_name(spec.name) for spec in specs]

    def call(**tensors: Any) -> Any:
        values = [tensors[key] for key in keys]
        given = values[0] if structure is None else keras.tree.pack_sequence_as(structure, values)
        return model(given, training=False)

    holder = tf.Module()
    holder.weights = [variable.value for variable in model.variables]
    made = tf.function(call, autograph=False)
    arguments = {key: tf.TensorSpec(spec.shape, spec.dtype, name=key) for key, spec in zip(keys, specs, strict=True)}
    function = traced(lambda: made.get_concrete_function(**arguments), specs)
    known = {id(variable) for variable in holder.weights}
    if states := [variable for variable in function.variables if id(variable) not in known]:
        holder.states = states
    tf.saved_model.save(holder, folder, signatures=function)
