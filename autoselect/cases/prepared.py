"""The folder of what is prepared: calibrated model, names and layer table; knows its format, not how they are made."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from autoselect.domain.layers import LayerTable, table_from_rows
from autoselect.quantize import names
from autoselect.quantize.build import CalibratedModel
from autoselect.runs.files import write_bytes, write_json

PREPARED_FORMAT = 5
"""Raised whenever what is written here, or how it is made, changes, so that no older cache entry is read."""


def write_prepared(folder: Path, calibrated: CalibratedModel, table: LayerTable) -> None:
    """Keep a calibrated model and the layer table.

    Raises:
        StorageError: If a file cannot be written.
    """
    write_bytes(folder / "calibrated.tflite", calibrated.content)
    write_json(folder / "names.json", asdict(calibrated.names))
    write_json(folder / "layers.json", table.rows())


def load_prepared(folder: Path) -> tuple[CalibratedModel, LayerTable]:
    """Read what :func:`write_prepared` wrote."""
    raw = json.loads((folder / "names.json").read_text(encoding="utf-8"))
    name_map = names.NameMap(
        inputs=tuple(raw["inputs"]),
        outputs=tuple(raw["outputs"]),
        op_outputs=tuple(tuple(outputs) for outputs in raw["op_outputs"]),
        op_inputs=tuple(tuple(inputs) for inputs in raw["op_inputs"]),
    )
    calibrated = CalibratedModel(content=(folder / "calibrated.tflite").read_bytes(), names=name_map)
    return calibrated, table_from_rows(json.loads((folder / "layers.json").read_text(encoding="utf-8")))
