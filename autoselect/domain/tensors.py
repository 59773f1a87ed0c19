"""What the outside of a model looks like: its named input and output tensors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One input or output of a model.

    Attributes:
        name: The tensor's name in the model file.
        key: The name a caller uses, on one line: the signature's key where the model has a signature, the tensor's name
            elsewhere, the place (``output_0``) of a tensor without a name; with a count where another input or output
            has that already.
        shape: Full shape with its leading batch axis, all sizes known, batch 1.
        dtype: NumPy dtype, for example ``np.dtype("float32")``.
        is_quantized: Whether its integers stand for real numbers, by a scale; no difference between two specs.
        turned: The permutation of axes that brings samples in another layout, such as that of the source, to this one;
            None for no other. No difference between two specs either.
    """

    name: str
    key: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    is_quantized: bool = field(default=False, compare=False)
    turned: tuple[int, ...] | None = field(default=None, compare=False)

    @property
    def other_shape(self) -> tuple[int, ...] | None:
        """Shape of a sample in the other layout; None where there is none."""
        if self.turned is None:
            return None
        return tuple(self.shape[self.turned.index(axis)] for axis in range(len(self.shape)))


def free_name(wanted: str, taken: set[str], mark: str = "_") -> str:
    """``wanted``, or with a count behind a mark where it is taken; taken from now on."""
    name, count = wanted, 1
    while name in taken:
        count += 1
        name = f"{wanted}{mark}{count}"
    taken.add(name)
    return name


def in_source_order(outputs: Iterable[TensorSpec]) -> tuple[TensorSpec, ...]:
    """The outputs of a model in the order of its source; where a caller names none, the first of them is scored.

    The converter calls them ``output_0``, ``output_1``... and may list them in another order. Outputs that are called
    otherwise count as number 0, and those of one number stay in the file's order. Outputs of indices and truths (what
    ARGMAX, TOP_K and GREATER give) come last: no error in decibels is one of theirs.
    """
    return tuple(sorted(outputs, key=lambda spec: (spec.dtype.name in _INDICES, _number(spec.key))))


_INDICES = frozenset({"bool", "int32", "int64", "uint32", "uint64"})
"""Types that no quantized output has; so all candidates of a model agree on the order."""


def _number(key: str) -> int:
    prefix, _, number = key.rpartition("_")
    return int(number) if prefix == "output" and number.isdigit() else 0
