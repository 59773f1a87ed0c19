"""A finished diagnosis: one wide table, the advice, and both in files."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from autoselect.diagnosis.request import Outcome
from autoselect.domain.findings import Advice
from autoselect.domain.layers import LayerStatistics
from autoselect.domain.result import html_table
from autoselect.domain.words import counted
from autoselect.errors import DataError, RunFolderError
from autoselect.quantize.diagnosing.cures import Cure, Model, cures, decibels
from autoselect.runs.files import write_json, write_text

LIST_COLUMNS = ("weight_minima", "weight_maxima", "weight_scales", "weight_zero_points")
"""Columns of ``layer_statistics.csv`` that hold one value a channel, as JSON."""

_TABLE, _SUMMARY = "layer_statistics.csv", "diagnosis.json"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Diagnosis:
    """What a diagnosis found.

    Attributes:
        layer_statistics: One row for each node, in graph order. The Quantization Debugger's columns, then ours.
            Columns with one value for each channel hold lists. ``weight_*`` columns are empty for nodes without
            weights. ``leave_one_*`` columns come with ``ablate``, ``travel_*`` with ``whole_model``; the user's metrics
            are last.
        advice: What to do, most important first.
        model_metrics: The user's metrics of the model's outputs, mean over samples.
        facts: What was diagnosed: ``model``, ``nodes``, sample counts, ``seconds`` by stage, ``warnings``.
        directory: Where the files are; None if none were asked for.
        figures: The pictures.
        node: Full name of the node that was asked for.
    """

    layer_statistics: pd.DataFrame
    advice: tuple[Advice, ...]
    model_metrics: Mapping[str, float]
    facts: Mapping[str, Any]
    directory: Path | None = None
    figures: tuple[Path, ...] = ()
    node: str | None = None

    def __repr__(self) -> str:
        nodes, pieces = counted(len(self.layer_statistics), "node"), counted(len(self.advice), "piece")
        return f"Diagnosis({self.facts.get('model')!r}, {nodes}, {pieces} of advice)"

    def _repr_html_(self) -> str:
        """What to do, for notebooks; whatever comes from a model is escaped."""
        rows = [(item.title, item.action) for item in self.advice]
        return f"<p><b>{html.escape(repr(self))}</b></p>{html_table(('advice', 'what to do'), rows)}"


def wide_rows(outcome: Outcome) -> list[dict[str, object]]:
    """The layer table with everything else that was found about each node."""
    layers, findings = outcome.findings.layers, outcome.findings
    model = Model(nodes=layers.nodes, graph=findings.graph, target=findings.target, forms=findings.forms)
    node_cures = cures(model, findings.parts)
    return [
        _wide(row, figures, outcome, node_cures) for row, figures in zip(layers.rows(), layers.statistics, strict=True)
    ]


def _wide(
    row: Mapping[str, object], figures: LayerStatistics | None, outcome: Outcome, node_cures: Mapping[str, Cure]
) -> dict[str, object]:
    name, findings, diagnosed = str(row["tensor_name"]), outcome.findings, outcome.diagnosed
    parts, cure, shift = findings.parts.get(name), node_cures.get(name), diagnosed.shifts[name]
    return {
        **{key: math.nan if value == "" and key not in _TEXTS else value for key, value in row.items()},
        "kind": diagnosed.kinds.get(int(str(row["index"])), "folded"),
        **{f"{part}_sqnr_db": decibels(getattr(parts, part)) if parts else math.nan for part in _PARTS},
        "cure": cure.name if cure else "",
        "cure_reason": cure.reason if cure else "",
        **_figures(findings.weights.get(name), _WEIGHTS),
        **_figures(shift, _SHIFT),
        "bias_reason": shift.reason or "",
        "repairs_skipped": "; ".join(f"{repair}: {reason}" for repair, reason in diagnosed.skipped[name].items()),
        **_figures(findings.activations.get(name), _ACTIVATIONS),
        **(_figures(findings.ablations.get(name), _ABLATION) if findings.ablations else {}),
        **(_figures(findings.travel.get(name), _TRAVEL) if findings.travel else {}),
        **({} if figures is None else figures.metrics),
    }


_TEXTS = ("op_name", "tensor_name", "cure", "cure_reason", "bias_reason", "repairs_skipped")
_PARTS = ("weights", "shift", "activations")
_WEIGHTS = {
    "weight_range_ratio": "channel_range_ratio",
    "weight_kurtosis": "kurtosis",
    "weight_outlier_share": "outlier_share",
    "weight_minima": "minima",
    "weight_maxima": "maxima",
    "weight_scales": "scales",
    "weight_zero_points": "zero_points",
}
_SHIFT = {"bias_shift": "before", "bias_shift_corrected": "after"}
_ACTIVATIONS = {
    "activation_minimum": "minimum",
    "activation_maximum": "maximum",
    "calibrated_minimum": "calibrated_minimum",
    "calibrated_maximum": "calibrated_maximum",
    "activation_kurtosis": "kurtosis",
    "activation_outlier_share": "outlier_share",
    "clipped_share": "clipped_share",
    "range_growth": "range_growth",
}
_ABLATION = {"leave_one_in": "leave_one_in", "leave_one_out": "leave_one_out"}
_TRAVEL = {
    "travel_mean_squared_error": "mean_squared_error",
    "travel_rmse/scale": "rmse_per_scale",
    "travel_nsr": "nsr",
    "error_growth": "growth",
}


def _figures(finding: object, columns: Mapping[str, str]) -> dict[str, object]:
    """Cells by column, from the attributes that they are named after; NaN, or no numbers, where nothing was found."""
    if finding is None:
        return {column: [] if column in LIST_COLUMNS else math.nan for column in columns}
    cells = {column: getattr(finding, attribute) for column, attribute in columns.items()}
    return {column: list(cell) if column in LIST_COLUMNS else cell for column, cell in cells.items()}


def check_directory(directory: Path) -> None:
    """Refuse a folder that holds anything but a diagnosis.

    Raises:
        RunFolderError: If it does.
    """
    if directory.is_file():
        raise RunFolderError(f"{directory} is a file. Choose a new folder with --output.")
    if directory.is_dir() and any(directory.iterdir()) and not (directory / _SUMMARY).exists():
        raise RunFolderError(f"{directory} holds other files. Choose a new or empty folder with --output.")


def write(diagnosis: Diagnosis, directory: Path) -> None:
    """Write the table and the summary.

    Raises:
        StorageError: If a file cannot be written.
    """
    table = diagnosis.layer_statistics.copy()
    for column in LIST_COLUMNS:
        table[column] = [json.dumps(value) for value in table[column]]
    write_text(directory / _TABLE, table.to_csv(index=False))
    summary = {
        "facts": dict(diagnosis.facts),
        "model_metrics": dict(diagnosis.model_metrics),
        "advice": [asdict(advice) for advice in diagnosis.advice],
    }
    write_json(directory / _SUMMARY, summary)


def read_layer_statistics(path: str | Path) -> pd.DataFrame:
    """Read a ``layer_statistics.csv`` of a diagnosis or of a run back, exactly.

    Args:
        path: The file, or the folder that holds it.

    Returns:
        One row for each node. Columns with one value for each channel hold lists of numbers.

    Raises:
        DataError: If there is no such file, or it is no table of layer statistics.

    Examples:
        What :func:`autoselect.diagnose` wrote:

        >>> import autoselect
        >>> table = autoselect.read_layer_statistics("pump-diagnosis")
        >>> len(table)
        22
    """
    file = Path(path) / _TABLE if Path(path).is_dir() else Path(path)
    try:
        # Tensor names are data: none of them means "missing".
        table = pd.read_csv(file, dtype=str, keep_default_na=False)
        if "tensor_name" not in table:
            raise ValueError("it has no column tensor_name")
        for column in table.columns:
            table[column] = _parsed(str(column), table[column].tolist())
    except (OSError, ValueError) as exc:
        raise DataError(f"{file} cannot be read as layer statistics: {exc}. Pass the CSV that diagnose wrote.") from exc
    return table


def _parsed(column: str, values: list[str]) -> list[Any]:
    if column in (*_TEXTS, "kind"):
        return values
    if column == "verified":
        return [{"True": True, "False": False}.get(value, math.nan) for value in values]
    if column in LIST_COLUMNS:
        return [json.loads(value) for value in values]
    if all(value.removeprefix("-").isdigit() for value in values):
        return [int(value) for value in values]
    return [float(value) if value else math.nan for value in values]
