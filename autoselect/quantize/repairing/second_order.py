"""Rounding of weights that makes up for each error in the weights that are still to be rounded; knows arrays only.

The method is GPTQ, Frantar et al. 2022 (arXiv:2210.17323): the error of a layer's output is quadratic in the errors of
its weights, and the second moments of its inputs say how the errors of two weights add up or cancel. Weights are
rounded one input after the other, for all output channels at once, and what each rounding does to the output is taken
out by the best change of the weights that are left.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.linalg.lapack import dtrtri

DAMPING = 0.01
"""Share of the mean diagonal that is added to the diagonal of the second moments; from the paper, section 3.3."""

_BLOCK = 128
"""Inputs after which the changes reach the weights further on; from the paper, section 3.3, and only for speed."""

MOST_STEPS = 2
"""How far from the nearest level a weight may come. Without a bound an input that is small on the samples would take
up the errors of larger ones in weights far from its own."""

_TOP = 127


@dataclass(slots=True)
class Moments:
    """Sums over positions of the inputs of groups of output channels, and of products of two inputs.

    Attributes:
        count: Of the positions.
        total: Shape (groups, inputs).
        products: Shape (groups, inputs, inputs).
        is_finite: Whether all inputs were numbers; where one was not, nothing else is to be read.
    """

    count: int = 0
    total: np.ndarray = field(default_factory=lambda: np.zeros(()))
    products: np.ndarray = field(default_factory=lambda: np.zeros(()))
    is_finite: bool = True

    def add(self, inputs: np.ndarray) -> None:
        """Add positions, shape (groups, positions, inputs)."""
        self.count += inputs.shape[1]
        self.is_finite = self.is_finite and bool(np.isfinite(inputs).all())
        if self.is_finite:
            self.total = self.total + inputs.sum(axis=1)
            self.products = self.products + inputs.swapaxes(1, 2) @ inputs

    @property
    def mean(self) -> np.ndarray:
        """Mean inputs, shape (groups, inputs)."""
        return np.asarray(self.total / self.count)

    def about(self, centre: np.ndarray) -> np.ndarray:
        """Second moments about a point of shape (groups, inputs), shape (groups, inputs, inputs)."""
        mean, apart = self.mean, self.mean - centre
        found: np.ndarray = self.products / self.count
        found -= mean[:, :, None] * mean[:, None, :]
        found += apart[:, :, None] * apart[:, None, :]
        return found


def output_error(errors: np.ndarray, moments: np.ndarray) -> float:
    """Mean squared error of the outputs, summed over channels, from errors of weights and second moments of inputs."""
    return float(np.sum((errors @ moments) * errors))


def compensated(steps: np.ndarray, nearest: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """Round weights, largest inputs first, each with the errors of those before it in mind.

    Args:
        steps: Weights in units of their scales, shape (groups, channels, inputs).
        nearest: Their nearest levels, in the same shape.
        moments: Second moments of the inputs, shape (groups, inputs, inputs).

    Returns:
        Levels in -127..127, no more than ``MOST_STEPS`` from the nearest, float64 in the shape of ``steps``.
    """
    power = np.diagonal(moments, axis1=1, axis2=2)
    order = np.argsort(-power, axis=1, kind="stable")
    along = order[:, None, :]
    work, near = (np.take_along_axis(values, along, axis=2) for values in (steps, nearest))
    low, high = np.clip(near - MOST_STEPS, -_TOP, _TOP), np.clip(near + MOST_STEPS, -_TOP, _TOP)
    ratios = _ratios(np.take_along_axis(np.take_along_axis(moments, order[:, :, None], axis=1), along, axis=2))
    for start in range(0, work.shape[2], _BLOCK):
        end = min(start + _BLOCK, work.shape[2])
        errors = np.empty_like(work[:, :, start:end])
        for at in range(start, end):
            near[:, :, at] = np.clip(np.rint(work[:, :, at]), low[:, :, at], high[:, :, at])
            errors[:, :, at - start] = work[:, :, at] - near[:, :, at]
            work[:, :, at + 1 : end] -= errors[:, :, at - start, None] * ratios[:, None, at, at + 1 : end]
        work[:, :, end:] -= errors @ ratios[:, start:end, end:]
    found = np.empty_like(near)
    np.put_along_axis(found, along, near, axis=2)
    return found


def _ratios(moments: np.ndarray) -> np.ndarray:
    """By how much an error at one input changes the weights of those after it, shape (groups, inputs, inputs).

    They are rows of the upper Cholesky factor of the inverse, each by its diagonal; the factor is the inverse of that
    of the moments, taken from the other end.
    """
    size = moments.shape[-1]
    mean_power = np.trace(moments, axis1=1, axis2=2) / size
    damping = np.where(mean_power > 0.0, DAMPING * mean_power, 1.0)
    damped = moments + damping[:, None, None] * np.eye(size)
    factors = np.linalg.cholesky(damped[:, ::-1, ::-1])[:, ::-1, ::-1]
    # An inverse that knows of the triangle: an eighth of the work, which decides where inputs are thousands.
    upper = np.stack([dtrtri(factor)[0] for factor in factors])
    return np.asarray(upper / np.diagonal(upper, axis1=1, axis2=2)[:, :, None])
