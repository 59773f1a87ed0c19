"""What a caller may hand over as a model, and how it is read, named and described."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoselect.domain.recipe import Recipe
from autoselect.errors import UsageError
from autoselect.quantize import sources

Source = Any
"""A path, the bytes of a ``.tflite``, a live Keras model or a ``tf.lite.TFLiteConverter``."""


LIVE = "(live object)"
"""Stands in a manifest for an object that only its process has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSource:
    """A source that a worker can read; ``calibration``, ``per_channel`` and ``io_type`` are a converter's own."""

    model: Path | bytes
    calibration: object | None
    per_channel: bool
    io_type: str | None


def describe(source: object) -> str | None:
    """An ingredient in words: enough to load it again, or the mark of a live object."""
    if source is None:
        return None
    if isinstance(source, Path):
        return str(source.absolute())
    if isinstance(source, str):
        return source if ":" in source and not Path(source).exists() else str(Path(source).absolute())
    return LIVE


def load_source(source: Source) -> LoadedSource:
    """Turn any source into a path or bytes.

    Raises:
        UsageError: If it is none of what ``Source`` lists.
    """
    if isinstance(source, bytes):
        return LoadedSource(model=source, calibration=None, per_channel=True, io_type=None)
    if isinstance(source, (str, Path)):
        path = Path(source).absolute()
        return LoadedSource(model=path, calibration=None, per_channel=True, io_type=None)
    if sources.is_keras_model(source):
        content = sources.as_float_model(sources.convert_keras(source))
        return LoadedSource(model=content, calibration=None, per_channel=True, io_type=None)
    if sources.is_converter(source):
        content, options = sources.from_converter(source)
        return LoadedSource(
            model=content,
            calibration=options.representative_dataset,
            per_channel=options.per_channel,
            io_type=options.io_type,
        )
    raise UsageError(
        f"Expected a path, the bytes of a .tflite, a Keras model or a TFLiteConverter, got {type(source).__name__}."
    )


def calibration_of(loaded: LoadedSource, given: object) -> object:
    """Representative data: the given ones, else those that the source brings.

    Raises:
        UsageError: If there are none.
    """
    calibration = given if given is not None else loaded.calibration
    if calibration is None:
        raise UsageError(
            "Full-integer quantization needs representative data: pass --calibration (or calibration=...), "
            "an .npz or .npy file, or package.module:function."
        )
    return calibration


def read_recipe(path: Path) -> Recipe:
    """Read a ``.recipe.json``.

    Raises:
        UsageError: If it cannot be read.
        RecipeError: If it is no recipe.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as exc:
        raise UsageError(f"The recipe {path} cannot be read: {exc.strerror}.") from exc
    return Recipe.from_json(text)
