"""The same model searched for each target: a table of the picks, and their islands on the graph.

Run from the repository: ``python experiments/targets/run.py OUT``; runs that OUT holds already are not made again.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

REAL_MODELS = Path(__file__).resolve().parents[1] / "real_models"
sys.path.insert(0, str(REAL_MODELS))
os.environ["PYTHONPATH"] = os.pathsep.join([str(REAL_MODELS), os.environ.get("PYTHONPATH", "")])
import loaders  # noqa: E402 - found by the path above

import autoselect  # noqa: E402
from autoselect.report.figures.drawing import save  # noqa: E402
from autoselect.report.figures.islands import islands_figure  # noqa: E402
from autoselect.scoring.target_file import read_target  # noqa: E402

TARGETS = (
    "integer-only",
    "litert-cpu",
    "tflm",
    "ethos-u55-128",
    "edgetpu",
    "qualcomm-sm8750",
    "qualcomm-sm8735",
    "qualcomm-sm8750,ethos-u55-128",
)
TRIALS = 30
PICK = "recommended"
MODEL = loaders.IMAGENET / "mobilenet_v1_025_224_float.tflite"
IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"


def searched(target: str, folder: Path, trials: int) -> autoselect.Run:
    """The run of one target, made now or before."""
    if (folder / "summary.json").exists():
        return autoselect.load_run(folder)
    return autoselect.search(
        MODEL,
        calibration="loaders:imagenet_calibration",
        evaluation="loaders:imagenet_search",
        heldout="loaders:imagenet_heldout",
        metric="agreement",
        target=target,
        trials=trials,
        emulation="none",
        io_type="float32",
        output=folder,
    )


def row(target: str, run: autoselect.Run, name: str) -> str:
    """One pick as a row of the table."""
    found = run.front[run.front["id"] == run.summary["picks"][name]].iloc[0]
    unit = read_target(target).unit
    return (
        f"| `{target}` | {name} | {found['agreement']:.1%} | {found['heldout_agreement']:.1%} | "
        f"{found['size_bytes'] / 1000:,.0f} | {found['float_ops']} | {int(found['segments'])} | "
        f"{found['penalty']:,.4g} {unit} |"
    )


def main() -> None:
    """Search, tabulate and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, help="Folder of the runs; whole ones are used.")
    parser.add_argument("--target", action="append", choices=TARGETS, default=[], help="Repeat it. All by default.")
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--images", type=Path, default=IMAGES, help="Folder of the drawing.")
    options = parser.parse_args()
    runs = {target: searched(target, options.runs / target, options.trials) for target in options.target or TARGETS}
    print("| target | pick | agreement, search | held out | kB | float ops | pieces | penalty |")
    print("|---|---|---|---|---|---|---|---|")
    for target, run in runs.items():
        for name in dict.fromkeys((PICK, "integer")):
            print(row(target, run, name))
    drawn = []
    for target, run in runs.items():
        if "," in target:
            continue
        found = autoselect.inspect(run.model_path(PICK), target=target)
        drawn.append({**found, "path": f"{target}.tflite"})
    options.images.mkdir(parents=True, exist_ok=True)
    save(islands_figure(drawn), options.images / "targets_islands")


if __name__ == "__main__":
    main()
