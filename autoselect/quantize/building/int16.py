"""Which ops of a build with 16-bit activations can stand in a candidate; knows one op at a time.

TensorFlow's 16-bit quantizer leaves ops in float that it does not know, and makes some that LiteRT refuses.
"""

from __future__ import annotations

from collections.abc import Container

from ai_edge_litert import schema_py_generated as schema

from autoselect.quantize.repairing.built import Built
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader

NO_KERNEL = frozenset({"SQUARED_DIFFERENCE"})
"""Op types that the quantizer makes and LiteRT 2.1 has no 16-bit kernel for."""

_NO_FORM = "TensorFlow's 16-bit quantizer does not make it a 16-bit op; it stays int8"
_NO_LITERT_KERNEL = "LiteRT has no 16-bit kernel for it; it stays int8"


def why_not(whole: Built, index: int, activations: Container[int]) -> str:
    """Why an op of the float model has no form with 16-bit activations; empty where it has.

    Args:
        whole: The 16-bit build.
        index: Of the op.
        activations: The tensors of the build that are values of the float model.
    """
    if index not in whole.places:
        return _NO_FORM
    model, graph = whole.model, whole.model.subgraphs[0]
    op = graph.operators[whole.places[index]]
    read = [int(t) for t in op.inputs if t >= 0 and not fb.is_constant(model, graph.tensors[t])]
    tensors = [graph.tensors[t] for t in (*read, *map(int, op.outputs))]
    quantized = [t for t in tensors if fb.TENSOR_DTYPES[t.type] in reader.FLOAT_DTYPES | reader.QUANTIZED_DTYPES]
    if not quantized or not all(t in activations for t in read) or not all(map(_is_plain_int16, quantized)):
        return _NO_FORM
    return _NO_LITERT_KERNEL if fb.op_type(model, op) in NO_KERNEL else ""


def _is_plain_int16(tensor: fb.Tensor) -> bool:
    """Whether it holds 16-bit integers around zero, as LiteRT's kernels want them."""
    return tensor.type == schema.TensorType.INT16 and not any(fb.zero_points_of(tensor))
