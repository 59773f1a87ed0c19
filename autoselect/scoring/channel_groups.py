"""Groups the channels of an output whose values mean different things, such as boxes and scores; knows no metric."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

_FEWEST_VALUES = 16
"""Fewest values of a channel whose largest says something: one that is near 0 by chance would be a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelGroup:
    """Channels of like range.

    Attributes:
        axis: Of the channels, in one sample's output, batch axis included.
        channels: Their numbers, ascending.
        low: Their smallest value.
        high: Their largest.
    """

    axis: int
    channels: tuple[int, ...]
    low: float
    high: float

    def part(self, values: np.ndarray) -> np.ndarray:
        """The group's values of an output of one sample."""
        return np.take(values, self.channels, axis=self.axis)

    def __str__(self) -> str:
        """Such as ``channels 4 to 83, whose values go from 0.01 to 0.97``."""
        runs = [f"{a} to {b}" if b > a else f"{a}" for a, b in _runs(self.channels)]
        shown = ", ".join(runs[:3]) + (" and others" if len(runs) > 3 else "")
        noun = "channel" if len(self.channels) == 1 else "channels"
        return f"{noun} {shown}, whose values go from {self.low:.2g} to {self.high:.3g}"


def channel_groups(values: np.ndarray) -> tuple[ChannelGroup, ...]:
    """Group the channels of an output by their range.

    The axis is the one along which the largest gap between channels is. Values from 0 to 1 are shares, of one
    meaning: a class that no sample shows is no group of its own. Channels that are always 0 are in no group.

    Args:
        values: The float model's outputs, shape (n_samples, 1, ...), batch axis included.

    Returns:
        The group of the largest values first; empty for an output of one group, or without evidence.
    """
    if not values.size or not np.isfinite(values).all():
        return ()
    groupings = [_along(values, axis) for axis in range(1, values.ndim)]
    _, best = max(groupings, key=lambda pair: pair[0], default=(0.0, ()))
    return best


def fewest_samples(output: np.ndarray) -> int:
    """How many samples it takes to group the channels of an output of this shape, whichever axis they are along."""
    return -(-_FEWEST_VALUES * max(output.shape, default=1) // max(output.size, 1))


def some_samples(count: int, bytes_each: int) -> slice:
    """Which of so many samples channels are grouped by: spread over all, about 64, and fewer of large outputs."""
    most = min(max((1 << 25) // max(bytes_each, 1), 1), 64)
    return slice(None, None, max(math.ceil(count / most), 1))


def short_of_steps(groups: Sequence[ChannelGroup]) -> list[tuple[ChannelGroup, float]]:
    """Groups whose range is but a few steps of the output's 8-bit scale, and how many."""
    if not groups:
        return []
    step = (max(0.0, *(g.high for g in groups)) - min(0.0, *(g.low for g in groups))) / 255.0
    steps = [(group, (max(group.high, 0.0) - min(group.low, 0.0)) / step) for group in groups]
    # A group whose range is fewer integer steps of its output holds next to nothing.
    return [pair for pair in steps if pair[1] < 4.0]


def _along(values: np.ndarray, axis: int) -> tuple[float, tuple[ChannelGroup, ...]]:
    """The largest gap between neighbours by size, as a factor, and the groups of this axis."""
    count = values.shape[axis]
    if count < 2 or values.size // count < _FEWEST_VALUES:
        return 0.0, ()
    others = tuple(i for i in range(values.ndim) if i != axis)
    lows, highs = values.min(axis=others).astype(np.float64), values.max(axis=others).astype(np.float64)
    sizes = np.maximum(np.abs(lows), np.abs(highs))
    are_shares = (lows >= 0.0) & (highs <= 1.0)
    if are_shares.any():
        sizes = np.where(are_shares & (sizes > 0.0), sizes[are_shares].max(), sizes)
    order = np.argsort(-sizes, kind="stable")
    order = order[sizes[order] > 0.0]
    if len(order) < 2:
        return 0.0, ()
    gaps = sizes[order][:-1] / sizes[order][1:]
    # Channels are of two groups if the largest value of one is 16 times that of the other: 4 of 8 bits.
    ends = np.flatnonzero(gaps >= 16.0) + 1
    if not len(ends):
        return 0.0, ()
    parts = [np.sort(part) for part in np.split(order, ends)]
    groups = tuple(
        ChannelGroup(
            axis=axis - 1, channels=tuple(part.tolist()), low=float(lows[part].min()), high=float(highs[part].max())
        )
        for part in parts
    )
    return float(gaps.max()), groups


def power_shares(ours: np.ndarray, theirs: np.ndarray, groups: Sequence[ChannelGroup]) -> tuple[float, float]:
    """Signal and noise of one sample's output as a whole, or of the group where the noise is the larger share.

    Args:
        ours: The candidate's output, float64.
        theirs: The float model's.
        groups: See :func:`channel_groups`. A group that is all 0 in this sample has no share.

    Returns:
        Sums of squares.
    """
    whole = powers(ours, theirs)
    parts = [powers(group.part(ours), group.part(theirs)) for group in groups]
    return max([whole, *(pair for pair in parts if 0.0 < pair[0] < math.inf)], key=_share)


def powers(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float]:
    """Sums of squares of the float output and of what another differs by."""
    return float(np.sum(theirs**2)), float(np.sum((theirs - ours) ** 2))


def _share(pair: tuple[float, float]) -> float:
    signal, noise = pair
    return math.inf if not math.isfinite(noise) or (signal == 0.0 and noise) else noise / signal if noise else 0.0


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    start = before = numbers[0]
    for number in numbers[1:]:
        if number != before + 1:
            yield start, before
            start = number
        before = number
    yield start, before
