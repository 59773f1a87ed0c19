"""Which samples serve which purpose, by their content; knows digests, not samples."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from autoselect.errors import DataError, UsageError

_SHOWN = 5


def split_by_content(digests: Sequence[str], heldout_fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Split samples into a search part and a held-out part that share no content.

    Which side a sample falls on depends on its content and the seed, hardly on the other samples, and
    not on their order.

    Args:
        digests: One content digest per sample.
        heldout_fraction: Wanted share of held-out samples, above 0 and below 1. Samples of equal content
            stay together, so the share is met only as closely as they allow.
        seed: Chooses the split.

    Returns:
        Sorted int64 indices of the search part and of the held-out part; each holds at least one.

    Raises:
        UsageError: If the fraction is not between 0 and 1.
        DataError: If there are not two samples of different content.
    """
    if not 0.0 < heldout_fraction < 1.0:
        raise UsageError(
            f"expected a held-out fraction above 0 and below 1, got {heldout_fraction}. Give for example 0.5."
        )
    groups = _groups(digests)
    if len(groups) < 2:
        raise DataError(
            f"expected at least two different samples to split, got {len(digests)} sample(s) of "
            f"{len(groups)} content(s). Bring more samples, or held-out data of their own."
        )
    ranked = sorted(groups, key=lambda digest: _rank(digest, seed))
    wanted = max(1, round(heldout_fraction * len(digests)))
    chosen = _chosen(ranked, {digest: len(indices) for digest, indices in groups.items()}, wanted)
    heldout = np.array(sorted(i for digest in chosen for i in groups[digest]), dtype=np.int64)
    return np.setdiff1d(np.arange(len(digests), dtype=np.int64), heldout), heldout


def _groups(digests: Sequence[str]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for index, digest in enumerate(digests):
        groups.setdefault(digest, []).append(index)
    return groups


def _rank(digest: str, seed: int) -> bytes:
    return hashlib.blake2b(f"{seed}:{digest}".encode(), digest_size=16).digest()


def _chosen(ranked: Sequence[str], sizes: Mapping[str, int], wanted: int) -> list[str]:
    """Fill up to the wanted number in ranked order; leave at least one group over."""
    chosen: list[str] = []
    total = 0
    for digest in ranked:
        if total + sizes[digest] <= wanted and len(chosen) < len(ranked) - 1:
            chosen.append(digest)
            total += sizes[digest]
    return chosen or [min(ranked, key=lambda digest: sizes[digest])]


def refuse_overlap(parts: Mapping[str, Sequence[str]], *, allow: bool) -> list[str]:
    """Refuse parts that share samples, since a score on seen samples promises too much.

    Args:
        parts: Name of each part -> the content digests of its samples.
        allow: Whether to return the findings as sentences instead of raising.

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
            "Remove the duplicates from one side, or allow the overlap knowingly."
        )
    return findings


def _shared(first: str, first_digests: Sequence[str], second: str, second_digests: Sequence[str]) -> list[str]:
    known = {digest: number for number, digest in reversed(list(enumerate(first_digests)))}
    twins = [(number, known[digest]) for number, digest in enumerate(second_digests) if digest in known]
    if not twins:
        return []
    shown = ", ".join(f"{number} (= {first} sample {twin})" for number, twin in twins[:_SHOWN])
    more = ", …" if len(twins) > _SHOWN else ""
    return [
        f"{len(twins)} of {len(second_digests)} {second} samples are also {first} samples: "
        f"{second} sample {shown}{more}, counted from 0."
    ]
