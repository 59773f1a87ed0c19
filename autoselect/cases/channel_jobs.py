"""How close what a score hides is to float's: channels, unscored outputs and the worst samples; worker side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autoselect.cases.divergence import (
    RUINED,
    decibels_of,
    float_outputs,
    groups_of,
    outputs_of,
    run_of,
    samples_of,
    spread_rows,
)
from autoselect.cases.open_case import OpenCase, open_case
from autoselect.cases.score_jobs import score
from autoselect.domain.findings import GroupCloseness
from autoselect.scoring.channel_groups import powers, short_of_steps
from autoselect.scoring.metric_base import in_reals
from autoselect.tflite.runner import Running

_SAMPLES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """Samples that a mean hides: the worst hundredth of the search samples, in decibels.

    The error of a sample with a quiet float output counts beside the usual power of outputs.
    """

    count: int
    worst_db: float
    mean_db: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NarrowGroup:
    """A group of an output's channels whose range is ``steps`` integer steps of the output's 8-bit scale."""

    output: str
    channels: str
    steps: float


def narrow_groups(root: Path) -> list[NarrowGroup]:
    """Groups of channels that an all-int8 output cannot hold.

    Raises:
        ScoreError: If the interpreter refuses the float model.
    """
    case = open_case(root)
    rows = spread_rows(len(case.samples("calibration")), _SAMPLES)
    groups = groups_of(float_outputs(root, "calibration", tuple(rows)))
    return [
        NarrowGroup(output=key, channels=str(group), steps=steps)
        for key, channel_groups in groups.items()
        for group, steps in short_of_steps(channel_groups)
    ]


def group_closeness(root: Path, sha256: str) -> list[GroupCloseness]:
    """How close a candidate's groups of channels are to float's, but for the largest of each output.

    Raises:
        ScoreError: If the interpreter refuses a model.
    """
    case = open_case(root)
    return closeness_of_groups(root, case.runner(sha256), "calibration", range(len(case.samples("calibration"))))


def closeness_of_groups(root: Path, runner: Running, samples: str, rows: Sequence[int]) -> list[GroupCloseness]:
    """How close the groups of channels of any model are to float's, on a few of these samples of a folder."""
    case, rows = open_case(root), [rows[i] for i in spread_rows(len(rows), _SAMPLES)]
    expected = float_outputs(root, samples, tuple(rows))
    groups = {key: channel_groups for key, channel_groups in groups_of(expected).items() if channel_groups}
    if not groups:
        return []
    outputs = outputs_of(run_of(runner, samples), samples_of(case, samples, rows))
    closeness = []
    for key, channel_groups in groups.items():
        pairs = [(in_reals(a[key]), in_reals(b[key])) for a, b in zip(outputs, expected, strict=True)]
        whole = _decibels([powers(*pair) for pair in pairs])
        for group in channel_groups[1:]:  # The first sets the scale, and has nearly all of the whole's power.
            near = _decibels([powers(group.part(ours), group.part(theirs)) for ours, theirs in pairs])
            closeness.append(GroupCloseness(output=key, channels=str(group), sqnr_db=near, whole_db=whole))
    return closeness


def unscored_closeness(root: Path, sha256: str) -> dict[str, float]:
    """How close a candidate's outputs that the metric does not score are to float's, in decibels by output.

    Raises:
        ScoreError: If the interpreter refuses a model.
    """
    case = open_case(root)
    rows = spread_rows(len(case.samples("calibration")), _SAMPLES)
    expected = float_outputs(root, "calibration", tuple(rows))
    unscored = [] if not expected else [key for key in expected[0] if key not in case.scored(expected[0])]
    if not unscored:
        return {}
    outputs = outputs_of(case.runner(sha256).go_on, samples_of(case, "calibration", rows))
    closeness = {
        key: _decibels([powers(in_reals(a[key]), in_reals(b[key])) for a, b in zip(outputs, expected, strict=True)])
        for key in unscored
    }
    return {key: decibels for key, decibels in closeness.items() if not math.isnan(decibels)}


def tail(root: Path, sha256: str) -> Tail | None:
    """The worst hundredth of the search samples by closeness; None of few samples, or where it is not known.

    Raises:
        ScoreError: If the interpreter refuses a candidate that must run again.
    """
    # A worst hundredth of the samples exists from this count on.
    fewest_for_tail = 100
    case = open_case(root)
    path = case.files.fidelity_rows(sha256)
    if not path.exists() and case.reference("search") is not None and case.scoring.evaluator is None:
        score(root, sha256, "search", False)  # A run that goes on knows the score, not what it was made of.
    decibels = np.load(path)[:, 0] if path.exists() else np.empty(0)
    if len(decibels) < fewest_for_tail:
        return None
    count = len(decibels) // fewest_for_tail
    worst = np.sort(np.maximum(decibels, decibels + _below_usual(case, len(decibels))))[:count]
    return Tail(count=count, worst_db=float(worst.mean()), mean_db=float(decibels.mean()))


def _below_usual(case: OpenCase, count: int) -> np.ndarray:
    """How many decibels each search sample's float output has less power than the median of all, shape (n,).

    The output is that which the metric scores. Error is measured beside it, so that a sample whose output is near 0
    seems bad however small its error is; outputs of one number or a few are often near 0. A sample whose output is all
    0 gets infinity, a loud one a number below 0.

    All samples get 0 in two cases: if closeness is that of the worst group of channels, of which the power of the whole
    output says nothing, and if half of the outputs are 0, which leaves no usual power.

    Args:
        case: Has the float outputs.
        count: Of the search samples.
    """
    reference, fidelity = case.reference("search"), case.scoring.fidelity
    if reference is None or reference.groups(fidelity.output):
        return np.zeros(count)
    power = np.array([np.mean(fidelity.scored_reference(reference([i])) ** 2) for i in range(count)])
    usual = float(np.median(power))
    if not usual > 0.0:
        return np.zeros(count)
    return np.where(power > 0.0, decibels_of(power / usual), np.inf)


def _decibels(power_pairs: Sequence[tuple[float, float]]) -> float:
    shares = [noise / signal if math.isfinite(noise) else RUINED for signal, noise in power_pairs if signal > 0.0]
    return float(decibels_of(shares).mean()) if shares else math.nan
