"""Weights of 4-bit levels stored in 4 bits, where a runtime has a kernel that reads them.

What may be stored so is a list by op type, kind of op, and one scale or one for each channel. The list was made by
running models: an interpreter also takes what it computes wrongly, such as DEPTHWISE_CONV_2D beside 16-bit activations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.quantize.repairing.built import Built
from autoselect.quantize.repairing.fewer_levels import top_of
from autoselect.quantize.repairing.repairs import RepairKit
from autoselect.quantize.repairing.weighted_ops import quantized_ops
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.operands import WEIGHTED

_INT8, _INT16, _FLOAT = schema.TensorType.INT8, schema.TensorType.INT16, schema.TensorType.FLOAT32


@dataclass(frozen=True, slots=True)
class Kernel:
    """What reads weights of 4 bits: an op type, the type of its activations, and whether channels have own scales."""

    op_type: str
    activation: int
    per_channel: bool


def _kernels(op_type: str, *activations: int, per_channel: tuple[bool, ...] = (True, False)) -> set[Kernel]:
    return {Kernel(op_type, activation, each) for activation in activations for each in per_channel}


KERNELS: Mapping[str, frozenset[Kernel]] = {
    "int4-litert": frozenset(
        _kernels("FULLY_CONNECTED", _INT8, _INT16, _FLOAT)
        | _kernels("CONV_2D", _INT8, _INT16, _FLOAT)
        | _kernels("DEPTHWISE_CONV_2D", _INT8)
    ),
    "int4-tflm": frozenset(
        _kernels("CONV_2D", _INT8)
        | _kernels("DEPTHWISE_CONV_2D", _INT8)
        | _kernels("FULLY_CONNECTED", _INT8, per_channel=(False,))
    ),
}
"""By the name of a repair, the kernels of a runtime that give the same bits as with the same weights in 8 bits."""

_VERSIONS = {"CONV_2D": 7, "DEPTHWISE_CONV_2D": 7, "FULLY_CONNECTED": 10}
"""Least version of an op that says to a runtime that it may have weights of 4 bits."""

_TOP = top_of("levels-4")


def store_in_4_bits(built: Built, kit: RepairKit) -> None:
    """Pass: store weights of 4-bit levels in 4 bits, if the recipe has ``int4-litert`` or ``int4-tflm``.

    Needs weights that are final, with ``grids``. Gives weights, and in ``skipped`` why an op keeps 8 bits.
    """
    repair = next((name for name in built.repairs if name in KERNELS), None)
    if repair is None:
        return
    skipped = dict[int, str]()
    for index, op in quantized_ops(built.model, kit.float_model(built.repairs), built.places):
        grid = built.grids.get(index)
        if grid is None or grid.top > _TOP:
            continue
        why = _why_not(built.model, op, repair, is_spread=bool(np.any(grid.step > 1)))
        if why is None:
            _store(built.model, op)
        else:
            skipped[index] = why
    built.skipped[repair] = skipped


def _why_not(model: fb.Model, op: fb.Operator, repair: str, *, is_spread: bool) -> str | None:
    """Why the weights of an op keep 8 bits."""
    op_type, tensors = fb.op_type(model, op), model.subgraphs[0].tensors
    activation = tensors[op.inputs[WEIGHTED[op_type].activation]].type
    kernel = Kernel(op_type, activation, len(fb.scales(tensors[op.inputs[1]])) > 1)
    if kernel not in KERNELS[repair]:
        scales = "one scale for each channel" if kernel.per_channel else "one scale"
        return (
            f"no kernel of {repair.partition('-')[2]} reads {op_type} weights of 4 bits with {scales} beside "
            f"{fb.TENSOR_DTYPES[activation]} activations"
        )
    return "its levels lie further apart than 4 bits reach, so that its bias can be told" if is_spread else None


def _store(model: fb.Model, op: fb.Operator) -> None:
    tensor, op_type = model.subgraphs[0].tensors[op.inputs[1]], fb.op_type(model, op)
    tensor.buffer = editing.add_buffer(model, fb.packed_nibbles(fb.constant_values(model, tensor)))
    tensor.type = schema.TensorType.INT4
    code = model.operatorCodes[op.opcodeIndex]
    code.version = max(code.version, _VERSIONS[op_type])
