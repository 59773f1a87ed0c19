"""One worker, two, and a Dask cluster of two, in turns: candidates a minute, and wall time."""

from __future__ import annotations

import argparse
import statistics
import sys
from typing import Any

import loaders
import measure

MODELS = {
    "imagenet": loaders.IMAGENET / "mobilenet_v1_025_224_float.tflite",
    "fsrcnn": loaders.FSRCNN / "fsrcnn_x2_float.tflite",
}
METRICS = {"imagenet": "accuracy", "fsrcnn": "psnr"}
WAYS: dict[str, dict[str, Any]] = {
    "one worker": {"workers": 1},
    "two workers": {"workers": 2},
    "cluster of two": {"workers": 2, "scheduler": "local:2"},
}
FIGURES = ("candidates a minute of the trials", "wall time of the trials, s", "wall time of the run, s")


def measured(case: str, trials: int, **options: Any) -> tuple[float, ...]:
    """The figures of one search whose candidates are all scored in full."""
    options |= {"metric": METRICS[case], "repairs": False, "int16": False, "racing": False, "with_memory": False}
    found, _ = measure.search(MODELS[case], case, trials=trials, **options)
    stage = found["trials stage, s"]
    return found["scored candidates"] * 60 / stage, stage, found["whole run, s"]


def main() -> None:
    """Measure in turns and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=MODELS, default="imagenet")
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    rounds = []
    for _ in range(arguments.rounds):
        rounds.append({way: measured(arguments.case, arguments.trials, **options) for way, options in WAYS.items()})
        print(rounds[-1], file=sys.stderr, flush=True)  # A measurement that is cut off leaves what it has.
    print(f"| figure | {' | '.join(WAYS)} | two / one, by round | cluster / two, by round |\n|---|---|---|---|---|---|")
    for place, figure in enumerate(FIGURES):
        one, two, cluster = ([found[way][place] for found in rounds] for way in WAYS)
        medians = " | ".join(f"{statistics.median(column):.1f}" for column in (one, two, cluster))
        gained = ", ".join(f"{b / a:.2f}" for a, b in zip(one, two, strict=True))
        spent = ", ".join(f"{c / b:.3f}" for b, c in zip(two, cluster, strict=True))
        print(f"| {figure} | {medians} | {gained} | {spent} |", flush=True)


if __name__ == "__main__":
    main()
