"""Scores a model on samples: the metric's evidence for each sample, from LiteRT's outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from autoselect.data.samples import SampleStore
from autoselect.errors import MetricError
from autoselect.scoring.metric_base import Metric
from autoselect.tflite.runner import Outputs, Runner

Evaluator = Callable[..., float]


class ReferenceOutputs:
    """The float model's outputs on one set of samples, kept in a folder and memory-mapped."""

    def __init__(self, folder: Path, rows: np.ndarray | None = None) -> None:
        """Open what :meth:`write` wrote; ``rows`` chooses samples."""
        self._folder = folder
        files = sorted(folder.glob("*.npy"))
        keys = (folder / "keys.txt").read_text(encoding="utf-8").splitlines()
        self._arrays = {key: np.load(file, mmap_mode="r") for key, file in zip(keys, files, strict=True)}
        self._rows = rows

    @staticmethod
    def write(folder: Path, outputs: Sequence[Outputs]) -> None:
        """Keep the outputs of all samples, in order."""
        folder.mkdir(parents=True, exist_ok=True)
        keys = list(outputs[0])
        for position, key in enumerate(keys):
            np.save(folder / f"{position:03d}.npy", np.stack([o[key] for o in outputs]))
        (folder / "keys.txt").write_text("\n".join(keys), encoding="utf-8")

    def __call__(self, index: int) -> Outputs:
        """Outputs of one sample, batch axis included."""
        row = index if self._rows is None else int(self._rows[index])
        return {key: np.asarray(array[row]) for key, array in self._arrays.items()}


def observe(
    runner: Runner,
    samples: SampleStore,
    metrics: Sequence[Metric],
    reference: Callable[[int], Outputs] | None = None,
) -> list[np.ndarray]:
    """Run the samples one at a time and collect the evidence of every metric.

    Args:
        runner: The model; its state is reset before each sample.
        samples: Inputs and targets.
        metrics: Say what counts.
        reference: Gives the float model's outputs by sample number, for metrics that need them.

    Returns:
        For each metric float64 evidence of shape (n_samples, n_values).
    """
    rows: list[list[np.ndarray]] = [[] for _ in metrics]
    for i in range(len(samples)):
        outputs = runner(samples.inputs(i))
        target = samples.target(i)
        float_outputs = reference(i) if reference else None
        for metric, collected in zip(metrics, rows, strict=True):
            collected.append(metric.observe(outputs, target if metric.needs_targets else None, float_outputs))
    return [np.stack(collected).astype(np.float64, copy=False) for collected in rows]


def call_evaluator(evaluator: Evaluator, runner: Runner, *, split: str) -> float:
    """Let a user's evaluator drive the model and return its number.

    Args:
        evaluator: Called as ``evaluator(runner)``, or ``evaluator(runner, split=...)`` where it takes ``split``.
        runner: The candidate. ``runner(inputs)`` starts from a fresh state, ``runner.step(inputs)`` keeps
            it, ``runner.reset()`` clears it.
        split: ``search`` or ``heldout``.

    Raises:
        MetricError: If it raises or returns no finite number.
    """
    name = getattr(evaluator, "__name__", type(evaluator).__name__)
    try:
        value = evaluator(runner, split=split) if takes_split(evaluator) else evaluator(runner)
    except Exception as exc:
        raise MetricError(f"The evaluator {name} raised {type(exc).__name__}: {exc}") from exc
    try:
        number = float(value)
    except (TypeError, ValueError) as exc:
        raise MetricError(f"The evaluator {name} must return a number, it returned {value!r}.") from exc
    if not np.isfinite(number):
        raise MetricError(f"The evaluator {name} must return a finite number, it returned {number}.")
    return number


def takes_split(evaluator: Evaluator) -> bool:
    """True where the evaluator has a parameter called ``split``."""
    import inspect

    try:
        parameters: Mapping[str, inspect.Parameter] = inspect.signature(evaluator).parameters
    except (TypeError, ValueError):
        return False
    return "split" in parameters
