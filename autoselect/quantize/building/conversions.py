"""QUANTIZE and DEQUANTIZE ops between the forms of a value: what they take, in which order."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from ai_edge_litert import schema_py_generated as schema

from autoselect.errors import BuildError
from autoselect.quantize.building.blueprint import Conversion
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import footprint as fp


@cache
def conversion_footprint(op_type: str) -> fp.Footprint:
    """What one takes in a file, its tensors aside."""
    shell: fb.Model = schema.ModelT()
    shell.operatorCodes = [editing.conversion_code(op_type, [])]
    return fp.op_footprint(shell, editing.conversion_op(0, 0, 0))


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
