"""QUANTIZE and DEQUANTIZE ops between the forms of a value: how they are written, what they take, in which order."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from ai_edge_litert import schema_py_generated as schema

from autoselect.errors import BuildError
from autoselect.quantize.building.blueprint import Conversion
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import footprint as fp

_VERSIONS = {"QUANTIZE": 1, "DEQUANTIZE": 2}
"""Of conversions from and to int8 and uint8; one more with int16 (``lite/tools/versioning/op_version.cc``)."""


@cache
def conversion_footprint(op_type: str) -> fp.Footprint:
    """What one takes in a file, its tensors aside."""
    shell: fb.Model = schema.ModelT()
    shell.operatorCodes = [conversion_code(op_type, [])]
    return fp.op_footprint(shell, conversion_op(0, 0, 0))


def sorted_chain(chain: Iterable[Conversion], own: int) -> list[Conversion]:
    """Each behind the one whose result it converts."""
    left, made, found = list(chain), {own}, []
    while left:
        ready = [c for c in left if c.reads in made]
        if not ready:
            raise BuildError("The quantizer converts a tensor in a circle.")
        found += ready
        made |= {c.writes for c in ready}
        left = [c for c in left if c not in ready]
    return found


def conversion_code(op_type: str, tensors: Iterable[fb.Tensor]) -> fb.OperatorCode:
    """The op type of a conversion between tensors."""
    code: fb.OperatorCode = schema.OperatorCodeT()
    code.builtinCode = getattr(schema.BuiltinOperator, op_type)
    code.version = _VERSIONS[op_type] + any(t.type == schema.TensorType.INT16 for t in tensors)
    return code


def conversion_op(code: int, source: int, result: int) -> fb.Operator:
    """A QUANTIZE or DEQUANTIZE."""
    op: fb.Operator = schema.OperatorT()
    op.opcodeIndex, op.inputs, op.outputs = code, [source], [result]
    return op
