"""How far a score depends on the kernels: all-integer models on XNNPACK's, on LiteRT's own, and on TFLite Micro's.

Writes ``results/kernels.csv``: for each model and further runtime the score of both, the loss against XNNPACK, on which
a search scores, paired, and the shares of samples with other outputs and, of classifiers, with another answer.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tflite_micro.python.tflite_micro import runtime

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / name) for name in ("search_benchmark", "real_models")]
import parts  # noqa: E402 - found by the path above
from cases import BenchmarkCase, all_cases  # noqa: E402

import autoselect  # noqa: E402
from autoselect.scoring.metrics import make_metric  # noqa: E402
from autoselect.scoring.paired import paired_drop  # noqa: E402
from autoselect.tflite.runner import Runner  # noqa: E402

METRICS = {"mobilenet_pc": "accuracy", "ds_cnn": "accuracy", "fsrcnn": "psnr"}
"""Models by case, with what they are scored by."""
USUAL = "XNNPACK"


def samples(case: BenchmarkCase) -> Iterator[tuple[np.ndarray, Any]]:
    """Those of the search and the unseen ones, with their targets."""
    search = getattr(parts, case.sources["evaluation"].partition(":")[2])
    return chain(search(), getattr(parts, f"{case.data}_unseen")())


def runtimes(content: bytes) -> Mapping[str, Callable[[np.ndarray], np.ndarray]]:
    """What runs a sample, by name; the usual one first."""
    with_xnnpack, own = Runner(content), Runner(content, delegates=False)
    tiny = runtime.Interpreter.from_bytes(content, arena_size=1 << 25)
    return {
        USUAL: lambda value: next(iter(with_xnnpack(value).values())),
        "LiteRT's own kernels": lambda value: next(iter(own(value).values())),
        "TFLite Micro": lambda value: in_tflm(tiny, value),
    }


def in_tflm(model: Any, value: np.ndarray) -> np.ndarray:
    """The output of TFLite Micro, float32; inputs and outputs of the model are levels of 8 bits."""
    ends = (model.get_input_details(0), model.get_output_details(0))
    (scale, zero), (step, origin) = (
        [end["quantization_parameters"][key][0] for key in ("scales", "zero_points")] for end in ends
    )
    model.set_input(np.clip(np.rint(value / scale) + zero, -128, 127).astype(np.int8), 0)
    model.invoke()
    return ((model.get_output(0).astype(np.float32) - origin) * step).astype(np.float32)


def compared(name: str, work: Path, most: int | None) -> Iterator[dict[str, Any]]:
    """Rows of the table."""
    case, metric, file = all_cases({})[name], make_metric(METRICS[name]), work / f"{name}.tflite"
    calibration = case.sources["calibration"]
    autoselect.build(autoselect.Recipe(io_type="int8"), model=case.model, calibration=calibration, output=file)
    content = file.read_bytes()
    runs, (source,) = runtimes(content), Runner(content).inputs
    outputs: dict[str, list[np.ndarray]] = {kernels: [] for kernels in runs}
    scored: dict[str, list[np.ndarray]] = {kernels: [] for kernels in runs}
    for value, target in islice(samples(case), most):
        for kernels, run in runs.items():
            output = run(np.asarray(value, np.float32).reshape(source.shape))
            outputs[kernels].append(output)
            scored[kernels].append(metric.observe({"output": output}, target, None))
    usual = np.array(scored[USUAL])
    for kernels in list(runs)[1:]:
        rows = np.array(scored[kernels])
        loss, pairs = paired_drop(metric, rows, usual), list(zip(outputs[USUAL], outputs[kernels], strict=True))
        is_classifier = METRICS[name] == "accuracy"
        yield {
            "model": name,
            "metric": METRICS[name],
            "samples": len(rows),
            "kernels": kernels,
            "with_xnnpack": metric.summarise(usual),
            "score": metric.summarise(rows),
            "loss": loss.drop,
            "loss_low": loss.low,
            "loss_high": loss.high,
            # What is less than a hundred-thousandth is rounding of floats, and no other level.
            "other_outputs": np.mean([not np.allclose(*pair, rtol=1e-5, atol=1e-7) for pair in pairs]),
            "other_answers": np.mean([a.argmax() != b.argmax() for a, b in pairs]) if is_classifier else None,
        }


def main() -> None:
    """Compare all, print, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(METRICS))
    parser.add_argument("--samples", type=int, help="So many of each model; all by default.")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    for folder in (options.work, options.output):
        folder.mkdir(parents=True, exist_ok=True)
    table = pd.DataFrame([row for name in options.models for row in compared(name, options.work, options.samples)])
    table.to_csv(options.output / "kernels.csv", index=False)
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
