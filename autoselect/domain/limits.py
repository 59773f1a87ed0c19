"""What would be recommended at each allowed drop, and one model for several targets; knows standings, no models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoselect.domain.picks import DEFAULT_DROPS, default_drop
from autoselect.domain.rule import Rule, Standing
from autoselect.domain.words import SHARES

_NINE_IN_TEN = (0.05, 0.95)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What is recommended at one allowed drop.

    Attributes:
        allowed_drop: In the metric's units.
        id: The recommended member's.
        penalty: Its penalty.
        penalty_low: Nine in ten resamples of the search samples recommend a penalty of at least this; None if unknown.
        penalty_high: They recommend at most this.
        size_bytes: Size of its file, or what it takes packed if an objective of the run is that.
        expected_drop: What its drop is expected to be on other samples.
        expected_drop_bound: What that is at most, with a confidence of 95 %; infinite if unknown.
        chance_to_break: How likely it loses more than allowed.
        resampled: In this share of resamples the same member is recommended; None if unknown.
    """

    allowed_drop: float
    id: str
    penalty: float
    penalty_low: float | None
    penalty_high: float | None
    size_bytes: int
    expected_drop: float
    expected_drop_bound: float
    chance_to_break: float
    resampled: float | None


def allowed_drops(metric: str, float_score: float, own: float, max_drop: float | None = None) -> tuple[float, ...]:
    """The drops that are looked at: from 0 to 5 points, or to what a search of this metric allows by default.

    Of a metric whose default is 1 % of the float model's score they go to 5 %. Above a limit of the user's there are
    none: the front has no model that loses more.

    Args:
        metric: Its name.
        float_score: Of the float model.
        own: The run's allowed drop, which is one of them.
        max_drop: The limit of the user's, to which ``own`` is then equal; None without one.
    """
    usual = default_drop(metric, float_score)
    # Largest drop of a share that is looked at: 5 points.
    most = 0.05 if metric in SHARES else usual if metric in DEFAULT_DROPS else 5.0 * usual
    # 25 steps from no drop to the largest one.
    grid = [drop for drop in np.round(np.linspace(0.0, most, 26), 12).tolist() if max_drop is None or drop < max_drop]
    return tuple(sorted([own, *(drop for drop in grid if not math.isclose(drop, own, rel_tol=1e-9))]))


def limits(
    members: Sequence[Standing], again: Sequence[Sequence[Standing]], rule: Rule, allowed: Sequence[float]
) -> list[Limit]:
    """What the rule recommends at each allowed drop.

    Args:
        members: Of the front, at least one.
        again: The same members as resamples of the search samples show them; none if that is not known.
        rule: Of the run.
        allowed: The drops.
    """
    rows = []
    for drop in allowed:
        asked = replace(rule, allowed_drop=drop)
        chosen = asked.recommended(members)
        others = [asked.recommended(standings) for standings in again]
        low, high = (
            np.quantile([m.penalty for m in others], _NINE_IN_TEN, method="inverted_cdf").tolist()
            if others
            else (None, None)
        )
        rows.append(
            Limit(
                allowed_drop=drop,
                id=chosen.id,
                penalty=chosen.penalty,
                penalty_low=low,
                penalty_high=high,
                size_bytes=int(chosen.size_bytes),
                expected_drop=chosen.drop,
                expected_drop_bound=chosen.bound,
                chance_to_break=asked.chance_to_break(chosen),
                resampled=float(np.mean([other.id == chosen.id for other in others])) if others else None,
            )
        )
    return rows


def worst_ratios(costs: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """How much dearer each member is than the best one, on the target where it fares worst.

    The member of the least ratio is the one to ship if one file must do for all targets.

    Args:
        costs: By target what each member is expected to cost there, by id, above 0; infinite where it is refused. A
            target that refuses all members is left out.

    Returns:
        By id, at least 1.
    """
    best = {target: min(of.values()) for target, of in costs.items()}
    measured = [target for target in costs if np.isfinite(best[target])]
    ids = next(iter(costs.values()), {})
    return {id_: max((costs[target][id_] / best[target] for target in measured), default=1.0) for id_ in ids}
