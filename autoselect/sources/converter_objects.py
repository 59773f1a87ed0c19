"""A user's own ``TFLiteConverter`` as a source: its float model and the options that it carries."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from autoselect.errors import UsageError
from autoselect.sources.saved_models import run_converter


@dataclass(frozen=True, slots=True, kw_only=True)
class ConverterOptions:
    """What a user's own ``TFLiteConverter`` asks for, in autoselect's words."""

    representative_dataset: Callable[[], Any] | None
    per_channel: bool
    io_type: str


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
        io_type=io_type,
    )
    return run_converter(work), options
