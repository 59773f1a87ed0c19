"""What a search of the largest model takes: memory of all processes together, and seconds; writes ``memory.json``."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cost"))
from measure import PeakMemory
from models import MODELS

import autoselect
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader

HERE = Path(__file__).resolve().parent
EACH = 24
"""Samples that calibrate, and as many to score on."""


def main() -> None:
    """Search, and write what it took and found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS, default="BirdNET", metavar="MODEL")
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--output", type=Path, default=HERE / "results" / "memory.json")
    options = parser.parse_args()
    model = MODELS[options.model]
    keys = [spec.key for spec in reader.input_specs(fb.parse(model.path().read_bytes()))]
    samples = [dict(zip(keys, s, strict=True)) for s in itertools.islice(model.samples(), 2 * EACH)]
    memory = PeakMemory()
    memory.start()
    with tempfile.TemporaryDirectory() as folder:
        run = autoselect.search(
            model.path(),
            calibration=samples[:EACH],
            evaluation=samples[EACH:],
            metric="sqnr_db",
            trials=options.trials,
            workers=options.workers,
            output=Path(folder) / "run",
            cache=False,
            early_exit=False,
        )
        memory.stopped.set()
        found = {
            "model": options.model,
            "trials": len(run.trials),
            "workers": options.workers,
            "peak_gib_of_all_processes": round(memory.peak_bytes / 2**30, 2),
            "seconds": {stage: round(seconds, 1) for stage, seconds in run.summary["seconds"].items()},
        }
    text = json.dumps(found, indent=1) + "\n"
    options.output.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
