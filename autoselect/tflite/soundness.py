"""Refuses files that are no model although they parse: sizes that no file has room for, indices that lead nowhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.tflite.schema_types import Indices, Model, SubGraph, Tensor, names_of_codes
from autoselect.tflite.unpacking import TENSORS, Tables, field

MOST_ELEMENTS = 1 << 40
"""Most elements of one tensor."""
_ODD_SIZES = frozenset({"STRING", "RESOURCE", "VARIANT", "INT4", "INT2", "UINT4"})
_DTYPES = names_of_codes(schema.TensorType)
_ITEM_BYTES = {"BOOL": 1, "BFLOAT16": 2, "FLOAT8_E4M3FN": 1, "FLOAT8_E5M2": 1}


def check_room(raw: Any, tables: Tables, size: int) -> None:
    """Refuse a file whose parts would take far more room than the file before they are unpacked.

    Nothing in the format keeps two entries from pointing at one part, and these at another one twice, and so on.

    Raises:
        ValueError: If there are more entries, or longer names, than a file of this size can hold.
    """
    # Most bytes of all names together, unless the file itself is larger.
    most_text_bytes = 1 << 30
    counts = [raw.BuffersLength(), raw.OperatorCodesLength(), raw.MetadataLength(), raw.SignatureDefsLength()]
    graphs = raw.SubgraphsLength()
    _fit(sum(counts) + graphs, size)
    for i in range(graphs):
        graph = raw.Subgraphs(i)
        counts += [graph.TensorsLength(), graph.OperatorsLength()]
        _fit(sum(counts) + graphs, size)
    for i in range(raw.SignatureDefsLength()):
        signature = raw.SignatureDefs(i)
        counts += [signature.InputsLength(), signature.OutputsLength()]
        _fit(sum(counts) + graphs, size)
    if sum(counts) * size > most_text_bytes:  # Else they cannot be that long, all of the file each.
        total = 0
        for length in _lengths_of_texts(raw, tables):
            total += length
            if total > max(most_text_bytes, size):
                raise ValueError("names that are longer than the file")


def _fit(entries: int, size: int) -> None:
    # Fewest bytes that an entry of a vector takes in the file.
    if entries * 4 > size:
        raise ValueError(f"{entries} entries in {size} bytes")


def _lengths_of_texts(raw: Any, tables: Tables) -> Iterator[int]:
    """Bytes of names, and entries of the vectors of tables that are within tables."""
    for i in range(raw.SubgraphsLength()):
        graph = raw.Subgraphs(i)
        if graph.TensorsLength():
            yield from map(tables.texts_of_tensor, tables.places(field(graph, tables, TENSORS)))
        yield _length(graph, 12)
    for i in range(raw.OperatorCodesLength()):
        yield _length(raw.OperatorCodes(i), 6)
    for i in range(raw.MetadataLength()):
        yield _length(raw.Metadata(i), 4)
    for i in range(raw.SignatureDefsLength()):
        signature = raw.SignatureDefs(i)
        yield _length(signature, 8)
        yield from (_length(signature.Inputs(j), 4) for j in range(signature.InputsLength()))
        yield from (_length(signature.Outputs(j), 4) for j in range(signature.OutputsLength()))


def _length(table: Any, slot: int) -> int:
    """Length of a text, without reading it; ``slot`` is its place among the fields of its table."""
    place = table._tab.Offset(slot)
    return int(table._tab.VectorLen(place)) if place else 0


def check_sound(model: Model) -> None:
    """Refuse a parsed model whose indices lead nowhere or whose constants are not as large as their shapes.

    Raises:
        ValueError, TypeError, IndexError: With what is wrong.
    """
    if not model.subgraphs:
        raise ValueError("no subgraph")
    model.operatorCodes = model.operatorCodes or []
    for graph in model.subgraphs:
        # Some writers leave out empty lists.
        graph.tensors, graph.operators = graph.tensors or [], graph.operators or []
        for tensor in graph.tensors:
            _check_tensor(model, tensor)
        for op in graph.operators:
            _ = model.operatorCodes[op.opcodeIndex]
            op.inputs, op.outputs = (_row(row) for row in (op.inputs, op.outputs))
        check_indices(graph)
    for metadata in model.metadata or []:
        _ = model.buffers[metadata.buffer]
    for signature in model.signatureDefs or []:
        tensors = model.subgraphs[signature.subgraphIndex or 0].tensors or []
        for entry in [*(signature.inputs or []), *(signature.outputs or [])]:
            _ = tensors[entry.tensorIndex], entry.name.decode("utf-8", "replace")


def _row(row: Indices | None) -> Indices:
    return np.empty(0, dtype=np.int32) if row is None else row


def check_indices(graph: SubGraph) -> None:
    """Refuse a subgraph of which an op, an input or an output is a tensor that is not there.

    Raises:
        IndexError: If there is one.
    """
    count = len(graph.tensors or [])
    rows: Iterable[Indices | None] = [graph.inputs, graph.outputs]
    rows = [*rows, *(row for op in graph.operators or [] for row in (op.inputs, op.outputs, op.intermediates))]
    for place, row in enumerate(rows):
        least = 0 if place < 2 else -1  # Of an op -1 stands for an operand that is left out.
        if row is not None and len(row) and not (int(np.min(row)) >= least and int(np.max(row)) < count):
            raise IndexError("an op, input or output names a tensor that is not there")


def _check_tensor(model: Model, tensor: Tensor) -> None:
    dtype, data = _DTYPES.get(tensor.type), model.buffers[tensor.buffer].data
    if dtype is None:
        raise ValueError(f"a tensor of the unknown type {tensor.type}")
    scales = None if tensor.quantization is None else tensor.quantization.scale
    if scales is not None and not (np.isfinite(scales).all() and np.min(scales, initial=0.0) >= 0.0):
        raise ValueError("a scale of a tensor that is no number, infinite or below 0")
    shape = [] if tensor.shape is None else [int(size) for size in tensor.shape]
    if min(shape, default=0) < -1 or prod(abs(size) for size in shape) > MOST_ELEMENTS:
        raise ValueError(f"a tensor of the shape {shape[:8]}")
    if data is None or not len(data) or tensor.buffer == 0 or tensor.sparsity is not None or dtype in _ODD_SIZES:
        return
    item = _ITEM_BYTES.get(dtype) or np.dtype(dtype.lower()).itemsize
    if len(data) != item * prod(shape):
        raise ValueError(f"{len(data)} bytes for a constant of the shape {shape[:8]}")
