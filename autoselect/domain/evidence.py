"""Two noisy readings of the same thing, each corrected by the other; knows numbers, no models."""

from __future__ import annotations

import numpy as np


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
