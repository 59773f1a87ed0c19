"""Keeps what the candidates of small searches answer on every sample of three real cases, which a search removes."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "real_models"))
import loaders

import autoselect
from autoselect import embedded
from autoselect.runs.records import Scores
from autoselect.study.finishing import front_files
from autoselect.study.recording.optuna_study import read_records

RESULTS = Path(__file__).parent / "results"
WINDOWS, WINDOWS_SEED = 4_000, 20_260
HELDOUT = 10
"""Held-out samples: a search wants some, and nothing here looks at them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model with all samples that were never calibrated on.

    Attributes:
        title: In tables.
        metric: By which candidates are scored; the mean of hits and misses.
        model: Float ``.tflite``.
        calibration: Samples.
        samples: Those that searches are simulated on.
    """

    title: str
    metric: str
    model: Path
    calibration: Callable[[], Iterable[Any]]
    samples: Callable[[], Iterable[Any]]


def windows() -> Iterator[tuple[np.ndarray, int]]:
    """Windows of pumps that no set of the package has."""
    found, labels = embedded.make_windows(np.random.default_rng(WINDOWS_SEED), WINDOWS + HELDOUT)
    return ((window, int(label)) for window, label in zip(found, labels, strict=True))


CASES = {
    "pump": Case(
        title="pump monitor, accuracy",
        metric="accuracy",
        model=embedded.model_path(),
        calibration=embedded.calibration,
        samples=windows,
    ),
    "mobilenet": Case(
        title="MobileNetV1-0.25, agreement with float",
        metric="agreement",
        model=loaders.IMAGENET / "mobilenet_v1_025_224_float.tflite",
        calibration=loaders.imagenet_calibration,
        samples=loaders.imagenet_evaluation,
    ),
    "keywords": Case(
        title="DS-CNN keyword spotting, agreement with float",
        metric="agreement",
        model=loaders.KWS / "kws_dscnn_float.tflite",
        calibration=loaders.kws_calibration,
        samples=loaders.kws_evaluation,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What is known of a case.

    Attributes:
        scores: Of each candidate the figures of its file; its scores are zeros.
        hits: Of each candidate, shape (n_candidates, n_samples), 0 or 1.
        float_hits: Of the float model, shape (n_samples,).
        decibels: How close each candidate's outputs are to float's, shape (n_candidates, n_samples).
        float_size_bytes: Of the float model.
        float_penalty: Likewise.
    """

    scores: list[Scores]
    hits: np.ndarray
    float_hits: np.ndarray
    decibels: np.ndarray
    float_size_bytes: int
    float_penalty: float


def keep(name: str, trials: int, results: Path) -> None:
    """Search on all samples, without races, and keep the rows."""
    case, found = CASES[name], {}
    remove = front_files.remove_work

    def keep_rows(root: Path) -> None:
        for kind in ("rows/search", "fidelity_rows/search"):
            for path in sorted((root / kind).glob("*.npy")):
                found[f"{kind}/{path.stem}"] = np.load(path)[:, 0]
        remove(root)

    front_files.remove_work = keep_rows
    try:
        with tempfile.TemporaryDirectory() as folder:
            run = autoselect.search(
                case.model,
                calibration=case.calibration,
                evaluation=lambda: islice(case.samples(), HELDOUT, None),
                heldout=lambda: islice(case.samples(), HELDOUT),
                metric=case.metric,
                trials=trials,
                racing=False,
                early_exit=False,
                workers=1,
                output=Path(folder) / "run",
            )
            records = read_records(run.directory / "study.journal")
            reference = run.summary["references"]["float"]
    finally:
        front_files.remove_work = remove
    scores = {r.scores.sha256: r.scores for r in records if r.scores}
    figures = ("size_bytes", "penalty", "float_ops")
    results.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        results / f"{name}_rows.npz",
        hits=np.stack([found[f"rows/search/{sha}"] for sha in scores]).astype(np.uint8),
        float_hits=found["rows/search/float"].astype(np.uint8),
        decibels=np.stack([found[f"fidelity_rows/search/{sha}"] for sha in scores]).astype(np.float16),
        sha256=list(scores),
        float_figures=[reference["size_bytes"], reference["penalty"]],
        **{figure: [getattr(s, figure) for s in scores.values()] for figure in figures},
    )


def read(name: str, results: Path = RESULTS) -> Kept:
    """The kept rows of a case."""
    with np.load(results / f"{name}_rows.npz") as kept:
        hits, float_hits = kept["hits"].astype(np.float64), kept["float_hits"].astype(np.float64)
        empty = dict.fromkeys(Scores.__dataclass_fields__, 0)
        scores = [
            replace(
                Scores(**{**empty, "fallbacks": {}, "compiled": {}, "quantities": {}}),  # type: ignore[arg-type]
                sha256=str(sha),
                size_bytes=int(size),
                penalty=float(penalty),
                float_ops=int(ops),
                off_chip=None,
            )
            for sha, size, penalty, ops in zip(
                kept["sha256"], kept["size_bytes"], kept["penalty"], kept["float_ops"], strict=True
            )
        ]
        size, penalty = kept["float_figures"]
        return Kept(
            scores=scores,
            hits=hits,
            float_hits=float_hits,
            decibels=kept["decibels"].astype(np.float64),
            float_size_bytes=int(size),
            float_penalty=float(penalty),
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Search each case that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append", default=[], choices=CASES, help="Repeat it; all by default.")
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    for name in options.case or CASES:
        keep(name, options.trials, options.output)


if __name__ == "__main__":
    main()
