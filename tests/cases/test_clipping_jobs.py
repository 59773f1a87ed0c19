"""Which inputs and outputs leave the ranges that calibration saw, from samples to the warning of a search."""

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


def bounded(x: Any) -> Any:
    import tensorflow as tf

    return tf.tanh(plain(x))


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
    return [e.message for e in events if isinstance(e, Warned) and e.message.startswith("Values leave")]


def test_values_beyond_what_calibration_saw_are_warned_of_once(tmp_path: Path) -> None:
    evaluation = np.concatenate([CALIBRATION, 8.0 * CALIBRATION])
    [message] = warnings(plain, evaluation, tmp_path)
    outputs = CALIBRATION @ zoo.weights(8, 4)
    assert message.startswith("Values leave the ranges that calibration saw, and integers cut them off: input 'x0' is")
    assert "output 'output_0' is beyond on " in message
    assert " of 40 search samples (it has -" in message
    for values in (CALIBRATION, outputs):
        assert f"integers hold {values.min():.3g} to {values.max():.3g})" in message
    assert message.endswith("from the same source as those that are scored, and prepare them alike.")


def test_inputs_of_another_preparation_are_told_where_the_outputs_keep_their_range(tmp_path: Path) -> None:
    [message] = warnings(bounded, 8.0 * CALIBRATION, tmp_path)
    assert "input 'x0' is beyond" in message
    assert "output" not in message


@pytest.mark.parametrize(
    ("call", "factor"), [(plain, 1.0), (plain, 1.01), (shares, 8.0)], ids=["the same", "a little", "a fixed scale"]
)
def test_what_integers_hold_is_not(call: Any, factor: float, tmp_path: Path) -> None:
    assert not [message for message in warnings(call, factor * CALIBRATION, tmp_path) if "output" in message]
