"""What a chip takes and leaves, as tables of text."""

from __future__ import annotations

from typing import Any

from reviewing import Reviewed

from autoselect.report.tables import target_tables as tables
from autoselect.report.tables.model_tables import fragmentation_rows

LEFT: list[dict[str, Any]] = [
    {"op": 2, "op_type": "MUL", "precision": "int16", "name": "a/mul;b/mul", "reason": "too wide"},
    {"op": 5, "op_type": "CONV_2D", "precision": "float", "name": "x" * 80, "reason": "no kernel"},
    {"op": 6, "op_type": "CONV_2D", "precision": "float", "name": "c\x1b[31m", "reason": "no kernel"},
    {"op": 11, "op_type": "SHAPE", "precision": None, "name": "s", "reason": "no kernel"},
]
PIECES = [
    {"ops": [0, 1], "ops_by_type": {"ADD": 2}, "input_bytes": 10, "output_bytes": 2000, "constant_bytes": 0},
    {"ops": [3, 4, 7], "ops_by_type": {"MUL": 1, "ADD": 2}, "input_bytes": 8, "output_bytes": 9, "constant_bytes": 5},
]


def test_pieces() -> None:
    heading, *rows = tables.piece_rows({"pieces": PIECES})
    assert heading == ("piece", "ops", "numbers", "in", "out", "weights", "types")
    assert rows == [
        ("1", "2", "0-1", "10 B", "2.0 kB", "0 B", "2 ADD"),
        ("2", "3", "3-4, 7", "8 B", "9 B", "5 B", "2 ADD, MUL"),
    ]
    assert tables.piece_rows({"pieces": []}) == [("none",)]


def test_left_ops_are_listed_by_reason_with_names_that_cannot_harm() -> None:
    lines = tables.left_lines({"left": LEFT})
    assert lines == [
        "3 ops: no kernel",
        f"   5  CONV_2D  float  …{'x' * 59}",
        "   6  CONV_2D  float  c?[31m",
        "  11  SHAPE           s",
        "1 op: too wide",
        "  2  MUL  int16  a/mul",
    ]
    assert tables.left_lines({"left": []}) == ["none"]


def test_left_ops_are_counted_by_reason() -> None:
    assert tables.left_rows({"left": LEFT}) == [
        ("3", "2 float CONV_2D, SHAPE", "no kernel"),
        ("1", "int16 MUL", "too wide"),
    ]


def test_versions() -> None:
    versions = {"LiteRT": "2.3.0", "libraries": "an SDK, 9 files"}
    assert tables.version_texts(versions) == ["LiteRT 2.3.0", "libraries: an SDK, 9 files"]


def test_fragmentation_has_the_words_of_compilers(reviewed: Reviewed) -> None:
    cut = {"segments": 2, "float_ops": 3, "crossing_tensors": 4, "crossing_bytes": 5, "penalty": 1.0}
    plain, chip = ({"fragmentation": {**cut, "off_chip": off_chip}} for off_chip in (None, 1))
    assert [name for name, _ in fragmentation_rows(plain)][:2] == ["integer segments", "float ops"]
    reviewed("fragmentation on a chip", [": ".join(row) for row in fragmentation_rows(chip)[:3]])


def test_advice(reviewed: Reviewed) -> None:
    target: dict[str, Any] = {"best_island": 0, "islands": [{"gain": 2.0, "ops": [0]}], "penalty": 5.0}
    target |= {"unit": "microseconds", "forecast": None, "costs": [{}], "placements": [{"precision": "float"}]}
    (plain,) = tables.advice_lines({"target": target})
    (chip,) = tables.advice_lines({"target": {**target, "chips": [{}]}})
    (forecast,) = tables.advice_lines({"target": {**target, "forecast": {"penalty": 5.0}}})
    left_by_the_compiler = {**target, "placements": [{"precision": "int8"}]}
    assert tables.advice_lines({"target": left_by_the_compiler}) == []
    reviewed("the island that helps most", [plain, forecast, chip])


def test_parts_of_a_model_for_several_chips_have_no_costs() -> None:
    """Cycles of one chip and microseconds of another do not compare, and a finished model has no search's units."""
    placed = {"precision": "int8", "place": "host", "cost": 7.0, "reason": "too wide"}
    target = {"placements": [placed], "islands": [{"ops": [0], "gain": 7.0}], "best_island": 0}
    target |= {"unit": "times the best", "forecast": None, "penalty": 9.0, "costs": [{"name": "a"}, {"name": "b"}]}
    found = {"subgraphs": [{"ops": [{"op_type": "EXP"}]}], "target": target}
    assert tables.placement_rows(found)[1] == ("0", "EXP", "int8", "host", "too wide")
    assert tables.island_rows(found)[1] == ("1", "EXP", "0")
    assert tables.advice_lines(found) == []
