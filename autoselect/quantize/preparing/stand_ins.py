"""Ops with an int8 kernel in LiteRT that the quantizer knows no integer form of: it quantizes others in their place.

What stands for an op reads and writes integers of free scales as that does, so that the rest of the build is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ai_edge_litert import schema_py_generated as schema

from autoselect.quantize import names
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb

STANDS_IN = {"ELU": "GELU"}
"""What is quantized in the place of an op type: one that computes each value from one alone, and has no parameters."""


def with_stand_ins(content: bytes) -> bytes:
    """A calibrated model under canonical names, to be quantized and not to be run; the same where nothing stands in."""
    model = fb.parse(content)
    swapped = _swap(model, range(len(model.subgraphs[0].operators)), STANDS_IN)
    return fb.serialise(model) if swapped else content


def without_stand_ins(built: bytes, calibrated: bytes) -> bytes:
    """What the quantizer made of :func:`with_stand_ins`, with the ops of the calibrated model again."""
    before = fb.parse(calibrated)
    wanted = {i for i, op in enumerate(before.subgraphs[0].operators) if fb.op_type(before, op) in STANDS_IN}
    if not wanted:
        return built
    model = fb.parse(built)
    places = [place for index, at in names.op_places(model).items() if index in wanted for place in at]
    _swap(model, places, {stand_in: op_type for op_type, stand_in in STANDS_IN.items()})
    return fb.serialise(model)


def _swap(model: fb.Model, places: Iterable[int], into: Mapping[str, str]) -> bool:
    """Give ops at some places another type, in place; whether there was one to change."""
    ops = [model.subgraphs[0].operators[place] for place in places]
    chosen = [(op, into[op_type]) for op in ops if (op_type := fb.op_type(model, op)) in into]
    for op, op_type in chosen:
        op.opcodeIndex = editing.add_code(model, op_type)
        op.builtinOptionsType, op.builtinOptions = schema.BuiltinOptions.NONE, None
    return bool(chosen)
