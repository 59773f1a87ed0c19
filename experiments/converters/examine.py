"""Converts one model and searches it; writes what is found after each step: a time limit loses one step only."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import nets

import autoselect
from autoselect.errors import AutoselectError

HERE = Path(__file__).resolve().parent


def source_of(model: nets.Model, python: str, folder: Path) -> Path:
    """The ONNX file, or a program that the converter's Python exports."""
    if model.net is None:
        return model.path()
    out = folder / f"{model.net}.pt2"
    command = [python, str(HERE / "export.py"), model.net, str(nets.unpacked(model.wheels())), str(model.path())]
    subprocess.run([*command, str(out)], check=True)
    return out


def converted(source: Path, files: list[Path], python: str) -> dict[str, Any]:
    """What the conversion tells, and its time."""
    from autoselect.cases.calibrate import load_float
    from autoselect.cases.files import CaseFiles
    from autoselect.isolation.pool import open_pool
    from autoselect.runs.cache import cache_directory
    from autoselect.sources.wishes import wishes_of
    from autoselect.tflite import flatbuffer as fb

    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as name, open_pool(1, log=Path(name) / "worker.log") as pool:
        found = load_float(
            source,
            CaseFiles(root=Path(name)),
            pool,
            wishes=wishes_of(None, None, python),
            calibration=files[0],
            cache_root=cache_directory(),
        )
    told = next(note for note in found.notes if note.startswith("Converted by"))
    way, decibels = re.match(r"Converted by (.*?)\. SQNR against the source on \d+ samples: (.*)\.", told).groups()
    return {
        "seconds": time.perf_counter() - begun,
        "way": way,
        "equality": [] if "bit" in decibels else [float(one) for one in re.findall(r"([\d.]+) dB", decibels)],
        "ops": len(fb.parse(found.content).subgraphs[0].operators),
        "size_bytes": len(found.content),
        "notes": list(found.notes),
    }


def searched(source: Path, files: list[Path], python: str, options: Any) -> dict[str, Any]:
    """The all-integer model and the recommended one of a search by closeness to float."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        run = autoselect.search(
            source,
            calibration=files[0],
            evaluation=files[1],
            heldout=files[2],
            metric="sqnr_db",
            trials=options.trials,
            timeout=options.search_seconds,
            converter_python=python,
            workers=1,
            output=Path(folder) / "run",
        )
        summary, rows = run.summary, run.front.to_dict("records")
        recommended = [row for row in rows if "recommended" in str(row["pick"])]
        return {
            "seconds": time.perf_counter() - begun,
            "counts": summary["counts"],
            "ended_early": summary["ended_early"],
            "integer": summary["references"].get("fiq+repairs") or summary["references"].get("fiq"),
            "recommended": recommended[0] if recommended else None,
            "nodes": len(run.layer_statistics),
            "warnings": run.manifest["warnings"],
            "verdict": summary.get("verdict"),
        }


def main() -> None:
    """Examine one model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=nets.MODELS)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--onnx-python", required=True)
    parser.add_argument("--torch-python", required=True)
    parser.add_argument("--samples", type=int, required=True)
    parser.add_argument("--trials", type=int, required=True)
    parser.add_argument("--search-seconds", type=float, required=True)
    options = parser.parse_args()
    model = nets.MODELS[options.name]
    python = options.onnx_python if model.net is None else options.torch_python
    sheet: dict[str, Any] = {}

    def note(key: str, value: Any) -> None:
        sheet[key] = value
        options.output.write_text(json.dumps(sheet, default=float), encoding="utf-8")

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            source = source_of(model, python, folder)
            files = nets.written(model, folder, options.samples)
            note("converted", converted(source, files, python))
            note("searched", searched(source, files, python, options))
        except (AutoselectError, nets.zoo.AbsentError) as exc:
            note("refused", str(exc))


if __name__ == "__main__":
    main()
