"""A search for the NPU of a phone, with the vendor's own compiler and emulation where they are installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import pump
import pytest

import autoselect
from autoselect.compilers.opening import compiler_of
from autoselect.scoring.target_file import read_target

pytest.importorskip("onnxruntime_qnn")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="LiteRT's plugins are for Linux")

TARGET = "qualcomm-sm8750"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> autoselect.Run:
    folder = tmp_path_factory.mktemp("chip") / "run"
    return pump.search(
        folder, trials=8, early_exit=False, int16=None, max_drop=0.03, target=TARGET, emulation_samples=20
    )


def test_what_is_forecast_is_what_the_compiler_says(found: autoselect.Run) -> None:
    assert found.summary["counts"]["failed"] == 0
    assert found.summary["unlike_forecast"] == 0
    assert found.summary["compiler"]["unlike_forecast"] == []
    compiler = compiler_of(read_target(TARGET))
    for row in found.front.to_dict("records"):
        asked = compiler.partition(found.model_path(str(row["id"])).read_bytes(), timeout_seconds=60)
        assert (row["partitions"], row["left_ops"]) == (len(asked.pieces), len(asked.left))


def test_members_are_compiled_and_emulated(found: autoselect.Run) -> None:
    table = pd.read_csv(found.model_path("recommended").parents[1] / "chip.csv")
    assert set(found.front["id"]) <= set(table["id"])
    assert (table["samples"] == 20).all()
    assert table["chip"].between(0, 1).all()
    assert (table["ddr_bytes"] > 0).all()
    assert set(found.summary["compiler"]["versions"]) >= {"LiteRT", "libraries", "onnxruntime-qnn"}


def test_the_verdict_speaks_of_the_chip(found: autoselect.Run) -> None:
    row = found.front.set_index("id").loc[found.picks["recommended"]]
    assert "on the NPU" in found.summary["verdict"]
    assert ("no op left on the CPU" in found.summary["verdict"]) == (row["left_ops"] == 0)


def test_rewrites_are_noted(found: autoselect.Run) -> None:
    assert any(note.startswith("Rewrites that change no output") for note in found.manifest["notes"])


def test_both_tables_have_the_compilers_cost_of_a_member(found: autoselect.Run) -> None:
    trials = found.trials.drop_duplicates("id").set_index("id")["penalty"]
    compiled = pd.read_csv(found.model_path("recommended").parents[1] / "chip.csv").set_index("id")["cost"]
    for row in found.front.to_dict("records"):
        assert row["penalty"] == pytest.approx(trials[row["id"]]) == pytest.approx(compiled[row["id"]])


def test_a_member_is_built_again_bit_for_bit_for_its_target(found: autoselect.Run, tmp_path: Path) -> None:
    member = found.front.sort_values("size_bytes").to_dict("records")[-1]
    built = autoselect.build(
        found.directory / "front" / f"{member['id']}.recipe.json",
        model=pump.MODEL_PATH,
        calibration=pump.calibration,
        target=TARGET,
        output=tmp_path / "again.tflite",
    )
    assert built["sha256"] == member["sha256"]
