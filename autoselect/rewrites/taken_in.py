"""What happens to a model of the user's, in this order, before anything else looks at it."""

from __future__ import annotations

from autoselect.rewrites.odd_forms import BUILTIN, DENSE, FITTED, INLINED, WIDE
from autoselect.rewrites.rewriting import Rewrite
from autoselect.rewrites.variables import FROZEN, STATES, UNREAD
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.schema_types import Metadata

_STABLEHLO_CONSTANTS = b"keep_stablehlo_constant"
"""Metadata of files that litert-torch wrote. TensorFlow's quantizer then does not know weights as constants, and every
op that has some stays float."""


def _forget_metadata(model: fb.Model) -> list[Metadata]:
    entries = model.metadata or []
    model.metadata = [entry for entry in entries if entry.name != _STABLEHLO_CONSTANTS] or None
    return [entry for entry in entries if entry.name == _STABLEHLO_CONSTANTS]


def _name_anew(model: fb.Model) -> list[fb.Tensor]:
    """Replace what is no UTF-8 in names of tensors, which TensorFlow's quantizer refuses; returns these tensors."""
    tensors = [tensor for graph in model.subgraphs for tensor in graph.tensors or []]
    odd = [tensor for tensor in tensors if fb.tensor_name(tensor).encode() != (tensor.name or b"")]
    for tensor in odd:
        tensor.name = fb.tensor_name(tensor).encode()
    return odd


TAKEN_IN: tuple[Rewrite, ...] = (
    INLINED,
    Rewrite(name="metadata forgotten", deed=_forget_metadata),
    Rewrite(name="names in UTF-8", deed=_name_anew),
    FROZEN,
    STATES,
    UNREAD,
    DENSE,
    WIDE,
    BUILTIN,
)
IN_TRUE_SHAPES: tuple[Rewrite, ...] = (FITTED,)
"""What happens once its tensors have their true shapes."""
