"""What figures and tables read from the wide layer table: rows, columns of numbers, names; draws nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from autoselect.domain.layers import SUSPICIOUS_RMSE_PER_SCALE
from autoselect.report.tables.frames import number
from autoselect.report.tables.model_tables import clean

if TYPE_CHECKING:
    import pandas as pd

Record = Mapping[str, Any]
"""One node by the names of the columns; a cell may be missing, None or NaN."""
Table = Sequence[Record]

ERROR = "rmse/scale"
"""The column that suspects are ranked by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A node with its place in the table, from 0, and its rmse/scale."""

    place: int
    row: Record
    error: float

    @property
    def suspicious(self) -> bool:
        """Whether TensorFlow's Quantization Debugger guide would suspect it."""
        return self.error > SUSPICIOUS_RMSE_PER_SCALE


def records(table: pd.DataFrame | Table) -> list[Record]:
    """The rows of a data frame or of a list of rows, in their order."""
    if isinstance(table, Sequence):
        return list(table)
    found: list[Record] = table.to_dict("records")  # type: ignore[assignment]
    return found


def column(rows: Table, name: str) -> np.ndarray:
    """One column as numbers.

    Returns:
        Shape (n_rows,), float64, NaN where a row has no finite number.
    """
    return np.array([np.nan if (found := number(row.get(name))) is None else found for row in rows], dtype=np.float64)


def cell_numbers(row: Record, name: str) -> np.ndarray:
    """A cell that holds a list of numbers.

    Returns:
        Shape (n,), float64; of length 0 where the cell is missing, None or NaN.
    """
    cell = row.get(name)
    if not isinstance(cell, (list, tuple, np.ndarray)):
        return np.empty(0)
    return np.asarray(cell, dtype=np.float64).ravel()


def worst(rows: Table, count: int) -> tuple[Suspect, ...]:
    """The nodes of largest rmse/scale, worst first; ties in graph order; nodes without a figure are left out."""
    errors = column(rows, ERROR)
    order = np.argsort(-errors, kind="stable")
    known = [int(place) for place in order if np.isfinite(errors[place])]
    return tuple(Suspect(place=place, row=rows[place], error=float(errors[place])) for place in known[:count])


def is_accumulated(row: Record) -> bool:
    """Whether the node's error holds that of the nodes before it, because no debug model verifies it alone."""
    return str(row.get("verified")) == "False"


def node_number(row: Record, place: int) -> str:
    """The op's index in the graph, or the row where the table has none."""
    found = number(row.get("index"))
    return str(place if found is None else int(found))


def name_of(row: Record, limit: int | None = None) -> str:
    """The node's name as printable text, shortened in the middle to at most ``limit`` characters."""
    name = clean(str(row.get("tensor_name", "")))
    return name if limit is None else cut_middle(name, limit)


def op_type(row: Record) -> str:
    """The node's op type as printable text."""
    return clean(str(row.get("op_name", "")))


def common_folder(rows: Table) -> str:
    """The longest folder that most names lie in, with its ``/``; empty where there is none.

    Most are three in four: the outputs of a converted model have names of their own.
    """
    folders: Counter[str] = Counter()
    for row in rows:
        parts = name_of(row).split("/")[:-1]
        folders.update("/".join(parts[: depth + 1]) + "/" for depth in range(len(parts)))
    shared = [folder for folder, count in folders.items() if count > 1 and count >= 0.75 * len(rows)]
    return max(shared, key=len, default="")


def cut_middle(text: str, limit: int) -> str:
    """Leave out the middle of a text that is longer than ``limit`` (2 or more): names differ at their ends.

    Returns:
        At most ``limit`` characters, the end a third longer than the start.
    """
    if len(text) <= limit:
        return text
    head = (limit - 1) * 3 // 7
    return f"{text[:head]}…{text[len(text) - (limit - 1 - head) :]}"
