"""Types of what callers may give as samples; knows no model, and loads nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol


class Dataset(Protocol):
    """A function without arguments that yields samples, as ``TFLiteConverter.representative_dataset``."""

    def __call__(self) -> Iterable[Any]:
        """Start anew."""
        ...


class HoldsDataset(Protocol):
    """An object that holds such a function, as ``tf.lite.RepresentativeDataset``."""

    input_gen: Callable[[], Iterable[Any]]


Samples = str | Path | Dataset | HoldsDataset | Iterable[Any]
"""A file, ``"package.module:name"``, a function, or what can be gone through: arrays, dicts of arrays, pairs."""
