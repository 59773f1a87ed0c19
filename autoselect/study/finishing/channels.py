"""Whole models and channels after the search: what closeness hides, and each broken node with its cheapest cure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Future

from autoselect.cases import channel_jobs, cure_jobs
from autoselect.cases.events import Listener, Warned
from autoselect.cases.prepare import Case
from autoselect.cases.settings import SearchSettings
from autoselect.domain.findings import OWN_SCALE, GroupCloseness
from autoselect.domain.recipe import Recipe
from autoselect.domain.words import CLOSENESS
from autoselect.errors import TrialError
from autoselect.isolation.door import Workers
from autoselect.isolation.pool import result_of
from autoselect.quantize.diagnosing.cures import decibels
from autoselect.runs.files import write_table
from autoselect.runs.folder import RunFolder
from autoselect.study.finishing.verdict import FAR_DB
from autoselect.study.yardstick import Yardstick

CURE_COLUMNS = ("tensor_name", "weights_sqnr_db", "activations_sqnr_db", "broken", "cure", "reason")
"""Columns of ``cures.csv``."""

Cures = dict[str, cure_jobs.Cured]


def start_cures(case: Case, settings: SearchSettings, pool: Workers) -> Future[Cures]:
    """Measure cures on the all-integer model without repairs, because repairs may be the cures."""
    recipe, int16 = Recipe(per_channel=settings.per_channel).to_json(), "int16" in settings.states
    return pool.submit(cure_jobs.cured, case.files.root, recipe, int16, timeout_seconds=settings.trial_timeout)


def write_cures(running: Future[Cures], folder: RunFolder) -> list[str]:
    """Write what was found, in graph order.

    Returns:
        Why nothing was; empty otherwise.
    """
    try:
        found = result_of(running)
    except TrialError as exc:
        return [f"What is broken in each node could not be measured. {exc}"]
    rows = [
        {
            "tensor_name": name,
            "weights_sqnr_db": _cell(decibels(one.parts.weights)),
            "activations_sqnr_db": _cell(decibels(one.parts.activations)),
            "broken": one.cure.broken,
            "cure": one.cure.name,
            "reason": one.cure.reason,
        }
        for name, one in found.items()
    ]
    write_table(folder.cures, CURE_COLUMNS, rows)
    return []


def _cell(value: float) -> object:
    return "" if math.isnan(value) else value


_TAIL_DB = 10.0
"""The worst hundredth has ten times the mean's share of error."""


def warnings_of(
    sha256: str, case: Case, yardstick: Yardstick, metric: str, pool: Workers, listener: Listener
) -> list[str]:
    """What the closeness of the recommended model hides, or why that is not known; the listener is told."""
    messages = _messages(sha256, case, yardstick, metric, pool)
    for message in messages:
        listener(Warned(message=message))
    return messages


def _messages(sha256: str, case: Case, yardstick: Yardstick, metric: str, pool: Workers) -> list[str]:
    limit = yardstick.float_score - yardstick.allowed_drop if metric == CLOSENESS else FAR_DB
    try:
        groups = pool.call(channel_jobs.group_closeness, case.files.root, sha256)
        tail = pool.call(channel_jobs.tail, case.files.root, sha256)
    except TrialError as exc:
        return [f"How close the recommended model's channels are to float's could not be measured. {exc}"]
    return groups_below(groups, limit) + _tail(tail, limit)


def groups_below(groups: Sequence[GroupCloseness], limit: float) -> list[str]:
    """What is said of groups of channels below the limit, in decibels, and below their whole output."""
    return [
        f"The recommended model's {one}; the limit is {limit:.3g} dB. These channels share a scale with far larger "
        f"ones. {OWN_SCALE}"
        for one in groups
        if one.sqnr_db < min(limit, one.whole_db)
    ]


def _tail(tail: channel_jobs.Tail | None, limit: float) -> list[str]:
    if tail is None or not tail.worst_db < min(limit, tail.mean_db - _TAIL_DB):
        return []
    return [
        f"On the mean of the search samples the recommended model's outputs are {tail.mean_db:.1f} dB from float's, on "
        f"the worst hundredth ({tail.count}) {tail.worst_db:.1f} dB."
    ]
