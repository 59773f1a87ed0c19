"""Inputs for the models of the zoo: real ones where the folder of data has some, else seeded random ones.

Each function gives samples one after the other, inputs by their order in the file; the first calibrate, the rest are
scored on.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

Sample = list[np.ndarray]
RATE = 16_000
"""Of the clips, in samples a second; each clip is one second."""


def images(root: Path, size: int, low: float, high: float) -> Iterator[Sample]:
    """Pictures of ImageNet classes, one of each, resized."""
    paths = sorted((root / "mobilenet_v1_025_imagenet" / "images").glob("*.jpg"))
    for place in np.random.default_rng(0).permutation(len(paths)):
        with Image.open(paths[place]) as image:
            pixels = np.asarray(image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR), np.float32)
        yield [(pixels / 255.0 * (high - low) + low)[None]]


def luma(root: Path) -> Iterator[Sample]:
    for crop in np.load(root / "fsrcnn_x2" / "coco_luma_crops.npz")["lr"]:
        yield [crop[None, :, :, None].astype(np.float32) / 255.0]


def mfcc(root: Path) -> Iterator[Sample]:
    for sample in np.load(root / "kws_dscnn" / "speech_commands_test_mfcc.npz")["x"][::7]:
        yield [sample[None, :, :, None].astype(np.float32)]


@functools.cache
def _mixtures(root: Path) -> np.ndarray:
    """Speech with noise at 0 to 10 dB below it, clip after clip, as 16-bit values in float32."""
    clips = np.load(root / "zoo" / "dtln" / "clips.npz")
    speech, noise = (clips[name].astype(np.float32) for name in ("speech", "noise"))
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(speech))
    drops = 10.0 ** (-rng.uniform(0.0, 10.0, len(rows)) / 20.0)
    mixed = speech[rows] + noise[np.arange(len(rows)) % len(noise)] * drops[:, None]
    return np.clip(mixed, -32768.0, 32767.0).astype(np.float32)


def waves(root: Path, count: int, rate: int, shape: Sequence[int], peak: float = 1.0) -> Iterator[Sample]:
    """``count`` values at ``rate`` of mixtures joined end to end, from ``-peak`` to ``peak``."""
    clips = _mixtures(root)
    each = -(-count * RATE // (rate * clips.shape[1]))
    for begin in range(0, len(clips), each):
        joined = clips[np.arange(begin, begin + each) % len(clips)].reshape(-1)
        places = np.arange(count) * RATE / rate
        wave = np.interp(places, np.arange(len(joined)), joined) / 32768.0 * peak
        yield [wave.astype(np.float32).reshape(shape)]


def spectra(root: Path, model: Path) -> Iterator[Sample]:
    """Magnitudes of frames with the state that the denoiser itself has come to; every 37th frame."""
    interpreter = _interpreter(model)
    feeds, fetches = interpreter.get_input_details(), interpreter.get_output_details()
    for clip in _mixtures(root):
        state = np.zeros(feeds[1]["shape"], np.float32)
        for begin in range(0, len(clip) - 512, 128):
            frame = np.abs(np.fft.rfft(clip[begin : begin + 512] / 32768.0)).astype(np.float32)[None, None]
            if begin // 128 % 37 == 36:
                yield [frame, state]
            interpreter.set_tensor(feeds[0]["index"], frame)
            interpreter.set_tensor(feeds[1]["index"], state)
            interpreter.invoke()
            state = interpreter.get_tensor(fetches[1]["index"])


def mel_frames(root: Path, front_end: Path) -> Iterator[Sample]:
    """76 frames of the mel spectrogram, as openwakeword scales it."""
    for mel in _mels(root, front_end, seconds=1):
        yield [mel[None, :76, :, None]]


def embeddings(root: Path, front_end: Path, embedder: Path, count: int) -> Iterator[Sample]:
    """``count`` embeddings in a row, one each 8 frames."""
    interpreter = _interpreter(embedder)
    [feed], [fetch] = interpreter.get_input_details(), interpreter.get_output_details()
    for mel in _mels(root, front_end, seconds=-(-(76 + 8 * count) // 97) + 1):
        rows = []
        for begin in range(0, 8 * count, 8):
            interpreter.set_tensor(feed["index"], mel[None, begin : begin + 76, :, None])
            interpreter.invoke()
            rows.append(interpreter.get_tensor(fetch["index"]).reshape(-1))
        yield [np.stack(rows)[None]]


def _mels(root: Path, front_end: Path, seconds: int) -> Iterator[np.ndarray]:
    interpreter = _interpreter(front_end, [1, RATE * seconds])
    [feed], [fetch] = interpreter.get_input_details(), interpreter.get_output_details()
    for [wave] in waves(root, RATE * seconds, RATE, (1, -1), peak=32768.0):
        interpreter.set_tensor(feed["index"], wave)
        interpreter.invoke()
        yield interpreter.get_tensor(fetch["index"])[0, 0] / 10.0 + 2.0


def _interpreter(model: Path, shape: Sequence[int] | None = None) -> Any:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(model))
    if shape is not None:
        interpreter.resize_tensor_input(interpreter.get_input_details()[0]["index"], shape)
    interpreter.allocate_tensors()
    return interpreter


def places_and_weeks() -> Iterator[Sample]:
    """Latitude, longitude and week of the year."""
    rng = np.random.default_rng(0)
    while True:
        yield [np.array([[rng.uniform(-60, 75), rng.uniform(-180, 180), rng.integers(1, 49)]], np.float32)]
