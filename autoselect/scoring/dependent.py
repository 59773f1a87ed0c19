"""Samples that depend on each other, such as those of one speaker: what each group of them adds to a mean.

Groups, not samples, are what is independent: another speaker may be hard for a model in all recordings at once. The
mean over all samples is a ratio, the sum of the groups' totals by the sum of their sizes, and each group counts with
its pseudo-value of the jackknife (Cochran, *Sampling Techniques*, 1977, chapters 6 and 9A).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Groups = Sequence[str] | np.ndarray
"""The group of each sample, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grouping:
    """Which samples belong together.

    Attributes:
        places: The number of each sample's group, from 0 on, shape (n_samples,), int64.
        sizes: How many samples each group has, shape (n_groups,), int64.
        order: The numbers of all samples, group after group, shape (n_samples,), int64.
    """

    places: np.ndarray
    sizes: np.ndarray
    order: np.ndarray

    @property
    def is_each_alone(self) -> bool:
        """Whether each sample is a group of its own, so that all are independent."""
        return len(self.sizes) == len(self.places)

    @property
    def shares(self) -> np.ndarray:
        """Size of each group by the mean size of the others, shape (n_groups,)."""
        others: np.ndarray = self.sizes.sum() - self.sizes
        return np.asarray(self.sizes * (len(self.sizes) - 1) / others)

    @property
    def evenness(self) -> float:
        """How much the groups tell, as a share of what as many groups of one size tell: Kish's effective sample size.

        Kish, *Survey Sampling*, 1965, section 11.7.
        """
        return float(self.shares.mean() ** 2 / (self.shares**2).mean())

    def parts(self, values: np.ndarray) -> np.ndarray:
        """What each group adds to the mean of its samples' values.

        Args:
            values: Shape (n_samples,), float64.

        Returns:
            Shape (n_groups,); their mean is that of the values.
        """
        mean = float(values.mean())
        beyond: np.ndarray = (self.means(values) - mean) * self.shares
        return mean + beyond - float(beyond.mean())

    def means(self, values: np.ndarray) -> np.ndarray:
        """The mean of each group's values.

        Args:
            values: Shape (n_samples,), float64.

        Returns:
            Shape (n_groups,).
        """
        return np.asarray(np.bincount(self.places, values, minlength=len(self.sizes)) / self.sizes)

    def any_of(self, flags: np.ndarray) -> np.ndarray:
        """Which groups have a sample that is flagged, shape (n_groups,), bool."""
        return np.bincount(self.places[flags], minlength=len(self.sizes)) > 0

    def bundled(self, most: int, rng: np.random.Generator) -> list[np.ndarray]:
        """The numbers of the samples of each group; groups are put together at random where there are too many.

        Args:
            most: At least one.
            rng: Source of chance.
        """
        order = rng.permutation(len(self.sizes))
        members = np.split(self.order, np.cumsum(self.sizes)[:-1])
        bundles = np.array_split(order, min(len(order), most))
        return [np.concatenate([members[group] for group in bundle]) for bundle in bundles]

    def drawn(self, rng: np.random.Generator) -> np.ndarray:
        """The numbers of the samples of as many groups, drawn with replacement."""
        chosen = rng.integers(len(self.sizes), size=len(self.sizes))
        sizes = self.sizes[chosen]
        starts = (np.cumsum(self.sizes) - self.sizes)[chosen] - (np.cumsum(sizes) - sizes)
        return np.asarray(self.order[np.repeat(starts, sizes) + np.arange(sizes.sum())])


def grouping(sample_count: int, groups: Groups | None) -> Grouping:
    """The groups of samples; each sample is one of its own where None are known.

    Raises:
        ValueError: If there are not as many labels as samples.
    """
    if groups is None:
        each = np.arange(sample_count)
        return Grouping(places=each, sizes=np.ones_like(each), order=each)
    if len(groups) != sample_count:
        raise ValueError(f"expected one group for each of {sample_count} samples, got {len(groups)}; label all of them")
    _, places, sizes = np.unique(np.asarray(groups), return_inverse=True, return_counts=True)
    places = places.ravel()
    return Grouping(places=places, sizes=sizes, order=np.argsort(places, kind="stable"))
