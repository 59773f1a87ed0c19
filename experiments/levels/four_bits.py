"""Searches for runtimes that read weights of 4 bits; for TFLite Micro each member of the front runs there.

Prints, and writes to ``results/four_bits.csv``, for each model and seed the smallest member whose bound keeps the
limit, and the smallest whose expected loss does: its share of the all-integer file, its loss on unseen samples, and on
how many of 50 samples TFLite Micro gives the bits that it gives with the same weights in 8 bits.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tflite_micro.python.tflite_micro import runtime

HERE = Path(__file__).resolve().parent
FOLDERS = ("search_benchmark", "real_models", "streaming_denoiser")
sys.path[:0] = [str(HERE.parent / name) for name in FOLDERS]
import denoiser  # noqa: E402 - found by the path above
import parts  # noqa: E402
from cases import all_cases  # noqa: E402
from search import run_of  # noqa: E402

from autoselect.tflite.wide_kernels import in_8_bits  # noqa: E402

TARGETS: Mapping[str, tuple[tuple[str, float], ...]] = {
    "tflm": (("ds_cnn", 0.02), ("mobilenet_pc", 0.02)),
    "litert-cpu": (("ds_cnn", 0.02), ("denoiser", 0.5)),
}
"""By target, models and the drops that are allowed: shares of right answers, or decibels."""

COMPARED = 50


def equal_samples(content: bytes, data: str) -> int:
    """On how many of some unseen samples TFLite Micro gives the bits that it gives with the weights in 8 bits."""
    models = [runtime.Interpreter.from_bytes(c, arena_size=1 << 22) for c in (content, in_8_bits(content))]
    source = models[0].get_input_details(0)
    scale, zero = (source["quantization_parameters"][key][0] for key in ("scales", "zero_points"))
    found = 0
    for sample in islice(getattr(parts, f"{data}_unseen")(), COMPARED):
        value = np.asarray(sample[0], np.float32).reshape(source["shape"])
        levels = np.clip(np.rint(value / scale) + zero, -128, 127).astype(np.int8)
        outputs = []
        for model in models:
            model.set_input(levels, 0)
            model.invoke()
            outputs.append(model.get_output(0))
        found += bool(np.array_equal(*outputs))
    return found


def smallest(front: pd.DataFrame, limit: float) -> Iterator[tuple[str, Any]]:
    """The member of fewest bytes that keeps a limit: by its bound, and by its expected drop."""
    scored = front[front["heldout_drop"].notna()]
    for way in ("drop_bound", "expected_drop"):
        kept = scored[scored[way] <= limit]
        if len(kept):
            yield way, kept.loc[kept["size_bytes"].idxmin()]


def asked(name: str) -> dict[str, Any]:
    """What a search of a model is given."""
    if name == "denoiser":
        scored = {"calibration": "denoiser:calibration", "evaluator": "denoiser:si_snr_gain"}
        return {"model": denoiser.MODEL, **scored}
    case = all_cases({})[name]
    sources = {**case.sources, "heldout": f"parts:{case.data}_unseen"}
    return {"model": case.model, **sources, "metric": "accuracy"}


def searched(target: str, name: str, limit: float, seed: int, trials: int, work: Path) -> Iterator[dict[str, Any]]:
    """Rows of the table."""
    folder = work / f"{target}-{name}-{seed}"
    run = run_of(folder, **asked(name), target=target, max_drop=limit, trials=trials, seed=seed)
    front, trials_table = run.front, run.trials
    whole = float(trials_table.loc[trials_table["origin"] == "baseline:fiq", "size_bytes"].iloc[0])
    for way, best in smallest(front, limit):
        content = (folder / str(best["file"])).read_bytes()
        yield {
            "target": target,
            "model": name,
            "seed": seed,
            "limit": limit,
            "by": way,
            "size_bytes": int(best["size_bytes"]),
            "share_of_int8": round(best["size_bytes"] / whole, 4),
            "drop_bound": best["drop_bound"],
            "heldout_drop": best["heldout_drop"],
            "heldout_drop_low": best["heldout_drop_low"],
            "heldout_drop_high": best["heldout_drop_high"],
            "float_ops": int(best["float_ops"]),
            "equal_in_tflm": equal_samples(content, all_cases({})[name].data) if target == "tflm" else None,
        }


def main() -> None:
    """Search and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", nargs="+", default=list(TARGETS))
    parser.add_argument("--models", nargs="+", default=["ds_cnn", "mobilenet_pc", "denoiser"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    rows = [
        row
        for target in options.targets
        for name, limit in TARGETS[target]
        if name in options.models
        for seed in options.seeds
        for row in searched(target, name, limit, seed, options.trials, options.work)
    ]
    table = pd.DataFrame(rows)
    table.to_csv(options.output / "four_bits.csv", index=False)
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
