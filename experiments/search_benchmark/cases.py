"""The benchmark's cases: model, data, options, and the reference point of each."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "real_models"))
import loaders

from autoselect.embedded import model_path

OBJECTIVES = ("drop", "size_bytes", "penalty")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The point up to which volumes count: drop in the metric's units, bytes, penalty."""

    drop: float
    size_bytes: float
    penalty: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkCase:
    """One case.

    Attributes:
        name: In tables and folder names.
        data: Prefix of its functions in ``parts``.
        metric: What candidates are scored by.
        samples: Of the search part.
        reference: See ``REFERENCES``; None where it was not measured yet.
        model: None where it must be given by ``--model NAME=PATH``.
        options: Further arguments of ``autoselect.search``.
    """

    name: str
    data: str
    metric: str
    samples: int
    reference: Reference | None
    model: Path | None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sources(self) -> dict[str, str]:
        """Calibration, evaluation and held-out data, as ``autoselect.search`` takes them."""
        return {
            "calibration": f"parts:{self.data}_calibration",
            "evaluation": f"parts:{self.data}_search",
            "heldout": f"parts:{self.data}_heldout",
        }


# Printed by `python sweep.py references`: the larger drop of the all-integer and the all-DRQ model, plus a tenth of it
# and at least the metric's floor in sweep.py; the float file's size; the all-float model's penalty plus a tenth.
REFERENCES: dict[str, Reference] = {
    "pump": Reference(drop=0.2024, size_bytes=102256, penalty=88),
    "pump_types": Reference(drop=0.2024, size_bytes=102256, penalty=88),
    "mobilenet_pc": Reference(drop=0.261556, size_bytes=1888824, penalty=88),
    "mobilenet_pt": Reference(drop=1.1, size_bytes=1888824, penalty=88),
    "fsrcnn": Reference(drop=0.786122, size_bytes=40976, penalty=88),
    "ds_cnn": Reference(drop=0.01, size_bytes=103888, penalty=88),
    "deepconvlstm": Reference(drop=0.012, size_bytes=1835820, penalty=88),
    "mobilenet_v3": Reference(drop=0.022, size_bytes=6136716, penalty=88),
}

_IMAGENET = loaders.IMAGENET / "mobilenet_v1_025_224_float.tflite"


def all_cases(models: Mapping[str, Path]) -> dict[str, BenchmarkCase]:
    """All cases by name.

    Args:
        models: Paths of the models that were trained elsewhere, by case.
    """
    cases = [
        _case("pump", "pump", "accuracy", 1000, model_path()),
        _case("pump_types", "pump", "accuracy", 1000, model_path(), search_space="op_types"),
        _case("mobilenet_pc", "imagenet", "agreement", 450, _IMAGENET, fallback="float"),
        _case("mobilenet_pt", "imagenet", "agreement", 450, _IMAGENET, fallback="float", per_channel=False),
        _case("fsrcnn", "fsrcnn", "psnr", 24, loaders.FSRCNN / "fsrcnn_x2_float.tflite"),
        _case("ds_cnn", "kws", "accuracy", 1000, loaders.KWS / "kws_dscnn_float.tflite"),
        _case("deepconvlstm", "har", "agreement", 500, models.get("deepconvlstm")),
        _case("mobilenet_v3", "cifar", "agreement", 500, models.get("mobilenet_v3")),
    ]
    return {case.name: case for case in cases}


def _case(name: str, data: str, metric: str, samples: int, model: Path | None, **options: Any) -> BenchmarkCase:
    reference = REFERENCES.get(name)
    return BenchmarkCase(
        name=name, data=data, metric=metric, samples=samples, reference=reference, model=model, options=options
    )


def chosen_cases(names: Sequence[str], models: Sequence[str]) -> list[BenchmarkCase]:
    """Cases by name, with the models that the command line gives as ``NAME=PATH``.

    Raises:
        SystemExit: If a name is unknown or its model was not given.
    """
    cases = all_cases({name: Path(path) for name, path in (pair.split("=", 1) for pair in models)})
    for name in names:
        if name not in cases:
            raise SystemExit(f"There is no case {name!r}. Cases: {', '.join(cases)}.")
        if cases[name].model is None:
            raise SystemExit(f"Case {name!r} needs its model: --model {name}=PATH.")
    return [cases[name] for name in names] if names else [c for c in cases.values() if c.model is not None]


def scaled_losses(rows: pd.DataFrame, reference: Reference) -> np.ndarray:
    """Losses in units of the reference point, shape (n_rows, 3); a gain over float counts as no drop."""
    values = np.column_stack([rows[name].to_numpy(dtype=np.float64) for name in OBJECTIVES])
    values[:, 0] = np.maximum(values[:, 0], 0.0)
    return values / np.array([getattr(reference, name) for name in OBJECTIVES])
