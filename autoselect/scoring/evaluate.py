"""Scores a model on samples: the metric's evidence for each sample, from LiteRT's outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autoselect.data.npy import NpyWriter
from autoselect.data.samples import SampleStore
from autoselect.errors import MetricError
from autoselect.scoring.channel_groups import ChannelGroup, channel_groups, some_samples
from autoselect.scoring.evaluator_parts import Evaluated
from autoselect.scoring.metric_base import Metric, in_reals
from autoselect.tflite.runner import Outputs, Running

Evaluator = Callable[..., Any]
"""The user's function: drives a runner and returns a number, one for each sample, or the parts of a score."""


class ReferenceOutputs:
    """The float model's outputs on one set of samples, kept in a folder and memory-mapped."""

    def __init__(self, folder: Path) -> None:
        """Open what :meth:`write` wrote."""
        keys = (folder / "keys.txt").read_text(encoding="utf-8").splitlines()
        self._arrays = {key: np.load(folder / f"{i:03d}.npy", mmap_mode="r") for i, key in enumerate(keys)}
        self._groups: dict[str | None, tuple[ChannelGroup, ...]] = {}

    @staticmethod
    def write(folder: Path, outputs: Iterable[Outputs]) -> None:
        """Keep the outputs of all samples, in order; one sample at a time is in memory."""
        folder.mkdir(parents=True, exist_ok=True)
        writers: dict[str, NpyWriter] = {}
        for sample in outputs:
            for key, value in sample.items():
                if key not in writers:
                    writers[key] = NpyWriter(folder / f"{len(writers):03d}.npy", value.shape, value.dtype)
                writers[key].append(value)
        for writer in writers.values():
            writer.close()
        (folder / "keys.txt").write_text("\n".join(writers), encoding="utf-8")

    def __call__(self, numbers: Sequence[int]) -> Outputs:
        """Outputs of some samples, stacked: shape (n_samples, 1, ...), batch axis included."""
        return {key: np.asarray(array[numbers]) for key, array in self._arrays.items()}

    def groups(self, key: str | None) -> tuple[ChannelGroup, ...]:
        """Groups of an output's channels, by samples spread over all; see :func:`channel_groups`.

        Args:
            key: Of the output; None is the first one.
        """
        if key not in self._groups:
            array = next(iter(self._arrays.values()), None) if key is None else self._arrays.get(key)
            some: tuple[ChannelGroup, ...] = ()
            if array is not None and len(array):
                some = channel_groups(in_reals(array[some_samples(len(array), array[0].nbytes)]))
            self._groups[key] = some
        return self._groups[key]


def observe(
    runner: Callable[[Mapping[str, np.ndarray]], Outputs] | None,
    samples: SampleStore,
    metrics: Sequence[Metric],
    reference: Callable[[Sequence[int]], Outputs] | None = None,
    numbers: Sequence[int] | None = None,
) -> list[np.ndarray]:
    """Run the samples one at a time and collect the evidence of every metric.

    Args:
        runner: The model; its state is reset before each sample. None for the float model, whose outputs
            ``reference`` gives.
        samples: Inputs and targets.
        metrics: Say what counts.
        reference: Gives the float model's outputs by sample numbers, stacked, for metrics that need them.
        numbers: Of the samples to run, at least one, in this order; None runs all.

    Returns:
        For each metric float64 evidence of shape (n_samples, n_values), a row for each sample run.
    """
    numbers = range(len(samples)) if numbers is None else numbers
    if isinstance(reference, ReferenceOutputs):
        metrics = [metric.informed(reference.groups) for metric in metrics]
    rows: list[list[np.ndarray]] = [[] for _ in metrics]
    done, size = 0, 1
    while done < len(numbers):
        block = list(numbers[done : done + size])
        float_outputs = reference(block) if reference else None
        outputs = stacked([runner(samples.inputs(i)) for i in block]) if runner else float_outputs
        if outputs is None:
            raise ValueError("There is neither a model to run nor what it gave before.")
        targets = [samples.target(i) for i in block]
        for metric, collected in zip(metrics, rows, strict=True):
            collected.append(metric.observe_block(outputs, targets if metric.needs_targets else None, float_outputs))
        done, size = done + len(block), _block_size(outputs)
    return [np.concatenate(collected).astype(np.float64, copy=False) for collected in rows]


def stacked(outputs: Sequence[Outputs]) -> Outputs:
    """Outputs of several samples as one: shape (n_samples, 1, ...)."""
    return {key: np.stack([sample[key] for sample in outputs]) for key in outputs[0]}


def _block_size(outputs: Outputs) -> int:
    """How many samples are looked at together: as many as keep what is held in the processor's cache."""
    held = sum(value[0].nbytes for value in outputs.values())
    # Metrics look at many samples at once: at one, NumPy's calls cost more than their work.
    return int(min(max((1 << 20) // max(held, 1), 1), 64))


def call_evaluator(
    evaluator: Evaluator, runner: Running, *, split: str, samples: Sequence[int] | None = None
) -> Evaluated:
    """Let a user's evaluator drive the model and return its scores.

    Args:
        evaluator: Called as ``evaluator(runner)``, with ``split`` and ``samples`` where it takes them.
        runner: The candidate. ``runner(inputs)`` starts from a fresh state, ``runner.step(inputs)`` keeps
            it, ``runner.reset()`` clears it.
        split: ``search`` or ``heldout``.
        samples: Numbers of those to score, for an evaluator that takes them; None for all.

    Returns:
        A row for each sample, and what makes a score of them.

    Raises:
        MetricError: If it raises or returns nothing that makes a score, or other samples than asked for.
    """
    name = getattr(evaluator, "__name__", type(evaluator).__name__)
    wanted = None if samples is None else np.asarray(samples, dtype=np.int64)
    given = {key: value for key, value in (("split", split), ("samples", wanted)) if takes(evaluator, key)}
    try:
        value = evaluator(runner, **given)
    except (Exception, SystemExit) as exc:
        raise MetricError(f"The evaluator {name} raised {type(exc).__name__}: {exc}") from exc
    evaluation = Evaluated.of(value, name)
    if samples is not None and len(evaluation.rows) != len(samples):
        raise MetricError(
            f"The evaluator {name} must score the samples whose numbers it gets as samples, in their order: "
            f"expected {len(samples)} rows, got {len(evaluation.rows)}. If it cannot, leave out this parameter."
        )
    return evaluation


def takes(evaluator: Evaluator, parameter: str) -> bool:
    """Whether the evaluator has a parameter of this name, such as ``split``."""
    import inspect

    try:
        parameters: Mapping[str, inspect.Parameter] = inspect.signature(evaluator).parameters
    except (TypeError, ValueError):
        return False
    return parameter in parameters
