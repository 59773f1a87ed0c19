"""What workers do to say which values leave the ranges that calibration saw: integers cut them off."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from autoselect.cases.open_case import OpenCase, open_case
from autoselect.domain.units import MOVERS
from autoselect.quantize.repairing.ranges import Range, range_of
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.operands import FIXED_SCALE_OPS
from autoselect.tflite.runner import Runner

_FAR = 0.05
"""A sample counts if it lies beyond a range by more than this share of it."""
_RARE = 0.01
"""A smaller share of the samples is not worth a word."""
_FAR_INSIDE = 0.1
"""The same of the values of a node."""
_WATCHED = 64
"""Samples at most on which nodes are watched, those first that leave a range of an output the furthest: inside, the
model runs on plain kernels."""


def clipped_outputs(root: Path) -> list[str]:
    """What to say of each output that leaves its range on search samples.

    Outputs with a scale that is fixed anyway are not judged. Without kept float outputs nothing is known.
    """
    case = open_case(root)
    found = []
    for name, (least, most), rows in _outputs(case):
        margin = _FAR * (most - least)
        count = int(np.count_nonzero(_beyond(rows, least, most) > margin))
        if count > _RARE * len(rows):
            found.append(
                f"{name!r} is beyond on {count} of {len(rows)} search samples (it has {rows.min():.3g} to "
                f"{rows.max():.3g}, integers hold {least:.3g} to {most:.3g})"
            )
    return found


def clipped_nodes(root: Path) -> list[str]:
    """The nodes whose values leave their ranges on search samples on which an output does.

    Integers of any width cut such values off, which no calibration sample shows.
    """
    case = open_case(root)
    shares = [_beyond(rows, *held) / max(held[1] - held[0], 1e-30) for _, held, rows in _outputs(case)]
    furthest = np.max(shares, axis=0) if shares else np.zeros(0)
    chosen = [int(i) for i in np.argsort(-furthest, kind="stable")[:_WATCHED] if furthest[i] > _FAR]
    if not chosen:
        return []
    model = fb.parse(case.prepared.calibrated.content)
    ops, tensors = reader.read_graph(model).ops, model.subgraphs[0].tensors
    nodes = [node for node in case.prepared.layers.nodes if node.op_type not in FIXED_SCALE_OPS]
    watched = {output: node.name for node in nodes for output in ops[node.index].outputs}
    limits = {index: _with_zero(held) for index in watched if (held := range_of(tensors[index])) is not None}
    runner, samples = Runner(case.prepared.calibrated.content, preserve_all_tensors=True), case.part("search")
    found = set()
    for index, values in runner.watch((samples.inputs(i) for i in chosen), limits):
        least, most = limits[index]
        ends = np.array([[values.min(), values.max()]]) if values.size else np.zeros((1, 2))
        if _beyond(ends, least, most)[0] > _FAR_INSIDE * (most - least):
            found.add(watched[index])
    return sorted(found)


def _outputs(case: OpenCase) -> list[tuple[str, Range, np.ndarray]]:
    """Each output that is judged: its key, what integers hold, and its ends on each sample, shape (n_samples, 2)."""
    if (known := case.reference("search")) is None:
        return []
    ends = [
        {key: (float(values.min()), float(values.max())) for key, values in known([number]).items()}
        for number in range(len(case.part("search")))
    ]
    held = _held(case.prepared.calibrated.content)
    found = [(name, limits, [row[name] for row in ends if name in row]) for name, limits in held.items()]
    return [(name, limits, np.array(rows)) for name, limits, rows in found if len(rows) == len(ends)]


def _beyond(ends: np.ndarray, least: float, most: float) -> np.ndarray:
    """How far values of these ends, shape (n, 2), lie beyond a range, shape (n,)."""
    return np.maximum(np.maximum(least - ends[:, 0], ends[:, 1] - most), 0.0)


def _with_zero(held: Range) -> Range:
    return min(held[0], 0.0), max(held[1], 0.0)


def _held(calibrated: bytes) -> dict[str, Range]:
    model = fb.parse(calibrated)
    graph, tensors = reader.read_graph(model), model.subgraphs[0].tensors
    writers = {tensor: graph.ops[place] for tensor, place in graph.producers().items()}
    found = {}
    for index, spec in zip(graph.outputs, reader.output_specs(model), strict=True):
        source = index
        while source in writers and writers[source].op_type in MOVERS:
            source = writers[source].inputs[0]
        held, op = range_of(tensors[index]), writers.get(source)
        if held is not None and op is not None and op.op_type not in FIXED_SCALE_OPS and str(spec.dtype) == "float32":
            found[spec.key] = _with_zero(held)
    return found
