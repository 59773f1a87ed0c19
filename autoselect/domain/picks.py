"""The named picks of a front: the members that most people come for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

DEFAULT_DROP_SHARE = 0.01
"""Where no ``max_drop`` is set, a pick may lose this share of the float model's score."""

SIZE_TOLERANCE = 0.05
"""Files that differ by less than this share of the float file count as equally small: the parameters of integer
tensors take a few bytes that hybrid ops save, and no one buys float ops for those."""

PICK_NAMES = ("accurate", "balanced", "compact", "integer")


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontMember:
    """What the picks look at.

    Attributes:
        id: The member's id.
        drop: Loss of the metric against the float model, in its units; negative where it is better.
        noise: Standard error of that loss, from samples paired with float; 0 where unknown.
        fidelity: How close the outputs are to the float model's, more is closer; the same for all where unknown.
        size_bytes: Size of the file.
        penalty: Fragmentation penalty, 0 for an all-integer model.
    """

    id: str
    drop: float
    noise: float
    fidelity: float
    size_bytes: float
    penalty: float


def named_picks(
    front: Sequence[FrontMember],
    *,
    allowed_drop: float,
    float_size_bytes: float,
    float_penalty: float,
    costs: np.ndarray | None = None,
) -> Mapping[str, str]:
    """Choose the picks; one member may be several of them.

    * ``accurate``: of the members whose drop cannot be told from the smallest (within one standard error, and a
      gain over float counts as no drop), the one whose outputs are closest to float's: the best of many noisy
      scores is luck, closeness is not. Ties go to the smaller drop, the lower penalty, the smaller file.
    * ``balanced``: the knee, nearest to the ideal of no drop, no penalty and the front's smallest file, where the
      drop is measured against the worst of the front (at least ``allowed_drop``), size and penalty against
      the float model's. A drop within its own standard error counts as none, so that noise never buys float ops.
    * ``compact``: the smallest file within the allowed drop; of files about as small (``SIZE_TOLERANCE``), the one
      with the lowest penalty.
    * ``integer``: the lowest penalty within the allowed drop.

    Where nothing is within the allowed drop, ``compact`` and ``integer`` are the member that comes closest.

    Args:
        front: The members.
        allowed_drop: In the metric's units.
        float_size_bytes: Size of the float model.
        float_penalty: Penalty of the float model.
        costs: What the knee weighs instead of size and penalty, shape (n_members, n_costs), 0 for the least of the
            front and about 1 for as bad as can be.

    Returns:
        Member id by pick name; empty for an empty front.
    """
    if not front:
        return {}
    scale = np.array([allowed_drop, float_size_bytes, float_penalty])
    drops = np.array([m.drop for m in front])
    within = [m for m in front if m.drop <= allowed_drop] or [front[int(np.argmin(drops))]]
    limit = min(m.size_bytes for m in within) + SIZE_TOLERANCE * float_size_bytes
    small = [m for m in within if m.size_bytes <= limit]
    return {
        "accurate": min(_as_good_as_best(front), key=_by_closeness).id,
        "balanced": front[_knee(front, scale, costs)].id,
        "compact": min(small, key=lambda m: (m.penalty, m.size_bytes, m.drop, m.id)).id,
        "integer": min(within, key=lambda m: (m.penalty, m.drop, m.size_bytes, m.id)).id,
    }


def _as_good_as_best(front: Sequence[FrontMember]) -> list[FrontMember]:
    best = max(min(m.drop for m in front), 0.0)
    return [m for m in front if m.drop <= best + m.noise]


def _by_closeness(member: FrontMember) -> tuple[float, float, float, float, str]:
    return (-member.fidelity, member.drop, member.penalty, member.size_bytes, member.id)


def _knee(front: Sequence[FrontMember], scale: np.ndarray, costs: np.ndarray | None) -> int:
    sure_drops = np.array([max(m.drop, 0.0) if m.drop > m.noise else 0.0 for m in front])
    if costs is not None:
        unit = max(float(scale[0]), float(sure_drops.max()))
        return int(np.argmin(np.linalg.norm(np.column_stack([sure_drops / (unit or 1.0), costs]), axis=1)))
    sizes = np.array([m.size_bytes for m in front])
    table = np.column_stack([sure_drops, sizes - sizes.min(), [m.penalty for m in front]])
    units = np.maximum(scale, np.array([sure_drops.max(), 0.0, 0.0]))
    return int(np.argmin(np.linalg.norm(table / np.where(units > 0, units, 1.0), axis=1)))
