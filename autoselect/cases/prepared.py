"""The folder of what is prepared: normalised and calibrated model, names, layer table, remarks; knows its format."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autoselect.domain.graph import Graph
from autoselect.domain.layers import LayerTable, table_from_rows
from autoselect.errors import ModelError, RunFolderError, sentence
from autoselect.quantize.calibrated import CalibratedModel
from autoselect.rewrites import names
from autoselect.runs.files import write_bytes, write_json
from autoselect.tflite.tflite_file import TfliteFile

PREPARED_FORMAT = 27
"""Raised whenever what is written here, or how it is made, changes, so that no older cache entry is read."""

_GIVEN, _GIVEN_INT16 = "given.tflite", "given_int16.tflite"
_TOLD = ("folded", "remarks", "notes")


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What is known of a model before the first trial.

    Attributes:
        normalised: The float model whose ops are the nodes' ops: what candidates are built from.
        calibrated: The same, calibrated and under canonical names; with the integer model where one is given.
        layers: The layer table.
        folded: Names of the user's model's ops that are no ops here any more.
        remarks: What the user should know of the model, sentences.
        notes: What is good to know of it and makes nothing worse, likewise.
    """

    normalised: TfliteFile
    calibrated: CalibratedModel
    layers: LayerTable
    folded: tuple[str, ...]
    remarks: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def graph(self) -> Graph:
        """The normalised model as a graph; its ops have the nodes' indices."""
        return self.normalised.graph


def write_prepared(folder: Path, prepared: Prepared) -> None:
    """Keep it.

    Raises:
        StorageError: If a file cannot be written.
    """
    write_bytes(folder / "normalised.tflite", prepared.normalised.content)
    write_bytes(folder / "calibrated.tflite", prepared.calibrated.content)
    for name, given in ((_GIVEN, prepared.calibrated.integer), (_GIVEN_INT16, prepared.calibrated.int16)):
        if given is not None:
            write_bytes(folder / name, given)
    write_json(folder / "names.json", asdict(prepared.calibrated.names))
    write_json(folder / "layers.json", prepared.layers.rows())
    lists = {name: list(getattr(prepared, name)) for name in _TOLD}
    write_json(folder / "remarks.json", lists)


def load_prepared(folder: Path) -> Prepared:
    """Read what :func:`write_prepared` wrote.

    Raises:
        RunFolderError: If a file is missing or damaged.
    """
    raw, remarks = _read(folder / "names.json"), _read(folder / "remarks.json")
    given, int16 = (path.read_bytes() if path.exists() else None for path in (folder / _GIVEN, folder / _GIVEN_INT16))
    return Prepared(
        normalised=_model(folder / "normalised.tflite"),
        calibrated=CalibratedModel(
            file=_model(folder / "calibrated.tflite"),
            names=names.NameMap(**{field: _as_tuple(rows) for field, rows in raw.items()}),
            integer=given,
            int16=int16,
        ),
        layers=table_from_rows(_read(folder / "layers.json")),
        **{name: tuple(remarks[name]) for name in _TOLD},
    )


def _as_tuple(rows: Any) -> Any:
    """JSON has no tuples, only lists."""
    return tuple(map(_as_tuple, rows)) if isinstance(rows, list) else rows


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise _damaged(path, exc) from exc


def _model(path: Path) -> TfliteFile:
    try:
        return TfliteFile(path.read_bytes())
    except (OSError, ModelError) as exc:
        raise _damaged(path, exc) from exc


def _damaged(path: Path, cause: Exception) -> RunFolderError:
    return RunFolderError(f"{path} is damaged: {sentence(str(cause))} Copy the run folder once more.")
