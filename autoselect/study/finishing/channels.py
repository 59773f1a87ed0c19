"""Warns of what a score hides: groups of an output's channels, outputs that are not scored, and the worst samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autoselect.cases import channel_jobs
from autoselect.cases.events import Listener, Warned
from autoselect.cases.prepare import Case
from autoselect.domain.findings import OWN_SCALE, GroupCloseness
from autoselect.domain.rule import FAR_DB
from autoselect.domain.words import CLOSENESS, listed
from autoselect.errors import TrialError
from autoselect.isolation.door import Workers
from autoselect.study.yardstick import Yardstick


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
        others = pool.call(channel_jobs.unscored_closeness, case.files.root, sha256)
        tail = pool.call(channel_jobs.tail, case.files.root, sha256)
    except TrialError as exc:
        return [f"How close the recommended model's channels are to float's could not be measured. {exc}"]
    return groups_below(groups, limit) + _unscored(others, limit) + _tail(tail, limit)


def groups_below(groups: Sequence[GroupCloseness], limit: float) -> list[str]:
    """What is said of groups of channels below the limit, in decibels, and below their whole output."""
    return [
        f"The recommended model's {group}; the limit is {limit:.3g} dB. These channels share a scale with far larger "
        f"ones. {OWN_SCALE}"
        for group in groups
        if group.sqnr_db < min(limit, group.whole_db)
    ]


def _unscored(closeness: Mapping[str, float], limit: float) -> list[str]:
    far = [f"{key!r} ({decibels:.1f} dB)" for key, decibels in closeness.items() if round(decibels, 1) < limit]
    if not far:
        return []
    outputs, verb = ("Output", "is") if len(far) == 1 else ("Outputs", "are")
    return [
        f"{outputs} {listed(far)} of the recommended model, which the metric does not score, {verb} further than "
        f"{limit:.3g} dB from float's. --output-name scores one output, an evaluator may score all."
    ]


def _tail(tail: channel_jobs.Tail | None, limit: float) -> list[str]:
    # The worst hundredth has ten times the mean's share of error.
    if tail is None or not tail.worst_db < min(limit, tail.mean_db - 10.0):
        return []
    return [
        f"On the mean of the search samples the recommended model's outputs are {tail.mean_db:.1f} dB from float's, on "
        f"the worst hundredth ({tail.count}) {tail.worst_db:.1f} dB."
    ]
