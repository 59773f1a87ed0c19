"""Two versions of autoselect in turns on one machine: seconds beside inference, and until the first score."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve()
FIGURES = ("beside inference", "start-up", "start-up with repairs")
NOW = HERE.parents[2]


def measured(figure: str) -> float:
    """One figure of the version that Python imports, on MobileNetV1."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import loaders
    import measure

    path = loaders.IMAGENET / "mobilenet_v1_025_224_float.tflite"
    if figure == FIGURES[0]:
        found, _ = measure.search(path, "imagenet", trials=30, workers=1, repairs=False)
        return measure.beside(found)
    found, _ = measure.search(path, "imagenet", trials=4, workers=2, repairs=figure == FIGURES[2])
    return found["start-up until the first candidate is scored, s"]


def measured_in(tree: Path, figure: str) -> float:
    """The same in a fresh process, of the version in a tree."""
    folders = [tree, tree / "experiments" / "cost", tree / "experiments" / "real_models"]
    path = os.pathsep.join(map(str, folders))
    # Each version is measured by its own measure.py: they tell stages apart by events of their own.
    code = f"import runpy; print(runpy.run_path({str(HERE)!r})['measured']({figure!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    return float(done.stdout.splitlines()[-1])


def main() -> None:
    """Measure in turns and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, required=True, help="a tree of the other version: git worktree add")
    parser.add_argument("--pairs", type=int, default=3)
    arguments = parser.parse_args()
    print("| figure, s | before | now | now / before, by pair |\n|---|---|---|---|")
    for figure in FIGURES:
        trees = (arguments.before.resolve(), NOW)
        pairs = [tuple(measured_in(tree, figure) for tree in trees) for _ in range(arguments.pairs)]
        before, now = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratios = ", ".join(f"{after / first:.2f}" for first, after in pairs)
        print(f"| {figure} | {before:.3f} | {now:.3f} | {ratios} |", flush=True)


if __name__ == "__main__":
    main()
