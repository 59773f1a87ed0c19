"""Which samples serve which purpose, by their content; knows digests, not samples."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from autoselect.domain.words import counted
from autoselect.errors import DataError, UsageError


def split_by_content(
    digests: Sequence[str], heldout_fraction: float, seed: int, groups: Sequence[str] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Split samples into a search part and a held-out part that share no content and no group.

    Which side a sample falls on depends on its content (or its group) and the seed, hardly on the other samples, and
    not on their order.

    Args:
        digests: One content digest per sample.
        heldout_fraction: Wanted share of held-out samples, above 0 and below 1. Samples of equal content or of one
            group stay together, so the share is met only as closely as they allow.
        seed: Chooses the split.
        groups: One label per sample; None where each sample stands by itself.

    Returns:
        Sorted int64 indices of the search part and of the held-out part; each holds at least one.

    Raises:
        UsageError: If the fraction is not between 0 and 1.
        DataError: If there are not two samples of different content, or not two groups.
    """
    if not 0.0 < heldout_fraction < 1.0:
        raise UsageError(
            f"expected a held-out fraction above 0 and below 1, got {heldout_fraction}. Give for example 0.5."
        )
    bundles = _bundles(digests, digests if groups is None else groups)
    if len(bundles) < 2:
        raise DataError(_too_few(digests, groups))
    labels = sorted(bundles, key=lambda label: hashlib.blake2b(f"{seed}:{label}".encode(), digest_size=16).digest())
    ranked = [bundles[label] for label in labels]
    wanted = max(1, round(heldout_fraction * len(digests)))
    chosen = _nearest([len(bundle) for bundle in ranked], wanted)
    heldout = np.array(sorted(i for number in chosen for i in ranked[number]), dtype=np.int64)
    return np.setdiff1d(np.arange(len(digests), dtype=np.int64), heldout), heldout


def _bundles(digests: Sequence[str], labels: Sequence[str]) -> dict[str, list[int]]:
    """The samples that stay together, by the least of their labels: groups that share a content are one."""
    joined: dict[str, str] = {}

    def least(label: str) -> str:
        while joined.setdefault(label, label) != label:
            label = joined[label]
        return label

    seen: dict[str, str] = {}
    for digest, label in zip(digests, labels, strict=True):
        low, high = sorted([least(label), least(seen.setdefault(digest, label))])
        joined[high] = low
    bundles: dict[str, list[int]] = {}
    for index, label in enumerate(labels):
        bundles.setdefault(least(label), []).append(index)
    return bundles


def _too_few(digests: Sequence[str], groups: Sequence[str] | None) -> str:
    count = len(set(digests if groups is None else groups))
    if groups is None:
        wanted, got = "different samples", counted(count, "content")
    else:
        wanted = "groups of different samples"
        got = counted(count, "group") + (" that share samples of equal content" if count > 1 else "")
    return (
        f"expected at least two {wanted} to split, got {counted(len(digests), 'sample')} of {got}. "
        "Bring more samples, or held-out data of their own."
    )


def _nearest(sizes: Sequence[int], wanted: int) -> list[int]:
    """Choose some bundles, not all, whose sizes add up as nearly as can be to what is wanted; early ones first."""
    reached, last = 1, {0: -1}  # Bit n of `reached`: some bundles so far hold n samples, `last` of them added here.
    for number, size in enumerate(sizes):
        new = reached << size & ~reached
        reached |= new
        while new:
            lowest = new & -new
            last[lowest.bit_length() - 1] = number
            new ^= lowest
        if wanted in last:
            break
    left = min(set(last) - {0, sum(sizes)}, key=lambda count: (abs(count - wanted), count))
    chosen = []
    while left:
        chosen.append(last[left])
        left -= sizes[last[left]]
    return chosen


def refuse_overlap(parts: Mapping[str, Sequence[str]], *, allow: bool) -> list[str]:
    """Refuse parts that share samples, since a score on seen samples promises too much.

    Returns:
        One sentence per pair of overlapping parts, in the order of the parts; empty without overlap.

    Raises:
        DataError: If two parts overlap and this is not allowed.
    """
    findings = [
        sentence
        for first, second in combinations(parts, 2)
        for sentence in _shared(first, parts[first], second, parts[second])
    ]
    if findings and not allow:
        raise DataError(
            f"expected {', '.join(parts)} samples to differ, but {' '.join(findings)} "
            "Remove the duplicates from one side, or accept them knowingly with --allow-overlap (allow_overlap=True)."
        )
    return findings


def _shared(first: str, first_digests: Sequence[str], second: str, second_digests: Sequence[str]) -> list[str]:
    numbers = {digest: number for number, digest in reversed(list(enumerate(first_digests)))}
    twins = [(number, numbers[digest]) for number, digest in enumerate(second_digests) if digest in numbers]
    if not twins:
        return []
    shown = ", ".join(f"{number} (= {first} sample {twin})" for number, twin in twins[:5])
    more = ", …" if len(twins) > 5 else ""
    return [
        f"{len(twins)} of {len(second_digests)} {second} samples are also {first} samples: "
        f"{second} sample {shown}{more}, counted from 0."
    ]
