"""Runs a compiled model on the x86 emulation of Qualcomm's NPU, piece by piece; refuses to know how it was compiled.

LiteRT's compiler plugin makes a ``DISPATCH_OP`` of each piece that the NPU takes, and appends the piece's context
binary to the file. ONNX Runtime's QNN execution provider runs such a binary as the one node of an ONNX model
(``EPContext``). What was left to the CPU runs on LiteRT's interpreter, as models of their own.

The emulation's results are the host's claim of what the chip computes, and its times say nothing of the chip.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from flatbuffers import flexbuffers

from autoselect.compilers.libraries import version_of
from autoselect.compilers.litert_plugin import DISPATCH_OP, unread_outputs
from autoselect.domain.tensors import in_source_order
from autoselect.errors import ModelError, ScoreError, UsageError, first_line, sentence
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.editing import copied, drop_unused_tensors, tidy
from autoselect.tflite.runner import Outputs, dequantized, inputs_of, interpreter_of, quantized

PACKAGES = ("onnxruntime", "onnxruntime-qnn")

_BACKEND = "libQnnHtp.so"
_ODD_CHARACTERS = re.compile(rb"[^a-zA-Z0-9_]+")
_NO_FLEXBUFFER = (struct.error, ValueError, TypeError, AttributeError, IndexError, KeyError, RecursionError)
"""What reading raises of bytes that are no flexbuffer, or not the one that is expected."""

_ONNX_DTYPES = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "uint32": 12,
}
"""``TensorProto.DataType`` of ``onnx.proto``. Levels are plain integers here: the binary knows their scales."""
_Field = tuple[int, int | str | bytes]
"""Number and value of a field of a protobuf message."""
_IR_VERSION = 8
_OPSETS = {"": 17, "com.microsoft": 1}
"""Versions of ONNX that any ONNX Runtime with plugins reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """Ops that run at once.

    Attributes:
        inputs: Tensors of the main subgraph that it reads, in the order in which ``run`` takes them.
        outputs: Those that it writes, in the order in which ``run`` gives them.
        run: Runs it once.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    run: Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]


class EmulatedRunner:
    """One compiled model, ready to be run a sample at a time, as :class:`autoselect.tflite.runner.Runner` runs others.

    Attributes:
        inputs: The model's inputs.
        outputs: The model's outputs.
        inference_seconds: Time spent in the pieces so far. It is the host's, not the chip's.
    """

    def __init__(self, compiled: bytes, *, libraries: Path, source: bytes | None = None) -> None:
        """Load the model and open all its pieces.

        Args:
            compiled: Bytes of a file that LiteRT's plugin for Qualcomm's chips has compiled.
            libraries: Folder with ``libQnnHtp.so`` and the libraries that it loads, such as that of the package
                ``onnxruntime_qnn``.
            source: The model that was compiled. Without it, a piece that writes a value that nobody reads does not run.

        Raises:
            UsageError: If ONNX Runtime or its QNN execution provider is not installed.
            ScoreError: If the file is damaged or has variables, or if the emulation or LiteRT refuses a piece of it.
        """
        require_emulation()
        model = _parsed(compiled)
        tensors = model.subgraphs[0].tensors
        self.inference_seconds = 0.0
        self.inputs, self.outputs = reader.input_specs(model), reader.output_specs(model)
        self._feeds = [
            (spec, i, _detail(tensors[i]))
            for spec, i in zip(self.inputs, fb.indices(model.subgraphs[0].inputs), strict=True)
        ]
        places = dict(zip(self.outputs, fb.indices(model.subgraphs[0].outputs), strict=True))
        self._fetches = [(spec, places[spec], _detail(tensors[places[spec]])) for spec in in_source_order(self.outputs)]
        unread = iter(unread_outputs(source, model) if source is not None else ())
        self._pieces = [
            _npu_piece(model, ops[0], compiled, libraries, next(unread, ()))
            if _is_npus(model, ops[0])
            else _cpu_piece(model, ops)
            for ops in _runs(model)
        ]
        self._constants = _constants(model, self._pieces)

    def __call__(self, inputs: Mapping[str, np.ndarray] | np.ndarray) -> Outputs:
        """Run one sample.

        Args:
            inputs: Arrays by input key or tensor name, in the model's shape (batch 1); a bare array for a
                model of one input.

        Returns:
            Float32 arrays by output key (integer outputs dequantized), in the order of the source's outputs.

        Raises:
            ScoreError: As :meth:`step`.
        """
        return self.step(inputs)

    def step(self, inputs: Mapping[str, np.ndarray] | np.ndarray) -> Outputs:
        """Run one sample; as there are no variables, it is the same as a call.

        Raises:
            ScoreError: If an input is missing, or a piece fails.
        """
        if not isinstance(inputs, Mapping):
            inputs = {self.inputs[0].key: inputs}
        values = dict(self._constants)
        given = inputs_of(inputs, [spec for spec, _, _ in self._feeds])
        for value, (_, tensor, detail) in zip(given, self._feeds, strict=True):
            values[tensor] = quantized(value, detail)
        start = time.perf_counter()
        for piece in self._pieces:
            values.update(zip(piece.outputs, piece.run([values[i] for i in piece.inputs]), strict=True))
        self.inference_seconds += time.perf_counter() - start
        return {spec.key: dequantized(values[tensor], detail) for spec, tensor, detail in self._fetches}

    go_on = __call__

    def reset(self) -> None:
        """Do nothing: a compiled model keeps nothing from one sample to the next."""


def require_emulation() -> None:
    """Raise where a package that the emulation needs is not installed.

    Raises:
        UsageError: With the command that installs it.
    """
    if missing := [name for name in PACKAGES if importlib.util.find_spec(name.replace("-", "_")) is None]:
        raise UsageError(
            f"The emulation of Qualcomm's NPU needs {' and '.join(PACKAGES)}, and {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not installed. Install what is missing: "
            f"pip install {' '.join(missing)}; its libraries have a licence of Qualcomm's own, "
            "onnxruntime_qnn/Qualcomm_LICENSE.pdf."
        )


def emulation_versions() -> dict[str, str]:
    """Versions of what decides the emulation's results, by package.

    Raises:
        UsageError: As :func:`require_emulation`.
    """
    require_emulation()
    return {name: version_of(name, name.replace("-", "_")) for name in PACKAGES}


# ------------------------------------------------------------------------------------------ the compiled file


def _parsed(compiled: bytes) -> fb.Model:
    try:
        model = fb.parse(compiled)
        interface = reader.read_interface(compiled)
    except ModelError as exc:
        raise ScoreError(f"The compiled model cannot be read: {sentence(first_line(exc))}") from exc
    if interface.is_stateful or interface.has_resources:
        raise ScoreError("The compiled model has variables: the emulation runs models without them only.")
    if any(_is_npus(model, op) for graph in model.subgraphs[1:] for op in graph.operators or []):
        raise ScoreError(
            "A piece of the NPU lies within a loop or a branch: the emulation runs those of the main graph only."
        )
    return model


def _runs(model: fb.Model) -> Iterator[list[fb.Operator]]:
    """The main subgraph's ops in the order of the file: each of the NPU's alone, runs of the CPU's together."""
    for is_npus, ops in groupby(model.subgraphs[0].operators, key=lambda op: _is_npus(model, op)):
        if is_npus:
            yield from ([op] for op in ops)
        else:
            yield list(ops)


def _is_npus(model: fb.Model, op: fb.Operator) -> bool:
    return fb.op_type(model, op) == DISPATCH_OP


def _constants(model: fb.Model, pieces: Sequence[_Piece]) -> dict[int, np.ndarray]:
    """Values that pieces or the caller read and no piece computes before."""
    graph = model.subgraphs[0]
    computed, early_reads = set(fb.indices(graph.inputs)), set[int]()
    for piece in pieces:
        early_reads.update(set(piece.inputs) - computed)
        computed.update(piece.outputs)
    early_reads.update(set(fb.indices(graph.outputs)) - computed)
    if bad := [i for i in sorted(early_reads) if i < 0 or not fb.is_constant(model, graph.tensors[i])]:
        raise ScoreError(f"The compiled model is damaged: tensor {bad[0]} is read before a piece computes it.")
    return {i: fb.constant_values(model, graph.tensors[i]) for i in early_reads}


def _detail(tensor: fb.Tensor) -> dict[str, Any]:
    """What LiteRT's interpreter would tell of a tensor."""
    scales = np.asarray(fb.scales(tensor), dtype=np.float32)
    parameters = {"scales": scales, "zero_points": np.asarray(fb.zero_points_of(tensor), dtype=np.int32)}
    dtype = np.dtype(fb.TENSOR_DTYPES[tensor.type])
    return {"name": fb.tensor_name(tensor), "dtype": dtype, "quantization_parameters": parameters}


# ------------------------------------------------------------------------------------------ the CPU's pieces


def _cpu_piece(model: fb.Model, ops: Sequence[fb.Operator]) -> _Piece:
    graph = model.subgraphs[0]
    written = {i for op in ops for i in fb.indices(op.outputs)}
    read = {i for op in ops for i in fb.indices(op.inputs)}
    others = {i for op in graph.operators if all(op is not own for own in ops) for i in fb.indices(op.inputs)}
    inputs = tuple(sorted((read - written) & fb.computed(graph)))
    outputs = tuple(sorted(written & (others | set(fb.indices(graph.outputs)))))
    interpreter = _interpreter(_cut_out(model, ops, inputs, outputs))
    return _Piece(inputs=inputs, outputs=outputs, run=lambda values: _interpreted(interpreter, values))


def _cut_out(model: fb.Model, ops: Sequence[fb.Operator], inputs: tuple[int, ...], outputs: tuple[int, ...]) -> bytes:
    """Some ops of the main subgraph as a file of their own, with the subgraphs that they run."""
    places = [i for i, op in enumerate(model.subgraphs[0].operators) if any(op is own for own in ops)]
    cut = copied(model)
    graph = cut.subgraphs[0]
    graph.operators = [graph.operators[i] for i in places]
    graph.inputs, graph.outputs = np.array(inputs, np.int32), np.array(outputs, np.int32)
    cut.signatureDefs, cut.metadata, cut.metadataBuffer = None, None, None
    if not any(fb.op_type(cut, op) in fb.CONTROL_FLOW for op in graph.operators):
        cut.subgraphs = [graph]
    drop_unused_tensors(cut)
    tidy(cut)
    return fb.serialise(cut)


def _interpreter(content: bytes) -> Any:
    try:
        interpreter = interpreter_of(content, preserve=False, delegates=True)
        interpreter.allocate_tensors()
    except (ValueError, RuntimeError) as exc:
        raise ScoreError(
            f"The LiteRT interpreter refuses what was left to the CPU: {sentence(first_line(exc))}"
        ) from exc
    return interpreter


def _interpreted(interpreter: Any, values: Sequence[np.ndarray]) -> list[np.ndarray]:
    try:
        for value, detail in zip(values, interpreter.get_input_details(), strict=True):
            interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
    except (ValueError, RuntimeError) as exc:
        raise ScoreError(
            f"The LiteRT interpreter fails on what was left to the CPU: {sentence(first_line(exc))}"
        ) from exc
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


# ------------------------------------------------------------------------------------------ the NPU's pieces


def _npu_piece(
    model: fb.Model, op: fb.Operator, compiled: bytes, libraries: Path, unread: Sequence[fb.Tensor]
) -> _Piece:
    tensors = model.subgraphs[0].tensors
    name, binary = _binary(op, compiled)
    inputs, outputs = fb.indices(op.inputs), fb.indices(op.outputs)
    given, wanted = ([_bound_name(tensors[i]) for i in row] for row in (inputs, outputs))
    shapes = [fb.shape_of(tensors[i]) for i in outputs]
    beside = [tensor for tensor in unread if _bound_name(tensor).encode() in binary]
    content = _onnx_model(name, binary, [tensors[i] for i in inputs], [*(tensors[i] for i in outputs), *beside])
    session = _session(content, libraries)

    def run(values: Sequence[np.ndarray]) -> list[np.ndarray]:
        arrays = _mapped(lambda: session.run(wanted, dict(zip(given, values, strict=True))))
        return [np.reshape(value, shape) for value, shape in zip(arrays, shapes, strict=True)]

    return _Piece(inputs=inputs, outputs=outputs, run=run)


def _binary(op: fb.Operator, compiled: bytes) -> tuple[str, bytes]:
    """Name and context binary of a piece: the op's options say where in the file it lies."""
    try:
        options = flexbuffers.Loads(np.asarray(op.customOptions, dtype=np.uint8).tobytes())
        name, offset, size = str(options["name"]), int(options["bytecode_offset"]), int(options["bytecode_size"])
    except _NO_FLEXBUFFER as exc:
        raise ScoreError(f"The compiled model is damaged: a {DISPATCH_OP} does not say where its binary is.") from exc
    if offset < 0 or size <= 0 or offset + size > len(compiled):
        raise ScoreError(
            f"The compiled model is damaged or cut off: a binary lies at bytes {offset} to {offset + size} "
            f"of a file of {len(compiled)} bytes. Compile the model again."
        )
    return name, compiled[offset : offset + size]


def _bound_name(tensor: fb.Tensor) -> str:
    """Name of an input or output in the binary, as the plugin writes it; without it ONNX Runtime goes by position."""
    return _ODD_CHARACTERS.sub(b"_", tensor.name or b"").decode("ascii")


def _session(content: bytes, libraries: Path) -> Any:
    """A session of ONNX Runtime on the emulation."""
    runtime, plugin = (importlib.import_module(name) for name in ("onnxruntime", "onnxruntime_qnn"))
    options = runtime.SessionOptions()
    # Only what is fatal is logged: errors are raised as well.
    options.log_severity_level = 4
    options.intra_op_num_threads = 1

    def opened() -> Any:
        options.add_provider_for_devices(_devices(runtime, plugin), {"backend_path": str(libraries / _BACKEND)})
        # Without this it would try the CPU after an error, which has no such op, and tell of that only.
        return runtime.InferenceSession(content, options, enable_fallback=0)

    return _mapped(opened)


def _devices(runtime: Any, plugin: Any) -> list[Any]:
    """The emulation as a device; its library is registered once for the process."""
    name = plugin.get_ep_name()
    if not _named(runtime, name):
        runtime.register_execution_provider_library(name, plugin.get_library_path())
    return _named(runtime, name)


def _named(runtime: Any, name: str) -> list[Any]:
    return [device for device in runtime.get_ep_devices() if device.ep_name == name]


def _mapped(call: Callable[[], Any]) -> Any:
    """What a call gives; what ONNX Runtime raises becomes an error of this package."""
    state = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    kinds = (kind for kind in vars(state).values() if isinstance(kind, type) and issubclass(kind, Exception))
    foreign: tuple[type[Exception], ...] = (RuntimeError, ValueError, *kinds)
    try:
        return call()
    except foreign as exc:
        raise ScoreError(f"The emulation of the NPU fails: {sentence(first_line(exc))}") from exc


# ---------------------------------------------------------------- the ONNX model of a piece, in protobuf's wire format


def _onnx_model(name: str, binary: bytes, inputs: Sequence[fb.Tensor], outputs: Sequence[fb.Tensor]) -> bytes:
    """An ONNX model of one ``EPContext`` node that carries a context binary.

    The numbers of the fields are those of ``onnx.proto``.

    Args:
        name: Of the graph in the binary.
        binary: The context binary.
        inputs: What the graph reads, as tensors of the compiled model.
        outputs: What it writes.
    """
    attributes: dict[str, int | bytes] = {
        "main_context": 1,
        "embed_mode": 1,
        "ep_cache_context": binary,
        "source": b"QNNExecutionProvider",
        "partition_name": name.encode(),
    }
    node: list[_Field] = [(3, name), (4, "EPContext"), (7, "com.microsoft")]
    node += [(number, _bound_name(tensor)) for number, row in ((1, inputs), (2, outputs)) for tensor in row]
    node += [(5, _attribute(key, value)) for key, value in attributes.items()]
    ends = [(number, _value_info(tensor)) for number, row in ((11, inputs), (12, outputs)) for tensor in row]
    opsets = [(8, _message((1, domain), (2, version))) for domain, version in _OPSETS.items()]
    return _message((1, _IR_VERSION), (7, _message((1, _message(*node)), (2, name), *ends)), *opsets)


def _attribute(name: str, value: int | bytes) -> bytes:
    whole = isinstance(value, int)
    return _message((1, name), (3 if whole else 4, value), (20, 2 if whole else 3))


def _value_info(tensor: fb.Tensor) -> bytes:
    """Name, type and shape of an input or output."""
    dtype = fb.TENSOR_DTYPES[tensor.type]
    if dtype not in _ONNX_DTYPES:
        raise ScoreError(f"The emulation has no tensors of type {dtype} between the NPU's pieces and others.")
    shape = _message(*((1, _message((1, size))) for size in fb.shape_of(tensor)))
    return _message((1, _bound_name(tensor)), (2, _message((1, _message((1, _ONNX_DTYPES[dtype]), (2, shape))))))


def _message(*fields: _Field) -> bytes:
    """Numbered fields in protobuf's wire format: whole numbers, and texts, data or messages with their length."""
    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts.append(_varint(number << 3) + _varint(value))
        else:
            data = value.encode() if isinstance(value, str) else value
            parts += [_varint(number << 3 | 2) + _varint(len(data)), data]
    return b"".join(parts)


def _varint(number: int) -> bytes:
    """A whole number from 0, seven bits a byte, the lowest first."""
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*groups, number])
