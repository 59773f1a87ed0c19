"""The named picks of a front: the members that most people come for.

Each pick is the member with the least of a figure that is its own, among those that keep the allowed drop, by what the
samples can prove. So no pick changes where another member is added or taken away that is no pick itself, unless that
one is the unproved choice to which a cheaper pick is equal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

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
        bound: What that loss is at most, with a confidence of 95 %; infinite where nothing is known of it.
        fidelity: How close the outputs are to the float model's, as a signal-to-noise ratio in decibels; the same for
            all where unknown.
        size_bytes: Size of the file.
        penalty: Fragmentation penalty, 0 for an all-integer model of 8 bits.
        left_ops: Ops that the accelerator does not run: where no compiler decides, those that compute in float.
        costs: What the search's objectives cost beside the drop, each in a unit of its own: about 1 for as bad as can
            be.
        is_bounded: Whether the bound is of the member's own samples. A bound that is guessed from other members, or
            infinite, proves nothing.
        noise: Standard error of the drop as it is expected, in the metric's units.
        scored_drop: The loss as it was measured; NaN where that is unknown.
    """

    id: str
    drop: float
    bound: float
    fidelity: float
    size_bytes: float
    penalty: float
    left_ops: int = 0
    costs: tuple[float, ...] = ()
    is_bounded: bool = True
    noise: float = 0.0
    scored_drop: float = math.nan

    @property
    def risk(self) -> tuple[bool, float]:
        """What the member may lose, to be compared: the bound; without one the expected loss, which comes after all."""
        is_unknown = math.isinf(self.bound)
        return is_unknown, self.drop if is_unknown else self.bound

    def keeps_for_sure(self, allowed_drop: float) -> bool:
        """Whether its own samples prove that it keeps the drop."""
        return self.is_bounded and self.bound <= allowed_drop


def default_drop(metric: str, float_score: float) -> float:
    """The drop that a pick may have where no limit is set, in the metric's units."""
    return DEFAULT_DROPS.get(metric, DEFAULT_DROP_SHARE * abs(float_score))


def recommended(members: Sequence[FrontMember], allowed_drop: float, float_penalty: float) -> FrontMember:
    """The member with the least penalty that keeps the allowed drop for sure; of equals see :func:`_price`.

    A proof for a member of float's penalty does not count beside a member of :data:`EASILY`: float needs none.

    If nothing is sure, and no member's bound is of its own samples, those count whose guessed bound keeps it. If there
    is none of these, the best trade of what a member may lose and its penalty, see :data:`WORTH`. It is chosen among
    those that leave no op off the accelerator and are expected to keep the allowed drop easily, see :data:`EASILY` and
    :data:`WORTH_OF_INTEGERS`; else among those that are expected to keep it; else among all.

    What is not proved gives way to a cheaper member that scored as well: see :func:`_cheapest_equal`.

    Args:
        members: At least one.
        allowed_drop: In the metric's units.
        float_penalty: Penalty of the float model.
    """
    sure = [m for m in members if m.keeps_for_sure(allowed_drop)]
    if any(_is_easily_kept(m, allowed_drop) for m in members):
        sure = [m for m in sure if m.penalty < (float_penalty or math.inf)]
    if sure:
        return min(sure, key=_price)
    likely = [m for m in members if m.bound <= allowed_drop and not any(other.is_bounded for other in members)]
    chosen = min(likely, key=_price) if likely else _best_trade(members, allowed_drop, float_penalty)
    return _cheapest_equal(members, chosen, allowed_drop, float_penalty)


def _price(member: FrontMember) -> tuple[float, float, float, str]:
    """The penalty; of equals the least product of size and error, so that twice the bytes must halve the error."""
    error = 10.0 ** (-member.fidelity / 20.0)
    return member.penalty, member.size_bytes * error, member.size_bytes, member.id


def _best_trade(members: Sequence[FrontMember], allowed_drop: float, float_penalty: float) -> FrontMember:
    hopeful = [m for m in members if m.drop <= allowed_drop] or members
    easily = [m for m in hopeful if _is_easily_kept(m, allowed_drop)]
    worth = WORTH_OF_INTEGERS if easily else WORTH

    def price(member: FrontMember) -> tuple[object, ...]:
        return member.risk[0], trade(member, allowed_drop, float_penalty, worth), *_price(member)

    return min(easily or hopeful, key=price)


def _is_easily_kept(member: FrontMember, allowed_drop: float) -> bool:
    return not member.left_ops and member.drop <= EASILY * allowed_drop


def _cheapest_equal(
    members: Sequence[FrontMember], chosen: FrontMember, allowed_drop: float, float_penalty: float
) -> FrontMember:
    """The cheapest of a chosen member and those that are as good as far as anyone knows, see :func:`_price`.

    These scored as well, leave no more ops off the accelerator, and are expected to lose more by less than the noise
    of that difference. If both bounds are of samples, the cheaper one's width counts: it must be the better
    trade but for that difference.
    """
    worth = WORTH_OF_INTEGERS if _is_easily_kept(chosen, allowed_drop) else WORTH

    def is_equal(other: FrontMember) -> bool:
        more = max(other.drop - chosen.drop, 0.0)
        if not other.scored_drop <= chosen.scored_drop or more > math.hypot(other.noise, chosen.noise):
            return False
        if not (other.is_bounded and chosen.is_bounded):
            return True
        level = replace(other, bound=other.bound - more)
        return trade(level, allowed_drop, float_penalty, worth) <= trade(chosen, allowed_drop, float_penalty, worth)

    cheaper = [m for m in members if _price(m) < _price(chosen) and m.left_ops <= chosen.left_ops]
    return min([chosen, *filter(is_equal, cheaper)], key=_price)


def trade(member: FrontMember, allowed_drop: float, float_penalty: float, worth: float = WORTH) -> float:
    """What a member may lose and its penalty together, in the metric's units, see :data:`WORTH`; less is better.

    A gain counts as no loss: that of one model over another is luck, or would be float's as well.
    """
    return max(member.risk[1], 0.0) + worth * allowed_drop * member.penalty / (float_penalty or 1.0)


def named_picks(
    members: Sequence[FrontMember], *, allowed_drop: float, float_size_bytes: float, float_penalty: float
) -> Mapping[str, str]:
    """Choose the picks; one member may be several of them.

    * ``recommended``: see :func:`recommended`.
    * ``accurate``: the least bound on the drop, where a gain counts as none; then the closest to float.
    * ``balanced``: of those that keep the allowed drop for sure the nearest to no drop, no bytes and no penalty, in
      units of three times the allowed drop and of the float model's size and penalty. A gain counts as no drop. Where
      none keeps it for sure, of those that are as sure as the recommended one; where no bound is known, of those that
      are expected to keep it.
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
    known = [m for m in members if m.is_bounded or not chosen.is_bounded]
    sure = [m for m in known if m.risk <= max((chosen.risk[0], allowed_drop), chosen.risk)]

    def distance(member: FrontMember) -> float:
        usual = (member.size_bytes / float_size_bytes, member.penalty / (float_penalty or 1.0))
        return math.hypot(max(member.drop, 0.0) / (KNEE_DROPS * allowed_drop or 1.0), *(member.costs or usual))

    def least_lost(member: FrontMember) -> tuple[object, ...]:
        is_unknown, lost = member.risk
        return is_unknown, max(lost, 0.0), -member.fidelity, member.penalty, member.size_bytes, member.id

    fewest = min(m.left_ops for m in members)
    integers = [m for m in members if m.left_ops == fewest]
    proven = [m for m in integers if m in known and m.bound <= allowed_drop]
    return {
        "recommended": chosen.id,
        "accurate": min(members, key=least_lost).id,
        "balanced": min(sure, key=lambda m: (distance(m), m.id)).id,
        "compact": min(sure, key=lambda m: (m.size_bytes, m.penalty, m.risk, m.id)).id,
        "integer": (min(proven, key=_price) if proven else min(integers, key=least_lost)).id,
    }
