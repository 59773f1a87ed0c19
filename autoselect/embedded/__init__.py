"""The embedded case: a small pump monitor that full-integer quantization harms, and its data."""

from autoselect.embedded.data import (
    CHANNEL_NAMES,
    CLASS_NAMES,
    calibration,
    heldout_samples,
    make_windows,
    model_bytes,
    model_path,
    search_samples,
    training_windows,
)

__all__ = [
    "CHANNEL_NAMES",
    "CLASS_NAMES",
    "calibration",
    "heldout_samples",
    "make_windows",
    "model_bytes",
    "model_path",
    "search_samples",
    "training_windows",
]
