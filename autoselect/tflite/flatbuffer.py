"""TFLite files as editable objects: parse, check, serialise; knows the schema, not what a model is for."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
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
CONTROL_FLOW = frozenset({"WHILE", "IF", "CALL_ONCE", "CALL", "STABLEHLO_WHILE", "STABLEHLO_CASE"})
"""Ops that run other subgraphs."""
_PLACEHOLDER_FOR_GREATER_OP_CODE = 127
_TENSOR_LISTS = ("inputs", "outputs", "intermediates")


HEAD_PAD = 12
BUFFER_ENTRY = 8
"""Bytes."""


class SteadyBuilder(flatbuffers.Builder):  # type: ignore[misc]
    """Writes each part of a model in as many bytes wherever it comes to lie, so that a file's size is a sum.

    What needs more than 4-byte alignment goes first, in blocks of its own: the data of buffers, then the zero points,
    equal ones once. All that follows begins and ends at a multiple of 4.
    """

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._zero_points: dict[bytes, int] = {}
        # An entry that nothing points at brings the layout that all others share, and the first data so begins at
        # an offset from which it takes what every other takes.
        self.Pad(HEAD_PAD)
        self.write_buffer(self.Offset())

    def EndObject(self) -> int:  # noqa: N802 - name of the flatbuffers API
        """Finish a table."""
        end = int(super().EndObject())
        self.Prep(4, 0)
        return end

    def CreateNumpyVector(self, x: np.ndarray) -> int:  # noqa: N802 - as above
        """Write a vector, or find it written."""
        written = self._zero_points.get(x.tobytes()) if x.dtype == np.int64 else None
        return int(super().CreateNumpyVector(x)) if written is None else written

    def PrependUint32Slot(self, o: int, x: int, d: int) -> None:  # noqa: N802 - as above
        """Write a number; the first of a table, which is an op's index of its type, also where it is the default.

        An op so takes as many bytes whichever op types there are beside its own.
        """
        super().PrependUint32Slot(o, x, None if o == 0 else d)

    def write_data(self, data: bytes) -> int:
        """Write a buffer with its data, aligned, and return its place."""
        self.StartVector(1, len(data), BUFFER_ALIGNMENT)
        self.head -= len(data)
        self.Bytes[self.head : self.head + len(data)] = data
        return self.write_buffer(int(self.EndVector()))

    def write_buffer(self, data: int) -> int:
        """Write the entry of a buffer whose data is written, and return its place."""
        schema.BufferStart(self)
        schema.BufferAddData(self, data)
        return int(schema.BufferEnd(self))

    def write_zero_points(self, model: Model) -> None:
        """Write each distinct vector of zero points, in an order that depends on nothing else."""
        for data in sorted(zero_points(model), key=lambda data: (len(data), data)):
            self._zero_points[data] = int(super().CreateNumpyVector(np.frombuffer(data, dtype="<i8")))


def zero_points(model: Model) -> set[bytes]:
    """The distinct vectors of zero points of a model, as the bytes of little-endian int64."""
    tensors = (tensor for graph in model.subgraphs for tensor in graph.tensors)
    rows = (t.quantization.zeroPoint for t in tensors if t.quantization is not None)
    return {np.asarray(row, dtype="<i8").tobytes() for row in rows if row is not None}


class PlacedBuffer(schema.BufferT):  # type: ignore[misc]
    """A buffer that is written before all else where it has data: the generated packer loses the alignment."""

    place: int | None

    def Pack(self, builder: flatbuffers.Builder) -> int:  # noqa: N802 - name of the generated API
        """Write the entry, or find it written."""
        if self.place is not None:
            return self.place
        schema.BufferStart(builder)
        return int(schema.BufferEnd(builder))


class FullOperatorCode(schema.OperatorCodeT):  # type: ignore[misc]
    """An op type with all its fields, so that its bytes do not depend on its version."""

    def Pack(self, builder: flatbuffers.Builder) -> int:  # noqa: N802 - name of the generated API
        """Write the entry."""
        builder.ForceDefaults(True)
        packed = int(super().Pack(builder))
        builder.ForceDefaults(False)
        return packed


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
    _check_identifier(content)
    try:
        model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
        _check_whole(model)
        _bring_in(model, content)
    except (struct.error, ValueError, TypeError, IndexError, OverflowError, MemoryError) as exc:
        raise _truncated(len(content)) from exc
    for code in model.operatorCodes:
        code.builtinCode = max(code.builtinCode, code.deprecatedBuiltinCode)
    return model


def parse_interface(content: bytes) -> Model:
    """As :func:`parse`, but only the signatures and the main subgraph, without ops, and inputs and outputs in full.

    Of its other tensors nothing is there but ``isVariable``.

    Raises:
        ModelError: If the bytes are not a whole TFLite file, as far as they are read.
    """
    _check_identifier(content)
    try:
        raw = schema.Model.GetRootAs(content, 0)
        graph, model = raw.Subgraphs(0), schema.ModelT()
        main = schema.SubGraphT()
        main.inputs, main.outputs = (
            [row(i) for i in range(count)]
            for row, count in ((graph.Inputs, graph.InputsLength()), (graph.Outputs, graph.OutputsLength()))
        )
        ends = {*main.inputs, *main.outputs}
        main.tensors = [_glance(graph.Tensors(i), in_full=i in ends) for i in range(graph.TensorsLength())]
        model.subgraphs = [main]
        model.signatureDefs = [
            schema.SignatureDefT.InitFromObj(raw.SignatureDefs(i)) for i in range(raw.SignatureDefsLength())
        ]
    except (struct.error, ValueError, TypeError, AttributeError, IndexError, OverflowError, MemoryError) as exc:
        raise _truncated(len(content)) from exc
    return model


def _glance(tensor: Any, *, in_full: bool) -> Any:
    if in_full:
        return schema.TensorT.InitFromObj(tensor)
    found = schema.TensorT()
    found.isVariable = tensor.IsVariable()
    return found


def _check_identifier(content: bytes) -> None:
    if len(content) < 8 or content[4:8] != FILE_IDENTIFIER:
        found = content[4:8].decode("latin-1") if len(content) >= 8 else f"{len(content)} bytes"
        raise ModelError(
            f"Expected a TFLite file (identifier 'TFL3' at byte 4), found {found!r}. "
            "Pass a .tflite, .keras or .h5 file, or a SavedModel folder."
        )


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


def _bring_in(model: Model, content: bytes) -> None:
    """Put data that lie behind the flatbuffer, where some writers keep large ones, into their buffers, in place."""
    for buffer in model.buffers:
        if buffer.offset > 1 and buffer.size:
            buffer.data = _behind(content, buffer.offset, buffer.size)
            buffer.offset = buffer.size = 0
    for op in (op for graph in model.subgraphs for op in graph.operators or []):
        if op.largeCustomOptionsOffset > 1 and op.largeCustomOptionsSize:
            op.customOptions = _behind(content, op.largeCustomOptionsOffset, op.largeCustomOptionsSize)
            op.largeCustomOptionsOffset = op.largeCustomOptionsSize = 0


def _behind(content: bytes, offset: int, size: int) -> np.ndarray:
    if offset + size > len(content):
        raise ValueError("data behind the end of the file")
    return np.frombuffer(content, dtype=np.uint8, count=size, offset=offset)


def serialise(model: Model) -> bytes:
    """Write a model with aligned buffers; equal models give equal bytes."""
    size = sum(0 if b.data is None else len(b.data) for b in model.buffers)
    builder = SteadyBuilder(size + (1 << 16))
    for buffer in model.buffers:
        buffer.__class__ = PlacedBuffer
        data = buffer_bytes(buffer)
        buffer.place = builder.write_data(data) if data else None
    builder.write_zero_points(model)
    ready_to_pack(model)
    builder.Finish(model.Pack(builder), file_identifier=FILE_IDENTIFIER)
    return bytes(builder.Output())


def ready_to_pack(model: Model) -> None:
    """Bring the parts that are packed in a form of their own into it, in place."""
    for code in model.operatorCodes:
        code.__class__ = FullOperatorCode
        code.deprecatedBuiltinCode = min(code.builtinCode, _PLACEHOLDER_FOR_GREATER_OP_CODE)
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            quantization = tensor.quantization
            if quantization is not None and quantization.zeroPoint is not None:
                quantization.zeroPoint = np.asarray(quantization.zeroPoint, dtype=np.int64)


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


def scales(tensor: Any) -> tuple[float, ...]:
    """Scales of a tensor; none for one that is not quantized."""
    quantization = tensor.quantization
    if quantization is None or quantization.scale is None:
        return ()
    return tuple(float(scale) for scale in quantization.scale)


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


def drop_copies(model: Model, graph: Any, sources: Collection[int], is_copy: Callable[[Any], bool]) -> None:
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
        source = int(op.inputs[0]) if op.inputs is not None and len(op.inputs) else -1
        if source in sources and is_copy(op):
            same[int(op.outputs[0])] = source
        else:
            kept.append(op)
    graph.operators = kept
    for op in kept:
        op.inputs = None if op.inputs is None else np.array([same.get(int(i), int(i)) for i in op.inputs], np.int32)
    graph.outputs = np.array([same.get(int(i), int(i)) for i in graph.outputs], dtype=np.int32)
    for signature in model.signatureDefs or []:
        if model.subgraphs[signature.subgraphIndex or 0] is graph:
            for entry in signature.outputs or []:
                entry.tensorIndex = same.get(int(entry.tensorIndex), int(entry.tensorIndex))


def drop_unused_tensors(model: Model, subgraph: int = 0) -> None:
    """Remove the tensors of a subgraph, the main one by default, that no op reads or writes; inputs, outputs stay."""
    graph = model.subgraphs[subgraph]
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
        if (signature.subgraphIndex or 0) == subgraph:
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


def buffer_bytes(buffer: Any) -> bytes:
    """The data of a buffer; none for an activation's."""
    return b"" if buffer.data is None else np.asarray(buffer.data, dtype=np.uint8).tobytes()


def constant_key(tensor: Any) -> tuple[object, ...]:
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
    codes: dict[tuple[bool, int, bytes], Any] = {}
    rank = {index: _rank(model.operatorCodes[index]) for index in {int(op.opcodeIndex) for op in ops}}
    for index, found in rank.items():
        code = model.operatorCodes[index]
        codes[found] = max(codes.get(found, code), code, key=lambda one: int(one.version))
    order = sorted(codes)
    for op in ops:
        op.opcodeIndex = order.index(rank[int(op.opcodeIndex)])
    model.operatorCodes = [codes[found] for found in order]


def _rank(code: Any) -> tuple[bool, int, bytes]:
    return (OP_TYPES.get(code.builtinCode) in CONVERSIONS, code.builtinCode, code.customCode or b"")
