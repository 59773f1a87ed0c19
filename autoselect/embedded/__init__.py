"""The embedded case: a small pump monitor that full-integer quantization harms, and its data.

It refuses to know the tool: it is a model and samples like those that a user brings.
"""

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
