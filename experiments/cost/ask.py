"""How long the default sampler takes to choose a candidate, on real searches of models of many nodes."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from statistics import median

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "real_models"))
import loaders

import autoselect
from autoselect.study.proposing.mask import Mask
from autoselect.study.proposing.surrogate_proposer import SurrogateProposer

SIDE, CHANNELS = 4, 8


def long_model(nodes: int) -> bytes:
    """A chain of blocks of two convolutions, an activation of its own and an addition, about so many nodes in all."""
    import tensorflow as tf

    rng = np.random.default_rng(0)

    class Chain(tf.Module):
        """Random weights, scaled so that nothing grows along the chain."""

        def __init__(self) -> None:
            shape = (3, 3, CHANNELS, CHANNELS)
            self.kernels = [tf.constant(0.05 * rng.standard_normal(shape), tf.float32) for _ in range(nodes // 4 * 2)]

        @tf.function(input_signature=[tf.TensorSpec((1, SIDE, SIDE, CHANNELS), tf.float32)])
        def __call__(self, x: tf.Tensor) -> tf.Tensor:
            for first, second in zip(self.kernels[::2], self.kernels[1::2], strict=True):
                inner = tf.nn.tanh(tf.nn.conv2d(x, first, 1, "SAME"))
                x = x + tf.nn.conv2d(inner, second, 1, "SAME")
            return tf.reshape(x, (1, -1))

    chain = Chain()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([chain.__call__.get_concrete_function()], chain)
    return bytes(converter.convert())


def long_samples(count: int, seed: int) -> Iterator[np.ndarray]:
    """Random inputs of the long model."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        yield rng.standard_normal((1, SIDE, SIDE, CHANNELS)).astype(np.float32)


def asks(**search: object) -> tuple[int, list[float]]:
    """Search, and time every ask; returns the number of nodes and the seconds."""
    seconds: list[float] = []
    original = SurrogateProposer.propose

    def timed(self: SurrogateProposer, *arguments: object) -> Mask | None:
        begun = time.process_time()
        chosen = original(self, *arguments)  # type: ignore[arg-type]
        seconds.append(time.process_time() - begun)
        return chosen

    SurrogateProposer.propose = timed  # type: ignore[method-assign, assignment]
    try:
        with tempfile.TemporaryDirectory() as folder:
            run = autoselect.search(output=Path(folder) / "run", early_exit=False, repairs=False, **search)  # type: ignore[arg-type]
    finally:
        SurrogateProposer.propose = original  # type: ignore[method-assign]
    return len(run.layer_statistics), seconds


def main() -> None:
    """Print a row for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mobilenet-v3", type=Path, required=True, help="Made by ../mobilenet_v3/train.py.")
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--nodes", type=int, default=1000, help="Of the long model, about.")
    options = parser.parse_args()
    print("| model | nodes | asks | median s | longest s |\n|---|---|---|---|---|")
    evaluation = [(image, label) for image, label in islice(loaders.cifar_evaluation(), 80)]
    rows = {
        "MobileNetV3-Small": {
            "model": options.mobilenet_v3,
            "calibration": lambda: islice(loaders.cifar_calibration(), 20),
            "evaluation": evaluation[:40],
            "heldout": evaluation[40:],
        },
        "chain of blocks": {
            "model": long_model(options.nodes),
            "calibration": lambda: ([sample] for sample in long_samples(4, 1)),
            "evaluation": [(sample, 0) for sample in long_samples(20, 2)],
            "heldout": [(sample, 0) for sample in long_samples(10, 3)],
            "metric": "sqnr_db",
            "debug_samples": 2,
        },
    }
    for name, search in rows.items():
        nodes, seconds = asks(trials=options.trials, workers=1, **search)
        print(f"| {name} | {nodes} | {len(seconds)} | {median(seconds):.3f} | {max(seconds):.3f} |", flush=True)


if __name__ == "__main__":
    main()
