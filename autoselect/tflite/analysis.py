"""What a TFLite file holds: subgraphs, ops, tensors, buffers, signatures; counts and sizes, no opinion on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

import numpy as np

from autoselect.domain.graph import Graph, Op, OpKind, Tensor
from autoselect.errors import ModelError
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """How a tensor's integers become real numbers.

    Attributes:
        scale_count: 1 for per-tensor quantization, else one scale a channel.
        scale: The first scale.
        zero_point: The first zero point.
        axis: Dimension of the channels; None for per-tensor quantization.
    """

    scale_count: int
    scale: float
    zero_point: int
    axis: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorAnalysis:
    """One tensor.

    Attributes:
        index: Its number in the subgraph.
        name: Empty where it has none.
        dtype: ``float32``, ``int8``...
        shape: Free dimensions count as 1, as in the file.
        shape_signature: The shape with -1 for free dimensions; None where the file has none.
        size_bytes: Of a constant its bytes in the file, else those of its values at run time.
        is_constant: True where its values lie in the file.
        is_variable: True where its values live from one inference to the next.
        buffer: Number of its buffer; an activation's is empty.
        quantization: None for a tensor without scales.
    """

    index: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    shape_signature: tuple[int, ...] | None
    size_bytes: int
    is_constant: bool
    is_variable: bool
    buffer: int
    quantization: Quantization | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpAnalysis:
    """One op.

    Attributes:
        index: Its number in the subgraph, in order of execution.
        op_type: Name of the builtin (``CONV_2D``) or of the custom op.
        kind: How it computes.
        inputs: Tensor numbers, constants included, in the op's order; -1 for an optional one that is absent.
        outputs: Tensor numbers.
        macs: Multiply-accumulates per inference; 0 where the op has none.
    """

    index: int
    op_type: str
    kind: OpKind
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    macs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SubgraphAnalysis:
    """One subgraph; the first is the main one, the others belong to control flow or to signatures."""

    index: int
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    tensors: tuple[TensorAnalysis, ...]
    ops: tuple[OpAnalysis, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureAnalysis:
    """One signature; ``inputs`` and ``outputs`` map the caller's names to tensor numbers."""

    key: str
    subgraph: int
    inputs: dict[str, int]
    outputs: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataAnalysis:
    """One entry of the model's metadata."""

    name: str
    buffer: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The file in four parts, which add up to its size exactly. A buffer that several tensors share counts once.

    Attributes:
        weights_bytes: Data of the buffers that a tensor points at: the constants.
        metadata_bytes: Data of the buffers that only metadata point at.
        unused_bytes: Data of the buffers that nothing points at.
        rest_bytes: Ops, tensors, names, quantization parameters, tables and padding.
    """

    weights_bytes: int
    metadata_bytes: int
    unused_bytes: int
    rest_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffers:
    """The model's buffers.

    Attributes:
        count: All of them, the empty ones of activations included.
        data_bytes: Data of all buffers together.
        unused: Numbers of those that no tensor and no metadata entry points at. Buffer 0, which the format wants
            to be there and empty, is not counted.
        zero: Numbers of those that have data, all of it zero.
        zero_bytes: Data of those.
    """

    count: int
    data_bytes: int
    unused: tuple[int, ...]
    zero: tuple[int, ...]
    zero_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnalysis:
    """One model file. The counts go over all subgraphs, the most frequent first, ties by name."""

    size_bytes: int
    sizes: Sizes
    buffers: Buffers
    tensors_by_dtype: dict[str, int]
    ops_by_type: dict[str, int]
    ops_by_kind: dict[str, int]
    subgraphs: tuple[SubgraphAnalysis, ...]
    signatures: tuple[SignatureAnalysis, ...]
    metadata: tuple[MetadataAnalysis, ...]

    def as_dict(self) -> dict[str, Any]:
        """The same as plain dicts, tuples, strings and numbers."""
        return asdict(self, dict_factory=_plain_dict)


def analyse(model: fb.Model, size_bytes: int) -> ModelAnalysis:
    """Analyse a parsed model.

    Args:
        model: From :func:`autoselect.tflite.flatbuffer.parse`.
        size_bytes: Size of the file that it was parsed from.

    Raises:
        ModelError: If ops, tensors and buffers do not fit together.
    """
    try:
        return _analyse(model, size_bytes)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as exc:
        raise _damaged(f"{type(exc).__name__}: {exc}") from exc


def _damaged(why: str) -> ModelError:
    return ModelError(
        "The TFLite file is damaged, or of a newer schema than this version of autoselect knows: its ops, tensors and "
        f"buffers do not fit together ({why}). Convert the model again, or update ai-edge-litert."
    )


def _analyse(model: fb.Model, size_bytes: int) -> ModelAnalysis:
    subgraphs = tuple(_subgraph(model, i) for i in range(len(model.subgraphs)))
    ops = [op for graph in subgraphs for op in graph.ops]
    lengths = [_length(buffer) for buffer in model.buffers]
    of_tensors, of_metadata = _referenced(model)
    used = of_tensors | of_metadata
    weights = sum(lengths[i] for i in of_tensors)
    metadata = sum(lengths[i] for i in of_metadata - of_tensors)
    data = sum(lengths)
    zero = tuple(i for i, buffer in enumerate(model.buffers) if lengths[i] and not np.any(buffer.data))
    return ModelAnalysis(
        size_bytes=size_bytes,
        sizes=Sizes(
            weights_bytes=weights,
            metadata_bytes=metadata,
            unused_bytes=data - weights - metadata,
            rest_bytes=size_bytes - data,
        ),
        buffers=Buffers(
            count=len(lengths),
            data_bytes=data,
            unused=tuple(i for i in range(1, len(lengths)) if i not in used),
            zero=zero,
            zero_bytes=sum(lengths[i] for i in zero),
        ),
        tensors_by_dtype=_histogram(tensor.dtype for graph in subgraphs for tensor in graph.tensors),
        ops_by_type=_histogram(op.op_type for op in ops),
        ops_by_kind=_histogram(op.kind.value for op in ops),
        subgraphs=subgraphs,
        signatures=tuple(_signature(entry, subgraphs) for entry in model.signatureDefs or []),
        metadata=tuple(
            MetadataAnalysis(name=_text(entry.name), buffer=entry.buffer, size_bytes=lengths[entry.buffer])
            for entry in model.metadata or []
        ),
    )


def _length(buffer: fb.Buffer) -> int:
    return 0 if buffer.data is None else len(buffer.data)


def _referenced(model: fb.Model) -> tuple[frozenset[int], frozenset[int]]:
    """Numbers of the buffers that tensors point at, and of those that metadata point at."""
    of_tensors = frozenset(int(tensor.buffer) for graph in model.subgraphs for tensor in graph.tensors or [])
    entries = [int(entry.buffer) for entry in model.metadata or []]
    old_entries = [] if model.metadataBuffer is None else [int(i) for i in model.metadataBuffer]
    return of_tensors, frozenset(entries + old_entries)


def _histogram(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items(), key=lambda item: (-item[1], item[0])))


def _subgraph(model: fb.Model, index: int) -> SubgraphAnalysis:
    source, graph = model.subgraphs[index], reader.read_graph(model, index)
    _check(graph)
    return SubgraphAnalysis(
        index=index,
        name=_text(source.name),
        inputs=graph.inputs,
        outputs=graph.outputs,
        tensors=tuple(
            _tensor(model, i, raw, known)
            for i, (raw, known) in enumerate(zip(source.tensors or [], graph.tensors, strict=True))
        ),
        ops=tuple(
            _op(i, raw, known) for i, (raw, known) in enumerate(zip(source.operators or [], graph.ops, strict=True))
        ),
    )


def _check(graph: Graph) -> None:
    """Refuse what nothing could run: an op that reads what only a later op writes, an input that is not there."""
    if max((*graph.inputs, *graph.outputs), default=-1) >= len(graph.tensors):
        raise _damaged("an input or output is not among the tensors")
    producers = graph.producers()
    for i, op in enumerate(graph.ops):
        if any(producers.get(tensor, -1) >= i for tensor in op.inputs):
            raise _damaged(f"op {i} reads a tensor that is not written yet")


def _tensor(model: fb.Model, index: int, raw: fb.Tensor, known: Tensor) -> TensorAnalysis:
    return TensorAnalysis(
        index=index,
        name=known.name,
        dtype=known.dtype,
        shape=known.shape,
        shape_signature=None if raw.shapeSignature is None else fb.indices(raw.shapeSignature),
        size_bytes=_length(model.buffers[raw.buffer]) if known.is_constant else known.size_bytes,
        is_constant=known.is_constant,
        is_variable=bool(raw.isVariable),
        buffer=int(raw.buffer),
        quantization=_quantization(raw.quantization),
    )


def _quantization(raw: fb.Quantization | None) -> Quantization | None:
    if raw is None or raw.scale is None or len(raw.scale) == 0:
        return None
    zero_points = fb.indices(raw.zeroPoint)
    return Quantization(
        scale_count=len(raw.scale),
        scale=float(raw.scale[0]),
        zero_point=zero_points[0] if zero_points else 0,
        axis=int(raw.quantizedDimension) if len(raw.scale) > 1 else None,
    )


def _op(index: int, raw: fb.Operator, known: Op) -> OpAnalysis:
    return OpAnalysis(
        index=index,
        op_type=known.op_type,
        kind=known.kind,
        inputs=tuple(max(tensor, -1) for tensor in fb.indices(raw.inputs)),
        outputs=known.outputs,
        macs=known.macs,
    )


def _signature(raw: fb.SignatureDef, subgraphs: tuple[SubgraphAnalysis, ...]) -> SignatureAnalysis:
    graph = subgraphs[raw.subgraphIndex or 0]
    return SignatureAnalysis(
        key=_text(raw.signatureKey),
        subgraph=graph.index,
        inputs={_text(entry.name): graph.tensors[entry.tensorIndex].index for entry in raw.inputs or []},
        outputs={_text(entry.name): graph.tensors[entry.tensorIndex].index for entry in raw.outputs or []},
    )


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "replace")


def _plain_dict(items: list[tuple[str, Any]]) -> dict[str, Any]:
    return {key: value.value if isinstance(value, Enum) else value for key, value in items}
