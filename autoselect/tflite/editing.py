"""Takes parts out of a parsed model and puts some in: tensors, buffers, copies, codes of ops."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.tflite.flatbuffer import CONVERSIONS, OP_TYPES, TENSOR_LISTS, buffer_bytes, indices, op_type, shape_of
from autoselect.tflite.schema_types import Model, Operator, OperatorCode, Quantization, SignatureDef, SubGraph, Tensor

T = TypeVar("T")

_VALUES = (int, float, bytes, str, tuple, np.generic)
"""What nobody can change."""

_CONVERSIONS = {"QUANTIZE": 1, "DEQUANTIZE": 2}
"""Versions of conversions from and to int8 and uint8; one more with int16 (``lite/tools/versioning/op_version.cc``)."""

_OPTIONS = {"ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions", "SLICE": "SliceOptions"}


def conversion_code(name: str, tensors: Iterable[Tensor]) -> OperatorCode:
    """The op type of a QUANTIZE or DEQUANTIZE between tensors."""
    code: OperatorCode = schema.OperatorCodeT()
    code.builtinCode = getattr(schema.BuiltinOperator, name)
    code.version = _CONVERSIONS[name] + any(t.type == schema.TensorType.INT16 for t in tensors)
    return code


def conversion_op(code: int, source: int, result: int) -> Operator:
    """A QUANTIZE or DEQUANTIZE."""
    op: Operator = schema.OperatorT()
    op.opcodeIndex, op.inputs, op.outputs = code, [source], [result]
    return op


def add_code(model: Model, op_type: str) -> int:
    """Append the first version of an op type and return its index; :func:`tidy` makes one of equal ones."""
    code: OperatorCode = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = getattr(schema.BuiltinOperator, op_type)
    code.version = 1
    model.operatorCodes.append(code)
    return len(model.operatorCodes) - 1


def add_buffer(model: Model, values: np.ndarray) -> int:
    """Append a buffer with the bytes of ``values`` and return its index."""
    buffer = schema.BufferT()
    buffer.data = np.frombuffer(np.ascontiguousarray(values).tobytes(), dtype=np.uint8)
    model.buffers.append(buffer)
    return len(model.buffers) - 1


def add_constant(model: Model, name: str, values: np.ndarray) -> int:
    """Append a tensor of the main subgraph with these float32, int32 or int64 values and return its index."""
    tensor: Tensor = schema.TensorT()
    tensor.name, tensor.shape = name.encode(), np.array(values.shape, np.int32)
    tensor.type = getattr(schema.TensorType, values.dtype.name.upper())
    tensor.buffer = add_buffer(model, values)
    model.subgraphs[0].tensors.append(tensor)
    return len(model.subgraphs[0].tensors) - 1


def new_op(model: Model, op_type: str, inputs: Sequence[int], output: int) -> Operator:
    """An op of one output, with plain options where its type is known to have some; its code is appended."""
    op: Operator = schema.OperatorT()
    op.opcodeIndex = add_code(model, op_type)
    op.inputs, op.outputs = np.array(inputs, np.int32), np.array([output], np.int32)
    if op_type in _OPTIONS:
        name = _OPTIONS[op_type]
        op.builtinOptionsType, op.builtinOptions = getattr(schema.BuiltinOptions, name), getattr(schema, f"{name}T")()
    return op


def symmetric(scales: np.ndarray, axis: int = 0) -> Quantization:
    """Parameters with these scales along an axis, and zero points of zero."""
    parameters: Quantization = schema.QuantizationParametersT()
    parameters.scale = scales
    parameters.zeroPoint = np.zeros(scales.size, dtype=np.int64)
    parameters.quantizedDimension = axis
    return parameters


def drop_unread_conversions(model: Model) -> None:
    """Remove the QUANTIZE and DEQUANTIZE ops of the main subgraph whose output nobody reads, and their tensors."""
    graph = model.subgraphs[0]
    needed = {int(i) for i in graph.outputs}
    kept = []
    for op in reversed(graph.operators):
        if op_type(model, op) not in CONVERSIONS or needed & {int(i) for i in op.outputs}:
            needed |= {int(i) for i in op.inputs}
            kept.append(op)
    graph.operators = kept[::-1]
    drop_unused_tensors(model)


def drop_copies(model: Model, graph: SubGraph, sources: Collection[int], is_copy: Callable[[Operator], bool]) -> None:
    """Remove the ops of a subgraph that only copy some tensors, in place: who reads a copy then reads the tensor.

    Args:
        model: The model.
        graph: One of its subgraphs.
        sources: The tensors whose copies go.
        is_copy: Tells of an op that reads one of them first whether it copies it and does nothing else.
    """
    same: dict[int, int] = {}
    kept = []
    for op in graph.operators or []:
        source = next(iter(indices(op.inputs)), -1)
        if source in sources and is_copy(op):
            same[int(op.outputs[0])] = source
        else:
            kept.append(op)
    graph.operators = kept
    for op in kept:
        if op.inputs is not None:  # a file may leave it out
            op.inputs = np.array([same.get(int(i), int(i)) for i in op.inputs], np.int32)
    if graph.outputs is not None:
        graph.outputs = np.array([same.get(int(i), int(i)) for i in graph.outputs], dtype=np.int32)
    for signature in model.signatureDefs or []:
        if model.subgraphs[signature.subgraphIndex or 0] is graph:
            for entry in signature.outputs or []:
                entry.tensorIndex = same.get(int(entry.tensorIndex), int(entry.tensorIndex))


def drop_unused_tensors(model: Model, subgraph: int = 0) -> None:
    """Remove the tensors of a subgraph, the main one by default, that no op reads or writes; inputs, outputs stay."""
    graph = model.subgraphs[subgraph]
    rows = [graph.inputs, graph.outputs, *(getattr(op, name) for op in graph.operators for name in TENSOR_LISTS)]
    order = sorted({i for row in rows for i in indices(row) if i >= 0})
    if len(order) == len(graph.tensors):
        return
    place = {-1: -1, **{old: new for new, old in enumerate(order)}}
    graph.tensors = [graph.tensors[old] for old in order]
    for holder, names in ((graph, ("inputs", "outputs")), *((op, TENSOR_LISTS) for op in graph.operators)):
        for name in names:
            row = getattr(holder, name)
            if row is not None:
                setattr(holder, name, np.array([place[int(i)] for i in row], dtype=np.int32))
    for signature in model.signatureDefs or []:
        if (signature.subgraphIndex or 0) == subgraph:
            for entry in (*(signature.inputs or []), *(signature.outputs or [])):
                entry.tensorIndex = place[int(entry.tensorIndex)]


def copied(model: Model) -> Model:
    """A model of its own that shares the data of the buffers only; takes a third of the time of a deep copy."""
    duplicate: Model = _copied(model, {id(buffer.data): buffer.data for buffer in model.buffers})
    return duplicate


def twin(part: T) -> T:
    """A copy of an object of the schema that shares what it holds, as ``copy.copy`` does, in a third of its time."""
    duplicate = object.__new__(type(part))
    duplicate.__dict__.update(part.__dict__)
    return duplicate


def _copied(part: Any, copies: dict[int, Any]) -> Any:
    """A copy of a part with all that it holds; what several parts hold is still one."""
    if part is None or isinstance(part, _VALUES):
        return part
    if id(part) in copies:
        return copies[id(part)]
    if isinstance(part, list):
        duplicate: Any = [_copied(element, copies) for element in part]
    elif isinstance(part, np.ndarray):
        duplicate = part.copy()
    else:
        duplicate = twin(part)
        for name, value in part.__dict__.items():
            if value is not None and not isinstance(value, _VALUES):
                duplicate.__dict__[name] = _copied(value, copies)
    copies[id(part)] = duplicate
    return duplicate


def tidy(model: Model) -> None:
    """Leave nothing that the order of edits could tell: unused buffers go, op codes are in order, in place."""
    drop_unused_buffers(model)
    order_operator_codes(model)


def drop_unused_buffers(model: Model) -> None:
    """Remove the buffers that no tensor and no metadata, of the old field too, point at; buffer 0 stays."""
    old_entries = [i for i in indices(model.metadataBuffer) if i < len(model.buffers)]
    used = {0, *old_entries}
    used.update(t.buffer for g in model.subgraphs for t in g.tensors)
    used.update(entry.buffer for entry in model.metadata or [])
    order = sorted(used)
    place = {old: new for new, old in enumerate(order)}
    model.buffers = [model.buffers[old] for old in order]
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            tensor.buffer = place[tensor.buffer]
    for entry in model.metadata or []:
        entry.buffer = place[entry.buffer]
    if model.metadataBuffer is not None:
        model.metadataBuffer = np.array([place[i] for i in old_entries], dtype=np.int32)


def share_equal_constants(model: Model) -> None:
    """Let equal constants of the main subgraph share one tensor, and those of equal bytes one buffer, in place.

    Which constants share depends on nothing but the constants themselves, while the quantizer's own sharing depends
    on the order in which it meets them.
    """
    graph = model.subgraphs[0]
    activations = {
        int(i) for row in (*(op.outputs for op in graph.operators), graph.inputs, graph.outputs) for i in row
    }
    buffers: dict[bytes, int] = {}
    twins: dict[tuple[object, ...], int] = {}
    same: dict[int, int] = {}
    for index, tensor in enumerate(graph.tensors):
        if index in activations or tensor.isVariable or tensor.buffer == 0:
            continue
        tensor.buffer = buffers.setdefault(buffer_bytes(model.buffers[tensor.buffer]), tensor.buffer)
        same[index] = twins.setdefault((*constant_key(tensor), tensor.buffer), index)
    for op in graph.operators:
        op.inputs = np.array([same.get(int(i), int(i)) for i in op.inputs], dtype=np.int32)
    drop_unused_tensors(model)


def constant_key(tensor: Tensor) -> tuple[object, ...]:
    """What tells constants of equal bytes apart: name, type, shape, scales, zero points and their axis."""
    quantization = tensor.quantization
    parameters: tuple[object, ...] = ()
    if quantization is not None:
        rows = (quantization.scale, quantization.zeroPoint)
        scales = (b"" if row is None else np.asarray(row).tobytes() for row in rows)
        parameters = (*scales, quantization.quantizedDimension)
    return (tensor.name, tensor.type, shape_of(tensor), parameters)


def order_operator_codes(model: Model) -> None:
    """Keep one op code, of the highest version, for each op type that ops have, in place.

    Conversions come last, the rest in order of their code.
    """
    ops = [op for graph in model.subgraphs for op in graph.operators]
    codes: dict[tuple[bool, int, bytes], OperatorCode] = {}
    rank = {index: _rank(model.operatorCodes[index]) for index in {int(op.opcodeIndex) for op in ops}}
    for index, code_rank in rank.items():
        code = model.operatorCodes[index]
        codes[code_rank] = max(codes.get(code_rank, code), code, key=lambda candidate: int(candidate.version))
    order = sorted(codes)
    for op in ops:
        op.opcodeIndex = order.index(rank[int(op.opcodeIndex)])
    model.operatorCodes = [codes[code_rank] for code_rank in order]


def _rank(code: OperatorCode) -> tuple[bool, int, bytes]:
    return (OP_TYPES.get(code.builtinCode) in CONVERSIONS, code.builtinCode, code.customCode or b"")


def new_signature(key: str, model: Model, inputs: Sequence[str], outputs: Sequence[str]) -> SignatureDef:
    """A signature of the main subgraph with these names of its inputs and outputs; it is not added to the model."""
    graph = model.subgraphs[0]
    signature: SignatureDef = schema.SignatureDefT()
    signature.signatureKey, signature.subgraphIndex = key.encode(), 0
    signature.inputs, signature.outputs = (
        [_entry(name, int(index)) for name, index in zip(names, indices, strict=True)]
        for names, indices in ((inputs, graph.inputs), (outputs, graph.outputs))
    )
    return signature


def _entry(name: str, index: int) -> schema.TensorMapT:
    entry = schema.TensorMapT()
    entry.name, entry.tensorIndex = name.encode(), index
    return entry
