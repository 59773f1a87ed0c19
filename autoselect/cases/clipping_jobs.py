"""What workers do to say which inputs and outputs leave the ranges that calibration saw: integers cut these off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from autoselect.cases.open_case import open_case
from autoselect.domain.units import MOVERS
from autoselect.quantize.repairing.ranges import Range, range_of
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.operands import FIXED_SCALE_OPS

_FAR = 0.05
"""A sample counts if it lies beyond a range by more than this share of it."""
_RARE = 0.01
"""A smaller share of the samples is not worth a word."""


def clipped_values(root: Path) -> list[str]:
    """What to say of each input and output that leaves its range on search samples.

    Outputs with a scale that is fixed anyway are not judged, nor inputs that no integer op reads. Without kept float
    outputs nothing is known of these.
    """
    case = open_case(root)
    samples, known = case.part("search"), case.reference("search")
    held_inputs, held_outputs = _held(case.prepared.calibrated.content)
    inputs = [_ends(samples.inputs(number), held_inputs) for number in range(len(samples))]
    outputs = [] if known is None else [_ends(known([number]), held_outputs) for number in range(len(samples))]
    return [*_beyond("input", held_inputs, inputs), *_beyond("output", held_outputs, outputs)]


def _ends(values: Mapping[str, np.ndarray], held: Mapping[str, Range]) -> dict[str, Range]:
    return {key: (float(values[key].min()), float(values[key].max())) for key in held if key in values}


def _beyond(side: str, held: Mapping[str, Range], ends: Sequence[Mapping[str, Range]]) -> list[str]:
    found = []
    for name, (least, most) in held.items():
        rows = [row[name] for row in ends if name in row]
        margin = _FAR * (most - least)
        count = sum(low < least - margin or high > most + margin for low, high in rows)
        if count > _RARE * len(rows):
            reached = min(low for low, _ in rows), max(high for _, high in rows)
            found.append(
                f"{side} {name!r} is beyond on {count} of {len(rows)} search samples (it has {reached[0]:.3g} to "
                f"{reached[1]:.3g}, integers hold {least:.3g} to {most:.3g})"
            )
    return found


def _held(calibrated: bytes) -> tuple[dict[str, Range], dict[str, Range]]:
    """What integers hold of the inputs and of the outputs."""
    model = fb.parse(calibrated)
    graph, tensors = reader.read_graph(model), model.subgraphs[0].tensors
    writers = {tensor: graph.ops[place] for tensor, place in graph.producers().items()}
    read = {tensor for op in graph.ops if op.op_type != "CAST" for tensor in op.inputs}
    inputs, outputs = dict[str, Range](), dict[str, Range]()
    for index, spec in zip(graph.inputs, reader.input_specs(model), strict=True):
        held = range_of(tensors[index])
        if held is not None and index in read and str(spec.dtype) == "float32":
            inputs[spec.key] = min(held[0], 0.0), max(held[1], 0.0)
    for index, spec in zip(graph.outputs, reader.output_specs(model), strict=True):
        source = index
        while source in writers and writers[source].op_type in MOVERS:
            source = writers[source].inputs[0]
        held, op = range_of(tensors[index]), writers.get(source)
        if held is not None and op is not None and op.op_type not in FIXED_SCALE_OPS and str(spec.dtype) == "float32":
            outputs[spec.key] = min(held[0], 0.0), max(held[1], 0.0)
    return inputs, outputs
