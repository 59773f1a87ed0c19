"""The wide table: what repairs found at each node."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from autoselect.diagnosis.result import wide_rows
from autoselect.domain.layers import LayerTable, Node
from autoselect.quantize.repairing.built import Shift

NODES = tuple(
    Node(index=i, name=name, op_type=op_type)
    for i, (name, op_type) in enumerate([("a", "CONV_2D"), ("b", "CONV_2D"), ("c", "MEAN")])
)
SHIFTS = {
    "a": Shift(before=1.5, after=0.01),
    "b": Shift(before=2.0, after=2.0, reason="too wide"),
    "c": Shift(before=math.nan, after=math.nan, reason="none"),
}
SKIPPED = {"a": {"equalization": "before TANH", "weights-mse": "hybrid"}, "b": {}, "c": {}}


def test_repairs_fill_four_columns_of_each_node() -> None:
    findings = SimpleNamespace(
        layers=LayerTable(nodes=NODES, statistics=(None, None, None)),
        weights={},
        activations={},
        ablations={},
        travel={},
        parts={},
        **dict.fromkeys(("graph", "target", "forms")),
    )
    diagnosed = SimpleNamespace(kinds=dict.fromkeys(range(3), "integer"), shifts=SHIFTS, skipped=SKIPPED)
    outcome: Any = SimpleNamespace(findings=findings, diagnosed=diagnosed)
    columns = ("bias_shift", "bias_shift_corrected", "bias_reason", "repairs_skipped")
    rows = [[str(row[column]) for column in columns] for row in wide_rows(outcome)]
    assert rows == [
        ["1.5", "0.01", "", "equalization: before TANH; weights-mse: hybrid"],
        ["2.0", "2.0", "too wide", ""],
        ["nan", "nan", "none", ""],
    ]
