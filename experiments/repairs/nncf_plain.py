"""NNCF's plain quantization of MobileNetV1-0.25, per channel, with its bias correction, on the images of ``run.py``.

Runs in the environment of ``../nncf``; it does not import autoselect.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import nncf
import openvino as ov

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "nncf"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "real_models"))
import loaders
import run as aware


def main() -> None:
    """Quantize with fast and with sequential bias correction, and print the figures."""
    core = ov.Core()
    path = loaders.IMAGENET / "mobilenet_v1_025_224_float.tflite"
    model = core.read_model(path)
    parts = {"heldout": aware.read_part(loaders.imagenet_heldout(), core.compile_model(model, "CPU"))}
    images = [image for (image,) in loaders.imagenet_calibration()]
    for name, fast in (("fast bias correction", True), ("bias correction", False)):
        quantized, times = aware.timed(
            lambda fast=fast: nncf.quantize(core.read_model(path), nncf.Dataset(images), fast_bias_correction=fast)
        )
        row = aware.measured(name, quantized, core, parts) | times
        print(json.dumps({key: value for key, value in row.items() if value != ""}))


if __name__ == "__main__":
    main()
