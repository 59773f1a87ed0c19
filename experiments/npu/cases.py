"""What is searched for an NPU: models, samples, metrics, and how much of each is affordable on two cores."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "int16"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "real_models"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "streaming_denoiser"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "zoo"))
import denoiser
import drawn
import loaders
import numpy as np
import parts
import samples

from autoselect import embedded
from autoselect.tflite.runner import Running

FOLDERS = [Path(__file__).resolve().parent, *map(Path, sys.path[:4])]
"""Modules that workers import, too."""
MIXTURES = 3
"""Of the denoiser, in each part: a mixture has 372 frames, one after the other."""
CALIBRATED, SEARCHED, HELD_OUT, NORMALISED = 40, 24, 20, 64
"""Pictures for nets of Keras Applications; the last give the statistics of batches."""

Source = Callable[[Path], Path]
"""Gives the file of a model; what is made is kept in the folder."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One search.

    Attributes:
        model: Gives the file.
        settings: Of the search, beside target, seed and output.
        emulated: Held-out samples of which CPU and emulation are compared; an evaluator decides for itself.
    """

    model: Source
    settings: Mapping[str, Any]
    emulated: int


def _file(path: Path) -> Source:
    return lambda _folder: path


# ------------------------------------------------------------------------------- nets of Keras Applications


@cache
def _pictures(size: int, low: float, high: float) -> list[np.ndarray]:
    """All that are needed, of shape (1, size, size, 3): to calibrate, search, hold out and normalise, in this order."""
    count = CALIBRATED + SEARCHED + HELD_OUT + NORMALISED
    return [row[0] for row in itertools.islice(samples.images(loaders.ROOT, size, low, high), count)]


def _calibration(*how: Any) -> Iterator[list[np.ndarray]]:
    return ([picture] for picture in _pictures(*how)[:CALIBRATED])


def _searched(*how: Any) -> Iterator[np.ndarray]:
    return (picture[0] for picture in _pictures(*how)[CALIBRATED:][:SEARCHED])


def _held_out(*how: Any) -> Iterator[np.ndarray]:
    return (picture[0] for picture in _pictures(*how)[CALIBRATED + SEARCHED :][:HELD_OUT])


def _keras(name: str, size: int, low: float, high: float, *, emulated: int, **settings: Any) -> Case:
    """A net with random weights whose normalisations have the statistics of real pictures; it gives logits."""
    how = size, low, high
    return Case(
        model=lambda folder: drawn.converted(folder / f"{name}_{size}.tflite", name, _pictures(*how)[-NORMALISED:]),
        settings={
            "calibration": partial(_calibration, *how),
            "evaluation": partial(_searched, *how),
            "heldout": partial(_held_out, *how),
            "metric": "sqnr_db",
            **settings,
        },
        emulated=emulated,
    )


# -------------------------------------------------------------------------------------------------- others


def denoised(runner: Running, split: str = "search") -> np.ndarray:
    """As ``denoiser.si_snr_gain``, on some mixtures of all levels: dB, shape (n_mixtures,)."""
    rows = list(zip(denoiser.mixtures(split), denoiser.spectra(split), strict=True))
    found = []
    for (speech, mixture), spectrum in rows[:: len(rows) // MIXTURES]:
        estimate = denoiser.denoise(runner, spectrum)
        pair = denoiser.si_snr_db(estimate, speech[: len(estimate)]), denoiser.si_snr_db(mixture, speech)
        found.append(pair[0] - pair[1])
    return np.array(found)


def first(make: Callable[[], Iterator[Any]], count: int) -> list[Any]:
    """The first samples."""
    return list(itertools.islice(make(), count))


def _some(make: Callable[[], Iterator[Any]], *places: int) -> Callable[[], Iterator[Any]]:
    return partial(_sliced, make, *places)


def _sliced(make: Callable[[], Iterator[Any]], *places: int) -> Iterator[Any]:
    return itertools.islice(make(), *places)


_MOBILENET = {
    "calibration": loaders.imagenet_calibration,
    "evaluation": _some(loaders.imagenet_search, 200),
    "heldout": _some(loaders.imagenet_heldout, 200),
    "metric": "agreement",
    "trials": 24,
    "emulation_samples": 30,
}
_mobilenet = partial(Case, model=_file(loaders.IMAGENET / "mobilenet_v1_025_224_float.tflite"), emulated=50)

CASES: dict[str, Case] = {
    "pump": Case(
        model=_file(embedded.model_path()),
        settings={
            "calibration": embedded.calibration,
            "evaluation": embedded.search_samples,
            "heldout": embedded.heldout_samples,
            "metric": "accuracy",
            "trials": 60,
            "emulation_samples": 400,
        },
        emulated=500,
    ),
    "FSRCNN": Case(
        model=_file(loaders.FSRCNN / "fsrcnn_x2_float.tflite"),
        settings={
            "calibration": parts.fsrcnn_calibration,
            "evaluation": parts.fsrcnn_search,
            "heldout": parts.fsrcnn_heldout,
            "metric": "psnr",
            "max_drop": 0.1,
            "trials": 10,
            "emulation_samples": 8,
        },
        emulated=4,
    ),
    "DS-CNN": Case(
        model=_file(loaders.KWS / "kws_dscnn_float.tflite"),
        settings={
            "calibration": loaders.kws_calibration,
            "evaluation": _some(loaders.kws_evaluation, 500),
            "heldout": _some(loaders.kws_evaluation, 500, 1000),
            "metric": "accuracy",
            "trials": 20,
            "emulation_samples": 100,
        },
        emulated=200,
    ),
    "denoiser": Case(
        model=_file(denoiser.MODEL),
        settings={
            "calibration": denoiser.calibration,
            "evaluator": denoised,
            "max_drop": 0.5,
            "trials": 30,
        },
        emulated=MIXTURES,
    ),
    "MobileNetV1-0.25, per channel": _mobilenet(settings={**_MOBILENET, "repairs": ("bias", "rounding-gptq")}),
    "MobileNetV1-0.25, per tensor": _mobilenet(
        settings={**_MOBILENET, "per_channel": False, "repairs": ("bias", "equalization", "rounding-gptq")}
    ),
    "EfficientNet-B0, 224 pixels": _keras(
        "EfficientNetB0", 224, 0.0, 255.0, emulated=6, trials=16, emulation_samples=4
    ),
    "ResNet-50, 112 pixels": _keras("ResNet50", 112, -128.0, 127.0, emulated=4, trials=12, emulation_samples=4),
}
