"""Recipes with 16-bit nodes, built and looked at as users do."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pump
import pytest

import autoselect
from autoselect.errors import RecipeError
from autoselect.report.tables.model_tables import strip_rows


def test_a_recipe_with_16_bit_nodes_is_built_again_bit_for_bit(tmp_path: Path) -> None:
    recipe = autoselect.Recipe(int16_nodes=frozenset({"*"}), repairs=("bias",))
    path = tmp_path / "wide.recipe.json"
    path.write_text(recipe.to_json(), encoding="utf-8")
    built = [
        autoselect.build(
            path,
            model=pump.MODEL_PATH,
            calibration="pump:calibration",
            output=tmp_path / "wide.tflite",
            cache=cache,
        )
        for cache in (True, False)
    ]
    assert built[0] == built[1]
    assert set(built[0]["kinds"].values()) == {"int16"}
    assert not built[0]["fallbacks"]
    assert not [warning for warning in built[0]["warnings"] if "16-bit" in warning]
    found = autoselect.inspect(tmp_path / "wide.tflite")
    kinds = [op["kind"] for op in found["subgraphs"][0]["ops"]]
    assert Counter(kinds)["int16"] >= len(built[0]["kinds"])
    assert "=" in "".join(strip_rows(kinds, 80))
    assert found["fragmentation"]["float_ops"] == 0
    conversions = [op["op_type"] for op in found["subgraphs"][0]["ops"] if op["kind"] == "int16"].count("QUANTIZE")
    share = conversions / (Counter(kinds)["int16"] - conversions)
    assert found["fragmentation"]["penalty"] == pytest.approx(8.0 + 4.0 * share)


def test_a_node_is_left_out_of_integers_or_has_16_bits(tmp_path: Path) -> None:
    recipe = autoselect.Recipe(int16_nodes=frozenset({"*"}), denylisted_ops=frozenset({"FULLY_CONNECTED"}))
    with pytest.raises(RecipeError, match=r"^int16_nodes: .*denylisted"):
        autoselect.build(recipe, model=pump.MODEL_PATH, calibration="pump:calibration", output=tmp_path / "x.tflite")
