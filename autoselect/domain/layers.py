"""The layer table: one row per quantizable node, in graph order, with the debugger's figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from autoselect.domain.graph import Graph, Op, OpKind

HEALTHY_RMSE_PER_SCALE = 1.0 / math.sqrt(12.0)
"""Expected rmse/scale of a healthy layer: rounding errors uniform over one step."""

SUSPICIOUS_RMSE_PER_SCALE = 0.7
"""TensorFlow's Quantization Debugger guide suspects layers above this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One op that full-integer quantization turns into an integer op.

    Attributes:
        index: Index of the op in the float model's main subgraph.
        name: The float model's own name of the op's first output; what ``denylisted_nodes`` takes.
        op_type: For example ``CONV_2D``; what ``denylisted_ops`` takes.
        macs: Multiply-accumulates per inference.
    """

    index: int
    name: str
    op_type: str
    macs: int = 0


def never_integer(graph: Graph, nodes: Iterable[Node]) -> list[Op]:
    """The float ops that are no nodes, and stay in float in every candidate."""
    indices = {node.index for node in nodes}
    return [op for i, op in enumerate(graph.ops) if i not in indices and op.kind is OpKind.FLOAT]


def names_in_float(graph: Graph, nodes: Iterable[Node]) -> Mapping[str, str]:
    """The op types of :func:`never_integer` by the names that they would have as nodes."""
    return {graph.tensors[op.outputs[0]].name: op.op_type for op in never_integer(graph, nodes) if op.outputs}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerStatistics:
    """Quantization error of one node's output, mean over samples of the per-sample figure.

    Attributes:
        tensor_index: Index of the quantized output in the debug model (or in the all-integer
            model for a node that the debugger does not verify).
        num_elements: Elements of the output.
        stddev: Standard deviation of the error, in the output's units, as all errors here.
        mean_error: Mean of (quantized - float).
        max_abs_error: Largest magnitude of the error.
        mean_squared_error: Mean of the squared error.
        scale: Step of the output's quantization; NaN where the output is float.
        zero_point: Level that stands for 0.
        sqnr_db: Power of the float output over power of the error, decibels; infinite where there is no error.
        verified: True where the debug model verifies the node (error of this node alone), False where the
            figures compare the float model's with the measured model's output (accumulated error).
        metrics: The user's own, by name.
    """

    tensor_index: int
    num_elements: float
    stddev: float
    mean_error: float
    max_abs_error: float
    mean_squared_error: float
    scale: float
    zero_point: int
    sqnr_db: float
    verified: bool
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def range(self) -> float:
        """Width of the values that the quantized output can hold: 255 x scale."""
        return 255.0 * self.scale

    @property
    def rmse_per_scale(self) -> float:
        """sqrt(mean_squared_error) / scale; about 0.289 where quantization is healthy. NaN for scale 0."""
        return math.sqrt(self.mean_squared_error) / self.scale if self.scale else math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTable:
    """Nodes with their statistics; a node whose output cannot be compared has None."""

    nodes: tuple[Node, ...]
    statistics: tuple[LayerStatistics | None, ...]

    def __post_init__(self) -> None:
        """Refuse columns of different length and nodes out of order."""
        if len(self.nodes) != len(self.statistics):
            raise ValueError(f"{len(self.nodes)} nodes but {len(self.statistics)} statistics")
        if list(self.nodes) != sorted(self.nodes, key=lambda n: n.index):
            raise ValueError("nodes must be in graph order")

    def __len__(self) -> int:
        """Count of nodes."""
        return len(self.nodes)

    @property
    def op_types(self) -> Mapping[str, str]:
        """Op type by node name, in graph order."""
        return {node.name: node.op_type for node in self.nodes}

    def statistic(self, name: str) -> np.ndarray:
        """One statistic of all nodes: float64, shape (n_nodes,), NaN where there is none.

        Raises:
            KeyError: If there is no such statistic; see ``STATISTICS``.
        """
        if name not in STATISTICS:
            raise KeyError(name)
        return np.array([math.nan if s is None else float(getattr(s, name)) for s in self.statistics])

    def ranked_by(self, name: str) -> list[str]:
        """Names of the nodes, largest statistic first; ties and NaN (last) in graph order."""
        values = self.statistic(name)
        places = list(range(len(self.nodes)))
        places.sort(key=lambda i: (math.isnan(values[i]), -values[i] if not math.isnan(values[i]) else 0.0, i))
        return [self.nodes[i].name for i in places]

    def rows(self) -> list[dict[str, object]]:
        """The table as plain rows, in the columns of ``COLUMNS``."""
        return [_row(node, stat) for node, stat in zip(self.nodes, self.statistics, strict=True)]


_NOT_RANKED = ("tensor_index", "verified", "metrics")
_MEASURED = tuple(f.name for f in fields(LayerStatistics) if f.name not in _NOT_RANKED)
STATISTICS: tuple[str, ...] = (*_MEASURED, "range", "rmse_per_scale")
"""Statistics that a search space may rank by."""

COLUMNS: tuple[str, ...] = (
    "index",
    "op_name",
    "tensor_idx",
    "num_elements",
    "stddev",
    "mean_error",
    "max_abs_error",
    "mean_squared_error",
    "scale",
    "zero_point",
    "tensor_name",
    "range",
    "rmse/scale",
    "sqnr_db",
    "verified",
    "macs",
)
"""Columns of ``layer_statistics.csv``: the Quantization Debugger's, and ours after them."""


def _row(node: Node, stat: LayerStatistics | None) -> dict[str, object]:
    figures: dict[str, object] = {}
    if stat is not None:
        figures = {name: getattr(stat, name) for name in _MEASURED}
        figures |= {"tensor_idx": stat.tensor_index, "range": stat.range, "rmse/scale": stat.rmse_per_scale}
        figures["verified"] = stat.verified
    figures |= {
        "index": node.index,
        "op_name": node.op_type,
        "tensor_name": node.name,
        "macs": node.macs,
    }
    return {column: figures.get(column, "") for column in COLUMNS}


def table_from_rows(rows: Sequence[Mapping[str, object]]) -> LayerTable:
    """Read the rows of ``layer_statistics.csv`` back."""
    nodes = tuple(
        Node(
            index=int(str(row["index"])),
            name=str(row["tensor_name"]),
            op_type=str(row["op_name"]),
            macs=int(str(row["macs"])),
        )
        for row in rows
    )
    return LayerTable(nodes=nodes, statistics=tuple(_statistics_from_row(row) for row in rows))


def _statistics_from_row(row: Mapping[str, object]) -> LayerStatistics | None:
    if str(row["num_elements"]) in ("", "nan"):
        return None
    figures = {name: float(str(row[name])) for name in _MEASURED if name != "zero_point"}
    return LayerStatistics(
        tensor_index=int(float(str(row["tensor_idx"]))),
        zero_point=int(float(str(row["zero_point"]))),
        verified=str(row["verified"]) == "True",
        metrics={},
        **figures,
    )
