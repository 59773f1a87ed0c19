"""Searches a detector by closeness, and counts how many of the float model's detections each model finds."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "real_models")]
import loaders  # noqa: E402 - found by the path above

import autoselect  # noqa: E402
from autoselect.runs.files import write_text  # noqa: E402
from autoselect.tflite.runner import Runner  # noqa: E402

RESULTS = HERE / "results"
MODEL = Path(os.environ.get("AUTOSELECT_DETECTOR", "nudenet_320.tflite"))
SIDE, PER_PART, TRIALS = 320, 60, 15
SURE_SCORE, LEAST_SCORE, OVERLAP, SAME = 0.3, 0.25, 0.45, 0.5
"""Scores of a detection; boxes that overlap more than this share are one; a found box overlaps this much."""

Detection = tuple[int, float, np.ndarray]
"""Class, score, and the box's middle, width and height in pixels."""


@cache
def images_with_detections() -> list[Path]:
    """Photographs in which the float model finds something; kept beside the model, because it takes a minute."""
    kept = MODEL.with_suffix(".images.txt")
    if not kept.exists():
        runner = Runner(MODEL.read_bytes())
        files = sorted((loaders.IMAGENET / "images").glob("*.jpg"))
        kept.write_text("\n".join(str(file) for file in files if detections(runner, _pixels(file))), encoding="utf-8")
    return [Path(line) for line in kept.read_text(encoding="utf-8").splitlines()]


def _pixels(file: Path) -> np.ndarray:
    """Float32 (320, 320, 3) from 0 to 1; not padded, so shapes are a little distorted."""
    with Image.open(file) as image:
        scaled = image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    return np.asarray(scaled, dtype=np.float32) / 255.0


def _part(number: int) -> Iterator[np.ndarray]:
    return map(_pixels, images_with_detections()[number::3][:PER_PART])


def calibration() -> Iterator[list[np.ndarray]]:
    return ([pixels[None]] for pixels in _part(0))


def search_samples() -> Iterator[np.ndarray]:
    return _part(1)


def heldout() -> Iterator[np.ndarray]:
    return _part(2)


def detections(runner: Runner, pixels: np.ndarray) -> list[Detection]:
    """What is left after boxes that overlap a better one are gone, best first."""
    [output] = runner({runner.inputs[0].key: pixels[None]}).values()
    rows = output[0].T
    scores, kept = rows[:, 4:].max(axis=1), list[int]()
    for row in np.argsort(-scores)[: int((scores >= LEAST_SCORE).sum())].tolist():
        if all(_overlap(rows[row, :4], rows[other, :4]) < OVERLAP for other in kept):
            kept.append(row)
    return [(int(rows[row, 4:].argmax()), float(scores[row]), rows[row, :4].copy()) for row in kept]


def _overlap(one: np.ndarray, other: np.ndarray) -> float:
    """Intersection over union."""
    low = np.maximum(one[:2] - one[2:] / 2, other[:2] - other[2:] / 2)
    high = np.minimum(one[:2] + one[2:] / 2, other[:2] + other[2:] / 2)
    both = float(np.prod(np.maximum(high - low, 0.0)))
    return both / max(float(np.prod(one[2:]) + np.prod(other[2:])) - both, 1e-9)


def found(wanted: Sequence[Detection], given: Sequence[Detection]) -> int:
    """How many are there with the same class and nearly the same box; each counts once."""
    left, count = list(given), 0
    for kind, _, box in wanted:
        same = [i for i, other in enumerate(left) if other[0] == kind and _overlap(box, other[2]) >= SAME]
        if same:
            left.pop(same[0])
            count += 1
    return count


def searched(folder: Path) -> autoselect.Run:
    """The search by default settings; a whole run is used again."""
    if (folder / "summary.json").exists():
        return autoselect.load_run(folder)
    parts = {"calibration": "run:calibration", "evaluation": "run:search_samples", "heldout": "run:heldout"}
    return autoselect.search(MODEL, **parts, metric="sqnr_db", trials=TRIALS, workers=1, output=folder)


def table_of(run: autoselect.Run) -> str:
    """Members of the front as they are shipped, on the held-out photographs."""
    pictures = list(heldout())
    float_model = Runner(MODEL.read_bytes())
    wanted = [detections(float_model, pixels) for pixels in pictures]
    sure = [[one for one in some if one[1] >= SURE_SCORE] for some in wanted]
    count, sure_count = (sum(map(len, some)) for some in (wanted, sure))
    counted = f"found of {count} | of {sure_count} above {SURE_SCORE}"
    lines = [f"| member | pick | held out, dB | penalty | float ops | {counted} | others |", "|---" * 8 + "|"]
    for row in run.front.sort_values("penalty").to_dict("records"):
        runner = Runner((run.directory / row["file"]).read_bytes())
        given = [detections(runner, pixels) for pixels in pictures]
        hits, sure_hits = (sum(map(found, some, given)) for some in (wanted, sure))
        pick = "" if isinstance(row["pick"], float) else row["pick"].replace(",", ", ")
        figures = f"{row['heldout_sqnr_db']:.1f} | {row['penalty']:.1f} | {row['float_ops']}"
        others = sum(map(len, given)) - hits
        lines.append(f"| {row['id']} | {pick} | {figures} | {hits} ({hits / count:.0%}) | {sure_hits} | {others} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Search, count, and write the table and the verdict."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("detector-run"))
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    run = searched(options.runs)
    told = f"{table_of(run)}\n{run.summary['verdict']}\n"
    options.output.mkdir(parents=True, exist_ok=True)
    write_text(options.output / "table.md", told)
    print(told)


if __name__ == "__main__":
    main()
