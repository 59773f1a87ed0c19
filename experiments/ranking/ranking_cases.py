"""The models whose nodes are ranked, and what each model file scores on each sample."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

EXPERIMENTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(EXPERIMENTS / "real_models"), str(EXPERIMENTS / "streaming_denoiser")]
os.environ["PYTHONPATH"] = os.pathsep.join([*sys.path[:2], os.environ.get("PYTHONPATH", "")])  # of the workers
import denoiser  # noqa: E402 - found by the path above
import loaders  # noqa: E402

from autoselect import embedded  # noqa: E402
from autoselect.tflite.runner import Runner  # noqa: E402

IMAGES = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One model.

    Attributes:
        title: In tables.
        unit: Of its score.
        model: Float ``.tflite``.
        calibration: Samples to calibrate on.
        score: From the bytes of a model to what it scores on each sample, which no search saw.
        search: What a search takes beside these two.
    """

    title: str
    unit: str
    model: Path
    calibration: Callable[[], Any]
    score: Callable[[bytes], np.ndarray]
    search: dict[str, Any] = field(default_factory=dict)


def answers(content: bytes, inputs: Iterable[np.ndarray]) -> np.ndarray:
    """The class that a model names for each sample."""
    runner = Runner(content)
    return np.array([int(next(iter(runner(x[None]).values())).argmax()) for x in inputs])


def points(right: np.ndarray) -> np.ndarray:
    """Hits in points, so that their mean is an accuracy in percent."""
    return 100.0 * right


def pump_score(content: bytes) -> np.ndarray:
    """Hits on 2,000 held-out windows."""
    pairs = list(embedded.heldout_samples())
    return points(answers(content, (x for x, _ in pairs)) == [label for _, label in pairs])


@cache
def _images() -> tuple[list[np.ndarray], np.ndarray]:
    """Images, and what the float model answers."""
    found = [image for image, _ in islice(loaders.imagenet_heldout(), IMAGES)]
    return found, answers(MOBILENET.read_bytes(), found)


def mobilenet_score(content: bytes) -> np.ndarray:
    """Agreement with float on 300 held-out images."""
    images, expected = _images()
    return points(answers(content, images) == expected)


def ds_cnn_score(content: bytes) -> np.ndarray:
    """Hits on 1,000 held-out spectrograms."""
    pairs = list(islice(loaders.kws_evaluation(), 1, None, 2))
    return points(answers(content, (x for x, _ in pairs)) == [label for _, label in pairs])


def denoiser_score(content: bytes) -> np.ndarray:
    """Gain in SI-SNR on 8 held-out mixtures, as loud over noise as all 24."""
    runner, gains = Runner(content), []
    for (speech, mixture), spectrum in islice(
        zip(denoiser.mixtures("heldout"), denoiser.spectra("heldout"), strict=True), 1, None, 3
    ):
        estimate = denoiser.denoise(runner, spectrum)
        before, after = (
            denoiser.si_snr_db(signal, speech[: estimate.size]) for signal in (mixture[: estimate.size], estimate)
        )
        gains.append(after - before)
    return np.array(gains)


MOBILENET = loaders.IMAGENET / "mobilenet_v1_025_224_float.tflite"
CASES = {
    "pump": Case(
        title="pump monitor",
        unit="points of accuracy",
        model=embedded.model_path(),
        calibration=embedded.calibration,
        score=pump_score,
        search={"evaluation": embedded.search_samples, "metric": "accuracy"},
    ),
    "mobilenet": Case(
        title="MobileNetV1-0.25, per channel",
        unit="points of agreement",
        model=MOBILENET,
        calibration=loaders.imagenet_calibration,
        score=mobilenet_score,
        search={"evaluation": loaders.imagenet_search, "metric": "agreement"},
    ),
    "denoiser": Case(
        title="streaming denoiser",
        unit="dB of SI-SNR",
        model=denoiser.MODEL,
        calibration=denoiser.calibration,
        score=denoiser_score,
        search={"evaluator": "denoiser:si_snr_gain"},
    ),
    "ds_cnn": Case(
        title="DS-CNN, a control",
        unit="points of accuracy",
        model=loaders.KWS / "kws_dscnn_float.tflite",
        calibration=loaders.kws_calibration,
        score=ds_cnn_score,
        search={"evaluation": lambda: islice(loaders.kws_evaluation(), 0, None, 2), "metric": "accuracy"},
    ),
}
