"""What a TFLite file holds: subgraphs, ops, tensors, buffers, signatures; counts and sizes, no opinion on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from autoselect.domain.graph import Graph, Op, Tensor
from autoselect.errors import ModelError
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.tflite_file import TfliteFile

Analysis = dict[str, Any]
"""Plain values by name, see :func:`analyse`."""


def analyse(file: TfliteFile) -> Analysis:
    """Analyse a model.

    Returns:
        * ``size_bytes``, of the file.
        * ``sizes``: the file in four parts, which add up to its size exactly; a buffer that several tensors share
          counts once. ``weights_bytes``: data of the buffers that a tensor points at, the constants;
          ``metadata_bytes``: of those that only metadata point at; ``unused_bytes``: of those that nothing points at;
          ``rest_bytes``: ops, tensors, names, quantization parameters, tables and padding.
        * ``buffers``: ``count``, the empty ones of activations included; ``data_bytes`` of all together; ``unused``,
          numbers of those that no tensor and no metadata entry points at, without buffer 0, which the format wants to
          be there and empty; ``zero``, numbers of those that have data, all of it zero, and their ``zero_bytes``.
        * ``tensors_by_dtype``, ``ops_by_type``, ``ops_by_kind``: counts over all subgraphs, the most frequent first,
          ties by name.
        * ``subgraphs``: ``index``, ``name``, ``inputs`` and ``outputs``, both as tensor numbers, ``tensors`` and
          ``ops``. The first is the main one, the others belong to control flow or to signatures.

          A tensor has ``index``; ``name``, empty where it has none; ``dtype``; ``shape``, where free dimensions count
          as 1, as in the file; ``shape_signature``, the same with -1 for these, None where the file has none;
          ``size_bytes``, of a constant its bytes in the file, else those of its values at run time; ``is_constant``,
          whether its values lie in the file; ``is_variable``, whether they live from one inference to the next;
          ``buffer``, its number, an activation's is empty; ``quantization``, None without scales.

          Quantization has ``scale_count``, 1 per tensor, else one a channel; the first ``scale`` and ``zero_point``;
          ``axis`` of the channels, None per tensor.

          An op has ``index``, in order of execution; ``op_type``, name of the builtin or of the custom op; ``kind``,
          how it computes; ``inputs``, tensor numbers in the op's order, constants included, -1 for an optional one that
          is absent; ``outputs``; ``macs``, multiply-accumulates per inference, 0 where it has none.
        * ``signatures``: ``key``, ``subgraph``, ``inputs`` and ``outputs``, tensor numbers by the caller's names.
        * ``metadata``: ``name``, ``buffer``, ``size_bytes``.

    Raises:
        ModelError: If it is no TFLite file, or its ops, tensors and buffers do not fit together.
    """
    try:
        return _analyse(file.model, len(file.content))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as exc:
        raise _damaged(f"{type(exc).__name__}: {exc}") from exc


def _damaged(why: str) -> ModelError:
    return ModelError(
        "The TFLite file is damaged, or of a newer schema than this version of autoselect knows: its ops, tensors and "
        f"buffers do not fit together ({why}). Convert the model again, or update ai-edge-litert."
    )


def _analyse(model: fb.Model, size_bytes: int) -> Analysis:
    subgraphs = tuple(_subgraph(model, i) for i in range(len(model.subgraphs)))
    ops = [op for graph in subgraphs for op in graph["ops"]]
    lengths = [_length(buffer) for buffer in model.buffers]
    of_tensors, of_metadata = _referenced(model)
    used = of_tensors | of_metadata
    weights = sum(lengths[i] for i in of_tensors)
    metadata = sum(lengths[i] for i in of_metadata - of_tensors)
    data = sum(lengths)
    zero = tuple(i for i, buffer in enumerate(model.buffers) if lengths[i] and not np.any(buffer.data))
    return {
        "size_bytes": size_bytes,
        "sizes": {
            "weights_bytes": weights,
            "metadata_bytes": metadata,
            "unused_bytes": data - weights - metadata,
            "rest_bytes": size_bytes - data,
        },
        "buffers": {
            "count": len(lengths),
            "data_bytes": data,
            "unused": tuple(i for i in range(1, len(lengths)) if i not in used),
            "zero": zero,
            "zero_bytes": sum(lengths[i] for i in zero),
        },
        "tensors_by_dtype": _histogram(tensor["dtype"] for graph in subgraphs for tensor in graph["tensors"]),
        "ops_by_type": _histogram(op["op_type"] for op in ops),
        "ops_by_kind": _histogram(op["kind"] for op in ops),
        "subgraphs": subgraphs,
        "signatures": tuple(_signature(entry, subgraphs) for entry in model.signatureDefs or []),
        "metadata": tuple(
            {"name": _text(entry.name), "buffer": entry.buffer, "size_bytes": lengths[entry.buffer]}
            for entry in model.metadata or []
        ),
    }


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


def _subgraph(model: fb.Model, index: int) -> Analysis:
    source, graph = model.subgraphs[index], reader.read_graph(model, index)
    _check(graph)
    tensors = zip(source.tensors or [], graph.tensors, strict=True)
    ops = zip(source.operators or [], graph.ops, strict=True)
    return {
        "index": index,
        "name": _text(source.name),
        "inputs": graph.inputs,
        "outputs": graph.outputs,
        "tensors": tuple({"index": i, **_tensor(model, raw, tensor)} for i, (raw, tensor) in enumerate(tensors)),
        "ops": tuple({"index": i, **_op(raw, op)} for i, (raw, op) in enumerate(ops)),
    }


def _check(graph: Graph) -> None:
    """Refuse what nothing could run: an op that reads what only a later op writes, an input that is not there."""
    if max((*graph.inputs, *graph.outputs), default=-1) >= len(graph.tensors):
        raise _damaged("an input or output is not among the tensors")
    producers = graph.producers()
    for i, op in enumerate(graph.ops):
        if any(producers.get(tensor, -1) >= i for tensor in op.inputs):
            raise _damaged(f"op {i} reads a tensor that is not written yet")


def _tensor(model: fb.Model, raw: fb.Tensor, tensor: Tensor) -> Analysis:
    return {
        "name": tensor.name,
        "dtype": tensor.dtype,
        "shape": tensor.shape,
        "shape_signature": None if raw.shapeSignature is None else fb.indices(raw.shapeSignature),
        "size_bytes": _length(model.buffers[raw.buffer]) if tensor.is_constant else tensor.size_bytes,
        "is_constant": tensor.is_constant,
        "is_variable": bool(raw.isVariable),
        "buffer": int(raw.buffer),
        "quantization": _quantization(raw),
    }


def _quantization(raw: fb.Tensor) -> Analysis | None:
    if not (scales := fb.scales(raw)):
        return None
    return {
        "scale_count": len(scales),
        "scale": scales[0],
        "zero_point": next(iter(fb.zero_points_of(raw)), 0),
        "axis": int(fb.parameters(raw).quantizedDimension) if len(scales) > 1 else None,
    }


def _op(raw: fb.Operator, op: Op) -> Analysis:
    return {
        "op_type": op.op_type,
        "kind": op.kind.value,
        "inputs": tuple(max(tensor, -1) for tensor in fb.indices(raw.inputs)),
        "outputs": op.outputs,
        "macs": op.macs,
    }


def _signature(raw: fb.SignatureDef, subgraphs: Sequence[Analysis]) -> Analysis:
    graph = subgraphs[raw.subgraphIndex or 0]
    return {
        "key": _text(raw.signatureKey),
        "subgraph": graph["index"],
        "inputs": {_text(entry.name): graph["tensors"][entry.tensorIndex]["index"] for entry in raw.inputs or []},
        "outputs": {_text(entry.name): graph["tensors"][entry.tensorIndex]["index"] for entry in raw.outputs or []},
    }


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "replace")
