"""What the outside of a model looks like: its named input and output tensors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One input or output of a model.

    Attributes:
        name: The tensor's name in the model file.
        key: The name a caller uses: the signature's key where the model has a signature,
            the tensor's name elsewhere.
        shape: Full shape with its leading batch axis, all sizes known, batch 1.
        dtype: NumPy dtype, for example ``np.dtype("float32")``.
    """

    name: str
    key: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
