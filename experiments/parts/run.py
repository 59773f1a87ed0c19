"""Searches by COCO mAP and by word error rate, with the evaluators of the guides on real models and data."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import jiwer
import numpy as np
from PIL import Image

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "real_models")]
import loaders  # noqa: E402 - found by the path above

import autoselect  # noqa: E402
from autoselect.runs.files import write_text  # noqa: E402
from autoselect.tflite.runner import Runner  # noqa: E402

RESULTS = HERE / "results"
GUIDES = HERE.parents[1] / "docs" / "how-to"
FACES = loaders.ROOT / "zoo" / "face_detection_short_range.tflite"
WORDS = loaders.KWS / "kws_dscnn_float.tflite"
SIDE, PER_PART = 128, 100
SURE, LEAST = 0.5, 0.25
"""Score of a face that counts as truth, and of one that is detected."""
UTTERANCE, UTTERANCES = 5, 200
"""Keywords of an utterance, and utterances of a part."""
NAMES = ["down", "go", "left", "no", "off", "on", "right", "stop", "up", "yes", "silence", "unknown"]
TRIALS = 15


def guide(page: str, name: str) -> ModuleType:
    """The evaluators of a guide, as a module of the current folder."""
    blocks = re.findall(r"```{\.py \.evaluator}\n(.*?)```", (GUIDES / f"{page}.md").read_text("utf-8"), re.DOTALL)
    Path(f"{name}.py").write_text("\n\n".join(blocks), encoding="utf-8")
    sys.path.insert(0, str(Path.cwd()))
    return importlib.import_module(name)


def anchors() -> np.ndarray:
    """Middles of the 896 places of the face detector, from 0 to 1."""
    grids = [(np.stack(np.meshgrid(np.arange(n), np.arange(n)), -1).reshape(-1, 2) + 0.5) / n for n in (16, 8)]
    return np.concatenate([np.repeat(grids[0], 2, axis=0), np.repeat(grids[1], 6, axis=0)])


def faces(outputs: dict[str, np.ndarray], overlaps: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Boxes in pixels, classes (all are 0) and scores, the best first, without boxes that overlap a better one."""
    raw, logits = sorted(outputs.values(), key=lambda values: -values.shape[-1])
    scores = 1.0 / (1.0 + np.exp(-logits[0, :, 0].clip(-80.0, 80.0)))
    boxes = np.concatenate([raw[0, :, :2] + anchors() * SIDE, raw[0, :, 2:4]], axis=1)
    kept = list[int]()
    for row in np.argsort(-scores, kind="stable")[: (scores >= LEAST).sum()].tolist():
        if not kept or overlaps(boxes[[row]], boxes[kept]).max() < 0.3:
            kept.append(row)
    return boxes[kept], np.zeros(len(kept), int), scores[kept]


def photographs() -> Iterator[np.ndarray]:
    """Float32 (128, 128, 3) from -1 to 1."""
    for file in sorted((loaders.IMAGENET / "images").glob("*.jpg")):
        with Image.open(file) as image:
            yield np.asarray(image.convert("RGB").resize((SIDE, SIDE)), dtype=np.float32) / 127.5 - 1.0


def write_faces(module: ModuleType) -> None:
    """Photographs in which float finds a face go to both parts in turns, those without calibrate."""
    runner, parts, rest = Runner(FACES.read_bytes()), ([], []), []
    for number, image in enumerate(photographs()):
        boxes, _, scores = faces(runner(image[None]), module.overlaps)
        sure = boxes[scores >= SURE]
        if len(sure):
            parts[sum(map(len, parts)) % 2].append((image, sure))
        elif number % 10 == 0:
            rest.append(image)
    np.savez("calibration.npz", images=np.stack(rest))
    for name, samples in zip(("search", "heldout"), parts, strict=True):
        chosen = samples[:PER_PART]
        boxes, kinds = np.zeros((len(chosen), 16, 4)), np.full((len(chosen), 16), -1)
        for number, (_, sure) in enumerate(chosen):
            boxes[number, : len(sure[:16])], kinds[number, : len(sure[:16])] = sure[:16], 0
        np.savez(f"{name}.npz", images=np.stack([image for image, _ in chosen]), boxes=boxes, kinds=kinds)


def coco(runner: Any, split: str = "search") -> Any:
    """The guide's evaluator with the face detector's outputs."""
    module = guide("detector", "detector")
    runner_of = lambda image: {"": faces(runner(image), module.overlaps)}  # noqa: E731
    module.detections = lambda found: found
    return module.matched(runner_of, split)


def keywords(split: str) -> tuple[np.ndarray, np.ndarray]:
    """Spectrograms (n, 5, 49, 10, 1) and the numbers of their words."""
    data = np.load(loaders.KWS / "speech_commands_test_mfcc.npz")
    rows = np.arange(len(data["y"]))
    rows = np.random.default_rng(0).permutation(rows[rows % loaders.EVERY != 0])
    count = UTTERANCES * UTTERANCE
    chosen = rows[:count] if split == "search" else rows[count : 2 * count]
    return data["x"][chosen].reshape(-1, UTTERANCE, 49, 10, 1), data["y"][chosen].reshape(-1, UTTERANCE)


def spoken(runner: Any, split: str = "search") -> Any:
    """Errors and words of utterances of five keywords, one inference each; silence is no word."""
    counts = []
    for words, labels in zip(*keywords(split), strict=True):
        answers = [next(iter(runner(word[None]).values())).argmax() for word in words]
        text, said = (" ".join(NAMES[n] for n in numbers if NAMES[n] != "silence") for numbers in (labels, answers))
        if not text:
            counts.append([len(said.split()), 0])
            continue
        found = jiwer.process_words(text, said)
        counts.append([found.substitutions + found.deletions + found.insertions, len(text.split())])
    return autoselect.Parts(counts, score=guide("evaluator", "parts").word_error_rate)


CASES: dict[str, dict[str, Any]] = {
    "faces, COCO mAP": {
        "model": FACES,
        "calibration": "calibration.npz",
        "evaluator": "run:coco",
        "direction": "maximize",
        "per_channel": True,
    },
    "keywords, word error rate": {
        "model": WORDS,
        "calibration": "loaders:kws_calibration",
        "evaluator": "run:spoken",
        "direction": "minimize",
        "per_channel": False,
    },
}


def table_of(name: str, run: autoselect.Run) -> str:
    """Members of the front, in points, with intervals."""
    base = run.summary["references"]["float"]
    column = run.manifest["metric"]["name"]
    lines = [
        f"## {name}\n",
        f"Float: {100 * base[column]:.1f} on the search samples, {100 * base['heldout']:.1f} held out.\n",
        "| member | pick | penalty | drop | at most | drop held out | interval |",
        "|---" * 7 + "|",
    ]
    for row in run.front.sort_values("penalty").to_dict("records"):
        pick = "" if isinstance(row["pick"], float) else row["pick"].replace(",", ", ")
        drops = " | ".join(f"{100 * row[key]:.1f}" for key in ("drop", "drop_bound", "heldout_drop"))
        ends = " to ".join(f"{100 * row[f'heldout_drop_{end}']:.1f}" for end in ("low", "high"))
        lines.append(f"| {row['id']} | {pick} | {row['penalty']:.1f} | {drops} | {ends} |")
    seconds = run.summary["seconds"]
    spent = f"{sum(seconds.values()):.0f} s in all, {run.summary['counts']['scored']} candidates scored."
    return "\n".join([*lines, f"\n{run.summary['verdict']}\n", spent, ""])


def main(arguments: Sequence[str] | None = None) -> None:
    """Search by both, and write the tables and verdicts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("parts-runs"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    options.runs.mkdir(parents=True, exist_ok=True)
    tables = []
    with within(options.runs):
        if not Path("heldout.npz").exists():
            write_faces(guide("detector", "detector"))
        for name, case in CASES.items():
            folder = Path(re.sub(r"\W+", "-", name))
            if (folder / "summary.json").exists():
                run = autoselect.load_run(folder)
            else:
                run = autoselect.search(**case, trials=TRIALS, workers=1, output=folder, early_exit=False)
            tables.append(table_of(name, run))
    write_text(options.results / "tables.md", "\n".join(tables))
    print("\n".join(tables))


@contextlib.contextmanager
def within(folder: Path) -> Iterator[None]:
    """Work in a folder for a while."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


if __name__ == "__main__":
    main()
