"""How much more candidates may lose than any that was scored; knows numbers, no models.

Trials tell what is usual. A candidate whose closeness few of them share may be ruined in a way that none of them shows:
equally close outputs may be muted in one candidate and noise in the next.
"""

from __future__ import annotations

import numpy as np


class Unseen:
    """The chance that a candidate loses more than is usual for its closeness, and how much more.

    Like candidates fail alike, so each group of them counts once. It is taken that none of the m groups at least as far
    from float lost more than is usual: the next group does with a chance of 1 / (m + 2), by Laplace's rule of
    succession. The excess is exponential if tails are light (Pickands, "Statistical Inference Using Extreme Order
    Statistics", Annals of Statistics 3, 1975, with a shape of 0). Its mean is the mean loss of the m groups, a gain
    being 0; if m is 0, the loss of the furthest group.
    """

    def __init__(self, groups: np.ndarray, log_divergences: np.ndarray, losses: np.ndarray, most: float) -> None:
        """Keep the candidate of each group that is furthest from float.

        Args:
            groups: Number of each scored candidate's group, shape (n,), n at least 1.
            log_divergences: Natural log of each candidate's error power over signal power, shape (n,), finite.
            losses: What each candidate lost, in the metric's units, shape (n,), finite.
            most: The largest loss that the metric allows, such as float's accuracy; infinite if there is none.
        """
        order = np.argsort(-log_divergences, kind="stable")
        furthest = order[np.unique(groups[order], return_index=True)[1]]
        furthest = furthest[np.argsort(-log_divergences[furthest], kind="stable")]
        self._reached, lost = log_divergences[furthest], np.maximum(losses[furthest], 0.0)
        self._means = np.append(lost[0], np.cumsum(lost) / np.arange(1, len(lost) + 1))  # of the first 0, 1, ... groups
        self._most = most

    def chances(self, log_divergences: np.ndarray, usual: np.ndarray, limit: float | np.ndarray) -> np.ndarray:
        """How likely each candidate loses more than both ``usual`` and ``limit``, shape (n,); 0 from ``most`` on.

        Args:
            log_divergences: As they are expected to be, shape (n,).
            usual: Upper end of each candidate's interval without this chance, shape (n,).
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
            usual: Upper end of each candidate's interval without this chance, shape (n,).
            share: A chance, above 0.
        """
        chance, scale = self._tail(log_divergences)
        return np.asarray(
            np.maximum(np.minimum(usual + scale * np.log(np.maximum(chance / share, 1.0)), self._most), usual)
        )

    def _tail(self, log_divergences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The chance that each candidate loses more than usual, and the mean of what comes on top, each (n,)."""
        count = np.searchsorted(-self._reached, -log_divergences, side="right")
        return 1.0 / (count + 2.0), self._means[count]
