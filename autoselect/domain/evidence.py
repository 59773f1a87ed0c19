"""Noisy readings, each corrected by what else is known of the same thing; knows numbers, no models."""

from __future__ import annotations

import numpy as np


def shrunk(values: np.ndarray, predicted: np.ndarray, spread: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Draw noisy values to what is predicted of them, the more the larger their noise is.

    The posterior mean of a normal value around a normal prediction (Smith and Winkler, "The Optimizer's Curse",
    Management Science 52, 2006, equation 3).

    Args:
        values: As measured, shape (n,).
        predicted: What is expected of each, shape (n,).
        spread: Standard deviation of measured values around the prediction, noise included, shape (n,).
        noise: Standard error of each, shape (n,); NaN where unknown: such a value stays as it is.

    Returns:
        Shape (n,).
    """
    true = np.maximum(spread**2 - noise**2, 0.0)
    share = np.where(np.isnan(noise), 1.0, true / np.maximum(true + noise**2, 1e-300))
    return np.asarray(predicted + share * (values - predicted))


def agreed(values: np.ndarray, witness: np.ndarray) -> np.ndarray:
    """Draw values half way to what a second reading says of them.

    The second reading gives an order only: a row in the middle of its order is expected to have the value in the middle
    of all values. So units do not matter, and neither does any monotone change of the witness.

    Args:
        values: Shape (n,), float, finite.
        witness: Shape (n,), float, finite; rises where values are expected to rise.

    Returns:
        Shape (n,), in the unit of the values. Equal witnesses expect equal values.
    """
    ranked = np.sort(witness)
    places = [np.searchsorted(ranked, witness, side) for side in ("left", "right")]
    middle = (places[0] + places[1] - 1) / 2.0
    expected = np.interp(middle, np.arange(len(values)), np.sort(values))
    return np.asarray((values + expected) / 2.0)
