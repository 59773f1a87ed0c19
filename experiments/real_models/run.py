"""Searches on real models and prints what the picks are worth on held-out samples."""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import loaders

import autoselect


@dataclass(frozen=True, kw_only=True)
class Case:
    """One search."""

    name: str
    model: Path
    data: str
    metric: str = "accuracy"
    options: dict[str, Any] = field(default_factory=dict)


def cases(deep_conv_lstm: Path | None) -> list[Case]:
    """All cases whose models are there."""
    imagenet = loaders.IMAGENET / "mobilenet_v1_025_224_float.tflite"
    keras = loaders.IMAGENET / "mobilenet_v1_025_224.h5"
    found = [
        Case(name="MobileNetV1-0.25, DRQ", model=imagenet, data="imagenet"),
        Case(name="MobileNetV1-0.25, float", model=imagenet, data="imagenet", options={"fallback": "float"}),
        Case(
            name="MobileNetV1-0.25 by agreement, float",
            model=imagenet,
            data="imagenet",
            metric="agreement",
            options={"fallback": "float"},
        ),
        Case(
            name="MobileNetV1-0.25 per tensor, float",
            model=imagenet,
            data="imagenet",
            options={"fallback": "float", "per_channel": False, "max_drop": 0.028},
        ),
        Case(name="MobileNetV1-0.25 (.h5), float", model=keras, data="imagenet", options={"fallback": "float"}),
        Case(name="FSRCNN x2, DRQ", model=loaders.FSRCNN / "fsrcnn_x2_float.tflite", data="fsrcnn", metric="psnr"),
        Case(
            name="FSRCNN x2, float",
            model=loaders.FSRCNN / "fsrcnn_x2_float.tflite",
            data="fsrcnn",
            metric="psnr",
            options={"fallback": "float"},
        ),
        Case(name="DS-CNN, DRQ", model=loaders.KWS / "kws_dscnn_float.tflite", data="kws"),
        Case(name="DS-CNN (SavedModel), DRQ", model=loaders.KWS / "saved_model", data="kws"),
    ]
    if deep_conv_lstm is not None:
        found.append(Case(name="DeepConvLSTM, DRQ", model=deep_conv_lstm, data="har"))
    return found


def measure(case: Case, trials: int, folder: Path) -> list[str]:
    """One table row for the references and for each pick."""
    split = {"evaluation": f"loaders:{case.data}_evaluation"}
    if case.data == "imagenet":
        split = {"evaluation": "loaders:imagenet_search", "heldout": "loaders:imagenet_heldout"}
    run = autoselect.search(
        case.model,
        calibration=f"loaders:{case.data}_calibration",
        metric=case.metric,
        trials=trials,
        output=folder / case.name.replace(" ", "_").replace("(", "").replace(")", "").replace(",", ""),
        **split,
        **case.options,
    )
    references = run.summary["references"]
    rows = [_row(case.name, name, figures["heldout"], figures, None) for name, figures in references.items()]
    for member in run.front[run.front["pick"] != ""].to_dict("records"):
        rows.append(
            _row(case.name, member["pick"], member[f"heldout_{case.metric}"], member, _agreement(case, run, member))
        )
        _check_replay(case, run, member)
    fiq = run.trials[run.trials["origin"] == "baseline:fiq"].iloc[0]
    if case.data == "imagenet" and (run.directory / "front" / f"{fiq['id']}.tflite").exists():
        rows.append(f"| {case.name} | all-integer's agreement with float | | | | | {_agreement(case, run, fiq):.4f} |")
    return rows


def _row(name: str, what: str, heldout: float, figures: dict[str, Any], agreement: float | None) -> str:
    shown = "" if agreement is None else f"{agreement:.4f}"
    float_ops = figures.get("float_ops", "")
    size, penalty = figures["size_bytes"], figures["penalty"]
    return f"| {name} | {what} | {heldout:.4f} | {size} | {penalty:.1f} | {float_ops} | {shown} |"


def _agreement(case: Case, run: autoselect.Run, member: Any) -> float | None:
    """Top-1 agreement with the float model on the held-out images."""
    if case.data != "imagenet":
        return None
    reference = loaders.IMAGENET / "mobilenet_v1_025_224_float.tflite"
    found = autoselect.evaluate(
        run.directory / "front" / f"{member['id']}.tflite",
        evaluation="loaders:imagenet_heldout",
        metric="agreement",
        reference=reference,
    )
    return float(found["score"])


def _check_replay(case: Case, run: autoselect.Run, member: dict[str, Any]) -> None:
    """``build`` must give the bytes of the front's model."""
    target = run.directory / "replayed.tflite"
    autoselect.build(
        run.directory / "front" / f"{member['id']}.recipe.json",
        model=case.model,
        calibration=f"loaders:{case.data}_calibration",
        output=target,
    )
    digest = hashlib.sha256(target.read_bytes()).hexdigest()
    if digest != member["sha256"]:
        raise SystemExit(f"{case.name}: {member['id']} came out different when built again")
    target.unlink()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dcl", type=Path, help="DeepConvLSTM made by experiments/deepconvlstm/train.py")
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--keep", type=Path, help="Keep the run folders here.")
    parser.add_argument("--only", default="", help="Cases whose name has this in it.")
    options = parser.parse_args(arguments)
    print("| case, fallback | model | held-out | bytes | penalty | float ops | agrees with float |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        for case in cases(options.dcl):
            if options.only in case.name:
                print("\n".join(measure(case, options.trials, folder)), flush=True)


if __name__ == "__main__":
    main()
