"""How much more candidates may lose than any that was scored; knows numbers, no models.

Trials tell what is usual. A candidate whose closeness few of them share may be ruined in a way that none of them shows:
equally close outputs may be muted in one candidate and noise in the next.
"""

from __future__ import annotations

import numpy as np


class Unseen:
    """The chance that a candidate loses more than its usual interval says, and how much more.

    Candidates that are alike say the same, so groups of them count, not candidates. If none of m groups that are as far
    from float lost more than is usual, the next one does with a chance of 1 / (m + 2), by Laplace's rule of succession.
    By how much a loss exceeds a high threshold is exponential if tails are light (Pickands, "Statistical Inference
    Using Extreme Order Statistics", Annals of Statistics 3, 1975, with a shape of 0). Its scale is the mean loss of
    these groups.
    """

    def __init__(self, groups: np.ndarray, log_divergences: np.ndarray, losses: np.ndarray, most: float) -> None:
        """Take each group by its candidate that is furthest from float.

        Args:
            groups: Number of each scored candidate's group, shape (n,), n at least 1.
            log_divergences: Of each, shape (n,), finite.
            losses: Of each, shape (n,), finite.
            most: The largest loss that the metric allows, such as float's accuracy; infinite if there is none.
        """
        order = np.argsort(-log_divergences, kind="stable")
        furthest = order[np.unique(groups[order], return_index=True)[1]]
        furthest = furthest[np.argsort(-log_divergences[furthest], kind="stable")]
        self._reached, lost = log_divergences[furthest], np.maximum(losses[furthest], 0.0)
        self._means = np.append(lost[0], np.cumsum(lost) / np.arange(1, len(lost) + 1))  # of the first 0, 1, ... groups
        self._most = most

    def chances(self, log_divergences: np.ndarray, usual: np.ndarray, limit: float | np.ndarray) -> np.ndarray:
        """How likely candidates lose more than is usual, and more than a limit, shape (n,).

        Args:
            log_divergences: As they are expected to be, shape (n,).
            usual: Upper ends of what they usually lose, shape (n,).
            limit: In the unit of the losses, one for all or shape (n,).
        """
        chance, scale = self._tail(log_divergences)
        # The scale is 0 if no candidate lost anything.
        beyond = np.exp(-np.maximum(limit - usual, 0.0) / np.maximum(scale, 1e-12))
        return np.asarray(np.where(limit < self._most, chance * beyond, 0.0))

    def ends(self, log_divergences: np.ndarray, usual: np.ndarray, share: float) -> np.ndarray:
        """The losses that candidates exceed with a chance of at most ``share``, never below ``usual``, shape (n,).

        Args:
            log_divergences: As they are expected to be, shape (n,).
            usual: Upper ends of what they usually lose, shape (n,).
            share: Above 0.
        """
        chance, scale = self._tail(log_divergences)
        return np.asarray(
            np.maximum(np.minimum(usual + scale * np.log(np.maximum(chance / share, 1.0)), self._most), usual)
        )

    def _tail(self, log_divergences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The chance that each candidate loses more than usual, and the mean of what comes on top, each (n,)."""
        count = np.searchsorted(-self._reached, -log_divergences, side="right")
        return 1.0 / (count + 2.0), self._means[count]
