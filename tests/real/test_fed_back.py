"""A published streaming denoiser whose state is fed back frame by frame."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autoselect

pytestmark = pytest.mark.real

FRAME, STATE, NEXT = "input_2", "input_3", "Identity_1"
AT_REST = np.zeros((1, 2, 128, 2), np.float32)


def test_a_denoiser_runs_within_its_ranges_if_calibration_feeds_its_state_back(real_data: Path) -> None:
    with np.load(real_data / "zoo" / "dtln" / "clips.npz") as clips:
        sounds = clips["speech"][:8].astype(np.float32) / 32768.0 + clips["noise"][:8].astype(np.float32) / 65536.0
    frames = np.lib.stride_tricks.sliding_window_view(sounds, 512, axis=1)[:, ::128]
    spectra = np.abs(np.fft.rfft(frames)).astype(np.float32)

    def at_rest() -> Iterator[dict[str, np.ndarray]]:
        yield from ({FRAME: frame[None, None], STATE: AT_REST} for frame in spectra[:4, ::4].reshape(-1, 257))

    def steps() -> Iterator[dict[str, np.ndarray]]:
        for spectrum in spectra[:4]:
            for number, frame in enumerate(spectrum):
                yield {FRAME: frame[None, None], **({STATE: AT_REST} if number == 0 else {})}

    def evaluator(runner: Any) -> list[float]:
        found = []
        for spectrum in spectra[4:]:
            state, kept = AT_REST, 0.0
            for frame in spectrum:
                mask, state = runner.step({FRAME: frame[None, None], STATE: state}).values()
                kept += float((mask * frame).sum() / frame.sum())
            found.append(kept / len(spectrum))
        return found

    common: dict[str, Any] = {"evaluator": evaluator, "workers": 1, "cache": False}
    model = real_data / "zoo" / "dtln" / "dtln_core1_float.tflite"
    before = autoselect.check(model, calibration=at_rest, **common)
    after = autoselect.check(model, calibration=steps, feedback={NEXT: STATE}, **common)
    [message] = [text for text in before.warnings if text.startswith("Values leave")]
    assert f"input {STATE!r} is beyond on " in message
    assert f"--feedback {NEXT}={STATE}" in before.notes[-1]
    assert not [text for text in after.warnings if STATE in text and text.startswith("Values leave")]
    assert after.notes == before.notes[:-1]
