"""What workers do to say how sure a score is: paired differences to float, sample by sample.

Everything is read from kept rows of evidence; a candidate whose rows are too wide to be kept runs once more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from autoselect.cases.files import FLOAT
from autoselect.cases.open_case import OpenCase, open_case
from autoselect.domain.objectives import drop_from
from autoselect.errors import MetricError
from autoselect.scoring import evaluate
from autoselect.scoring import paired as pairs
from autoselect.scoring.metric_base import Metric
from autoselect.scoring.paired import PairedDrop
from autoselect.scoring.user_metric import UserMetric

_RESAMPLES = 200


def paired(root: Path, sha256: str, part: str = "search", comparisons: int = 1) -> PairedDrop | None:
    """What a scored candidate loses against float on a part; None with an evaluator, whose samples nobody sees.

    Args:
        root: A case.
        sha256: A candidate that was scored on the part.
        part: Of the samples.
        comparisons: How many candidates' intervals shall hold together.
    """
    case = open_case(root)
    if case.scoring.metric is None:
        return None
    ours, theirs = (_rows(case, case.scoring.metric, key, part) for key in (sha256, FLOAT))
    return pairs.paired_drop(case.scoring.metric, ours, theirs, comparisons=comparisons)


def paired_noise(root: Path, one: str, other: str) -> float:
    """Standard error of what the scores of two candidates differ by on the search samples, sample by sample.

    Returns:
        0 where it is not known: with an evaluator, and where a candidate's rows were not kept.
    """
    case = open_case(root)
    if case.scoring.metric is None or not all(case.files.rows(key).exists() for key in (one, other)):
        return 0.0
    found = pairs.paired_drop(case.scoring.metric, *(np.load(case.files.rows(key)) for key in (one, other))).error
    return found if np.isfinite(found) else 0.0


def resampled_drops(root: Path, candidates: Sequence[str]) -> np.ndarray:
    """Drops of candidates on resamples of the search samples, the same resamples for all.

    Returns:
        Shape (n_resamples, n_candidates), in the metric's units; no rows with an evaluator or a function of the user's,
        of which nobody knows what it costs, and where the metric is not defined on a resample.
    """
    case = open_case(root)
    metric = case.scoring.metric
    if metric is None or isinstance(metric, UserMetric):
        return np.zeros((0, len(candidates)))
    theirs = _rows(case, metric, FLOAT, "search")
    ours = [_rows(case, metric, key, "search") for key in candidates]
    rng = np.random.default_rng(0)
    found = []
    for _ in range(_RESAMPLES):
        chosen = rng.integers(len(theirs), size=len(theirs))
        try:
            reference = metric.summarise(theirs[chosen])
            found.append([drop_from(reference, metric.summarise(rows[chosen]), metric.direction) for rows in ours])
        except MetricError:  # For example a ROC curve on a resample of one class.
            continue
    return np.array(found).reshape(-1, len(candidates))


def samples_needed(root: Path, sha256: str, allowed_drop: float) -> int | None:
    """How many samples would show that a candidate keeps a drop: :func:`autoselect.scoring.paired.samples_needed`."""
    case = open_case(root)
    metric = case.scoring.metric
    if metric is None:
        return None
    ours, theirs = (_rows(case, metric, key, "search") for key in (sha256, FLOAT))
    needed = pairs.samples_needed(metric, ours, theirs, allowed=allowed_drop)
    return math.ceil(needed) if math.isfinite(needed) else None


def _rows(case: OpenCase, metric: Metric, sha256: str, part: str) -> np.ndarray:
    path = case.files.rows(sha256, part)
    if path.exists():
        return np.asarray(np.load(path))
    runner = case.runner(sha256)
    return evaluate.observe(runner, case.part(part), [metric], case.reference(part))[0]
