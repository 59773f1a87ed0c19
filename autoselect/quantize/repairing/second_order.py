"""Rounding of weights that makes up for each error in the weights that are still to be rounded; knows arrays only.

The method is GPTQ, Frantar et al. 2022 (arXiv:2210.17323): the error of a layer's output is quadratic in the errors of
its weights, and the second moments of its inputs say how the errors of two weights add up or cancel. Weights are
rounded one input after the other, for all output channels at once, and what each rounding does to the output is taken
out by the best change of the weights that are left.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.linalg.blas import ssyrk

DAMPING = 0.01
"""Share of the mean diagonal that is added to the diagonal of the second moments; from the paper, section 3.3."""

_BLOCK = 128
"""Inputs after which the changes reach the weights further on; from the paper, section 3.3, and only for speed."""

MOST_STEPS = 2
"""How far from the nearest level a weight may come. Without a bound an input that is small on the samples would take
up the errors of larger ones in weights far from its own."""

TOP = 127
"""The highest level of a weight, whose negative is the lowest."""


@dataclass(slots=True)
class Moments:
    """Sums over positions of the inputs of groups of output channels, and of products of two inputs.

    Products are in float32, as the inputs, and about the mean of the first positions: so they keep their digits where
    inputs differ little from their mean.

    Attributes:
        count: Of the positions.
        total: Shape (groups, inputs), float64; not finite where an input was not, and then nothing else is to be read.
        origin: About which products are, shape (groups, inputs); shape () before there are any.
        products: Shape (groups, inputs, inputs), of one group only the lower triangle; of all positions but ``rows``,
            and shape () where these are all.
        rows: Positions that are not in ``products`` yet, each of shape (groups, positions, inputs).
    """

    count: int = 0
    total: np.ndarray = field(default_factory=lambda: np.zeros(()))
    origin: np.ndarray = field(default_factory=lambda: np.zeros(()))
    products: np.ndarray = field(default_factory=lambda: np.zeros(()))
    rows: list[np.ndarray] = field(default_factory=list)

    def add(self, inputs: np.ndarray) -> None:
        """Add positions, shape (groups, positions, inputs), float32."""
        self.count += inputs.shape[1]
        with np.errstate(invalid="ignore"):
            self.total = self.total + inputs.sum(axis=1, dtype=np.float64)
        self.rows.append(inputs)
        # Fewer positions than inputs take less room than products, and products of many at once less time.
        if sum(rows.shape[1] for rows in self.rows) >= inputs.shape[2]:
            self._multiply()

    def _multiply(self) -> None:
        """Take the rows into the products."""
        if self.is_finite and self.rows:
            inputs = np.concatenate(self.rows, axis=1)
            groups, _, size = inputs.shape
            if not self.products.ndim:
                self.products = np.zeros((groups, size, size), np.float32)
                self.origin = self.mean.astype(np.float32)
            inputs -= self.origin[:, None]
            if groups > 1:
                self.products += inputs.swapaxes(1, 2) @ inputs
            else:
                self.products = ssyrk(1.0, inputs[0].T, beta=1.0, c=self.products[0].T, overwrite_c=True).T[None]
        self.rows.clear()

    @property
    def nbytes(self) -> int:
        """What they take in memory."""
        return self.products.nbytes + sum(rows.nbytes for rows in self.rows)

    @property
    def is_finite(self) -> bool:
        """Whether all inputs were numbers."""
        return bool(np.isfinite(self.total).all())

    @property
    def mean(self) -> np.ndarray:
        """Mean inputs, shape (groups, inputs)."""
        return np.asarray(self.total / self.count)

    def about(self, centre: np.ndarray) -> np.ndarray:
        """Second moments about a point of shape (groups, inputs), shape (groups, inputs, inputs), float32."""
        self._multiply()
        moments: np.ndarray = self.products / np.float32(self.count)
        if len(moments) == 1:
            _mirror(moments[0])
        away, mean = centre - self.origin, self.mean - self.origin
        if away.any():
            crossed = ((mean - away / 2.0)[:, :, None] * away[:, None, :]).astype(np.float32)
            moments -= crossed
            moments -= crossed.swapaxes(1, 2)
        return moments

    def output_error(self, errors: np.ndarray, centre: np.ndarray) -> float:
        """Mean squared error of the outputs, summed over channels.

        Args:
            errors: Of the weights, shape (groups, channels, inputs).
            centre: From which inputs count, shape (groups, inputs).
        """
        if not self.products.ndim:
            outputs = (errors @ (rows - centre[:, None]).swapaxes(1, 2) for rows in self.rows)
            return float(sum(np.sum(values**2) for values in outputs)) / self.count
        return float(np.sum((errors @ self.about(centre)) * errors, dtype=np.float64))


def _mirror(matrix: np.ndarray) -> None:
    """Copy the lower triangle of a square matrix to the upper one, in place and block by block."""
    for start in range(0, len(matrix), _BLOCK):
        end = start + _BLOCK
        block = matrix[start:end, start:end]
        block += np.tril(block, -1).T
        matrix[start:end, end:] = matrix[end:, start:end].T


def compensated(steps: np.ndarray, nearest: np.ndarray, moments: np.ndarray, top: int = TOP) -> np.ndarray:
    """Round weights, largest inputs first, each with the errors of those before it in mind.

    What is best for the weights that are left follows from the Cholesky factor of the moments. The paper has that of
    their inverse, which gives the same levels for twice the work (Chen et al. 2025, arXiv:2507.18553).

    Args:
        steps: Weights in units of their scales, shape (groups, channels, inputs).
        nearest: Their nearest levels, in the same shape.
        moments: Second moments of the inputs, shape (groups, inputs, inputs).
        top: The highest level.

    Returns:
        Levels in -top..top, no more than ``MOST_STEPS`` from the nearest, in the shape and type of ``steps``.

    Raises:
        numpy.linalg.LinAlgError: If the moments are none, as far as their digits tell.
    """
    # The largest is the last, which is rounded first: a row of the factor is what its error does to those before it.
    order = np.argsort(-np.diagonal(moments, axis1=1, axis2=2), axis=1, kind="stable")[:, ::-1]
    along = order[:, None, :]
    work, near = (np.take_along_axis(values, along, axis=2) for values in (steps, nearest))
    low, high = np.clip(near - MOST_STEPS, -top, top), np.clip(near + MOST_STEPS, -top, top)
    factors, change = _factors(moments, order), np.zeros_like(work)
    power = np.diagonal(factors, axis1=1, axis2=2)[:, None, :]
    for end in range(work.shape[2], 0, -_BLOCK):
        start = max(end - _BLOCK, 0)
        errors = np.empty_like(work[:, :, start:end])
        for at in range(end - 1, start - 1, -1):
            best = work[:, :, at] + change[:, :, at] / power[:, :, at]
            near[:, :, at] = np.clip(np.rint(best), low[:, :, at], high[:, :, at])
            errors[:, :, at - start] = work[:, :, at] - near[:, :, at]
            change[:, :, start:at] += errors[:, :, at - start, None] * factors[:, None, at, start:at]
        change[:, :, :start] += errors @ factors[:, start:end, :start]
    levels = np.empty_like(near)
    np.put_along_axis(levels, along, near, axis=2)
    return levels


def _factors(moments: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Lower Cholesky factors of the damped moments of inputs in an order, shape (groups, inputs, inputs)."""
    mean_power = np.trace(moments, axis1=1, axis2=2) / moments.shape[-1]
    damping = np.where(mean_power > 0.0, DAMPING * mean_power, 1.0)
    pairs = zip(moments, order, strict=True)
    damped = np.stack([own.take(places, axis=0).take(places, axis=1) for own, places in pairs])
    np.einsum("gii->gi", damped)[...] += damping[:, None]
    return np.linalg.cholesky(damped)
