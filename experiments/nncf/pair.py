"""One paired run: NNCF's accuracy-aware loop, then a search, on the same images and the same two cores.

Runs in autoselect's environment and starts NNCF in its own: ``python pair.py --nncf nncf-env/bin/python``.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "real_models"))
import loaders

import autoselect
from autoselect.domain.graph import OpKind
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader

HERE = Path(__file__).resolve().parent
WEIGHTED = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
COLUMNS = (
    "tool",
    "model",
    "search_top1",
    "heldout_top1",
    "heldout_low",
    "heldout_high",
    "weighted_int8",
    "weighted_ops",
    "seconds",
)


def theirs(options: argparse.Namespace) -> list[dict[str, Any]]:
    """NNCF's models; the seconds are those of the loop alone, without start-up and without held-out scores."""
    with tempfile.TemporaryDirectory() as folder:
        command = [options.nncf, str(HERE / "run.py"), "--max-drop", str(options.max_drop), "--output", folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        [path] = Path(folder).glob("*.csv")
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    return [{"tool": "nncf", **{c: row.get(c, "") for c in COLUMNS[1:]}} for row in rows if row["model"] != "float"]


def ours(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Every front member that keeps the limit; the seconds are those of the whole search, held-out scores included."""
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        run = autoselect.search(
            loaders.IMAGENET / "mobilenet_v1_025_224_float.tflite",
            calibration="loaders:imagenet_calibration",
            evaluation="loaders:imagenet_search",
            heldout="loaders:imagenet_heldout",
            metric="accuracy",
            per_channel=False,
            fallback="float",
            max_drop=options.max_drop,
            trials=options.trials,
            seed=options.seed,
            cache=False,
            output=Path(folder) / "run",
        )
        seconds = round(time.perf_counter() - begun, 1)
        return [
            {
                "tool": "autoselect",
                "model": f"{row.id} {row.pick}" if isinstance(row.pick, str) else row.id,
                "search_top1": round(row.accuracy, 4),
                "heldout_top1": round(row.heldout_accuracy, 4),
                "heldout_low": round(row.heldout_low, 4),
                "heldout_high": round(row.heldout_high, 4),
                "weighted_int8": weighted(run.model_path(row.id))[0],
                "weighted_ops": weighted(run.model_path(row.id))[1],
                "seconds": seconds,
            }
            for row in run.front.itertuples()
        ]


def weighted(path: Path) -> tuple[int, int]:
    """How many convolutions and dense layers are in integers, and how many there are."""
    ops = [op for op in reader.read_graph(fb.parse(path.read_bytes())).ops if op.op_type in WEIGHTED]
    return sum(op.kind is OpKind.INTEGER for op in ops), len(ops)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run both and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nncf", required=True, help="The Python of NNCF's environment.")
    parser.add_argument("--max-drop", type=float, default=0.01, help="Allowed loss of top-1 on the search images.")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    with (options.output / "pair.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows([*theirs(options), *ours(options)])


if __name__ == "__main__":
    main()
