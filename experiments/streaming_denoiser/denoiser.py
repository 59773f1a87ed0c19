"""A streaming denoiser's mixtures, its calibration samples and its evaluator: SI-SNR gain in dB.

The first core of DTLN takes the magnitudes of one frame and its own state, and gives a mask and the next state. The
state is fed back frame by frame, so an error stays. Read from the folder that AUTOSELECT_REAL_DATA names.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from autoselect.tflite.runner import Runner

ROOT = Path(os.environ.get("AUTOSELECT_REAL_DATA", "../shared/data")) / "zoo" / "dtln"
MODEL = ROOT / "dtln_core1_float.tflite"
"""The float model, as its authors publish it."""

FRAME, HOP = 512, 128
"""Samples at 16 kHz: 32 ms and 8 ms."""
CLIPS = 3
"""One-second clips in a mixture, of speech and of noise."""
LOUDEST_DB, SOFTEST_DB = 0.0, -10.0
"""Speech over noise, spread evenly over the mixtures of a part."""
PARTS = {"search": (12, 14), "heldout": (24, 26), "calibration": (16, 10)}
"""Mixtures, and noise clips that they choose from. No clip, of speech or noise, is in two parts."""
EVERY = 10
"""Every tenth frame calibrates."""
FEW, FEW_EVERY = (0, 7, 15), 3
"""For :func:`few_calibration`: the mixtures with the most speech, with the least, and one between."""
SEED = "DENOISER_MIXTURES"
"""Names the seed of the mixtures: processes that a search starts have the environment of the one that searches."""

Mixture = tuple[np.ndarray, np.ndarray]
"""Speech, and speech with noise; float64, shape (n_samples,)."""


def mixtures(part: str) -> tuple[Mixture, ...]:
    """The mixtures of ``search``, ``heldout`` or ``calibration``."""
    return _mixtures(part, int(os.environ.get(SEED, "0")))


@cache
def _mixtures(part: str, seed: int) -> tuple[Mixture, ...]:
    with np.load(ROOT / "clips.npz") as clips:
        speech, noise = (clips[kind].astype(np.float64) / 32768.0 for kind in ("speech", "noise"))
    count, choices = PARTS[part]
    places = list(PARTS).index(part)
    before = [sum(sizes[:places]) for sizes in zip(*PARTS.values(), strict=True)]
    rng = np.random.default_rng(seed)
    spoken = rng.permutation(len(speech))[CLIPS * before[0] :][: CLIPS * count].reshape(count, CLIPS)
    heard = rng.permutation(len(noise))[before[1] :][:choices]
    levels = np.linspace(LOUDEST_DB, SOFTEST_DB, count)
    return tuple(
        _mixed(np.concatenate(speech[row]), np.concatenate(noise[np.roll(heard, -CLIPS * i)[:CLIPS]]), level)
        for i, (row, level) in enumerate(zip(spoken, levels, strict=True))
    )


def _mixed(speech: np.ndarray, noise: np.ndarray, level_db: float) -> Mixture:
    gain = np.sqrt(np.mean(speech**2) / np.mean(noise**2)) * 10.0 ** (-level_db / 20.0)
    mixture = speech + gain * noise
    loudest = max(1.0, float(np.abs(mixture).max()))
    return speech / loudest, mixture / loudest


def spectra(part: str) -> tuple[np.ndarray, ...]:
    """Of each mixture the frames' spectra, complex, shape (n_frames, 257)."""
    return _spectra(mixtures(part))


def _spectra(chosen: Sequence[Mixture]) -> tuple[np.ndarray, ...]:
    return tuple(np.fft.rfft(_frames(mixture)) for _, mixture in chosen)


def _frames(signal: np.ndarray) -> np.ndarray:
    return np.lib.stride_tricks.sliding_window_view(signal, FRAME)[::HOP]


def denoise(runner: Runner, spectrum: np.ndarray) -> np.ndarray:
    """Run a mixture through the model, frame by frame, with its state fed back; the signal, shape (n_samples,)."""
    masks = np.empty(spectrum.shape, dtype=np.float32)
    for i, (mask, _) in enumerate(_stream(runner, spectrum)):
        masks[i] = mask
    blocks = np.fft.irfft(spectrum * masks)
    signal = np.zeros((len(blocks) - 1) * HOP + FRAME)
    for i, block in enumerate(blocks):
        signal[i * HOP : i * HOP + FRAME] += block
    return signal


def _stream(runner: Runner, spectrum: np.ndarray) -> Iterator[tuple[np.ndarray, Mapping[str, np.ndarray]]]:
    """Of each frame the mask, and the inputs that it came from."""
    frame, state = (spec.key for spec in runner.inputs)
    magnitudes = np.abs(spectrum).astype(np.float32)[:, None, None, :]
    kept = np.zeros(runner.inputs[1].shape, dtype=np.float32)
    for magnitude in magnitudes:
        inputs = {frame: magnitude, state: kept}
        mask, kept = runner.step(inputs).values()
        yield mask[0, 0], inputs


def si_snr_db(estimate: np.ndarray, speech: np.ndarray) -> float:
    """Scale-invariant signal-to-noise ratio (Le Roux et al. 2019), dB; both of shape (n_samples,)."""
    estimate, speech = estimate - estimate.mean(), speech - speech.mean()
    target = speech * (estimate @ speech) / (speech @ speech)
    noise = estimate - target
    return float(10.0 * np.log10((target @ target + 1e-12) / (noise @ noise + 1e-12)))


def si_snr_gain(runner: Runner, split: str = "search") -> np.ndarray:
    """The evaluator: what the model gains on each mixture over leaving it as it is, dB, shape (n_mixtures,)."""
    found = []
    for (speech, mixture), spectrum in zip(mixtures(split), spectra(split), strict=True):
        estimate = denoise(runner, spectrum)
        length = len(estimate)  # A last piece shorter than a frame is left out.
        found.append(si_snr_db(estimate, speech[:length]) - si_snr_db(mixture[:length], speech[:length]))
    return np.array(found)


def mean_si_snr_gain(runner: Runner, split: str = "search") -> float:
    """The evaluator as many have it: one number, dB, whose noise nobody knows."""
    return float(si_snr_gain(runner, split).mean())


def calibration() -> Iterator[Mapping[str, np.ndarray]]:
    """Frames of the calibration mixtures, each with the state that the float model has then."""
    yield from _frames_of(spectra("calibration"), EVERY)


def few_calibration() -> Iterator[Mapping[str, np.ndarray]]:
    """More frames of fewer mixtures."""
    every = spectra("calibration")
    yield from _frames_of([every[i] for i in FEW], FEW_EVERY)


def _frames_of(chosen: Sequence[np.ndarray], every: int) -> Iterator[Mapping[str, np.ndarray]]:
    runner = Runner(MODEL.read_bytes())
    for spectrum in chosen:
        for i, (_, inputs) in enumerate(_stream(runner, spectrum)):
            if i % every == 0:
                yield inputs
