"""Unpacks the tensors and ops of a file, which are most of its tables, in a third of the time of generated code.

Gives the objects that the generated code gives. Leaves to that code the parts that are rare, and all of a kind that has
more fields in the schema than are known here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.tflite.schema_types import Buffer, Model, Operator, SubGraph, Tensor, names_of_codes

_FIELDS = 16
"""Fields that are read of a table: more than any table here has."""
_HALVES = tuple(struct.Struct(f"<{count}H") for count in range(_FIELDS + 1))
_I32, _U32, _U64 = (struct.Struct(code).unpack_from for code in ("<i", "<I", "<Q"))
_I8, _U8 = (struct.Struct(code).unpack_from for code in ("<b", "<B"))
_ENTRY = 4
"""Bytes of an entry in a vector of tables."""

_SHAPE, _TYPE, _BUFFER, _NAME, _QUANTIZATION, _IS_VARIABLE, _SPARSITY, _SIGNATURE, _HAS_RANK, _VARIANTS, _EXTERNAL = (
    range(11)
)
_MIN, _MAX, _SCALE, _ZERO_POINT, _DETAILS, _, _DIMENSION = range(7)
_CODE, _INPUTS, _OUTPUTS, _OPTIONS_TYPE, _OPTIONS, _CUSTOM, _CUSTOM_FORMAT, _MUTATING, _INTERMEDIATES = range(9)
_LARGE_OFFSET, _LARGE_SIZE, _OPTIONS_2_TYPE, _OPTIONS_2, _DEBUG = range(9, 14)

TENSORS, _OPERATORS, _BUFFERS = 0, 3, 4

_OPTION_KINDS = {
    code: getattr(schema, f"{name}T") for code, name in names_of_codes(schema.BuiltinOptions).items() if code
}
_KNOWN = {
    schema.TensorT: 11,
    schema.QuantizationParametersT: 7,
    schema.OperatorT: 14,
    schema.SubGraphT: 6,
    schema.BufferT: 3,
}
_IS_KNOWN = all(len(vars(kind())) == count for kind, count in _KNOWN.items())
"""Whether the schema has the fields that are read here, and no others."""


class Tables:
    """The tables of one file: where each of their fields lies."""

    def __init__(self, content: bytes) -> None:
        """Read nothing yet."""
        self._content = content
        self._layouts: dict[int, tuple[int, ...]] = {}

    def layout(self, at: int) -> tuple[int, ...]:
        """Where the fields of a table lie behind its own place; 0 for those that it does not have."""
        place = at - _I32(self._content, at)[0]
        layout = self._layouts.get(place)
        if layout is None:
            count = min(_HALVES[1].unpack_from(self._content, place)[0] // 2 - 2, _FIELDS)
            fields = _HALVES[max(count, 0)].unpack_from(self._content, place + 4)
            layout = self._layouts[place] = fields + (0,) * (_FIELDS - len(fields))
        return layout

    def vector(self, at: int, dtype: str) -> np.ndarray:
        """The vector that a field leads to; not a copy."""
        start = at + _U32(self._content, at)[0]
        return np.frombuffer(self._content, dtype, _U32(self._content, start)[0], start + 4)

    def length(self, at: int) -> int:
        """The count of entries of the vector or text that a field leads to."""
        return int(_U32(self._content, at + _U32(self._content, at)[0])[0])

    def text(self, at: int) -> bytes:
        """The text that a field leads to."""
        start = at + _U32(self._content, at)[0]
        return bytes(self._content[start + 4 : start + 4 + _U32(self._content, start)[0]])

    def places(self, at: int) -> Iterator[int]:
        """Where the tables of the vector are that a field leads to."""
        start = at + _U32(self._content, at)[0] + 4
        for i in range(_U32(self._content, start - 4)[0]):
            entry = start + _ENTRY * i
            yield entry + _U32(self._content, entry)[0]

    def tensor(self, at: int) -> Tensor:
        """One tensor."""
        lie = self.layout(at)
        content = self._content
        if lie[_SPARSITY] or lie[_VARIANTS]:
            return cast(Tensor, self._generated(schema.Tensor, schema.TensorT, at))
        tensor: Any = schema.TensorT()
        tensor.shape = self.vector(at + lie[_SHAPE], "<i4") if lie[_SHAPE] else None
        tensor.type = _I8(content, at + lie[_TYPE])[0] if lie[_TYPE] else 0
        tensor.buffer = _U32(content, at + lie[_BUFFER])[0] if lie[_BUFFER] else 0
        tensor.name = self.text(at + lie[_NAME]) if lie[_NAME] else None
        if lie[_QUANTIZATION]:
            place = at + lie[_QUANTIZATION]
            tensor.quantization = self._quantization(place + _U32(content, place)[0])
        tensor.isVariable = bool(_I8(content, at + lie[_IS_VARIABLE])[0]) if lie[_IS_VARIABLE] else False
        tensor.shapeSignature = self.vector(at + lie[_SIGNATURE], "<i4") if lie[_SIGNATURE] else None
        tensor.hasRank = bool(_I8(content, at + lie[_HAS_RANK])[0]) if lie[_HAS_RANK] else False
        tensor.externalBuffer = _U32(content, at + lie[_EXTERNAL])[0] if lie[_EXTERNAL] else 0
        return cast(Tensor, tensor)

    def glance(self, at: int) -> Tensor:
        """A tensor of which only ``isVariable`` and ``type`` are read."""
        lie = self.layout(at)
        tensor: Tensor = schema.TensorT()
        tensor.type = _I8(self._content, at + lie[_TYPE])[0] if lie[_TYPE] else 0
        tensor.isVariable = bool(_I8(self._content, at + lie[_IS_VARIABLE])[0]) if lie[_IS_VARIABLE] else False
        return tensor

    def texts_of_tensor(self, at: int) -> int:
        """Bytes of a tensor's name, and of the entries of its vectors of tables."""
        lie = self.layout(at)
        size = self.length(at + lie[_NAME]) if lie[_NAME] else 0
        if lie[_VARIANTS]:
            size += _ENTRY * self.length(at + lie[_VARIANTS])
        if lie[_SPARSITY]:
            place = at + lie[_SPARSITY]
            place += _U32(self._content, place)[0]
            entries = self.layout(place)[2]
            size += _ENTRY * self.length(place + entries) if entries else 0
        return size

    def _quantization(self, at: int) -> Any:
        lie = self.layout(at)
        if lie[_DETAILS]:
            return self._generated(schema.QuantizationParameters, schema.QuantizationParametersT, at)
        quantization = schema.QuantizationParametersT()
        quantization.min = self.vector(at + lie[_MIN], "<f4") if lie[_MIN] else None
        quantization.max = self.vector(at + lie[_MAX], "<f4") if lie[_MAX] else None
        quantization.scale = self.vector(at + lie[_SCALE], "<f4") if lie[_SCALE] else None
        quantization.zeroPoint = self.vector(at + lie[_ZERO_POINT], "<i8") if lie[_ZERO_POINT] else None
        quantization.quantizedDimension = _I32(self._content, at + lie[_DIMENSION])[0] if lie[_DIMENSION] else 0
        return quantization

    def op(self, at: int) -> Operator:
        """One op."""
        lie = self.layout(at)
        content = self._content
        if lie[_MUTATING] or lie[_OPTIONS_2_TYPE] or lie[_OPTIONS_2] or lie[_LARGE_OFFSET] or lie[_LARGE_SIZE]:
            return cast(Operator, self._generated(schema.Operator, schema.OperatorT, at))
        op: Any = schema.OperatorT()
        op.opcodeIndex = _U32(content, at + lie[_CODE])[0] if lie[_CODE] else 0
        op.inputs = self.vector(at + lie[_INPUTS], "<i4") if lie[_INPUTS] else None
        op.outputs = self.vector(at + lie[_OUTPUTS], "<i4") if lie[_OUTPUTS] else None
        op.builtinOptionsType = _U8(content, at + lie[_OPTIONS_TYPE])[0] if lie[_OPTIONS_TYPE] else 0
        if lie[_OPTIONS]:
            place = at + lie[_OPTIONS]
            kind = _OPTION_KINDS.get(op.builtinOptionsType)
            op.builtinOptions = kind and kind.InitFromBuf(content, place + _U32(content, place)[0])
        op.customOptions = self.vector(at + lie[_CUSTOM], "<u1") if lie[_CUSTOM] else None
        op.customOptionsFormat = _I8(content, at + lie[_CUSTOM_FORMAT])[0] if lie[_CUSTOM_FORMAT] else 0
        op.intermediates = self.vector(at + lie[_INTERMEDIATES], "<i4") if lie[_INTERMEDIATES] else None
        op.debugMetadataIndex = _I32(content, at + lie[_DEBUG])[0] if lie[_DEBUG] else -1
        return cast(Operator, op)

    def buffer(self, at: int) -> Buffer:
        """One buffer."""
        lie = self.layout(at)
        buffer: Buffer = schema.BufferT()
        buffer.data = self.vector(at + lie[0], "<u1") if lie[0] else None
        buffer.offset, buffer.size = (_U64(self._content, at + lie[i])[0] if lie[i] else 0 for i in (1, 2))
        return buffer

    def _generated(self, reader: Callable[[], Any], kind: Any, at: int) -> Any:
        table = reader()
        table.Init(self._content, at)
        return kind.InitFromObj(table)


class _Rest(schema.Model):  # type: ignore[misc]
    """A model that the generated code takes for one without subgraphs and buffers."""

    def SubgraphsIsNone(self) -> bool:  # noqa: N802 - name of the generated API
        """Leave them out."""
        return True

    def BuffersIsNone(self) -> bool:  # noqa: N802 - as above
        """Leave them out."""
        return True


def model(raw: Any, content: bytes, tables: Tables) -> Model:
    """The whole model, from what the generated code reads it by."""
    if not _IS_KNOWN:
        read: Model = schema.ModelT.InitFromObj(raw)
        return read
    rest = _Rest()
    rest.Init(content, raw._tab.Pos)
    root: Model = schema.ModelT.InitFromObj(rest)
    if not raw.SubgraphsIsNone():
        graphs = (raw.Subgraphs(i) for i in range(raw.SubgraphsLength()))
        root.subgraphs = [_subgraph(graph, tables) for graph in graphs]
    if not raw.BuffersIsNone():
        root.buffers = [tables.buffer(at) for at in tables.places(field(raw, tables, _BUFFERS))]
    return root


def field(raw: Any, tables: Tables, number: int) -> int:
    """Where a field of a table of the generated code is."""
    at = int(raw._tab.Pos)
    return at + tables.layout(at)[number]


def _subgraph(raw: Any, tables: Tables) -> SubGraph:
    graph: Any = schema.SubGraphT()
    at = raw._tab.Pos
    lie = tables.layout(at)
    if lie[TENSORS]:
        graph.tensors = [tables.tensor(place) for place in tables.places(at + lie[TENSORS])]
    if lie[_OPERATORS]:
        graph.operators = [tables.op(place) for place in tables.places(at + lie[_OPERATORS])]
    for name, number in (("inputs", 1), ("outputs", 2)):
        setattr(graph, name, tables.vector(at + lie[number], "<i4") if lie[number] else None)
    graph.name, graph.debugMetadataIndex = raw.Name(), raw.DebugMetadataIndex()
    return cast(SubGraph, graph)
