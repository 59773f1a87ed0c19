"""The rows of a model's analysis, from one written by hand, and its ops as a strip."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoselect.domain.graph import OpKind
from autoselect.domain.looks import LOOKS
from autoselect.report.tables import model_tables as tables


def tensor(index: int, dtype: str, shape: tuple[int, ...], **changed: Any) -> dict[str, Any]:
    return {
        "index": index,
        "name": f"t{index}",
        "dtype": dtype,
        "shape": shape,
        "shape_signature": None,
        "size_bytes": 8,
        "is_constant": False,
        "is_variable": False,
        "buffer": 0,
        "quantization": None,
        **changed,
    }


TENSORS = [
    tensor(0, "float32", (1, 2), shape_signature=(-1, 2)),
    tensor(
        1,
        "int8",
        (4, 2),
        is_constant=True,
        buffer=3,
        quantization={"scale_count": 4, "scale": 0.25, "zero_point": 0, "axis": 0},
    ),
    tensor(2, "int8", (), quantization={"scale_count": 1, "scale": 0.5, "zero_point": -3, "axis": None}),
    tensor(3, "float32", (1, 4), name="bad\nname\x1b[31m", is_variable=True),
]
OPS = [
    {"index": 0, "op_type": "FULLY_CONNECTED", "kind": "hybrid", "macs": 8, "inputs": (0, 1, -1), "outputs": (3,)},
    {"index": 1, "op_type": "RELU", "kind": "float", "macs": 0, "inputs": (3,), "outputs": (3,)},
    {"index": 2, "op_type": "RELU", "kind": "integer", "macs": 0, "inputs": (2,), "outputs": ()},
]


def model(path: str = "a/one.tflite", **changed: Any) -> dict[str, Any]:
    return {
        "path": path,
        "size_bytes": 1000,
        "sizes": {"weights_bytes": 600, "metadata_bytes": 100, "unused_bytes": 50, "rest_bytes": 250},
        "buffers": {"count": 7, "data_bytes": 750, "unused": (5,), "zero": (2, 5), "zero_bytes": 60},
        "tensors_by_dtype": {"float32": 2, "int8": 2},
        "ops_by_type": {"RELU": 2, "FULLY_CONNECTED": 1},
        "ops_by_kind": {"float": 1, "hybrid": 1, "integer": 1},
        "subgraphs": [{"index": 0, "name": "main", "tensors": TENSORS, "ops": OPS}],
        "signatures": [{"key": "serve", "subgraph": 0, "inputs": {"x": 0}, "outputs": {"y": 3}}],
        "metadata": [],
        "fragmentation": {
            "segments": 1,
            "float_ops": 2,
            "crossing_tensors": 3,
            "crossing_bytes": 4,
            "float_macs_share": 0.5,
            "penalty": 12.5,
        },
        **changed,
    }


def test_sizes() -> None:
    assert tables.size_rows(model()) == (
        ("file", "1000", "100.0 %"),
        ("  weights", "600", "60.0 %"),
        ("  metadata", "100", "10.0 %"),
        ("  unused buffers", "50", "5.0 %"),
        ("  rest", "250", "25.0 %"),
    )


def test_counts_and_histograms() -> None:
    assert dict(tables.fact_rows(model()))["buffers"] == "7, of these 1 unused (50 bytes), 2 all zero (60 bytes)"
    assert tables.dtype_rows(model()) == (("float32", "2", "0 constant"), ("int8", "2", "1 constant"))
    assert tables.op_type_rows(model()) == (
        ("RELU", "2", "1 float, 1 integer"),
        ("FULLY_CONNECTED", "1", "1 hybrid"),
    )


def test_signatures() -> None:
    assert tables.signature_lines(model()) == (
        "serve (subgraph 0)",
        "  input   x: T0 float32 ?x2",
        "  output  y: T3 float32 1x4",
    )


def test_ops() -> None:
    assert tables.op_rows(model()["subgraphs"][0])[1:] == (
        ("0", "FULLY_CONNECTED", "hybrid", "8", "T0 T1* - -> T3", "float32 1x4"),
        ("1", "RELU", "float", "0", "T3 -> T3", "float32 1x4"),
        ("2", "RELU", "integer", "0", "T2 -> ", ""),
    )


def test_tensors() -> None:
    assert tables.tensor_rows(model()["subgraphs"][0])[1:] == (
        ("T0", "float32", "?x2", "8", "", "", "t0"),
        ("T1", "int8", "4x2", "8", "buffer 3", "0.25, zero 0 (4 scales, axis 0)", "t1"),
        ("T2", "int8", "scalar", "8", "", "0.5, zero -3", "t2"),
        ("T3", "float32", "1x4", "8", "variable", "", "bad?name?[31m"),
    )


def test_comparison() -> None:
    other = model("b/two.tflite", size_bytes=2000, ops_by_type={"RELU": 1, "ADD": 4}, tensors_by_dtype={"int4": 9})
    rows = tables.comparison_rows([model(), other])
    assert rows[0] == ("", "one", "two")
    assert {name: values for name, *values in rows} == {
        "": ["one", "two"],
        "file bytes": ["1000", "2000"],
        "weights bytes": ["600", "600"],
        "tensors int4": ["0", "9"],
        "tensors float32": ["2", "0"],
        "tensors int8": ["2", "0"],
        "ops ADD": ["0", "4"],
        "ops RELU": ["2", "1"],
        "ops FULLY_CONNECTED": ["1", "0"],
        "kind float": ["1", "1"],
        "kind hybrid": ["1", "1"],
        "kind integer": ["1", "1"],
        "integer segments": ["1", "1"],
        "float ops": ["2", "2"],
        "crossings": ["3", "3"],
        "crossing bytes": ["4", "4"],
        "penalty": ["12.5", "12.5"],
    }
    assert [row[0] for row in rows[3:6]] == ["tensors int4", "tensors float32", "tensors int8"]


def test_penalties_in_cycles_keep_their_digits() -> None:
    cuts = [{**model()["fragmentation"], "penalty": penalty} for penalty in (1838464.0, 89132.0, 12.5)]
    *_, penalties = tables.fragmentation_rows(*({"fragmentation": cut} for cut in cuts))
    assert penalties == ("penalty", "1,838,464", "89,132", "12")


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        pytest.param(("a/x.tflite", "a/y.tflite"), ("x", "y"), id="names"),
        pytest.param(("a/x.tflite", "b/x.tflite"), ("a/x.tflite", "b/x.tflite"), id="equal names"),
        pytest.param(("a/0a.v2.tflite",), ("0a.v2",), id="a dot in the name"),
    ],
)
def test_labels(paths: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert tables.labels(paths) == expected


ROWS = (("", "one", "two", "three"), ("bytes", "1", "22", "333"))


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        pytest.param(80, (("       one  two  three", "bytes    1   22    333"),), id="wide"),
        pytest.param(22, (("       one  two  three", "bytes    1   22    333"),), id="just wide enough"),
        pytest.param(
            21, (("       one  two", "bytes    1   22"), ("       three", "bytes    333")), id="one column too wide"
        ),
        pytest.param(
            1,
            (("       one", "bytes    1"), ("       two", "bytes   22"), ("       three", "bytes    333")),
            id="no room",
        ),
    ],
)
def test_blocks_of_a_comparison(width: int, expected: tuple[tuple[str, ...], ...]) -> None:
    assert tables.side_by_side(ROWS, width) == expected


LETTERS = {"i": "integer", "w": "int16", "h": "hybrid", "f": "float", "b": "boundary", "n": "neutral"}


def kinds(letters: str) -> list[str]:
    return [LETTERS[letter] for letter in letters]


@pytest.mark.parametrize(
    ("letters", "width", "expected"),
    [
        pytest.param("", 80, (), id="no ops"),
        pytest.param("i", 80, ("0 -",), id="one op"),
        pytest.param("biifhwnib", 80, ("0 |--Fh=.-|",), id="every kind"),
        pytest.param("iiiff", 5, ("0 ---", "3 FF"), id="less room than ten ops"),
        pytest.param("if", 1, ("0 -", "1 F"), id="no room at all"),
        pytest.param("i" * 10 + "f", 13, (" 0 " + "-" * 10, "10 F"), id="exactly full"),
        pytest.param("i" * 25, 26, (" 0 " + "-" * 20, "20 " + "-" * 5), id="a round number of ops"),
    ],
)
def test_rows_of_a_strip(letters: str, width: int, expected: tuple[str, ...]) -> None:
    assert tables.strip_rows(kinds(letters), width) == expected


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        pytest.param("", "", id="no ops"),
        pytest.param("iii", "- 3 integer", id="one kind"),
        pytest.param(
            "biifhwnib",
            "- 3 integer   = 1 16-bit integer   h 1 hybrid   F 1 float   | 2 conversion   . 1 shapes and indices",
            id="every kind",
        ),
    ],
)
def test_legend_of_a_strip(letters: str, expected: str) -> None:
    assert tables.strip_legend(kinds(letters)) == expected


def test_every_kind_has_a_mark_of_its_own() -> None:
    marks = [look.mark for look in LOOKS.values()]
    assert set(LOOKS) == {kind.value for kind in OpKind}
    assert len({*marks}) == len(marks)
    assert all(len(mark) == 1 and mark.isascii() and not mark.isdigit() for mark in marks)


@given(st.text(alphabet="ihfbn", max_size=400), st.integers(8, 200))
def test_one_mark_an_op_in_their_order_and_never_too_wide(letters: str, width: int) -> None:
    rows = tables.strip_rows(kinds(letters), width)
    assert all(len(row) <= width for row in rows)
    assert "".join(row.split()[1] for row in rows) == "".join(LOOKS[kind].mark for kind in kinds(letters))
    starts = [int(row.split()[0]) for row in rows]
    assert starts == [sum(len(row.split()[1]) for row in rows[:i]) for i in range(len(rows))]
