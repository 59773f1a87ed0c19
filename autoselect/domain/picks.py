"""The named picks of a front: the members that most people come for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from autoselect.domain.rule import Rule, Standing

DEFAULT_DROP_SHARE = 0.01
"""A pick may lose this share of the float model's score if no ``max_drop`` is set."""

DEFAULT_DROPS: Mapping[str, float] = {"sqnr_db": 180.0, "kl_divergence": 0.01}
"""The drop that a pick may have by metrics of which float has a perfect value: an error of a hundredth of the outputs'
power (20 of 200 dB); nats."""

SURE = 0.05
"""``compact`` breaks the limit no likelier than this, or than the recommended member."""

PICK_NAMES = ("recommended", "accurate", "compact", "integer")


def default_drop(metric: str, float_score: float) -> float:
    """The drop that a pick may have where no limit is set, in the metric's units."""
    return DEFAULT_DROPS.get(metric, DEFAULT_DROP_SHARE * abs(float_score))


def named_picks(members: Sequence[Standing], rule: Rule, contradicted: Collection[str] = ()) -> Mapping[str, str]:
    """Choose the picks; one member may be several of them.

    * ``recommended``: see :class:`autoselect.domain.rule.Rule`.
    * ``accurate``: the least bound on the drop, where a gain counts as none; then the closest to float. Members whose
      score does not count (:meth:`autoselect.domain.rule.Rule.is_far`) come last.
    * ``compact``: the smallest file of those that are as likely to keep the limit as the recommended one.
    * ``integer``: of those that leave the fewest ops off the accelerator the one that is expected to cost least.

    Args:
        members: The front's.
        rule: Of the run.
        contradicted: Ids of members that held-out samples contradict: only ``integer`` may be one of these, and all may
            where no other member is left.

    Returns:
        Member id by pick name; empty without members.
    """
    if not members:
        return {}
    sound = [m for m in members if m.id not in contradicted] or members
    chosen, fewest = rule.recommended(sound), min(m.left_ops for m in members)
    likely = max(SURE, rule.chance_to_break(chosen))
    return {
        "recommended": chosen.id,
        "accurate": min(sound, key=lambda m: (rule.is_far(m), m.risk, -m.fidelity, m.penalty, m.size_bytes, m.id)).id,
        "compact": min(
            (m for m in sound if rule.chance_to_break(m) <= likely),
            key=lambda m: (m.size_bytes, m.penalty, m.risk, m.id),
        ).id,
        "integer": rule.recommended(m for m in members if m.left_ops == fewest).id,
    }
