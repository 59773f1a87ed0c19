"""Signs that samples come from one recording: windows that overlap, and neighbours that look alike.

It knows no purpose of samples.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from autoselect.data.samples import SampleStore

_CHECKED_BYTES = 32 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What two samples have in common: one ends with what the other begins with.

    Attributes:
        first: Number of the sample in the first store.
        second: Number of the sample in the second store.
        key: The input.
        axis: Along which it was cut, the batch axis counted.
        share: Of the length of that axis.
    """

    first: int
    second: int
    key: str
    axis: int
    share: float


def shared_windows(first: SampleStore, second: SampleStore) -> list[Shared]:
    """Find windows that overlap by a quarter, a half or three quarters of their length, along any axis.

    Only the first samples are looked at, see :func:`checked`, and of each the values that begin at a quarter.

    Returns:
        One of the overlaps for each sample of ``second`` that has any, in their order.
    """
    heads = [_heads(first), _heads(second)]
    overlaps: dict[int, Shared] = {}
    for number, here, there in ((0, first, second), (1, second, first)):
        for i in range(checked(here)):
            for key, axis, shift, block in _tails(here, i):
                j = heads[1 - number].get((key, axis, block))
                if j is not None and _continues(here.inputs(i)[key], there.inputs(j)[key], axis, shift):
                    share = 1 - shift / here.inputs(i)[key].shape[axis]
                    pair = (i, j) if number == 0 else (j, i)
                    overlaps.setdefault(pair[1], Shared(first=pair[0], second=pair[1], key=key, axis=axis, share=share))
    return [overlaps[number] for number in sorted(overlaps)]


def checked(store: SampleStore) -> int:
    """How many samples :func:`shared_windows` looks at: at most 4000, and at most 32 MiB of them, but at least one."""
    size = sum(array.nbytes for array in store.inputs(0).values())
    return min(len(store), 4000, max(1, _CHECKED_BYTES // max(1, size)))


def _heads(store: SampleStore) -> dict[tuple[str, int, int], int]:
    """Which sample begins with a block: by input, axis and hash."""
    return {
        (key, axis, _block(array, axis, 0)): i
        for i in range(checked(store))
        for key, array in store.inputs(i).items()
        for axis, _ in _axes(array)
    }


def _tails(store: SampleStore, number: int) -> Iterator[tuple[str, int, int, int]]:
    """Blocks of a sample that another could begin with: input, axis, where the block begins, and hash."""
    for key, array in store.inputs(number).items():
        for axis, size in _axes(array):
            for shift in sorted({size * k // 4 for k in (1, 2, 3)} | {-(-size * k // 4) for k in (1, 2, 3)}):
                yield key, axis, shift, _block(array, axis, shift)


def _axes(array: np.ndarray) -> list[tuple[int, int]]:
    # Steps of an axis that quarters of a window need.
    return [(axis, size) for axis, size in enumerate(array.shape) if size >= 4]


def _block(array: np.ndarray, axis: int, start: int) -> int:
    """Hash of a quarter of a sample."""
    return hash(_cut(array, axis, start, start + array.shape[axis] // 4).tobytes())


def _continues(array: np.ndarray, other: np.ndarray, axis: int, shift: int) -> bool:
    tail, head = _cut(array, axis, shift, None), _cut(other, axis, 0, array.shape[axis] - shift)
    # Different values in what is shared: silence and borders are equal without being cut from one recording.
    return np.array_equal(tail, head) and np.unique(tail).size >= 8


def _cut(array: np.ndarray, axis: int, start: int, stop: int | None) -> np.ndarray:
    return array[(slice(None),) * axis + (slice(start, stop),)]


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
    first samples are looked at, see :func:`checked`.

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
        others = [other for other in same[_class_of(store.target(number + 1))] if abs(other - number) > 1]
        if not others:
            continue
        following, drawn = values[number + 1], values[others[rng.integers(len(others))]]
        here = values[number].astype(np.float64)  # Squares of float32 may be too large for float32.
        near, far = (float(np.sum((here - neighbour) ** 2)) for neighbour in (following, drawn))
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
    return int(target.item()) if target is not None and target.size == 1 and target.dtype.kind in "biu" else None
