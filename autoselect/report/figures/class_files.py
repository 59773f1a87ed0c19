"""The folder of a classification report: its tables as CSV files, its pictures, and all of it for machines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autoselect.report.figures.class_figures import confusion_figure, measures_figure
from autoselect.report.figures.drawing import save
from autoselect.report.tables.plain import plain
from autoselect.runs.files import write_json, write_table

TABLES: Mapping[str, tuple[str, ...]] = {
    "measures": ("model", "metric", "value", "low", "high"),
    "per_class": ("model", "number", "support", "answered", "precision", "recall", "f1", "agreement"),
    "confusion": ("model", "label", "answer", "count"),
    "disagreements": ("model", "index", "label", "float_answer", "float_probability", "answer", "probability"),
}
"""The columns of each table."""


def write_class_report(report: Mapping[str, Any], folder: Path) -> None:
    """Write a report; what is undefined is an empty cell, and null in ``report.json``.

    Raises:
        StorageError: If a file cannot be written.
    """
    content = plain(report)
    write_json(folder / "report.json", content)
    for name, columns in TABLES.items():
        write_table(folder / f"{name}.csv", columns, content[name])
    save(measures_figure(report), folder / "measures")
    save(confusion_figure(report), folder / "confusion")
