"""Recurrent Keras layers without a loop: unrolled where their length is known, so that every step can be searched.

Converted as it is, such a layer becomes a WHILE op, whose inside stays float. tf-keras's LSTM is the exception: it
becomes one fused op, which the quantizer knows.
"""

from __future__ import annotations

import contextlib
import keyword
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from autoselect.domain.tensors import free_name
from autoselect.errors import ModelError, first_line
from autoselect.sources.saved_models import LackingOps
from autoselect.sources.shapes import Kernels, on_random_inputs
from autoselect.sources.tflite_files import FloatModel
from autoselect.sources.wishes import FreeSizes
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.tflite_file import TfliteFile

LONGEST_UNROLLED = 256
"""Steps. Every step becomes 10 to 25 ops, and the quantizer's time grows with the square of their number."""
_SWITCHES = {"unroll": True, "_could_use_gpu_kernel": False}
"""A layer's attributes while it is unrolled; tf-keras decides by the second whether it looks at the first."""
_LOOPS = ("WHILE", "STABLEHLO_WHILE")


def flat_layers(model: Any) -> list[Any]:
    """The model itself and all its layers, nested ones too."""
    return list(model._flatten_layers())


def layers_of(model: Any, *, is_tf_keras: bool) -> list[Any]:
    """The recurrent layers of a model, nested ones too, that would become a loop."""
    if is_tf_keras:
        import tf_keras as keras
    else:
        import keras
    layers = [layer for layer in flat_layers(model) if isinstance(layer, keras.layers.RNN)]
    return [layer for layer in layers if not layer.unroll and not layer.stateful]


def converted(model: Any, convert: Callable[[], bytes], *, is_tf_keras: bool) -> FloatModel:
    """Convert a model with its recurrent layers unrolled, and prove that its outputs stay.

    The layers' own switch is set while the model is converted, and set back afterwards.

    Args:
        model: A live Keras model.
        convert: Converts it as it is at the moment.
        is_tf_keras: Whether it is of tf-keras.

    Raises:
        ModelError: If it can be converted neither way; the message says which source works.
    """
    layers = layers_of(model, is_tf_keras=is_tf_keras)
    fused = [layer for layer in layers if is_tf_keras and type(layer).__name__ == "LSTM"]
    chosen = [layer for layer in layers if layer not in fused]
    if not layers:
        return FloatModel(content=convert())
    float_model = _attempt(model, convert, chosen) if chosen else FloatModel(content=convert())
    if fused and _has_loop(float_model.content):
        return _attempt(model, convert, layers)
    return float_model


def _attempt(model: Any, convert: Callable[[], bytes], layers: Sequence[Any]) -> FloatModel:
    """Unroll some layers; where that is not to be, convert them as loops and say why."""
    names = ", ".join(repr(layer.name) for layer in layers)
    lacking: LackingOps | None = None
    longest = max((steps for layer in layers if (steps := _steps(layer)) is not None), default=0)
    if longest > LONGEST_UNROLLED:
        why = f"{longest} steps are more than the {LONGEST_UNROLLED} that are unrolled"
    else:
        try:
            with _unrolled(layers):
                content = convert()
        except FreeSizes:
            raise
        except (ModelError, ValueError, TypeError, NotImplementedError) as exc:
            is_free = any(_steps(layer) is None for layer in layers)
            why = "the length of a sequence is free" if is_free else first_line(exc)
            lacking = exc if isinstance(exc, LackingOps) else None
        else:
            _refuse_other_outputs(model, content, names)
            return FloatModel(
                content=content,
                notes=(f"Recurrent layers were unrolled, so that each step can be searched: {names}.",),
            )
    try:
        content = convert()
    except (FreeSizes, LackingOps):  # No form of the recurrent layers would help.
        raise
    except ModelError as exc:
        if lacking is not None:
            raise lacking from exc
        raise ModelError(
            f"The recurrent layers {names} can be converted neither unrolled ({why}) nor as a loop ({exc}). Fix the "
            "length of the sequence with --shape, build the model with tf-keras and LSTM layers "
            "(TF_USE_LEGACY_KERAS=1), or convert it to a float .tflite yourself and pass that."
        ) from exc
    return FloatModel(content=content, notes=(f"Recurrent layers could not be unrolled: {names}: {why}.",))


def _steps(layer: Any) -> int | None:
    """Length of a layer's sequences; None where it is free."""
    shape = (layer.get_build_config() or {}).get("input_shape")
    if isinstance(shape, (list, tuple)) and shape and isinstance(shape[0], (list, tuple)):
        shape = shape[0]  # The sequence comes before the initial states.
    return int(shape[1]) if isinstance(shape, (list, tuple)) and len(shape) > 1 and shape[1] is not None else None


@contextlib.contextmanager
def _unrolled(layers: Sequence[Any]) -> Iterator[None]:
    before = [{name: getattr(layer, name) for name in _SWITCHES if hasattr(layer, name)} for layer in layers]
    try:
        for layer, values in zip(layers, before, strict=True):
            for name in values:
                setattr(layer, name, _SWITCHES[name])
        yield
    finally:
        for layer, values in zip(layers, before, strict=True):
            for name, value in values.items():
                setattr(layer, name, value)


def _has_loop(content: bytes) -> bool:
    model = TfliteFile(content).model
    return any(fb.op_type(model, op) in _LOOPS for op in model.subgraphs[0].operators)


def _refuse_other_outputs(model: Any, content: bytes, names: str) -> None:
    """Compare the converted model with the live one, which goes on looping, on random inputs."""
    parsed = TfliteFile(content).model
    tensors = [parsed.subgraphs[0].tensors[i] for i in parsed.subgraphs[0].inputs]
    shapes = [fb.shape_of(tensor) for tensor in tensors]
    rows, answers = on_random_inputs(parsed, shapes, Kernels(content, shapes).run)
    order = _places(model, [fb.tensor_name(tensor) for tensor in tensors])
    for row, outputs in zip(rows, answers, strict=True):
        expected = _called(model, [row[at] for at in order])
        worst = max(_distance(value, outputs) for value in expected)
        # Share of the largest output: the same sums in another order.
        if not worst <= 1e-4:
            raise ModelError(
                f"The outputs change when the recurrent layers {names} are unrolled (by {worst:.2g} of their size), so "
                "they are not. Convert the model to a float .tflite yourself, and pass that."
            )


def _places(model: Any, names: Sequence[str]) -> list[int]:
    """Where each input of the live model is among the converted model's, by name."""
    wanted = argument_names([tensor.name.split(":")[0] for tensor in getattr(model, "inputs", None) or []])
    bare = [argument_name(name.removeprefix("serving_default_").split(":")[0]) for name in names]
    if sorted(wanted) != sorted(bare):
        return list(range(len(names)))
    return [bare.index(name) for name in wanted]


def in_its_order(model: Any, content: bytes) -> bytes:
    """The converted model's bytes with inputs in the order of the live model: TensorFlow's converter shuffles them."""
    file = TfliteFile(content)
    graph = file.model.subgraphs[0]
    inputs = fb.indices(graph.inputs)
    order = _places(model, [fb.tensor_name(graph.tensors[i]) for i in inputs])
    if order == sorted(order):
        return content
    parsed = file.copied()
    parsed.subgraphs[0].inputs = np.array([inputs[place] for place in order], np.int32)
    return fb.serialise(parsed)


def argument_names(names: Iterable[str]) -> list[str]:
    """What TensorFlow calls the arguments of a function that has inputs of these names; equal ones get a number."""
    taken = set[str]()
    return [free_name(argument_name(name), taken) for name in names]


def argument_name(name: str) -> str:
    """What TensorFlow calls an input as the argument of a function: a name that has blanks or dots is none there."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return plain if plain[:1].isalpha() and not keyword.iskeyword(plain) else f"arg_{plain}"


def _called(model: Any, values: Sequence[np.ndarray]) -> list[np.ndarray]:
    import tensorflow as tf

    given: Any = list(values) if len(values) > 1 else values[0]
    structure = getattr(model, "_inputs_struct", None)
    if structure is not None:
        import keras

        given = keras.tree.pack_sequence_as(structure, list(values))
    return [np.asarray(value) for value in tf.nest.flatten(model(given, training=False))]


def _distance(expected: np.ndarray, outputs: Sequence[np.ndarray]) -> float:
    """Largest difference to the output that is closest, as a share of the largest value."""
    scale = float(np.max(np.abs(expected), initial=1e-6))
    alike = [np.max(np.abs(expected - value), initial=0.0) for value in outputs if value.shape == expected.shape]
    return float(min(alike, default=np.inf)) / scale
