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
from autoselect.scoring.paired import PairedDrop
from autoselect.scoring.user_metric import UserMetric

_RESAMPLES = 200


def paired(root: Path, sha256: str, part: str = "search", comparisons: int = 1) -> PairedDrop | None:
    """What a scored candidate loses against float on a part; None with an evaluator that returns one number.

    Args:
        root: A case.
        sha256: A candidate that was scored on the part.
        part: Of the samples.
        comparisons: How many candidates' intervals shall hold together.
    """
    case = open_case(root)
    ours, theirs = (_rows(case, key, part) for key in (sha256, FLOAT))
    if case.scoring.metric is None and len(ours) < 2:
        return None
    return pairs.paired_drop(case.scoring.pairs, ours, theirs, comparisons=comparisons)


def paired_noise(root: Path, one: str, other: str) -> float:
    """Standard error of what the scores of two candidates differ by on the search samples, sample by sample.

    Returns:
        0 where it is not known: with an evaluator that returns one number, and where a candidate's rows were not kept.
    """
    case = open_case(root)
    ours, theirs = (case.rows(key) for key in (one, other))
    if ours is None or theirs is None:
        return 0.0
    found = pairs.paired_drop(case.scoring.pairs, ours, theirs).error
    return found if np.isfinite(found) else 0.0


def resampled_drops(root: Path, candidates: Sequence[str]) -> np.ndarray:
    """Drops of candidates on resamples of the search samples, the same resamples for all.

    Returns:
        Shape (n_resamples, n_candidates), in the metric's units; no rows with an evaluator that returns one number,
        with a function of the user's, whose cost nobody knows, and where the metric is not defined on a resample.
    """
    case = open_case(root)
    metric = case.scoring.pairs
    if isinstance(metric, UserMetric):
        return np.zeros((0, len(candidates)))
    theirs = _rows(case, FLOAT, "search")
    if len(theirs) < 2:
        return np.zeros((0, len(candidates)))
    ours = [_rows(case, key, "search") for key in candidates]
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
    """How many samples would show that a candidate keeps a drop: :func:`autoselect.scoring.paired.samples_needed`.

    One that seems to lose more will never show that. Then the answer is for a model that differs from float as much as
    this one, but loses nothing.
    """
    case = open_case(root)
    metric = case.scoring.pairs
    ours, theirs = (_rows(case, key, "search") for key in (sha256, FLOAT))
    for balanced in (False, True):
        needed = pairs.samples_needed(metric, ours, theirs, allowed=allowed_drop, balanced=balanced)
        if math.isfinite(needed):
            return math.ceil(needed)
    return None


def _rows(case: OpenCase, sha256: str, part: str) -> np.ndarray:
    if (rows := case.rows(sha256, part)) is not None:
        return rows
    runner = case.runner(sha256)
    if case.scoring.evaluator is not None:
        return evaluate.call_evaluator(case.scoring.evaluator, runner, split=part)
    return evaluate.observe(runner, case.part(part), [case.scoring.pairs], case.reference(part))[0]
