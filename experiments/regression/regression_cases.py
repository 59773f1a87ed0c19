"""The models whose answers are numbers, and what each file scores on samples that no search and no calibration saw."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

EXPERIMENTS = Path(__file__).resolve().parents[1]
sys.path += [str(EXPERIMENTS / name) for name in ("ranking", "int16", "zoo")]
import parts  # noqa: E402 - found by the path above
import samples  # noqa: E402
from ranking_cases import CASES as RANKED  # noqa: E402
from ranking_cases import Case, denoiser, loaders  # noqa: E402

from autoselect.scoring.metrics import make_metric  # noqa: E402
from autoselect.tflite.runner import Runner  # noqa: E402

FACES = loaders.ROOT / "zoo" / "face_landmark.tflite"
PICTURES = {"calibration": 50, "search": 50, "heldout": 100}
FACE_SIZE = 192
CLOSE_DB = 40.0
"""What a search of the face model is asked to keep, against outputs of float."""


def fsrcnn_heldout() -> Iterator[parts.Sample]:
    """52 crops, none of the search."""
    return islice(loaders.fsrcnn_evaluation(), 1, None, 4)


def fsrcnn_score(content: bytes) -> np.ndarray:
    """PSNR on the held-out crops."""
    runner, metric = Runner(content), make_metric("psnr")
    rows = (metric.observe(runner(low[None]), high, None) for low, high in fsrcnn_heldout())
    return np.concatenate(list(rows))


def bicubic_score() -> np.ndarray:
    """PSNR on the same crops, enlarged without a model."""
    metric, found = make_metric("psnr"), []
    for low, high in fsrcnn_heldout():
        size = (high.shape[1], high.shape[0])
        large = np.asarray(Image.fromarray(low[:, :, 0]).resize(size, Image.Resampling.BICUBIC))
        found.append(metric.observe({"bicubic": large.clip(0.0, 1.0)[None, :, :, None]}, high, None))
    return np.concatenate(found)


@cache
def pictures(part: str) -> list[np.ndarray]:
    """Pictures of ``calibration``, ``search`` or ``heldout``."""
    names = list(PICTURES)
    begin = sum(PICTURES[name] for name in names[: names.index(part)])
    return [one for [one] in islice(samples.images(loaders.ROOT, FACE_SIZE, 0.0, 1.0), begin, begin + PICTURES[part])]


def face_calibration() -> Iterator[list[np.ndarray]]:
    """50 pictures."""
    return ([one] for one in pictures("calibration"))


def face_inputs(part: str) -> np.ndarray:
    """Pictures as one array."""
    return np.concatenate(pictures(part))


def _landmarks(content: bytes) -> list[dict[str, np.ndarray]]:
    """Of each held-out picture the 468 points, in pixels."""
    runner = Runner(content)
    first = runner.outputs[0].key
    return [{first: runner(one)[first]} for one in pictures("heldout")]


@cache
def _float_landmarks() -> list[dict[str, np.ndarray]]:
    return _landmarks(FACES.read_bytes())


def face_score(content: bytes) -> np.ndarray:
    """Power of float's landmarks over that of the difference, dB."""
    metric = make_metric("sqnr_db")
    pairs = zip(_landmarks(content), _float_landmarks(), strict=True)
    return np.concatenate([metric.observe(ours, None, theirs) for ours, theirs in pairs])


def face_distance(content: bytes) -> float:
    """How far a landmark is from float's, mean over landmarks and pictures, in pixels of 192."""
    pairs = zip(_landmarks(content), _float_landmarks(), strict=True)
    apart = [next(iter(ours.values())) - next(iter(theirs.values())) for ours, theirs in pairs]
    return float(np.linalg.norm(np.stack(apart).reshape(-1, 3), axis=1).mean())


def denoiser_score(content: bytes) -> np.ndarray:
    """Gain in SI-SNR on all 24 held-out mixtures."""
    return denoiser.si_snr_gain(Runner(content), "heldout")


CASES = {
    "fsrcnn": Case(
        title="FSRCNN x2",
        unit="dB of PSNR",
        model=loaders.FSRCNN / "fsrcnn_x2_float.tflite",
        calibration=parts.fsrcnn_calibration,
        score=fsrcnn_score,
        search={
            "evaluation": parts.fsrcnn_search,
            "heldout": parts.fsrcnn_heldout,
            "metric": "psnr",
            "max_drop": 0.1,
            "trials": 8,
        },
    ),
    "denoiser": Case(
        title=RANKED["denoiser"].title,
        unit="dB of SI-SNR",
        model=denoiser.MODEL,
        calibration=denoiser.calibration,
        score=denoiser_score,
        search={**RANKED["denoiser"].search, "max_drop": 0.5, "trials": 24},
    ),
    "face": Case(
        title="face landmarks",
        unit="dB, landmarks of float over their difference",
        model=FACES,
        calibration=face_calibration,
        score=face_score,
        search={
            "evaluation": partial(face_inputs, "search"),
            "heldout": partial(face_inputs, "heldout"),
            "metric": "sqnr_db",
            "max_drop": 200.0 - CLOSE_DB,
            "trials": 12,
        },
    ),
}
WITHOUT_MODEL: dict[str, tuple[str, Callable[[], np.ndarray]]] = {"fsrcnn": ("bicubic, no model", bicubic_score)}
ALSO: dict[str, Callable[[bytes], Any]] = {"face": face_distance}
"""A second figure of a case."""
