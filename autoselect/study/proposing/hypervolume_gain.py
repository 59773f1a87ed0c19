"""What a candidate of known costs is expected to add to the hypervolume; knows numbers, no models."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.special import ndtr, ndtri

from autoselect.domain.evidence import shrunk
from autoselect.domain.pareto import hypervolume, non_dominated
from autoselect.study.proposing import constants
from autoselect.study.proposing.surrogate import Belief

_QUANTILES = np.array([0.04, 0.15, 0.3, 0.5, 0.7, 0.85, 0.96])


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A monotone function from log divergence to the loss of the metric, with what it leaves over."""

    xs: np.ndarray
    ys: np.ndarray
    grid: np.ndarray
    spreads: np.ndarray

    def losses(self, belief: Belief) -> np.ndarray:
        """Losses at fixed quantiles of the belief, shape (n, n_quantiles)."""
        return np.asarray(np.interp(_points(belief), self.xs, self.ys))

    def expected(self, belief: Belief) -> np.ndarray:
        """Expected losses, shape (n,)."""
        return np.asarray(self.losses(belief) @ _quantile_weights())

    def deviations(self, belief: Belief) -> np.ndarray:
        """How far measured losses lie from those of :meth:`losses`, shape (n, n_quantiles).

        If all outputs are wrong, or all are right, the loss hardly varies; half way it does.
        """
        return np.asarray(np.interp(_points(belief), self.grid, self.spreads))

    def left_over(self, log_divergences: np.ndarray, losses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How far losses lie beyond those that closeness predicts, and how far they usually do, each of shape (n,)."""
        predicted = np.interp(log_divergences, self.xs, self.ys)
        return losses - predicted, np.interp(log_divergences, self.grid, self.spreads)

    def chance_within(
        self,
        belief: Belief,
        limit: np.ndarray | float,
        beyond: np.ndarray | float = 0.0,
        left: np.ndarray | float = 1.0,
    ) -> np.ndarray:
        """How likely a measured loss is at most a limit, shape (n,).

        Args:
            belief: Of n candidates.
            limit: In the unit of the losses: one for all, or of each, shape (n,).
            beyond: What they lose more than closeness says, shape (n,).
            left: Which share of the spread that leaves, shape (n,).
        """
        room = np.reshape(limit, (-1, 1)) - self.losses(belief) - np.reshape(beyond, (-1, 1))
        reached = ndtr(room / (self.deviations(belief) * np.reshape(left, (-1, 1))))
        return np.asarray(reached @ _quantile_weights())

    def loss_quantiles(
        self, belief: Belief, shares: np.ndarray, beyond: np.ndarray | float = 0.0, left: np.ndarray | float = 1.0
    ) -> np.ndarray:
        """The limits that measured losses keep with given chances, shape (n, n_shares): see :meth:`chance_within`.

        Args:
            belief: Of n candidates.
            shares: The chances, shape (n_shares,), above 0 and below 1.
            beyond: What they lose more than closeness says, shape (n,).
            left: Which share of the spread that leaves, shape (n,).
        """
        losses, spreads = self.losses(belief), self.deviations(belief) * np.reshape(left, (-1, 1))
        losses, weights = losses + np.reshape(beyond, (-1, 1)), _quantile_weights()
        widest = 9.0 * spreads.max(axis=1)
        low, high = (np.tile(ends, (len(shares), 1)).T for ends in (losses.min(1) - widest, losses.max(1) + widest))
        # The interval in which a quantile is looked for is halved each time.
        for _ in range(40):
            middle = (low + high) / 2.0
            reached = ndtr((middle[:, :, None] - losses[:, None, :]) / spreads[:, None, :]) @ weights
            low, high = np.where(reached < shares, middle, low), np.where(reached < shares, high, middle)
        return np.asarray((low + high) / 2.0)

    def without_noise(
        self, log_divergences: np.ndarray, losses: np.ndarray, noise: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Measured losses without their noise, as far as closeness tells: a lucky score is luck.

        Args:
            log_divergences: Shape (n,), finite.
            losses: As measured, shape (n,).
            noise: Standard error of each, shape (n,); NaN if unknown: such a loss stays as it is. Infinite where
                what losses of equally close candidates differ by stands for it.

        Returns:
            The losses, and how far measured ones lie around those that closeness predicts, each of shape (n,).
        """
        spread = np.interp(log_divergences, self.grid, self.spreads)
        predicted = np.maximum(np.interp(log_divergences, self.xs, self.ys), 0.0)  # Error is no expected gain.
        return shrunk(losses, predicted, spread, np.where(np.isinf(noise), spread, noise)), spread

    def latent(self, log_divergences: np.ndarray, losses: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """As :meth:`without_noise`; the losses of those whose closeness is NaN stay as they are."""
        return np.where(np.isfinite(log_divergences), self.without_noise(log_divergences, losses, noise)[0], losses)


def fit_link(
    log_divergences: np.ndarray,
    losses: np.ndarray,
    weights: np.ndarray | None = None,
    noise: np.ndarray | None = None,
) -> Link:
    """Fit the loss of candidates as a rising function of their log divergence.

    Args:
        log_divergences: Shape (n,), n at least 1.
        losses: Shape (n,), in the metric's unit; 0 is as good as float.
        weights: Share of the samples behind each loss, shape (n,), above 0; 1 by default.
        noise: Standard error of each loss, shape (n,), NaN where it is unknown. The spread of losses around the
            function is then at least as large: near copies have like errors, and differ by less than others do.
    """
    order = np.argsort(log_divergences, kind="stable")
    x = np.concatenate([[log_divergences.min() - constants.BELOW], log_divergences[order]])
    y = np.concatenate([[min(0.0, float(losses.min()))], losses[order]])
    shares = np.ones(len(losses)) if weights is None else weights[order]
    xs, ys = _rising(x, y, np.concatenate([[1.0], shares]))
    left = y[1:] - np.interp(x[1:], xs, ys)
    grid = np.linspace(x[0], x[-1], 64)
    spreads = np.sqrt(_variances(grid, x[1:], left**2, shares))
    if noise is not None and (measured := np.isfinite(noise[order])).any():
        errors = _variances(grid, x[1:][measured], noise[order][measured] ** 2, shares[measured])
        spreads = np.maximum(spreads, np.sqrt(errors))
    return Link(xs=xs, ys=ys, grid=grid, spreads=np.maximum(spreads, max(1e-3 * float(np.ptp(losses)), 1e-9)))


def _variances(grid: np.ndarray, x: np.ndarray, squares: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The mean of squared residuals around each point of the grid, shape (n_grid,).

    Taken in ever closer surroundings, from half of the grid to ``NEAR``, where what the wider ones say counts as one
    residual: losses of ruined candidates vary far more than those of candidates next to float.
    """
    variances = np.full(len(grid), float(np.average(squares, weights=weights)) if len(squares) > 2 else 0.0)
    reach = max(float(np.ptp(grid)), constants.NEAR)
    for width in np.geomspace(constants.NEAR, reach, 1 + math.ceil(math.log2(reach / constants.NEAR)))[-2::-1]:
        near = weights * np.exp(-0.5 * ((grid[:, None] - x[None, :]) / width) ** 2)
        variances = (near @ squares + variances) / (near.sum(axis=1) + 1.0)
    return variances


def _rising(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Smooth y over x, then fit a function that never falls to the smoothed values, by weighted least squares.

    A value is smoothed by a Gaussian kernel over x with a standard deviation of ``NEAR``. Without that, the function
    has steps at both its ends as large as the noise of the two or three values there. Mammen (1991), "Estimating a
    smooth monotone regression function", Annals of Statistics 19(2), compares smoothing first with smoothing last.

    Args:
        x: Shape (n,).
        y: Shape (n,).
        weights: How many full scores each value of y counts for, shape (n,).

    Returns:
        The distinct values of x, ascending, and the function's values there, each of shape (n_distinct,).
    """
    places, place = np.unique(x, return_inverse=True)
    together = np.bincount(place, weights)
    near = np.exp(-0.5 * ((places[:, None] - places[None, :]) / constants.NEAR) ** 2)
    means = near @ np.bincount(place, weights * y) / (near @ together)
    return places, np.asarray(isotonic_regression(means, weights=together).x)


def _points(belief: Belief) -> np.ndarray:
    return np.asarray(belief.mean[:, None] + belief.deviation[:, None] * ndtri(_QUANTILES)[None, :])


@dataclass(frozen=True, slots=True)
class Weight:
    """How much a loss weighs: each allowed loss further weighs less, so that volumes count most where users choose.

    Up to the allowed loss the weight is nearly the loss itself, far beyond it is its logarithm: a front is worth as
    much from 1 to 3 allowed losses as from 10 to 21. A gain weighs nothing.

    Attributes:
        allowed: What a recommended candidate may lose; infinite or 0 where that is not known: weights are the losses.
    """

    allowed: float

    def of(self, losses: np.ndarray) -> np.ndarray:
        """Weights of losses, at least 0, of the same shape."""
        losses = np.maximum(losses, 0.0)
        return np.asarray(np.log1p(losses / self.allowed) if self._known else losses)

    def of_spread(self, spreads: np.ndarray, losses: np.ndarray) -> np.ndarray:
        """What small differences of losses weigh."""
        return np.asarray(spreads / (self.allowed + np.maximum(losses, 0.0)) if self._known else spreads)

    def loss(self, weight: float) -> float:
        """The loss of a weight."""
        return math.expm1(weight) * self.allowed if self._known else weight

    @property
    def _known(self) -> bool:
        return 0.0 < self.allowed < math.inf


def reference_corner(points: np.ndarray) -> np.ndarray:
    """The point up to which volumes count: a little beyond the worst of each objective.

    Args:
        points: Weight of the loss, and costs of candidates, shape (n, 1 + n_costs), n at least 1.
    """
    return np.asarray(np.maximum(1.1 * points.max(axis=0), 1e-9))


class FrontVolume:
    """The space that a front leaves undominated below a reference point, ready for many questions.

    Objectives in order: the loss, then the costs, each in units of the reference, so that ones are the corner.
    """

    def __init__(self, front: np.ndarray) -> None:
        """Cut the space of the costs at the front's values, for each level of loss.

        Args:
            front: Shape (n, 1 + n_costs), in units of the reference; rows beyond it are left out.
        """
        most_edges = 160
        # With more objectives the grid is coarse, or it would take too much memory.
        exact_objectives = 3
        front = front[np.all(front < 1.0, axis=1)]
        if front.shape[1] > exact_objectives and len(front):
            front = front[non_dominated(front)]
        low = min(0.0, float(front[:, 0].min())) if len(front) else 0.0
        # Between two losses of the front nothing changes: these are the levels, with even ones between.
        most = 24 if front.shape[1] > exact_objectives else most_edges
        losses = _some(np.unique(front[:, 0]), most_edges)
        self._levels = np.unique(np.concatenate([losses, np.linspace(low, 1.0, 24)]))
        self._edges = [_some(np.unique([0.0, *column, 1.0]), most) for column in front[:, 1:].T]
        self._areas = self._undominated(front)
        self._steps = np.diff(self._levels)

    def _undominated(self, front: np.ndarray) -> np.ndarray:
        """Undominated area beyond each grid point, for each level; zeros at the far ends."""
        sizes = [len(edges) - 1 for edges in self._edges]
        starts = [np.searchsorted(edges, values) for edges, values in zip(self._edges, front[:, 1:].T, strict=True)]
        # The level from which on each cell of costs is dominated.
        lowest = np.full([size + 1 for size in sizes], len(self._levels))
        np.minimum.at(lowest, tuple(starts), np.searchsorted(self._levels, front[:, 0]))
        for axis in range(len(sizes)):
            lowest = np.minimum.accumulate(lowest, axis)
        lowest = lowest[tuple(slice(size) for size in sizes)]
        levels = np.arange(len(self._levels) - 1).reshape(-1, *[1] * len(sizes))
        cells = (levels < lowest).astype(np.float64)
        for axis, edges in enumerate(self._edges, start=1):
            widths = np.diff(edges).reshape([-1 if i == axis else 1 for i in range(cells.ndim)])
            cells = np.flip(np.flip(cells * widths, axis).cumsum(axis), axis)
        areas = np.zeros([len(cells), *(size + 1 for size in sizes)])
        areas[(slice(None), *(slice(size) for size in sizes))] = cells
        return areas

    def exclusive_areas(self, *costs: np.ndarray) -> np.ndarray:
        """Area that a point of each set of costs would add at each level of loss, shape (n, n_levels - 1).

        Args:
            costs: For each cost the points' values, shape (n,).
        """
        places = [_cell(edges, values) for edges, values in zip(self._edges, costs, strict=True)]
        areas = np.zeros((len(self._areas), len(costs[0])))
        for corner in itertools.product((0, 1), repeat=len(places)):
            steps = corner[::-1]  # The first cost changes fastest.
            index: tuple[Any, ...] = (slice(None), *(i + step for (i, _), step in zip(places, steps, strict=True)))
            part = self._areas[index]
            for (_, share), step in zip(places, steps, strict=True):
                part = part * (share if step else 1 - share)
            areas = areas + part
        beyond = np.any(np.stack(costs) >= 1.0, axis=0)
        return np.where(beyond[:, None], 0.0, areas.T)

    def loss_adding(self, wanted: float, *costs: float) -> float:
        """The loss at which a point adds so much volume.

        Args:
            wanted: At least 0.
            costs: The point's value of each cost.

        Returns:
            In units of the reference; a point of a lesser loss adds more. Minus infinity where none would add as much.
        """
        areas = self.exclusive_areas(*(np.array([cost]) for cost in costs))[0]
        gains = np.append(np.cumsum((areas * self._steps)[::-1])[::-1], 0.0)  # at each level
        below = int(np.searchsorted(-gains, -wanted, side="left"))  # the first level at which it adds no more
        if below == 0:
            # Better than all: nothing is dominated there.
            area = float(np.prod([max(1.0 - cost, 0.0) for cost in costs]))
            return float(self._levels[0]) - (wanted - float(gains[0])) / area if area else -math.inf
        return float(self._levels[below]) - (wanted - float(gains[below])) / float(areas[below - 1])

    def expected_gain(self, losses: np.ndarray, deviations: np.ndarray, *costs: np.ndarray) -> np.ndarray:
        """Expected growth of the dominated volume.

        Args:
            losses: Shape (n, n_quantiles), equally likely in their bins, in units of the reference.
            deviations: Of a measured loss around each, same shape and units.
            costs: For each cost the points' values, shape (n,), in units of the reference.

        Returns:
            Shape (n,).
        """
        areas = self.exclusive_areas(*costs)
        middles = (self._levels[:-1] + self._levels[1:]) / 2
        reached = ndtr((middles[None, None, :] - losses[:, :, None]) / np.maximum(deviations, 1e-9)[:, :, None])
        return np.asarray(np.einsum("nk,nqk,k,q->n", areas, reached, self._steps, _quantile_weights()))


def loss_worth(front: np.ndarray, share: float, costs: np.ndarray) -> float:
    """The loss at which a point would add a share of the volume that a front dominates.

    Args:
        front: Shape (n, 1 + n_costs), n at least 1, in units of the reference: loss, then costs.
        share: At least 0.
        costs: The point's, shape (n_costs,), likewise.

    Returns:
        As :meth:`FrontVolume.loss_adding`.
    """
    wanted = share * hypervolume(front, np.ones(front.shape[1]))
    # What the front dominates of the space beyond the point's own costs is all that counts, and needs few members.
    beyond = np.column_stack([front[:, 0], np.maximum(front[:, 1:], costs)])
    return FrontVolume(np.unique(beyond[non_dominated(beyond)], axis=0)).loss_adding(wanted, *costs.tolist())


def _some(edges: np.ndarray, most: int) -> np.ndarray:
    """Where the grid is cut: at all values, or at so many of them; the front then dominates a little less."""
    if len(edges) <= most:
        return edges
    return np.asarray(edges[np.linspace(0, len(edges) - 1, most).round().astype(int)])


def _cell(edges: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    index = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    share = (values - edges[index]) / (edges[index + 1] - edges[index])
    return index, np.clip(share, 0.0, 1.0)


def _quantile_weights() -> np.ndarray:
    """What each quantile stands for: from half way to the one below to half way to the one above."""
    borders = np.concatenate([[0.0], (_QUANTILES[:-1] + _QUANTILES[1:]) / 2, [1.0]])
    return np.asarray(np.diff(borders))
