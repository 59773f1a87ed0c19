"""The same with autoselect: ``with_autoselect.py MODEL.keras CALIBRATION``."""

from __future__ import annotations

import sys
from pathlib import Path

import loaders

import autoselect

if __name__ == "__main__":
    samples = list(getattr(loaders, sys.argv[2])())
    found = autoselect.diagnose(sys.argv[1], calibration=samples, cache=False)
    found.layer_statistics.to_csv(Path(sys.argv[1]).with_suffix(".autoselect.csv"), index=False)
