"""TFLite files as editable objects: parse, check, serialise; knows the schema, not what a model is for."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.errors import ModelError

Model = Any
"""A ``schema.ModelT``; the generated module has no types."""

FILE_IDENTIFIER = b"TFL3"
BUFFER_ALIGNMENT = 16
"""Bytes. The schema's ``force_align`` on ``Buffer.data``; kernels on microcontrollers rely on it."""

OP_TYPES: dict[int, str] = {code: name for name, code in vars(schema.BuiltinOperator).items() if isinstance(code, int)}
TENSOR_DTYPES: dict[int, str] = {
    code: name.lower() for name, code in vars(schema.TensorType).items() if isinstance(code, int)
}

CONVERSIONS = ("QUANTIZE", "DEQUANTIZE")
_PLACEHOLDER_FOR_GREATER_OP_CODE = 127
_TENSOR_LISTS = ("inputs", "outputs", "intermediates")


class _AlignedBuffer(schema.BufferT):  # type: ignore[misc]
    """A buffer that keeps the schema's alignment, which the generated packer loses."""

    def Pack(self, builder: flatbuffers.Builder) -> int:  # noqa: N802 - name of the generated API
        if self.data is None or len(self.data) == 0:
            schema.BufferStart(builder)
            return int(schema.BufferEnd(builder))
        raw = np.asarray(self.data, dtype=np.uint8).tobytes()
        builder.StartVector(1, len(raw), BUFFER_ALIGNMENT)
        builder.head -= len(raw)
        builder.Bytes[builder.head : builder.head + len(raw)] = raw
        data = builder.EndVector()
        schema.BufferStart(builder)
        schema.BufferAddData(builder, data)
        return int(schema.BufferEnd(builder))


def read_model_file(path: Path) -> bytes:
    """Read a ``.tflite`` file.

    Raises:
        ModelError: If the file is missing or cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ModelError(f"There is no model file {path}. Check the path.") from None
    except OSError as exc:
        raise ModelError(f"The model file {path} cannot be read: {exc.strerror}.") from exc


def parse(content: bytes) -> Model:
    """Turn the bytes of a TFLite file into an editable model.

    Files of older converters name an op only in ``deprecated_builtin_code``; the result has the true
    code in both fields, as the runtime reads them (``max`` of both).

    Raises:
        ModelError: If the bytes are not a whole TFLite file.
    """
    if len(content) < 8 or content[4:8] != FILE_IDENTIFIER:
        found = content[4:8].decode("latin-1") if len(content) >= 8 else f"{len(content)} bytes"
        raise ModelError(
            f"Expected a TFLite file (identifier 'TFL3' at byte 4), found {found!r}. "
            "Pass a .tflite, .keras or .h5 file, or a SavedModel folder."
        )
    try:
        model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
        _check_whole(model)
    except (struct.error, ValueError, TypeError, IndexError, OverflowError, MemoryError) as exc:
        raise _truncated(len(content)) from exc
    for code in model.operatorCodes:
        code.builtinCode = max(code.builtinCode, code.deprecatedBuiltinCode)
    return model


def _truncated(size: int) -> ModelError:
    return ModelError(
        f"The TFLite file is damaged or cut off ({size} bytes read). "
        "Copy or convert it again and compare its size with the original's."
    )


def _check_whole(model: Model) -> None:
    """Touch what a truncated file loses: every buffer, tensor and op must be there."""
    if not model.subgraphs or not model.operatorCodes:
        raise ValueError("no subgraph")
    for graph in model.subgraphs:
        for tensor in graph.tensors or []:
            _ = model.buffers[tensor.buffer]
        for op in graph.operators or []:
            _ = model.operatorCodes[op.opcodeIndex]


def serialise(model: Model) -> bytes:
    """Write a model with aligned buffers; equal models give equal bytes."""
    for code in model.operatorCodes:
        code.deprecatedBuiltinCode = min(code.builtinCode, _PLACEHOLDER_FOR_GREATER_OP_CODE)
    for buffer in model.buffers:
        buffer.__class__ = _AlignedBuffer
    size = sum(0 if b.data is None else len(b.data) for b in model.buffers)
    builder = flatbuffers.Builder(size + (1 << 16))
    builder.Finish(model.Pack(builder), file_identifier=FILE_IDENTIFIER)
    return bytes(builder.Output())


def op_type(model: Model, op: Any) -> str:
    """Name of an op's type: ``CONV_2D``; for a custom op its own name."""
    code = model.operatorCodes[op.opcodeIndex]
    if code.builtinCode == schema.BuiltinOperator.CUSTOM:
        return (code.customCode or b"CUSTOM").decode("utf-8", "replace")
    return OP_TYPES.get(code.builtinCode, f"BUILTIN_{code.builtinCode}")


def tensor_name(tensor: Any) -> str:
    """Name of a tensor, empty if it has none."""
    return (tensor.name or b"").decode("utf-8", "replace")


def shape_of(tensor: Any) -> tuple[int, ...]:
    """Static shape of a tensor; a scalar has the empty shape."""
    return () if tensor.shape is None else tuple(int(size) for size in tensor.shape)


def is_constant(model: Model, tensor: Any) -> bool:
    """True where the tensor's values lie in the file."""
    data = model.buffers[tensor.buffer].data
    return tensor.buffer != 0 and data is not None and len(data) > 0


def constant_values(model: Model, tensor: Any) -> np.ndarray:
    """Values of a constant tensor, in its own shape and dtype (a view, not a copy)."""
    dtype = np.dtype(TENSOR_DTYPES[tensor.type])
    raw = np.asarray(model.buffers[tensor.buffer].data, dtype=np.uint8)
    return raw.view(dtype).reshape(shape_of(tensor))


def add_buffer(model: Model, values: np.ndarray) -> int:
    """Append a buffer with the bytes of ``values`` and return its index."""
    buffer = schema.BufferT()
    buffer.data = np.frombuffer(np.ascontiguousarray(values).tobytes(), dtype=np.uint8)
    model.buffers.append(buffer)
    return len(model.buffers) - 1


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


def drop_unused_tensors(model: Model) -> None:
    """Remove the tensors of the main subgraph that no op reads or writes; its inputs and outputs stay."""
    graph = model.subgraphs[0]
    rows = [graph.inputs, graph.outputs]
    rows += [row for op in graph.operators for row in (op.inputs, op.outputs, op.intermediates)]
    order = sorted({int(i) for row in rows if row is not None for i in row if i >= 0})
    if len(order) == len(graph.tensors):
        return
    place = {-1: -1, **{old: new for new, old in enumerate(order)}}
    graph.tensors = [graph.tensors[old] for old in order]
    for holder, names in ((graph, ("inputs", "outputs")), *((op, _TENSOR_LISTS) for op in graph.operators)):
        for name in names:
            row = getattr(holder, name)
            if row is not None:
                setattr(holder, name, np.array([place[int(i)] for i in row], dtype=np.int32))
    for signature in model.signatureDefs or []:
        if (signature.subgraphIndex or 0) == 0:
            for entry in (*(signature.inputs or []), *(signature.outputs or [])):
                entry.tensorIndex = place[int(entry.tensorIndex)]


def drop_unused_buffers(model: Model) -> None:
    """Remove the buffers that no tensor and no metadata entry points at; buffer 0 stays."""
    used = {0}
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
