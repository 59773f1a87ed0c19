"""Whether the order of samples tells of groups: frames of one recording follow each other and look alike."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from autoselect.data.samples import SampleStore
from autoselect.data.windows import checked


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Samples that are nearer to the next one than to another one of the same target, by chance half of them.

    Attributes:
        nearer: How many.
        pairs: Of so many.
    """

    nearer: int
    pairs: int


def alike_neighbours(store: SampleStore) -> Neighbours | None:
    """Compare each sample with the next one, and with one drawn at random that has the next one's target.

    So samples that are sorted by their class are no groups. Near is by the sum of squares over all inputs. Only the
    first samples are looked at, see :func:`autoselect.data.windows.checked`.

    Returns:
        None where more than chance is not certain.
    """
    count = checked(store)
    values = np.stack([_values(store, number) for number in range(count)])
    same: dict[object, list[int]] = defaultdict(list)
    for number in range(count):
        same[_class_of(store.target(number))].append(number)
    rng, nearer, pairs = np.random.default_rng(0), 0, 0
    for number in range(count - 1):
        others = [one for one in same[_class_of(store.target(number + 1))] if abs(one - number) > 1]
        if not others:
            continue
        following, drawn = values[number + 1], values[others[rng.integers(len(others))]]
        near, far = (float(np.sum((values[number] - one) ** 2)) for one in (following, drawn))
        if near != far:
            nearer, pairs = nearer + (near < far), pairs + 1
    # Standard errors from chance: as few false alarms as searches that a person starts in a life.
    is_certain = 2 * nearer - pairs > 5.0 * math.sqrt(pairs)
    return Neighbours(nearer=nearer, pairs=pairs) if is_certain else None


def _values(store: SampleStore, number: int) -> np.ndarray:
    flat = np.concatenate([np.ravel(value).astype(np.float32) for value in store.inputs(number).values()])
    # Most values of a sample that are compared, spread over all of them.
    return flat[:: max(1, -(-len(flat) // 4096))]


def _class_of(target: np.ndarray | None) -> object:
    """A target that others can share; None for all that are more than a whole number."""
    return int(target) if target is not None and target.size == 1 and target.dtype.kind in "biu" else None
