"""NNCF's accuracy-aware loop on one model: which layers it gives back to float within a limit.

Runs in an environment of its own (nncf, openvino, numpy, pillow); it does not import autoselect.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import nncf
import numpy as np
import openvino as ov
from peer import add_limit, asking, write_note

EXPERIMENTS = Path(__file__).resolve().parents[1]
sys.path[1:1] = [str(EXPERIMENTS / name) for name in ("nncf", "mobilenet_v1", "real_models")]
import nncf_models  # noqa: E402 - found by the path above
import run as aware  # noqa: E402

PACKAGES = ("nncf", "openvino", "numpy")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the loop and write which layers are in int8, what the model answers, and what that took."""
    parser = asking(__doc__, "The .tflite file.")
    add_limit(parser)
    options = parser.parse_args(arguments)
    arrays = {path.stem: np.load(path) for path in options.samples.glob("*.npy")}
    compiled = ov.Core().compile_model(ov.Core().read_model(options.model), "CPU")
    parts = {
        part: aware.read_part(zip(arrays[part], arrays[f"{part}_labels"], strict=True), compiled)
        for part in ("search", "heldout")
    }
    calibrated_with = nncf.Dataset([sample[None] for sample in arrays["calibration"]])
    model, said, _ = aware.controlled(
        options.model, calibrated_with, parts["search"], per_channel=False, rank_by="hits", max_drop=options.max_drop
    )
    write_note(
        options.output,
        PACKAGES,
        nncf.quantize_with_accuracy_control,
        gives=type(model).__module__.split(".")[0] + " model",
        samples_run=said["images_run"],
        **nncf_models.described(model, parts),
    )


if __name__ == "__main__":
    main()
