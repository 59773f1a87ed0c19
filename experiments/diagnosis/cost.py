"""What a diagnosis costs beside TensorFlow's Quantization Debugger, paired in one run."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import loaders
import numpy as np
import tensorflow as tf
import train

import autoselect
from autoselect.cases import calibrate
from autoselect.cases.files import CaseFiles
from autoselect.cases.ingredients import Ingredients
from autoselect.domain.recipe import Recipe
from autoselect.isolation.pool import WorkerPool
from autoselect.quantize.diagnosing import verification
from autoselect.quantize.diagnosing.statistics import measure, table
from autoselect.quantize.preparing import converter
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader

warnings.simplefilter("ignore")


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def tell(what: str, ratios: list[float]) -> None:
    """Print the median of paired runs and their range."""
    print(f"{what}: median {statistics.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}")


def upstream(debug: bytes, samples: list[list[np.ndarray]]) -> None:
    """The debugger's own run() on the same debug model."""
    tf.lite.experimental.QuantizationDebugger(
        quant_debug_model_content=debug, debug_dataset=lambda: iter(samples)
    ).run()


def program_seconds(name: str, model: Path, calibration: str) -> float:
    """A whole program, start of Python included."""
    command = [sys.executable, str(Path(__file__).with_name(name)), str(model), calibration]
    return seconds(lambda: subprocess.run(command, check=True, capture_output=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="A float .tflite.")
    parser.add_argument("--calibration", default="cifar_calibration", help="Function of loaders.py.")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    samples = list(getattr(loaders, arguments.calibration)())
    with tempfile.TemporaryDirectory() as folder:
        files = CaseFiles(root=Path(folder))
        with WorkerPool(1, log=files.root / "worker.log", warm_up=converter.import_tensorflow) as pool:
            started = calibrate.start_calibration(
                Ingredients(model=arguments.model, calibration=samples),
                files,
                pool,
                None,
                debug_samples=0,
                per_channel=True,
            )
            prepared = started.result()
    calibrated, layers = prepared.calibrated, prepared.layers
    plan = verification.plan(calibrated, layers.nodes, Recipe())
    [key] = [spec.key for spec in reader.input_specs(fb.parse(calibrated.content))]
    named = [{key: sample[0]} for sample in samples]
    ratios = []
    for _ in range(arguments.runs):
        theirs = seconds(lambda: upstream(plan.debug, samples))
        ours = seconds(lambda: table(plan, layers.nodes, measure(plan, named)))
        ratios.append(ours / theirs)
    print(f"{len(layers)} nodes, {len(samples)} samples, {len(plan.verified)} verified")
    tell("layer statistics / run()", ratios)
    ratios = []
    for _ in range(arguments.runs):
        theirs = seconds(lambda: upstream(plan.debug, samples))
        found = autoselect.diagnose(arguments.model, calibration=samples, cache=False)
        ratios.append(found.facts["seconds"]["measure"] / theirs)
    tell("stage measure, 2 workers / run()", ratios)
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.keras"
        train.make_model().save(model)
        for _ in range(arguments.runs):
            theirs = program_seconds("with_debugger.py", model, arguments.calibration)
            ratios.append(program_seconds("with_autoselect.py", model, arguments.calibration) / theirs)
    tell("whole programs", ratios)


if __name__ == "__main__":
    main()
