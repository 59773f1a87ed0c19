"""Damaged and hostile versions of a TFLite file, drawn from a seed; knows the file format, nothing of autoselect's own.

Half of them change bytes of the file's structure: what buffers hold is left alone, since other weights are no damage.
The others change the parsed model and write it again with the schema's own packer, so that the file as such is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

Rng = np.random.Generator

EXTREMES = (0, 1, 2, 0x7F, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFF0)
WORDS = (-(2**31), -2, -1, 0, 1, 2**15, 2**24, 2**31 - 1)
NAMES = (
    b"../../../escaped",
    b"/tmp/escaped",
    b"<script>alert(1)</script>",
    b"[bold]x[/]",
    b"\x1b[2J\x00\r\n",
    b"\xff\xfe",
)


def structure(content: bytes) -> np.ndarray:
    """Places of the bytes that are no data of a buffer."""
    is_data = np.zeros(len(content), dtype=bool)
    model = schema.Model.GetRootAs(content, 0)
    for i in range(model.BuffersLength()):
        buffer = model.Buffers(i)
        if length := buffer.DataLength():
            begin = buffer._tab.Vector(buffer._tab.Offset(4))
            is_data[begin : begin + length] = True
    return np.flatnonzero(~is_data)


def bit_flips(content: bytes, rng: Rng) -> bytes:
    changed = bytearray(content)
    for place in rng.choice(structure(content), size=int(rng.integers(1, 9))):
        changed[place] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def truncated(content: bytes, rng: Rng) -> bytes:
    return content[: int(rng.integers(0, len(content)))]


def absurd_words(content: bytes, rng: Rng) -> bytes:
    """Offsets, sizes and counts all are aligned words of 4 bytes."""
    changed = bytearray(content)
    for place in rng.choice(structure(content), size=int(rng.integers(1, 4))):
        begin = min(place // 4 * 4, len(content) - 4)
        changed[begin : begin + 4] = int(rng.choice(EXTREMES)).to_bytes(4, "little")
    return bytes(changed)


def moved_words(content: bytes, rng: Rng) -> bytes:
    """Offsets that point at other parts of the file: tables that are read as others, and read twice."""
    places = structure(content) // 4 * 4
    changed = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        source, target = (int(place) for place in rng.choice(places, size=2))
        changed[target : target + 4] = content[source : source + 4]
    return bytes(changed[: len(content)])


def _written(model: Any) -> bytes:
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def _drawn(rng: Rng, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


def _graph(model: Any, rng: Rng) -> Any:
    return _drawn(rng, [graph for graph in model.subgraphs if graph.operators])


def shapes(model: Any, rng: Rng) -> None:
    tensor = _drawn(rng, _graph(model, rng).tensors)
    shape = np.array([1] if tensor.shape is None or not len(tensor.shape) else tensor.shape, dtype=np.int32)
    if rng.random() < 0.3:
        shape = np.resize(shape, int(rng.choice([0, 1, 9, 300])))
    for place in range(len(shape)):
        if rng.random() < 0.4:
            shape[place] = _drawn(rng, WORDS)
    tensor.shape = shape


def kinds(model: Any, rng: Rng) -> None:
    tensor = _drawn(rng, _graph(model, rng).tensors)
    tensor.type = int(rng.choice([*range(20), 100, 127, -1]))


def buffers(model: Any, rng: Rng) -> None:
    """Data of another length, or of another tensor; data that lie behind the end."""
    tensor = _drawn(rng, _graph(model, rng).tensors)
    buffer = model.buffers[tensor.buffer]
    way = int(rng.integers(4))
    if way == 0:
        tensor.buffer = int(
            rng.choice([len(model.buffers), 2**31 - 1, 2**32 - 1, int(rng.integers(len(model.buffers)))])
        )
    elif way == 1:
        buffer.data = np.zeros(int(rng.choice([0, 1, 3, 5, 1000])), dtype=np.uint8)
    elif way == 2 and buffer.data is not None:
        buffer.data = buffer.data[: len(buffer.data) // 2]
    else:
        buffer.offset, buffer.size = int(rng.choice([2, 2**31, 2**63])), int(rng.choice([1, 2**31, 2**63]))


def cycles(model: Any, rng: Rng) -> None:
    """An op that reads what it, or a later one, writes; an order against the data."""
    graph = _graph(model, rng)
    if rng.random() < 0.3:
        rng.shuffle(graph.operators)
        return
    op, later = _drawn(rng, graph.operators), _drawn(rng, graph.operators)
    if op.inputs is not None and len(op.inputs) and later.outputs is not None and len(later.outputs):
        op.inputs = np.array(op.inputs)
        op.inputs[0] = later.outputs[0]


def indices(model: Any, rng: Rng) -> None:
    """Tensors and op types that are not there; ops without inputs or outputs."""
    graph = _graph(model, rng)
    op = _drawn(rng, graph.operators)
    way = int(rng.integers(5))
    if way == 0:
        op.opcodeIndex = int(rng.choice([len(model.operatorCodes), 2**31, int(rng.integers(len(model.operatorCodes)))]))
    elif way == 1:
        setattr(op, str(rng.choice(["inputs", "outputs"])), rng.choice([-1, 0, len(graph.tensors), 2**30], size=3))
    elif way == 2:
        setattr(op, str(rng.choice(["inputs", "outputs"])), np.empty(0, dtype=np.int32))
    elif way == 3:
        setattr(graph, str(rng.choice(["inputs", "outputs"])), rng.choice([-1, 0, len(graph.tensors), 2**30], size=2))
    else:
        op.builtinOptions, op.builtinOptionsType = None, 0


def op_types(model: Any, rng: Rng) -> None:
    code = _drawn(rng, model.operatorCodes)
    code.builtinCode = int(rng.choice([*range(210), 1000, 2**31 - 1, -1]))
    code.deprecatedBuiltinCode = int(np.clip(code.builtinCode, 0, 127))


def quantization(model: Any, rng: Rng) -> None:
    tensor = _drawn(rng, _graph(model, rng).tensors)
    count = int(rng.choice([1, 2, 1000]))
    tensor.quantization = schema.QuantizationParametersT()
    tensor.quantization.scale = rng.choice([0.0, -1.0, 1e-38, 0.1, np.nan, np.inf], size=count).astype(np.float32)
    tensor.quantization.zeroPoint = rng.choice([0, 2**62, -(2**62)], size=int(rng.choice([0, 1, count]))).astype(
        np.int64
    )
    tensor.quantization.quantizedDimension = int(rng.choice([0, 1, 99, -1]))


def sparsity(model: Any, rng: Rng) -> None:
    """A constant that is said to be sparse, of absurd sizes."""
    tensor = _drawn(rng, [t for t in model.subgraphs[0].tensors if model.buffers[t.buffer].data is not None])
    tensor.sparsity = schema.SparsityParametersT()
    tensor.sparsity.traversalOrder = list(range(len(tensor.shape) + int(rng.integers(2))))
    tensor.sparsity.blockMap = [0] * (len(tensor.sparsity.traversalOrder) - len(tensor.shape))
    tensor.sparsity.dimMetadata = []
    for _ in tensor.sparsity.traversalOrder:
        level = schema.DimensionMetadataT()
        level.format, level.denseSize = 0, int(_drawn(rng, WORDS))
        tensor.sparsity.dimMetadata.append(level)


def subgraphs(model: Any, rng: Rng) -> None:
    """Subgraphs that run themselves or each other, or are not there."""
    way = int(rng.integers(3))
    options = [
        (op.builtinOptions, name)
        for graph in model.subgraphs
        for op in graph.operators or []
        for name in vars(op.builtinOptions or object)
        if name.endswith("ubgraphIndex") and op.builtinOptions is not None
    ]
    if way == 0 and options:
        setattr(*_drawn(rng, options), int(rng.choice([0, 1, 2, len(model.subgraphs), 2**31 - 1, -5])))
    elif way == 1:
        model.subgraphs = model.subgraphs * int(rng.choice([2, 50]))
    else:
        for signature in model.signatureDefs or []:
            signature.subgraphIndex = int(rng.choice([1, 7, 2**31]))


def names(model: Any, rng: Rng) -> None:
    """Path separators, markup, control characters, one name for all, 10 MB."""
    graph = _graph(model, rng)
    name = _drawn(rng, [*NAMES, b"", b"a" * 10_000_000])
    for tensor in graph.tensors if len(name) < 1000 else graph.tensors[:1]:
        tensor.name = name
    for signature in model.signatureDefs or []:
        for entry in [*(signature.inputs or []), *(signature.outputs or [])]:
            entry.name = name[:100]


_BYTES: tuple[Callable[[bytes, Rng], bytes], ...] = (bit_flips, truncated, absurd_words, moved_words)
_MODELS: tuple[Callable[[Any, Rng], None], ...] = (
    shapes,
    kinds,
    buffers,
    cycles,
    indices,
    op_types,
    quantization,
    sparsity,
    subgraphs,
    names,
)


def mutants(content: bytes, count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """``count`` kinds and files: changed bytes and changed models in turns."""
    made = 0
    for number in range(100 * count):
        rng = np.random.default_rng([seed, number])
        changes: Any = _BYTES if made % 2 else _MODELS
        change = changes[made // 2 % len(changes)]
        if made % 2:
            found = change(content, rng)
        else:
            model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
            try:
                change(model, rng)
                found = _written(model)
            except (ValueError, TypeError, OverflowError, AttributeError, IndexError):
                continue  # The packer itself does not write it: another one is drawn.
        yield change.__name__, found
        made += 1
        if made == count:
            return
