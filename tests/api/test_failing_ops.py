"""A search of a net with a division that fails in integers: what it divides by is rounded to 0."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import zoo

import autoselect
from autoselect.runs.folder import RunFolder
from autoselect.study.recording.optuna_study import read_records
from autoselect.tflite.runner import Runner


def dividing_net() -> bytes:
    """Sixteen values of 0 and more, each divided by a sum that is nearly 0 on some samples, between dense layers."""
    import tensorflow as tf

    def net(x: tf.Tensor) -> tf.Tensor:
        head = tf.nn.relu(x @ zoo.weights(8, 16))
        divisor = tf.nn.relu(x @ zoo.weights(8, 16, seed=1)) + 0.001
        ratio = tf.minimum(tf.tanh(head) / divisor, 4.0)
        tail = tf.nn.relu(tf.nn.relu(ratio @ zoo.weights(16, 16, seed=2)) @ zoo.weights(16, 16, seed=3))
        return (tail + head) @ zoo.weights(16, 4, seed=4)

    return bytes(zoo.from_function(net, (1, 8)).float_model)


def test_after_the_first_failure_no_trial_fails_of_the_same_division(tmp_path: Path) -> None:
    model, rng = dividing_net(), np.random.default_rng(0)
    calibration, inputs = (rng.normal(scale=3.0, size=(count, 8)).astype(np.float32) for count in (16, 48))
    runner = Runner(model)
    labels = np.array([next(iter(runner(x[None]).values())).argmax() for x in inputs])
    run = autoselect.search(
        model,
        calibration={"x0": calibration},
        evaluation={"x0": inputs, "y": labels},
        output=tmp_path / "run",
        trials=20,
        workers=1,
        repairs=False,
        cache=False,
    )
    assert run.trials["state"].value_counts()["failed"] == 1
    [failed] = [r for r in read_records(RunFolder(run.directory).study) if r.error]
    types = dict(zip(run.layer_statistics["tensor_name"], run.layer_statistics["op_name"], strict=True))
    assert (failed.origin, failed.error_kind) == ("baseline:fiq", "score")
    assert [types[name] for name in failed.error_nodes] == ["DIV", "ADD"]
    assert "(DIV) divides by integers, and one that it divides by was rounded to 0." in (failed.error or "")
