"""How far the outputs of a recipe are from the float model's, on a few samples; worker side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from autoselect.cases.open_case import OpenCase, open_case
from autoselect.domain.recipe import Recipe
from autoselect.tflite.runner import Outputs, Runner


def divergence(shares: list[float]) -> float:
    """Mean of :func:`error_shares`: 0 where nothing differs, NaN where there are none."""
    return float(np.mean(shares)) if shares else float("nan")


def error_shares(
    root: Path,
    denylisted: frozenset[str],
    samples: str,
    rows: Sequence[int],
    per_channel: bool,
    repairs: tuple[str, ...] = (),
) -> list[float]:
    """Power of the outputs' error over that of the float outputs for each sample, with these nodes float.

    Args:
        root: A prepared case.
        denylisted: Names of the nodes that stay float; all others are integer.
        samples: Name of a folder of samples.
        rows: Which of them.
        per_channel: Granularity of the weights.
        repairs: As in a recipe.

    Returns:
        Of the samples whose float outputs are not all 0.
    """
    case = open_case(root)
    recipe = Recipe(denylisted_nodes=denylisted, fallback="float", per_channel=per_channel, repairs=repairs)
    candidate = case.builder.build(recipe)
    runner = Runner(candidate.content)
    expected = _float_outputs(root, samples, tuple(rows))
    pairs = zip(samples_of(case, samples, rows), expected, strict=True)
    ratios = [_noise_to_signal(runner(sample), theirs) for sample, theirs in pairs]
    return [ratio for ratio in ratios if np.isfinite(ratio)]


def samples_of(case: OpenCase, samples: str, rows: Sequence[int]) -> Iterator[Mapping[str, np.ndarray]]:
    """Some of the samples of a folder, one at a time."""
    store = case.samples(samples)
    return (store.inputs(i) for i in rows)


def _noise_to_signal(outputs: Outputs, expected: Outputs) -> float:
    pairs = [(outputs[key].astype(np.float64), expected[key].astype(np.float64)) for key in expected]
    noise = sum(float(np.sum((ours - theirs) ** 2)) for ours, theirs in pairs)
    signal = sum(float(np.sum(theirs**2)) for _, theirs in pairs)
    return noise / signal if signal > 0.0 else float("nan")


@lru_cache(maxsize=2)
def _float_outputs(root: Path, samples: str, rows: tuple[int, ...]) -> list[Outputs]:
    case = open_case(root)
    runner = Runner(case.files.float_model.read_bytes())
    return [{key: value.copy() for key, value in runner(s).items()} for s in samples_of(case, samples, rows)]
