"""What happens to a built model, in this order: the passes of each whole build, and those of a candidate.

Before its first pass a whole build is parsed, and a candidate stitched; after its last one it is final.
"""

from __future__ import annotations

from collections.abc import Iterable

from ai_edge_litert import schema_py_generated as schema

from autoselect.quantize.building.dynamic_range import make_hybrid
from autoselect.quantize.repairing.bias import correct_biases, correct_biases_in_sequence
from autoselect.quantize.repairing.built import Built, Pass
from autoselect.quantize.repairing.fewer_levels import take_fewer_levels
from autoselect.quantize.repairing.four_bits import store_in_4_bits
from autoselect.quantize.repairing.repairs import RepairKit
from autoselect.quantize.repairing.weight_rounding import round_weights
from autoselect.quantize.repairing.weight_scales import reround_weights
from autoselect.rewrites import names
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb


def hide_unused_outputs(built: Built, kit: RepairKit) -> None:
    """Needs the outputs that calibration had. Gives the float model's own alone."""
    names.hide_unused_outputs(built.model, kit.names)


def forget_calibration(built: Built, _kit: RepairKit) -> None:
    """Needs a calibrated model. Gives it without ranges, and without intermediate tensors of recurrent ops."""
    graph = built.model.subgraphs[0]
    for tensor in graph.tensors:
        if not fb.scales(tensor):
            tensor.quantization = schema.QuantizationParametersT()
    for op in graph.operators:
        op.intermediates = None
    editing.drop_unused_tensors(built.model)


def name_constants(built: Built, kit: RepairKit) -> None:
    """Needs ``places``. Gives each operand a tensor of its own, and constants the float model's names."""
    names.restore_constants(built.model, kit.names, {index: [place] for index, place in built.places.items()})


def tidy(built: Built, _kit: RepairKit) -> None:
    """Needs nothing. Gives no buffer that is unused, and one op code for each op type, conversions last."""
    editing.tidy(built.model)


FLOAT: tuple[Pass, ...] = (hide_unused_outputs, forget_calibration, name_constants)
WEIGHTS: tuple[Pass, ...] = (reround_weights, take_fewer_levels, round_weights, correct_biases, store_in_4_bits)
HYBRID: tuple[Pass, ...] = (*FLOAT, make_hybrid, *WEIGHTS)
INTEGER: tuple[Pass, ...] = (name_constants, *WEIGHTS)
CANDIDATE: tuple[Pass, ...] = (correct_biases_in_sequence, tidy)


def run(passes: Iterable[Pass], built: Built, kit: RepairKit) -> Built:
    """Run passes one after the other over what is being built, in place."""
    for step in passes:
        step(built, kit)
    return built
