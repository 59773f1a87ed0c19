"""Which outputs leave the ranges that calibration saw, on the way from samples to the warning of a search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zoo

import autoselect
from autoselect.cases.events import Event, Warned

RNG = np.random.default_rng(0)
CALIBRATION = RNG.uniform(-1.0, 1.0, (40, 8)).astype(np.float32)


def plain(x: Any) -> Any:
    return x @ zoo.weights(8, 4)


def shares(x: Any) -> Any:
    """The softmax has a fixed scale, and the rearranged values are its own."""
    import tensorflow as tf

    return tf.transpose(tf.nn.softmax(plain(x)), (1, 0))


def warnings(call: Any, evaluation: np.ndarray, folder: Path) -> list[str]:
    events: list[Event] = []
    autoselect.search(
        zoo.from_function(call, (1, 8)).float_model,
        calibration=[sample[np.newaxis] for sample in CALIBRATION],
        evaluation=[sample[np.newaxis] for sample in evaluation],
        metric="sqnr_db",
        trials=1,
        workers=1,
        repairs=False,
        allow_overlap=True,
        output=folder / "run",
        listener=events.append,
        cache=False,
    )
    return [e.message for e in events if isinstance(e, Warned) and e.message.startswith("Outputs leave")]


def test_values_beyond_what_calibration_saw_are_warned_of_once(tmp_path: Path) -> None:
    evaluation = np.concatenate([CALIBRATION, 8.0 * CALIBRATION])
    [message] = warnings(plain, evaluation, tmp_path)
    outputs = CALIBRATION @ zoo.weights(8, 4)
    held = f"integers hold {outputs.min():.3g} to {outputs.max():.3g})"
    assert message.startswith("Outputs leave the ranges that calibration saw, and integers cut them off: 'output_0' is")
    assert " of 40 search samples (it has -" in message
    assert held in message
    assert message.endswith("Bring more calibration samples, from the same source as those that are scored.")


@pytest.mark.parametrize(
    ("call", "factor"), [(plain, 1.0), (plain, 1.01), (shares, 8.0)], ids=["the same", "a little", "a fixed scale"]
)
def test_what_integers_hold_is_not(call: Any, factor: float, tmp_path: Path) -> None:
    assert warnings(call, factor * CALIBRATION, tmp_path) == []
