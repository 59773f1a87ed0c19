"""Ranges that calibration writes beside tensors: read, set, and found anew; knows no method of choosing one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.runner import Runner

Range = tuple[float, float]

LEAST_REACH = 2.0**-100
"""Values below are as good as zeros, and a bin of theirs would be narrower than float32 can tell."""


def range_of(tensor: fb.Tensor) -> Range | None:
    """The range that calibration gave a tensor, if it gave it one."""
    low, high = (getattr(tensor.quantization, name, None) for name in ("min", "max"))
    if low is None or high is None or len(low) != 1 or len(high) != 1:
        return None
    return float(low[0]), float(high[0])


def set_range(tensor: fb.Tensor, low: float, high: float) -> None:
    """Give a tensor a range, in place."""
    if tensor.quantization is None:
        tensor.quantization = schema.QuantizationParametersT()
    tensor.quantization.min, tensor.quantization.max = np.array([low], np.float32), np.array([high], np.float32)


def ranged(model: fb.Model) -> list[int]:
    """Tensors of the main subgraph that an op or a caller writes and calibration gave a range."""
    graph = model.subgraphs[0]
    return [i for i in sorted(fb.computed(graph)) if range_of(graph.tensors[i]) is not None]


def give_ranges(model: fb.Model, chosen: Mapping[int, Range]) -> None:
    """Give tensors of a calibrated model other ranges, in place, by index; what was always zero keeps its own."""
    for index, (low, high) in chosen.items():
        if low or high:
            set_range(model.subgraphs[0].tensors[index], min(low, 0.0), max(high, 0.0))


def extremes(content: bytes, samples: Iterable[Mapping[str, np.ndarray]], tensors: Iterable[int]) -> dict[int, Range]:
    """Smallest and largest value of some tensors over samples; NaN where one is."""
    ranges: dict[int, Range] = {}
    if not (chosen := sorted(tensors)):
        return ranges
    for index, value in Runner(content, readable=chosen).watch(samples, chosen):
        low, high = ranges.get(index, (np.inf, -np.inf))
        ranges[index] = (float(np.minimum(low, value.min())), float(np.maximum(high, value.max())))
    return ranges
