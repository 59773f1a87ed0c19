"""Ops with an int8 kernel in LiteRT that the quantizer knows no integer form of: it quantizes others in their place.

What stands for an op reads and writes integers of free scales as that does, so that the rest of the build is the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ai_edge_litert import schema_py_generated as schema

from autoselect.quantize import names
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.tflite_file import TfliteFile

STANDS_IN = {"ELU": "GELU"}
"""What is quantized in the place of an op type: one that computes each value from one alone, and has no parameters."""


def with_stand_ins(calibrated: TfliteFile, places: Collection[int]) -> TfliteFile:
    """A calibrated model under canonical names, to be quantized and not to be run; the same where nothing stands in."""
    if not places:
        return calibrated
    model = calibrated.copied()
    _swap(model, places, STANDS_IN)
    return TfliteFile(model=model)


def without_stand_ins(model: fb.Model, places: Collection[int]) -> None:
    """Give what the quantizer made of :func:`with_stand_ins` the ops of the calibrated model again, in place."""
    twins = [place for index, at in names.op_places(model).items() if index in places for place in at]
    _swap(model, twins, {stand_in: op_type for op_type, stand_in in STANDS_IN.items()})


def stood_in_for(model: fb.Model) -> frozenset[int]:
    """Places of the main graph's ops that another one has to stand in for."""
    return frozenset(i for i, op in enumerate(model.subgraphs[0].operators) if fb.op_type(model, op) in STANDS_IN)


def _swap(model: fb.Model, places: Iterable[int], into: Mapping[str, str]) -> None:
    """Give ops at some places another type, in place, where they are of a type that has one."""
    for op in (model.subgraphs[0].operators[place] for place in places):
        if (op_type := fb.op_type(model, op)) in into:
            op.opcodeIndex = editing.add_code(model, into[op_type])
            op.builtinOptionsType, op.builtinOptions = schema.BuiltinOptions.NONE, None
