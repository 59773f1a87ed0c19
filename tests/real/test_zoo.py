"""The experiment of many models on those of the folder of real models: every promise of a model's intake is kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autoselect.isolation.pool import WorkerPool

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("AUTOSELECT_REAL_DATA", ROOT.parent / "shared" / "data"))
ZOO = ROOT / "experiments" / "zoo"
AMOUNTS = {"recipes": 3, "mixes": 4, "trials": 24, "calibration": 6, "evaluation": 2}
"""Those of the command's ``--quick``."""
MODELS = (
    "MobileNetV1-0.25",
    "MobileNetV1-0.25 (.h5)",
    "FSRCNN x2",
    "DS-CNN",
    "DS-CNN (SavedModel)",
    "DTLN, core 1",
    "face landmarks",
    "face detection, short range",
    "speech embedding",
    "mel spectrogram",
)
DOCUMENTED = ("equal", "the quantizer keeps", "the quantizer quantizes", "the quantizer rounds")
"""How the classes begin in which a candidate may differ from what the quantizer makes of the same denylist."""

pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.skipif(not (DATA / "zoo").exists(), reason="no folder of real models (AUTOSELECT_REAL_DATA)"),
]


def by_its_command(name: str, output: Path) -> dict[str, Any]:
    command = [sys.executable, ZOO / "run.py", "--quick", "--only", name, "--output", output]
    subprocess.run(command, check=True, env={**os.environ, "AUTOSELECT_REAL_DATA": str(DATA), "PYTHONPATH": str(ROOT)})
    found = json.loads((output / "zoo.json").read_text(encoding="utf-8"))
    assert found["amounts"] == AMOUNTS
    [row] = found["models"].values()
    assert row["ended"] is None
    return dict(row)


def examined(name: str, sheet: Path) -> dict[str, Any]:
    """What the command does in a process of its own, in that of the caller."""
    os.environ.setdefault("AUTOSELECT_REAL_DATA", str(DATA))
    from examine import Amounts, Sheet, examine

    examine(name, Amounts(**AMOUNTS), Sheet(sheet), ("ends", "forecasts", "mixes"))
    return dict(json.loads(sheet.read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_taken_in_within_reach_forecast_and_equal_at_both_ends(
    name: str, tmp_path: Path, session_workers: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first by the experiment's command; the others in the worker of the tests, which has TensorFlow at hand."""
    monkeypatch.syspath_prepend(ZOO)
    if name == MODELS[0]:
        found = by_its_command(name, tmp_path)
    else:
        with session_workers.lent(tmp_path / "worker.log") as pool:
            found = pool.call(examined, name, tmp_path / "sheet.json")
    assert found["died_at"] is None
    assert "refused" not in found["intake"]
    assert found["out_of_reach"] == []
    assert found["not_normalised"] == ""
    assert (found["all_float"], found["all_int8"]) == ("", "")
    assert {base: forecast["first"] for base, forecast in found["forecasts"].items() if forecast["first"]} == {}
    assert [kind for kind in found["mixes"]["classes"] if not kind.startswith(DOCUMENTED)] == []
