"""The named picks of a front: the members that most people come for.

Each pick is the member with the least of a figure that is its own, among those that keep the allowed drop, by what the
samples can prove. So no pick changes where another member is added or taken away that is no pick itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

DEFAULT_DROP_SHARE = 0.01
"""A pick may lose this share of the float model's score if no ``max_drop`` is set."""

DEFAULT_DROPS: Mapping[str, float] = {"sqnr_db": 180.0, "kl_divergence": 0.01}
"""The same for metrics by which float is perfect: error of a hundredth of the outputs' power (20 of 200 dB); nats."""

KNEE_DROPS = 3.0
"""Unit of the drop for ``balanced``, in allowed drops: a larger loss is no trade any more."""

WORTH = 2.0
"""The float model's penalty is worth so many allowed drops, if no member is sure to keep the allowed drop.

In simulations on three real cases the recommended model then breaks the limit about as often as the one with the
lowest bound, and is seldom float in all but name beside a model that is expected to do. With 1.5 it costs more, with
2.5 it breaks the limit more often (``experiments/evidence``).
"""

EASILY = 0.5
"""If nothing is sure, a model that the accelerator runs as a whole, and that is expected to lose at most this share of
the allowed drop, comes before all others. Some accelerators have nothing beside them that could run float ops.

In the same simulations 44.5 % of what is not proved breaks the limit, 44.2 % with a share of 0, 45.1 % with 0.75 and
46.9 % with 1.
"""

WORTH_OF_INTEGERS = 40.0
"""The same as :data:`WORTH` among those. 16 bits everywhere, a tenth of float's penalty, are worth four allowed drops.

Otherwise one more lucky sample would buy 16 bits. In simulations on seven models with 16-bit candidates the penalty is
a twelfth to two thirds lower than with 2, and at most four in a hundred more break the limit. More lowers the penalty
hardly, and the least penalty, whatever the bounds, breaks the limit in up to 18 in a hundred more
(``experiments/evidence``).
"""

PICK_NAMES = ("recommended", "accurate", "balanced", "compact", "integer")


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontMember:
    """What the picks look at.

    Attributes:
        id: The member's id.
        drop: Loss of the metric against the float model, in its units, as expected on other samples; negative where it
            is better.
        bound: What that loss is at most, with a confidence of 95 %; equal to the drop where nothing is known of it.
        fidelity: How close the outputs are to the float model's, more is closer; the same for all where unknown.
        size_bytes: Size of the file.
        penalty: Fragmentation penalty, 0 for an all-integer model of 8 bits.
        left_ops: Ops that the accelerator does not run: where no compiler decides, those that compute in float.
        costs: What the search's objectives cost beside the drop, each in a unit of its own: about 1 for as bad as can
            be.
    """

    id: str
    drop: float
    bound: float
    fidelity: float
    size_bytes: float
    penalty: float
    left_ops: int = 0
    costs: tuple[float, ...] = ()


def default_drop(metric: str, float_score: float) -> float:
    """The drop that a pick may have where no limit is set, in the metric's units."""
    return DEFAULT_DROPS.get(metric, DEFAULT_DROP_SHARE * abs(float_score))


def recommended(members: Sequence[FrontMember], allowed_drop: float, float_penalty: float) -> FrontMember:
    """The member with the least penalty that keeps the allowed drop for sure; of equals the closest to float.

    If there is none, the best trade of what a member may lose and its penalty, see :data:`WORTH`. It is chosen among
    those that leave no op off the accelerator and are expected to keep the allowed drop easily, see :data:`EASILY` and
    :data:`WORTH_OF_INTEGERS`; else among those that are expected to keep it; else among all.

    Args:
        members: At least one.
        allowed_drop: In the metric's units.
        float_penalty: Penalty of the float model.
    """
    sure = [m for m in members if m.bound <= allowed_drop]
    return min(sure, key=_price) if sure else _best_trade(members, allowed_drop, float_penalty)


def _price(member: FrontMember) -> tuple[object, ...]:
    return member.penalty, -member.fidelity, member.size_bytes, member.id


def _best_trade(members: Sequence[FrontMember], allowed_drop: float, float_penalty: float) -> FrontMember:
    hopeful = [m for m in members if m.drop <= allowed_drop] or members
    easily = [m for m in hopeful if not m.left_ops and m.drop <= EASILY * allowed_drop]
    worth = WORTH_OF_INTEGERS if easily else WORTH
    return min(easily or hopeful, key=lambda m: (trade(m, allowed_drop, float_penalty, worth), *_price(m)))


def trade(member: FrontMember, allowed_drop: float, float_penalty: float, worth: float = WORTH) -> float:
    """What a member may lose and its penalty together, in the metric's units, see :data:`WORTH`; less is better."""
    return member.bound + worth * allowed_drop * member.penalty / (float_penalty or 1.0)


def named_picks(
    members: Sequence[FrontMember], *, allowed_drop: float, float_size_bytes: float, float_penalty: float
) -> Mapping[str, str]:
    """Choose the picks; one member may be several of them.

    * ``recommended``: see :func:`recommended`.
    * ``accurate``: the least bound on the drop, where a gain counts as none; then the closest to float.
    * ``balanced``: of those that keep the allowed drop for sure the nearest to no drop, no bytes and no penalty, in
      units of three times the allowed drop and of the float model's size and penalty. A gain counts as no drop. Where
      none keeps it for sure, of those that are as sure as the recommended one.
    * ``compact``: the smallest file of those.
    * ``integer``: of those that leave the fewest ops off the accelerator the recommended one; where none of them keeps
      the drop for sure, the one with the least bound on it.

    Args:
        members: The front's.
        allowed_drop: In the metric's units.
        float_size_bytes: Size of the float model.
        float_penalty: Penalty of the float model.

    Returns:
        Member id by pick name; empty without members.
    """
    if not members:
        return {}
    chosen = recommended(members, allowed_drop, float_penalty)
    sure = [m for m in members if m.bound <= max(allowed_drop, chosen.bound)]

    def distance(member: FrontMember) -> float:
        usual = (member.size_bytes / float_size_bytes, member.penalty / (float_penalty or 1.0))
        return math.hypot(max(member.drop, 0.0) / (KNEE_DROPS * allowed_drop or 1.0), *(member.costs or usual))

    def least_lost(member: FrontMember) -> tuple[object, ...]:
        return max(member.bound, 0.0), -member.fidelity, member.penalty, member.size_bytes, member.id

    fewest = min(m.left_ops for m in members)
    integers = [m for m in members if m.left_ops == fewest]
    proven = [m for m in integers if m.bound <= allowed_drop]
    return {
        "recommended": chosen.id,
        "accurate": min(members, key=least_lost).id,
        "balanced": min(sure, key=lambda m: (distance(m), m.id)).id,
        "compact": min(sure, key=lambda m: (m.size_bytes, m.penalty, m.bound, m.id)).id,
        "integer": (min(proven, key=_price) if proven else min(integers, key=least_lost)).id,
    }
