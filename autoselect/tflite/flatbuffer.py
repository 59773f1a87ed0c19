"""TFLite files as editable objects: parse, check, serialise; knows the schema, not what a model is for."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from flatbuffers.builder import BuilderSizeError

from autoselect.errors import ModelError, first_line
from autoselect.tflite import schema_types, unpacking
from autoselect.tflite.soundness import check_indices, check_room, check_sound
from autoselect.tflite.steady_builder import SteadyBuilder

Model = schema_types.Model
SubGraph = schema_types.SubGraph
Operator = schema_types.Operator
OperatorCode = schema_types.OperatorCode
Tensor = schema_types.Tensor
Buffer = schema_types.Buffer
Quantization = schema_types.Quantization
SignatureDef = schema_types.SignatureDef
Indices = schema_types.Indices

FILE_IDENTIFIER = b"TFL3"
LFS_POINTER = b"version https://git-lfs"

OP_TYPES: dict[int, str] = schema_types.names_of_codes(schema.BuiltinOperator)

TENSOR_DTYPES: dict[int, str] = {
    code: name.lower() for code, name in schema_types.names_of_codes(schema.TensorType).items()
}

CONVERSIONS = ("QUANTIZE", "DEQUANTIZE")

CONTROL_FLOW = frozenset({"WHILE", "IF", "CALL_ONCE", "CALL", "STABLEHLO_WHILE", "STABLEHLO_CASE"})
"""Ops that run other subgraphs."""

_PLACEHOLDER_FOR_GREATER_OP_CODE = 127
_DAMAGE = (struct.error, ValueError, TypeError, AttributeError, IndexError, OverflowError, MemoryError)
"""What reading raises of bytes that nobody wrote as they are."""

TENSOR_LISTS = ("inputs", "outputs", "intermediates")


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
        raw, tables = schema.Model.GetRootAs(content, 0), unpacking.Tables(content)
        check_room(raw, tables, len(content))
        model = unpacking.model(raw, content, tables)
        _bring_in(model, content)
        check_sound(model)
    except _DAMAGE as exc:
        raise _damaged(len(content), exc) from exc
    for code in model.operatorCodes:
        code.builtinCode = max(code.builtinCode, code.deprecatedBuiltinCode)
    return model


def with_input_shapes(content: bytes, shapes: Sequence[Sequence[int]]) -> bytes:
    """The file with other shapes written over those of the main subgraph's inputs; all other bytes stay.

    Args:
        content: Bytes of the file.
        shapes: Of the inputs in their order, each with as many axes as before.
    """
    changed = bytearray(content)
    graph = schema.Model.GetRootAs(changed, 0).Subgraphs(0)
    for place, shape in enumerate(shapes):
        graph.Tensors(graph.Inputs(place)).ShapeAsNumpy()[:] = shape
    return bytes(changed)


def parse_interface(content: bytes) -> Model:
    """As :func:`parse`, but only signatures, metadata and tensors: no ops, the main graph's inputs and outputs in full.

    Of all other tensors nothing is there but ``isVariable`` and ``type``.

    Raises:
        ModelError: If the bytes are not a whole TFLite file, as far as they are read.
    """
    _check_identifier(content)
    try:
        raw, tables = schema.Model.GetRootAs(content, 0), unpacking.Tables(content)
        check_room(raw, tables, len(content))
        graph = raw.Subgraphs(0)
        model: Model = schema.ModelT()
        main: SubGraph = schema.SubGraphT()
        main.inputs, main.outputs = (
            [row(i) for i in range(count)]
            for row, count in ((graph.Inputs, graph.InputsLength()), (graph.Outputs, graph.OutputsLength()))
        )
        ends = {*main.inputs, *main.outputs}
        places = tables.places(unpacking.field(graph, tables, unpacking.TENSORS)) if graph.TensorsLength() else ()
        main.tensors = [tables.tensor(at) if i in ends else tables.glance(at) for i, at in enumerate(places)]
        check_indices(main)
        model.subgraphs = [main, *(_glanced(raw.Subgraphs(i), tables) for i in range(1, raw.SubgraphsLength()))]
        model.signatureDefs = [
            schema.SignatureDefT.InitFromObj(raw.SignatureDefs(i)) for i in range(raw.SignatureDefsLength())
        ]
        model.metadata = [schema.MetadataT.InitFromObj(raw.Metadata(i)) for i in range(raw.MetadataLength())]
    except _DAMAGE as exc:
        raise _damaged(len(content), exc) from exc
    return model


def _glanced(raw: Any, tables: unpacking.Tables) -> SubGraph:
    graph: SubGraph = schema.SubGraphT()
    places = tables.places(unpacking.field(raw, tables, unpacking.TENSORS)) if raw.TensorsLength() else ()
    graph.tensors = [tables.glance(at) for at in places]
    return graph


def has_type(content: bytes, tensor_type: int) -> bool:
    """Whether the main subgraph has a tensor of a type; takes a fiftieth of the time of :func:`parse`.

    Raises:
        ModelError: As :func:`parse_interface`.
    """
    return any(tensor.type == tensor_type for tensor in parse_interface(content).subgraphs[0].tensors)


def _check_identifier(content: bytes) -> None:
    if len(content) < 8 or content[4:8] != FILE_IDENTIFIER:
        if content.startswith(LFS_POINTER):
            raise ModelError("This is a pointer of Git LFS, not the model. Fetch the model itself: git lfs pull")
        identifier = content[4:8].decode("latin-1") if len(content) >= 8 else f"{len(content)} bytes"
        raise ModelError(
            f"Expected a TFLite file (identifier 'TFL3' at byte 4), found {identifier!r}. "
            "Pass a .tflite, .keras, .h5, .onnx or .pt2 file, or a SavedModel folder."
        )


def _damaged(size: int, why: Exception) -> ModelError:
    return ModelError(
        f"The TFLite file is damaged or cut off ({size} bytes read; {first_line(why)}). "
        "Copy or convert it again and compare its size with the original's."
    )


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
    """Write a model with aligned buffers; equal models give equal bytes.

    Raises:
        ModelError: If it takes more than a flatbuffer holds.
    """
    try:
        return _written(model)
    except BuilderSizeError as exc:
        raise ModelError(
            "The model takes more than 2 GB, which is all that a TFLite file holds; weights of float16 count twice, as "
            "they are widened to float32. Choose a smaller model, or one part of it."
        ) from exc


def _written(model: Model) -> bytes:
    data = [data_of(buffer) for buffer in model.buffers]
    # A builder without room doubles all that it has.
    builder = SteadyBuilder(sum(map(len, data)) + (1 << 16) + sum(map(_room, model.subgraphs)))
    for buffer, values in zip(model.buffers, data, strict=True):
        buffer.__class__ = PlacedBuffer
        buffer.place = builder.write_data(values) if len(values) else None
    builder.write_zero_points(zero_points(model))
    ready_to_pack(model)
    builder.Finish(model.Pack(builder), file_identifier=FILE_IDENTIFIER)
    return bytes(memoryview(builder.Bytes)[builder.Head() :])


def _room(graph: SubGraph) -> int:
    """About the bytes that a subgraph takes at most beside the data of buffers."""
    named = sum(len(tensor.name or b"") + 12 * len(scales(tensor)) for tensor in graph.tensors)
    return named + 512 * (len(graph.tensors) + len(graph.operators or []))


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


def op_type(model: Model, op: Operator) -> str:
    """Name of an op's type: ``CONV_2D``; for a custom op its own name."""
    code = model.operatorCodes[op.opcodeIndex]
    if code.builtinCode == schema.BuiltinOperator.CUSTOM:
        return (code.customCode or b"CUSTOM").decode("utf-8", "replace")
    return OP_TYPES.get(code.builtinCode, f"BUILTIN_{code.builtinCode}")


def tensor_name(tensor: Tensor) -> str:
    """Name of a tensor, empty if it has none."""
    return (tensor.name or b"").decode("utf-8", "replace")


def shape_of(tensor: Tensor) -> tuple[int, ...]:
    """Static shape of a tensor; a scalar has the empty shape."""
    return indices(tensor.shape)


def scales(tensor: Tensor) -> tuple[float, ...]:
    """Scales of a tensor; none for one that is not quantized."""
    quantization = tensor.quantization
    if quantization is None or quantization.scale is None:
        return ()
    return tuple(float(scale) for scale in quantization.scale)


def scale_count(tensor: Tensor) -> int:
    """How many scales a tensor has; 0 for one that is not quantized."""
    quantization = tensor.quantization
    return 0 if quantization is None or quantization.scale is None else len(quantization.scale)


def zero_points_of(tensor: Tensor) -> tuple[int, ...]:
    """Zero points of a tensor; none for one that is not quantized."""
    quantization = tensor.quantization
    return () if quantization is None else indices(quantization.zeroPoint)


def parameters(tensor: Tensor) -> Quantization:
    """How a tensor is quantized that is known to be."""
    assert tensor.quantization is not None
    return tensor.quantization


def indices(row: Indices | None) -> tuple[int, ...]:
    """Whole numbers of a vector as plain ones; none where the file leaves it out."""
    return () if row is None else tuple(int(i) for i in row)


def computed(graph: SubGraph) -> set[int]:
    """Tensors of a subgraph that an op or a caller writes."""
    return {i for op in graph.operators or [] for i in indices(op.outputs)} | set(indices(graph.inputs))


def is_constant(model: Model, tensor: Tensor) -> bool:
    """True where the tensor's values lie in the file."""
    data = model.buffers[tensor.buffer].data
    return tensor.buffer != 0 and data is not None and len(data) > 0


def constant_values(model: Model, tensor: Tensor) -> np.ndarray:
    """Values of a constant tensor, in its own shape and dtype (a view, not a copy); of 4 bits as int8 (a copy)."""
    if tensor.type == schema.TensorType.INT4:
        return _unpacked_nibbles(data_of(model.buffers[tensor.buffer]), shape_of(tensor))
    dtype = np.dtype(TENSOR_DTYPES[tensor.type])
    raw = np.asarray(model.buffers[tensor.buffer].data, dtype=np.uint8)
    return raw.view(dtype).reshape(shape_of(tensor))


def packed_nibbles(levels: np.ndarray) -> np.ndarray:
    """Levels of -8..7 as a file holds them in 4 bits: two a byte, the first in the lower half; shape (n_bytes,)."""
    halves = levels.reshape(-1).astype(np.uint8) & 15
    halves = np.append(halves, np.zeros(halves.size % 2, np.uint8))
    return np.asarray(halves[::2] | halves[1::2] << 4, np.uint8)


def _unpacked_nibbles(packed: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    halves = np.stack([packed & 15, packed >> 4], axis=-1).reshape(-1)[: int(np.prod(shape))]
    return np.asarray((halves.astype(np.int8) ^ 8) - 8, np.int8).reshape(shape)


def along(figures: np.ndarray, axis: int, ndim: int) -> np.ndarray:
    """Figures of channels, or one for all, shape (n,), in a shape that goes with values of ``ndim`` dimensions."""
    shape = [1] * ndim
    if figures.size > 1:
        shape[axis] = figures.size
    return figures.reshape(shape)


def buffer_bytes(buffer: Buffer) -> bytes:
    """The data of a buffer; none for an activation's."""
    return data_of(buffer).tobytes()


def data_of(buffer: Buffer) -> np.ndarray:
    """The bytes as uint8, shape (n_bytes,); not a copy."""
    return np.zeros(0, np.uint8) if buffer.data is None else np.asarray(buffer.data, dtype=np.uint8)
