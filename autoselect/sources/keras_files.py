"""Keras models in files, loaded in safe mode by the Keras that wrote them; knows nothing of their conversion."""

from __future__ import annotations

import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

from autoselect.errors import ModelError, first_line, sentence

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
    told = str(exc).rpartition("Exception encountered: ")[2].partition(" Full object config: ")[0]
    return sentence(next(iter(told.strip().splitlines()), first_line(exc)))


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
    return [value, *(found for child in children for found in _walk(child))]
