"""Searches on real models, where the folder of models and data is there."""

from __future__ import annotations

import hashlib
import json
import os
from itertools import islice
from pathlib import Path
from types import ModuleType

import pytest
import zoo

import autoselect
from autoselect.domain.recipe import Recipe

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("AUTOSELECT_REAL_DATA", ROOT.parent / "shared" / "data"))
IMAGENET = DATA / "mobilenet_v1_025_imagenet"

pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.usefixtures("loaders"),
    pytest.mark.skipif(not IMAGENET.exists(), reason="no folder of real models (AUTOSELECT_REAL_DATA)"),
]


def _agreement(model: Path) -> float:
    found = autoselect.evaluate(
        model,
        evaluation="loaders:imagenet_heldout",
        metric="agreement",
        reference=IMAGENET / "mobilenet_v1_025_224_float.tflite",
    )
    return float(found["score"])


def _search_mobilenet(output: Path, *, trials: int, **options: object) -> autoselect.Run:
    return autoselect.search(
        IMAGENET / "mobilenet_v1_025_224_float.tflite",
        calibration="loaders:imagenet_calibration",
        evaluation="loaders:imagenet_search",
        heldout="loaders:imagenet_heldout",
        fallback="float",
        trials=trials,
        output=output,
        **options,  # type: ignore[arg-type]
    )


def test_mobilenet_comes_nearer_to_float_with_repairs_and_nearer_still_with_float_nodes(tmp_path: Path) -> None:
    run = _search_mobilenet(tmp_path / "run", trials=16, metric="agreement")
    fiq = run.summary["references"]["fiq"]["heldout"]
    integer = run.front[run.front["float_ops"] == 0]["heldout_agreement"].max()
    assert integer >= max(0.94, fiq + 0.15)
    assert run.summary["stood_in"]
    assert all(seen["to_float_db"] > seen["stood_in_to_float_db"] - 3 for seen in run.summary["stood_in"].values())
    assert _agreement(run.model_path("accurate")) > integer


@pytest.mark.parametrize(
    ("per_channel", "least", "gain"), [(True, 0.87, 0.10), (False, 0.15, 0.15)], ids=["per channel", "per tensor"]
)
def test_mobilenet_comes_nearer_to_float_by_rounding_alone(
    per_channel: bool, least: float, gain: float, tmp_path: Path
) -> None:
    found = []
    for repairs in ((), ("rounding-gptq",)):
        recipe = tmp_path / "recipe.json"
        recipe.write_text(Recipe(per_channel=per_channel, repairs=repairs).to_json())
        model = IMAGENET / "mobilenet_v1_025_224_float.tflite"
        output = tmp_path / f"{len(repairs)}.tflite"
        autoselect.build(recipe, model=model, calibration="loaders:imagenet_calibration", output=output)
        found.append(_agreement(output))
    assert found[1] >= max(least, found[0] + gain)
    assert (tmp_path / "0.tflite").stat().st_size == (tmp_path / "1.tflite").stat().st_size


@pytest.mark.filterwarnings("ignore:.*experimental_preserve_all_tensors")  # litert-quantizer, when it calibrates
def test_mobilenet_of_litert_quantizer_comes_nearer_to_float(tmp_path: Path, loaders: ModuleType) -> None:
    content = (IMAGENET / "mobilenet_v1_025_224_float.tflite").read_bytes()
    integer = zoo.litert_integer(content, list(islice(loaders.imagenet_calibration(), 30)))
    run = _search_mobilenet(tmp_path / "run", trials=12, metric="agreement", integer=integer)
    manifest = json.loads((run.directory / "manifest.json").read_text())
    assert not [message for message in manifest["warnings"] if "for bit" in message]
    assert run.status == "complete"
    fiq = run.summary["references"]["fiq"]["heldout"]
    assert _agreement(run.model_path("accurate")) > fiq + 0.02


def test_mobilenet_per_tensor_comes_back_with_integer_nodes_left(tmp_path: Path) -> None:
    run = _search_mobilenet(tmp_path / "run", trials=30, per_channel=False, max_drop=0.01, int16=False)
    references = run.summary["references"]
    assert references["fiq"]["heldout"] < 0.02
    back = run.front[run.front["heldout_accuracy"] >= 0.95 * references["float"]["heldout"]]
    assert len(run.layer_statistics) - back["float_ops"].min() >= 5


@pytest.mark.parametrize("source", ["kws_dscnn_float.tflite", "saved_model"])
def test_control_keeps_the_all_integer_model(source: str, tmp_path: Path) -> None:
    run = autoselect.search(
        DATA / "kws_dscnn" / source,
        calibration="loaders:kws_calibration",
        evaluation="loaders:kws_evaluation",
        trials=60,
        output=tmp_path / "run",
    )
    integer = run.trials[run.trials["origin"].isin(["baseline:fiq", "baseline:fiq+repairs"])]
    assert {run.picks[name] for name in ("recommended", "integer")} <= set(integer["id"])
    assert integer["float_ops"].eq(0).all()
    assert len(run.trials) < 60
    assert "Ended early: " in run.summary["verdict"]


def test_keras_file_builds_the_same_bytes_again(loaders: ModuleType, tmp_path: Path) -> None:
    run = autoselect.search(
        IMAGENET / "mobilenet_v1_025_224.h5",
        calibration="loaders:imagenet_calibration",
        evaluation=list(islice(loaders.imagenet_evaluation(), 100)),
        trials=4,
        int16=False,
        output=tmp_path / "run",
    )
    for row in run.front.to_dict("records")[-1:]:
        built = autoselect.build(
            run.directory / "front" / f"{row['id']}.recipe.json",
            model=IMAGENET / "mobilenet_v1_025_224.h5",
            calibration="loaders:imagenet_calibration",
            output=tmp_path / "again.tflite",
        )
        assert built["sha256"] == row["sha256"]
        assert hashlib.sha256((tmp_path / "again.tflite").read_bytes()).hexdigest() == row["sha256"]


def test_super_resolution_gives_psnr_back(loaders: ModuleType, tmp_path: Path) -> None:
    run = autoselect.search(
        DATA / "fsrcnn_x2" / "fsrcnn_x2_float.tflite",
        calibration="loaders:fsrcnn_calibration",
        evaluation=list(islice(loaders.fsrcnn_evaluation(), 80)),
        metric="psnr",
        trials=6,
        int16=False,
        output=tmp_path / "run",
    )
    pick = run.front[run.front["id"] == run.picks["accurate"]].iloc[0]
    assert pick["heldout_psnr"] > run.summary["references"]["fiq"]["heldout"] + 0.2
