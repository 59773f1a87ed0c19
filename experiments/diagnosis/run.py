"""Diagnoses four real models and writes the pages of docs/diagnosis."""

from __future__ import annotations

import argparse
import math
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "real_models"))
import loaders

import autoselect
from autoselect.report.tables.layer_tables import name_of

DOCS = Path(__file__).resolve().parents[2] / "docs" / "diagnosis"
ABLATE = 16
FIGURES = ("layers", "suspects", "error_travel")
TITLES = {
    "layers": "Range and rmse/scale of every node in graph order",
    "suspects": "The nodes with the largest rmse/scale, and what they do when left in or out alone",
    "error_travel": "The error accumulated from the input to each node",
}
COLUMNS = {
    "rmse/scale": "rmse/scale",
    "SQNR, dB": "sqnr_db",
    "range": "range",
    "alone in int8": "leave_one_in",
    "all but it": "leave_one_out",
    "accumulated": "travel_nsr",
}


def cases(dcl: Path) -> dict[str, tuple[str, Path, str]]:
    """Title, model and calibration of each page."""
    return {
        "mobilenet_v1": (
            "MobileNetV1-0.25 on ImageNet",
            loaders.IMAGENET / "mobilenet_v1_025_224_float.tflite",
            "loaders:imagenet_calibration",
        ),
        "fsrcnn": (
            "FSRCNN x2, super-resolution",
            loaders.FSRCNN / "fsrcnn_x2_float.tflite",
            "loaders:fsrcnn_calibration",
        ),
        "ds_cnn": ("DS-CNN, keyword spotting", loaders.KWS / "kws_dscnn_float.tflite", "loaders:kws_calibration"),
        "deepconvlstm": ("DeepConvLSTM on UCI HAR", dcl, "loaders:har_calibration"),
    }


def page(title: str, found: autoselect.Diagnosis, name: str) -> Iterator[str]:
    """A Markdown page: facts, advice, table, figures."""
    facts = found.facts
    yield f"# {title}\n"
    yield f"{facts['nodes']} nodes, measured on {facts['debug_samples']} calibration samples; made by"
    yield "`python experiments/diagnosis/run.py` (see [the experiment](../../experiments/diagnosis/README.md)).\n"
    yield "## Advice\n"
    for number, advice in enumerate(found.advice, start=1):
        yield f"{number}. **{advice.title}.** {advice.evidence.replace('|', '/')} *Threshold:* {advice.threshold}."
    if not found.advice:
        yield "None: nothing about this model is suspicious."
    yield "\n## Figures\n"
    for figure in FIGURES:
        yield f"![{TITLES[figure]}]({name}_{figure}.png)\n"
    yield "## All nodes\n"
    yield f"| # | op | node | {' | '.join(COLUMNS)} |"
    yield f"|---|---|---|{'---|' * len(COLUMNS)}"
    for row in found.layer_statistics.to_dict("records"):
        cells = " | ".join(figure_of(row, column) for column in COLUMNS.values())
        tensor = name_of(row, 40).replace("|", "/")
        yield f"| {row['index']} | {row['op_name']} | `{tensor}` | {cells} |"


def figure_of(row: Mapping[Any, Any], column: str) -> str:
    value = float(row[column])
    return "" if math.isnan(value) else f"{value:.3g}"


def main() -> None:
    """Diagnose and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dcl", type=Path, required=True, help="A DeepConvLSTM, see experiments/deepconvlstm.")
    parser.add_argument("--only", action="append", default=[], metavar="MODEL", help="Repeat it. All by default.")
    parser.add_argument("--ablate", type=int, default=ABLATE, help="Nodes that are left out alone.")
    parser.add_argument("--output", type=Path, default=DOCS)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name, (title, model, calibration) in cases(arguments.dcl).items():
        if arguments.only and name not in arguments.only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "diagnosis"
            found = autoselect.diagnose(
                model, calibration=calibration, output=output, whole_model=True, ablate=arguments.ablate, cache=False
            )
            for figure in FIGURES:
                shutil.copyfile(output / f"{figure}.png", arguments.output / f"{name}_{figure}.png")
        (arguments.output / f"{name}.md").write_text("\n".join(page(title, found, name)) + "\n", encoding="utf-8")
        print(f"{name}: {found.facts['nodes']} nodes, {len(found.advice)} lines of advice")


if __name__ == "__main__":
    main()
