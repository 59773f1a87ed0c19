"""What workers do to say which outputs leave the ranges that calibration saw: integers cut such values off."""

from __future__ import annotations

from pathlib import Path

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


def clipped_outputs(root: Path) -> list[str]:
    """What to say of each output that leaves its range on search samples.

    Outputs with a scale that is fixed anyway are not judged. Without kept float outputs nothing is known.
    """
    case = open_case(root)
    if (known := case.reference("search")) is None:
        return []
    ends = [
        {key: (float(values.min()), float(values.max())) for key, values in known([number]).items()}
        for number in range(len(case.part("search")))
    ]
    found = []
    for name, (least, most) in _held(case.prepared.calibrated.content).items():
        rows = [row[name] for row in ends if name in row]
        margin = _FAR * (most - least)
        count = sum(low < least - margin or high > most + margin for low, high in rows)
        if count > _RARE * len(rows):
            reached = min(low for low, _ in rows), max(high for _, high in rows)
            found.append(
                f"{name!r} is beyond on {count} of {len(rows)} search samples (it has {reached[0]:.3g} to "
                f"{reached[1]:.3g}, integers hold {least:.3g} to {most:.3g})"
            )
    return found


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
            found[spec.key] = min(held[0], 0.0), max(held[1], 0.0)
    return found
