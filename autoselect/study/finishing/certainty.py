"""What is expected of each member on other samples, how sure that is, and which member is recommended for it.

The best of many noisy scores flatters itself. So a score is drawn to what the closeness of the outputs predicts, as far
as its own noise allows (Smith and Winkler, "The Optimizer's Curse", Management Science 52, 2006).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from statistics import NormalDist
from types import MappingProxyType

import numpy as np

from autoselect.cases import evidence_jobs
from autoselect.domain.rule import Rule, Standing
from autoselect.errors import TrialError
from autoselect.isolation.door import Workers
from autoselect.isolation.pool import result_of
from autoselect.runs.records import Scores, TrialRecord, scores_of
from autoselect.study.proposing.hypervolume_gain import Link, fit_link
from autoselect.study.proposing.observations import log_divergence
from autoselect.study.yardstick import Yardstick


class Unknown(str, Enum):
    """Why nobody knows how much more a member may lose than it lost on the search samples."""

    ONE_NUMBER = "one number"
    """An evaluator returns one number for each model: there is nothing to pair."""
    NOT_MEASURED = "not measured"
    """A bound on a user's function is measured for members alone, and the search was stopped before."""
    UNDEFINED = "undefined"
    """All samples are of one group, or the metric has no value without some, for example those of a rare class."""
    FAILED = "failed"
    """The job that measures it failed."""


_NINE_IN_TEN = (0.05, 0.95)
_ONE_SIDED = NormalDist().inv_cdf(0.95)
_ALL_KNOWN: Mapping[str, Unknown] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A member that a user may prefer to the recommended one: its bound keeps the limit, or its penalty is lower.

    Attributes:
        id: The member's.
        expected: What its drop is expected to be on other samples, in the metric's units.
        bound: What its drop is at most, with a confidence of 95 %.
        left_ops: Ops of it that the accelerator does not run.
        penalty: Its penalty.
        certified: Whether its own samples prove that it keeps the limit.
        saved: Share of the recommended member's penalty that this member saves, at most 1; negative if it costs more,
            and 0 if the recommended member costs nothing.
    """

    id: str
    expected: float
    bound: float
    left_ops: int
    penalty: float
    certified: bool = False
    saved: float = 0.0

    @classmethod
    def of(cls, standing: Standing, rule: Rule, chosen: Standing) -> Alternative:
        """The member of this standing, beside the recommended one."""
        return cls(
            id=standing.id,
            expected=standing.drop,
            bound=standing.bound,
            left_ops=standing.left_ops,
            penalty=standing.penalty,
            certified=rule.certifies(standing),
            saved=1.0 - standing.penalty / chosen.penalty if chosen.penalty else 0.0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence:
    """How sure a recommendation is, by the search samples.

    Attributes:
        id: The recommended member's.
        certified: Whether its drop is within the allowed one with a confidence of 95 %.
        bound: What its drop is at most, with that confidence, in the metric's units; NaN if nobody knows.
        least_bound: The least bound of any member: no smaller drop can be certified with these samples; NaN if nobody
            knows.
        samples_needed: So many samples would show that its drop is within the allowed one, if it is; None if that
            is not known.
        resampled: In this share of resamples of the search samples the same member is recommended; NaN if unknown.
        resampled_penalties: Between these penalties are nine in ten of the members that resamples recommend.
        expected: What its drop is expected to be on other samples, in the metric's units.
        chance_to_break: How likely its drop is more than the allowed one; NaN if nobody knows.
        surer: The certified member of least penalty; None if there is none, or the recommended one is certified.
        cheaper: The member of least penalty that is expected to keep the limit. None if its penalty is not lower by a
            step of the front, or if the recommended member has no bound of its own samples.
        unknown: Why the bound is NaN; None if it is not.
        not_resampled: Why it could not be measured how much hangs on the samples; empty if it was, or was not tried.
        float_is_better: Whether the recommended member breaks the limit with a chance of more than a half, and is
            expected to cost more by the rule than the float model, which is no candidate.
    """

    id: str
    certified: bool
    bound: float
    least_bound: float
    samples_needed: int | None
    resampled: float
    resampled_penalties: tuple[float, float] | None = None
    expected: float = math.nan
    chance_to_break: float = math.nan
    surer: Alternative | None = None
    cheaper: Alternative | None = None
    unknown: Unknown | None = None
    not_resampled: str = ""
    float_is_better: bool = False

    @property
    def named(self) -> frozenset[str]:
        """Ids of the members that the verdict names: users look for them on the front."""
        return frozenset(member.id for member in (self, self.surer, self.cheaper) if member is not None)


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    """What candidates are expected to lose on other samples, in the metric's units; arrays of shape (n,).

    Attributes:
        drops: The losses.
        beyond: What to add for an upper bound with a confidence of 95 %; infinite where nothing is known of it.
    """

    drops: np.ndarray
    beyond: np.ndarray


def expected_drops(members: Sequence[Scores], link: Link | None) -> Expected:
    """What each candidate is expected to lose on other samples, and how much more it may be.

    Nobody knows the noise of a score where an evaluator returns one number a model, or a bound could not be measured.
    What scores of equally close candidates differ by stands for it: they are expected to lose what their closeness
    says. If nothing is known of closeness either, a bound is infinite: the unknown proves nothing.

    Args:
        members: Of one search, each distinct.
        link: Of the search, see :func:`link_of`.
    """
    drops = np.array([s.drop for s in members], dtype=np.float64)
    bounds = np.array([s.drop_bound for s in members], dtype=np.float64)
    noise = np.array([s.drop_noise for s in members], dtype=np.float64)
    widths = np.where(np.isnan(bounds), math.inf, bounds - drops)
    noise = np.where(np.isnan(bounds), math.inf, noise)
    if link is not None:
        closeness = np.array([log_divergence(s) for s in members])
        seen = np.isfinite(closeness)
        measured = drops[seen]
        drops[seen], spread = link.without_noise(closeness[seen], measured, noise[seen])
        widths[seen] = np.where(np.isinf(noise[seen]), _ONE_SIDED * spread, widths[seen])
    return Expected(drops, widths)


def link_of(scores: Sequence[Scores], drops: np.ndarray | None = None) -> Link | None:
    """How drops follow closeness among the scored candidates of a search; None if they are too few to say.

    Args:
        scores: The candidates.
        drops: Other drops of theirs, shape (n,), for example on a resample; their own by default.
    """
    lost = [s.drop for s in scores] if drops is None else drops
    table = np.column_stack([[log_divergence(s) for s in scores], lost]) if len(scores) else np.zeros((0, 2))
    table = table[np.isfinite(table).all(axis=1)]
    # Fewer members say nothing of how scores follow closeness.
    return None if len(table) < 4 else fit_link(table[:, 0], table[:, 1])


def with_bounds(front: Sequence[TrialRecord], root: Path, pool: Workers) -> tuple[list[TrialRecord], dict[str, str]]:
    """The members with noise and bound of their drops, measured now where scoring left them for later.

    Returns:
        The members, and by id why the bound of one could not be measured.
    """
    later = {r.id: r.scores for r in front if r.scores and r.scores.samples and math.isnan(r.scores.drop_bound)}
    running = {key: pool.submit(evidence_jobs.paired, root, s.sha256) for key, s in later.items()}
    bounded, failures = dict(later), dict[str, str]()
    for key, future in running.items():
        try:
            paired = result_of(future)
        except TrialError as exc:
            failures[key] = str(exc)
            continue
        if paired is not None:
            bounded[key] = replace(later[key], drop_noise=paired.error, drop_bound=paired.bound)
    return [replace(r, scores=bounded.get(r.id, r.scores)) for r in front], failures


def unknown_bounds(
    front: Sequence[TrialRecord], failures: Collection[str], *, are_measured: bool
) -> dict[str, Unknown]:
    """Why the bounds of members are not known, by id.

    Args:
        front: The members.
        failures: Ids of those of which measuring failed.
        are_measured: Whether all bounds that could be measured were.
    """
    left = Unknown.UNDEFINED if are_measured else Unknown.NOT_MEASURED
    return {
        r.id: Unknown.FAILED if r.id in failures else Unknown.ONE_NUMBER if is_one_number(r.scores) else left
        for r in front
        if r.scores and math.isnan(r.scores.drop_bound)
    }


def is_one_number(scores: Scores) -> bool:
    """Whether an evaluator gave a single number: of such a score neither noise nor bound is known."""
    return not scores.samples and math.isnan(scores.drop_bound) and scores.drop_noise == 0.0


def with_guessed_bounds(records: Sequence[TrialRecord], measured: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The records; noise and bounds that scoring left for later are those of measured ones of like closeness.

    Args:
        records: Of a search.
        measured: Some of them, with :func:`with_bounds`; their own figures are taken.
    """
    own = {r.id: r for r in measured}
    rows = [(log_divergence(s), s.drop_noise, s.drop_bound - s.drop) for s in scores_of(measured)]
    table = np.array(sorted(row for row in rows if np.isfinite(row).all())).reshape(-1, 3)
    if not len(table):
        return list(records)

    def guessed(record: TrialRecord) -> TrialRecord:
        scores = record.scores
        if record.id in own or scores is None or not scores.samples or not math.isnan(scores.drop_bound):
            return own.get(record.id, record)
        closeness = log_divergence(scores)
        if math.isnan(closeness):
            return record
        noise, width = (float(np.interp(closeness, table[:, 0], column)) for column in table.T[1:])
        return replace(record, scores=replace(scores, drop_noise=noise, drop_bound=scores.drop + width))

    return [guessed(record) for record in records]


def standings_of(front: Sequence[TrialRecord], link: Link | None) -> list[Standing]:
    """One standing for each member of the front, with the drop and the bound that are expected on other samples.

    Args:
        front: The members, their bounds filled in by :func:`with_bounds`.
        link: How drops follow closeness in this search, see :func:`link_of`; None if that is not known.
    """
    scores = scores_of(front)
    expected = expected_drops(scores, link)
    figures = zip(scores, expected.drops.tolist(), expected.beyond.tolist(), strict=True)
    return [replace(s.standing, drop=drop, bound=drop + width) for s, drop, width in figures]


def confidence_of(
    front: Sequence[TrialRecord],
    scored: Sequence[Scores],
    yardstick: Yardstick,
    root: Path,
    pool: Workers | None,
    unknown: Mapping[str, Unknown] = _ALL_KNOWN,
) -> Confidence | None:
    """How sure the recommendation among these members is; None without members.

    Args:
        front: The members, with :func:`with_bounds`.
        scored: All distinct candidates that were scored: what is expected of members is learned of them.
        yardstick: With the allowed drop.
        root: The case.
        pool: Where rows are read; None leaves out what takes that.
        unknown: By id, see :func:`unknown_bounds`.
    """
    scores, rule = scores_of(front), yardstick.rule
    members = standings_of(front, link_of(scored))
    if not members:
        return None
    chosen = rule.recommended(members)
    sha256 = next(s.sha256 for s in scores if s.sha256[:10] == chosen.id)
    resampled, penalties, needed, failure = math.nan, None, None, ""
    if pool is not None and chosen.is_bounded:
        try:
            needed = pool.call(evidence_jobs.samples_needed, root, sha256, rule.allowed_drop, chosen.drop)
            if again := _resampled(members, scores, scored, root, pool):
                others = [rule.recommended(standings) for standings in again]
                resampled = float(np.mean([other.id == chosen.id for other in others]))
                low, high = np.quantile([m.penalty for m in others], _NINE_IN_TEN, method="inverted_cdf").tolist()
                penalties = (low, high)
        except TrialError as exc:
            failure = str(exc)
    certified = [m for m in members if rule.certifies(m)]
    hopeful = [m for m in members if m.drop <= rule.allowed_drop]
    surest, cheapest = (
        min(some, key=lambda m: (m.penalty, m.risk, m.id), default=chosen) for some in (certified, hopeful)
    )
    is_cheaper = cheapest.penalty <= chosen.penalty - yardstick.steps(1.0)["penalty"]
    return Confidence(
        id=chosen.id,
        certified=rule.certifies(chosen),
        bound=chosen.bound if chosen.is_bounded else math.nan,
        least_bound=min((m.bound for m in members if m.is_bounded), default=math.nan),
        samples_needed=needed,
        resampled=resampled,
        resampled_penalties=penalties,
        expected=chosen.drop,
        chance_to_break=rule.chance_to_break(chosen) if chosen.is_bounded else math.nan,
        surer=None if rule.certifies(chosen) or surest is chosen else Alternative.of(surest, rule, chosen),
        cheaper=Alternative.of(cheapest, rule, chosen) if chosen.is_bounded and is_cheaper else None,
        unknown=None if chosen.is_bounded else unknown.get(chosen.id, Unknown.UNDEFINED),
        not_resampled=failure,
        float_is_better=rule.chance_to_break(chosen) > 0.5 and rule.cost(chosen) > rule.price_of_float,
    )


def resampled_standings(
    front: Sequence[TrialRecord], scored: Sequence[Scores], root: Path, pool: Workers
) -> list[list[Standing]]:
    """The members as resamples of the search samples show them; none if that cannot be known."""
    members = standings_of(front, link_of(scored))
    if not any(member.is_bounded for member in members):
        return []
    try:
        return _resampled(members, scores_of(front), scored, root, pool)
    except TrialError:  # The verdict says why.
        return []


def _resampled(
    members: Sequence[Standing], scores: Sequence[Scores], scored: Sequence[Scores], root: Path, pool: Workers
) -> list[list[Standing]]:
    """The members as other search samples would show them: drops, bounds, and how drops follow closeness.

    Rows are kept of members alone when a run is over. So the other candidates, of which it is learned how drops follow
    closeness, move as the members next to them in closeness do. Closeness itself, which is known far better than scores
    are, stays as it is.
    """
    shas = [s.sha256 for s in scores]
    others = [s for s in scored if s.sha256 not in shas]
    own, theirs = (np.array([(s.drop, log_divergence(s)) for s in some]).reshape(-1, 2) for some in (scores, others))
    order = np.argsort(own[:, 1])[: np.isfinite(own[:, 1]).sum()]
    again = []
    for paired in pool.call(evidence_jobs.resampled_drops, root, shas):
        moved = paired[:, 0] - own[:, 0]
        along = np.interp(theirs[:, 1], own[order, 1], moved[order]) if len(order) else 0.0
        lost = np.concatenate([paired[:, 0], theirs[:, 0] + along])
        drawn = [
            replace(s, drop=drop, drop_noise=noise, drop_bound=bound)
            for s, (drop, noise, bound) in zip(scores, paired.tolist(), strict=True)
        ]
        expected = expected_drops(drawn, link_of([*scores, *others], lost))
        rows = zip(members, expected.drops.tolist(), (expected.drops + expected.beyond).tolist(), strict=True)
        again.append([replace(m, drop=drop, bound=bound) for m, drop, bound in rows])
    return again
