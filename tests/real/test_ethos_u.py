"""Searches for an Ethos-U, every candidate compiled, where the folder of real models and data is there."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import autoselect
from autoselect.compilers.vela import VelaCompiler
from autoselect.scoring.target_file import read_target

pytest.importorskip("ethosu")

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("AUTOSELECT_REAL_DATA", ROOT.parent / "shared" / "data"))
TARGET = "ethos-u55-128"
CALIBRATED, EVALUATED, TRIALS = 4, 12, 5
"""So few that most of the time is Vela's: whether the picks compile does not hang on their scores."""
MOBILENET = "mobilenet_v1_025_imagenet/mobilenet_v1_025_224_float.tflite"
FSRCNN = "fsrcnn_x2/fsrcnn_x2_float.tflite"
MODELS = [
    pytest.param(MOBILENET, "imagenet", "agreement", id="mobilenet", marks=pytest.mark.slow),
    pytest.param(FSRCNN, "fsrcnn", "psnr", id="fsrcnn", marks=pytest.mark.slow),
]

pytestmark = [
    pytest.mark.real,
    pytest.mark.usefixtures("loaders"),
    pytest.mark.skipif(not DATA.exists(), reason="no folder of real models (AUTOSELECT_REAL_DATA)"),
]


@pytest.mark.parametrize(("file", "data", "metric"), MODELS)
def test_every_pick_for_an_ethos_u_compiles(
    loaders: ModuleType, tmp_path: Path, file: str, data: str, metric: str
) -> None:
    pairs = list(itertools.islice(getattr(loaders, f"{data}_evaluation")(), EVALUATED))
    run = autoselect.search(
        DATA / file,
        calibration=list(itertools.islice(getattr(loaders, f"{data}_calibration")(), CALIBRATED)),
        evaluation=tuple(np.stack(part) for part in zip(*pairs, strict=True)),
        metric=metric,
        objectives=(metric, "size", "penalty", "npu_cycles"),
        target=TARGET,
        repairs=False,
        trials=TRIALS,
        output=tmp_path / "run",
    )
    for name in set(run.summary["picks"].values()):
        found = VelaCompiler(read_target(TARGET)).compile(run.model_path(name).read_bytes(), timeout_seconds=120.0)
        row = run.front[run.front["id"] == name].iloc[0]
        assert found.segments == row["segments"]
        assert found.cost == pytest.approx(row["penalty"])
        assert found.cycles == row["npu_cycles"]
        assert autoselect.inspect(run.model_path(name), target=TARGET)["target"]["refusal"] is None
    assert run.summary["compiler"]["compiled"] > 0
