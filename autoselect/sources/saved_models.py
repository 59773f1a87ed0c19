"""SavedModel folders, and whatever else TensorFlow's converter takes, as the bytes of a TFLite file."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from autoselect.domain.recipe import IoType
from autoselect.errors import ModelError, UsageError, first_line, sentence
from autoselect.sources import tflite_files
from autoselect.sources.tflite_files import FloatModel
from autoselect.sources.wishes import NO_WISHES, FreeInput, Wishes, sizes_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ConverterOptions:
    """What a user's own ``TFLiteConverter`` asks for, in autoselect's words."""

    representative_dataset: Callable[[], Any] | None
    per_channel: bool
    io_type: IoType


def is_converter(source: object) -> bool:
    """True for a ``tf.lite.TFLiteConverter``, however it was made."""
    return any(c.__name__.startswith("TFLiteConverterBase") for c in type(source).__mro__)


def from_converter(converter: Any) -> tuple[bytes, ConverterOptions]:
    """Convert with a user's own converter, which is left as it was.

    Returns:
        The bytes of the float model, still to be made ready, and the options that the converter carries.
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
        io_type=cast("IoType", io_type),
    )
    return run_converter(work), options


_DEFAULT_SIGNATURE = "serving_default"
_TENSOR_LISTS = ("TensorList", "tensor list")


def from_saved_model(folder: Path, wishes: Wishes = NO_WISHES) -> FloatModel:
    """Convert a signature of a SavedModel, its sizes fixed; the result is still to be made ready.

    Raises:
        ModelError: If TensorFlow cannot load or convert it, or its signature is not clear.
        UsageError: If a wish does not fit.
    """
    if not (folder / "saved_model.pb").exists():
        raise ModelError(f"{folder} is no SavedModel folder: it has no saved_model.pb.")
    import tensorflow as tf

    try:
        loaded = tf.saved_model.load(str(folder))
    except Exception as exc:  # TensorFlow raises errors of many kinds.
        raise ModelError(f"TensorFlow cannot load the SavedModel {folder}: {first_line(exc)}") from exc
    signatures = dict(loaded.signatures)
    key = _chosen(tuple(signatures), wishes.signature, folder)
    content = _converted(loaded, signatures[key], str(folder), key, wishes)
    # Keras's ``serve`` is the same call under another name.
    others = [other for other in signatures if other != key and {other, key} != {"serve", _DEFAULT_SIGNATURE}]
    is_news = bool(others) and wishes.signature is None
    notes = (f"Signature {key!r} was taken; the SavedModel also has {', '.join(others)}.",) if is_news else ()
    return FloatModel(content=content, notes=notes)


def _chosen(keys: Sequence[str], wanted: str | None, folder: Path) -> str:
    if not keys:
        raise ModelError(f"The SavedModel {folder} has no signature. Export it with `model.export(folder)`.")
    if wanted is not None and wanted not in keys:
        raise UsageError(tflite_files.unknown(wanted, keys))
    if wanted is None and len(keys) > 1 and _DEFAULT_SIGNATURE not in keys:
        raise ModelError(tflite_files.several(keys))
    return wanted or (_DEFAULT_SIGNATURE if _DEFAULT_SIGNATURE in keys else keys[0])


def _converted(loaded: Any, signature: Any, folder: str, key: str, wishes: Wishes) -> bytes:
    import tensorflow as tf

    arguments = signature.structured_input_signature[1]
    specs = dict(sorted(arguments.items()))
    specs = dict(zip(specs, fixed_specs(list(specs.items()), wishes), strict=True))
    call = tf.function(lambda *tensors: signature(**dict(zip(specs, tensors, strict=True))), autograph=False)
    function = call.get_concrete_function(*specs.values())
    try:
        return run_converter(tf.lite.TFLiteConverter.from_concrete_functions([function], loaded))
    except ModelError:
        # Fused recurrent ops survive only when the converter reads the folder itself, with a batch fixed by its author.
        return run_converter(tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=[key]))


def fixed_specs(named: Sequence[tuple[str, Any]], wishes: Wishes) -> list[Any]:
    """Specs of inputs with every size fixed.

    Args:
        named: Name, and anything with ``shape`` and ``dtype``, of each input.
        wishes: Sizes that the user chose; a batch that is free becomes 1.

    Returns:
        A ``tf.TensorSpec`` for each input, in their order.

    Raises:
        UsageError: If a wish does not fit.
        FreeSizes: If a size beside the batch stays free.
        ModelError: If not even the number of an input's axes is known.
    """
    import tensorflow as tf

    if unranked := [name for name, spec in named if getattr(spec.shape, "rank", 0) is None]:
        raise ModelError(
            f"The model does not say how many axes its input {unranked[0]!r} has. Export it with a shape for each "
            "input, of which single sizes may be free."
        )
    inputs = [
        FreeInput(key=name, name=name, sizes=tuple(None if s is None else int(s) for s in spec.shape))
        for name, spec in named
    ]
    sizes = sizes_of(inputs, wishes.shapes)
    return [tf.TensorSpec(sizes[name], tf.as_dtype(spec.dtype), name=name) for name, spec in named]


def traced(call: Callable[[], Any], specs: Sequence[Any]) -> Any:
    """The graph of a Keras model for inputs of fixed sizes.

    Args:
        call: Makes it.
        specs: Of the inputs, for the message.

    Raises:
        ModelError: If the model does not run with such inputs: a layer says why.
    """
    try:
        return call()
    except ValueError as exc:
        # Keras says first which layer it is, then, in a paragraph of its own and in bold, what is wrong.
        paragraphs = re.sub(r"\x1b\[\d*m", "", str(exc)).strip().split("\n\n")[:2]
        sizes = ", ".join(f"{spec.name}={'x'.join(map(str, spec.shape))}" for spec in specs)
        raise ModelError(
            f"The model does not run with inputs of {sizes}. {' '.join(map(sentence, paragraphs))} Choose other sizes "
            "with --shape, or with samples of other sizes."
        ) from exc


class LackingOps(ModelError):
    """A part of the model has ops that LiteRT has not."""


def run_converter(converter: Any) -> bytes:
    """Convert, with the converter's errors mapped.

    Raises:
        ModelError: If TensorFlow refuses the model; the message says which source works.
        LackingOps: If only TensorFlow itself runs a part of it.
    """
    from tensorflow.lite.python.convert import ConverterError

    try:
        return bytes(converter.convert())
    except (ConverterError, ValueError, RuntimeError) as exc:
        text = str(exc)
        if any(word in text for word in _TENSOR_LISTS):
            raise ModelError(_RECURRENT) from exc
        if lacking := _LACKING.search(text):
            raise LackingOps(
                f"LiteRT has no builtin op for a part of the model: {lacking['names'].strip()}. The first is "
                f"{lacking['first']}. Replace these ops or their types, or export the model without that part."
            ) from exc
        raise ModelError(
            f"TensorFlow's converter refuses the float model: {sentence(first_line(exc))} Convert it to a float "
            ".tflite yourself, and pass that."
        ) from exc


_LACKING = re.compile(r"(TF Select|Custom) ops: (?P<names>.+)\s+Details:\s+(?P<first>.+?) : \{")
"""How the converter lists what only TensorFlow itself runs, with the types that the first of these ops reads."""
_RECURRENT = (
    "TensorFlow's converter refuses the float model: a recurrent layer keeps its steps in a tensor list whose batch is "
    "free. Pass the .keras or .h5 file, or the live Keras model: its recurrent layers are unrolled then. Without "
    "these, export the SavedModel with a batch fixed to 1."
)
