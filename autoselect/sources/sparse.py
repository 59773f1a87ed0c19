"""Sparse weights made dense: the same numbers in a form that the quantizer takes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.errors import ModelError
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb

_MOST_PADDING = 16
"""Places that blocks may have for each element of a tensor; they reach over its edges."""


def densify(model: fb.Model) -> int:
    """Write every sparse constant in full, and drop the DENSIFY ops that did so at run time, in place.

    Who reads such an op's output then reads the same values, so the model's outputs stay the same, bit for bit. Only a
    FULLY_CONNECTED that reads a sparse constant itself may round otherwise: LiteRT sums in another order there.

    LiteRT's DENSIFY is not run for it: it believes what a file says of a sparse tensor, and a damaged file kills it.

    Returns:
        How many tensors were made dense.

    Raises:
        ModelError: If what a file says of a sparse tensor does not fit it.
    """
    count = 0
    buffers: dict[bytes, int] = {}
    for place, graph in enumerate(model.subgraphs):
        found = [i for i, t in enumerate(graph.tensors or []) if t.sparsity is not None and fb.is_constant(model, t)]
        for tensor in (graph.tensors[index] for index in found):
            values = _dense_values(model, tensor)
            data = values.tobytes()
            if data not in buffers:
                buffers[data] = editing.add_buffer(model, values)
            tensor.buffer, tensor.sparsity = buffers[data], None
        if found:
            editing.drop_copies(model, graph, found, lambda op: fb.op_type(model, op) == "DENSIFY")
            editing.drop_unused_tensors(model, place)
        count += len(found)
    if count:
        editing.tidy(model)
    return count


def _dense_values(model: fb.Model, tensor: fb.Tensor) -> np.ndarray:
    try:
        stored = np.asarray(model.buffers[tensor.buffer].data, dtype=np.uint8).view(fb.TENSOR_DTYPES[tensor.type])
        dense = np.zeros(fb.shape_of(tensor), dtype=stored.dtype)
        places = np.ravel_multi_index(_coordinates(tensor), dense.shape)
        if len(places) != len(stored):
            raise ValueError(f"{len(stored)} values for {len(places)} places")
        dense.reshape(-1)[places] = stored
    except (ValueError, TypeError, IndexError, AttributeError, MemoryError) as exc:
        raise ModelError(
            f"The sparse weight {fb.tensor_name(tensor)!r} cannot be made dense ({exc}). "
            "Copy or convert the model again."
        ) from exc
    return dense


def _coordinates(tensor: fb.Tensor) -> tuple[np.ndarray, ...]:
    """Where the stored values belong, along each axis, in the order in which they are stored.

    The axes are walked in ``traversalOrder``, those inside of blocks last: the schema counts them on from the tensor's
    own axes, and ``blockMap`` says which of these each of them divides.
    """
    shape, sparsity = fb.shape_of(tensor), tensor.sparsity
    order = [int(axis) for axis in sparsity.traversalOrder]
    blocks = [] if sparsity.blockMap is None else [int(axis) for axis in sparsity.blockMap]
    rank = len(shape)
    if sorted(order) != list(range(rank + len(blocks))) or sorted(order[:rank]) != list(range(rank)):
        raise ValueError(f"axes {order} for {rank} and {len(blocks)} in blocks")
    walked: list[np.ndarray] = []
    count = 1
    for level in (sparsity.dimMetadata[place] for place in range(len(order))):
        if level.format == schema.DimensionType.SPARSE_CSR:
            repeats, inner = _kept(level, count)
        elif count * level.denseSize > _MOST_PADDING * max(math.prod(shape), 1):
            raise ValueError(f"a dense level of {level.denseSize} for the shape {shape}")
        else:
            repeats, inner = level.denseSize, np.tile(np.arange(level.denseSize), count)
        walked = [np.repeat(outer, repeats) for outer in walked] + [inner]
        count = len(inner)
    axes = dict(zip(order, walked, strict=True))
    for place, axis in enumerate(blocks, start=rank):
        axes[axis] = axes[axis] * sparsity.dimMetadata[order.index(place)].denseSize + axes[place]
    return tuple(axes[axis] for axis in range(rank))


def _kept(level: Any, count: int) -> tuple[np.ndarray, np.ndarray]:
    """How many places a sparse level holds for each place of the level before, and which."""
    segments = np.asarray(level.arraySegments.values, dtype=np.int64)
    indices = np.asarray(level.arrayIndices.values, dtype=np.int64)
    if len(segments) != count + 1 or segments[0] != 0 or segments[-1] != len(indices):
        raise ValueError(f"{len(segments)} segments of {len(indices)} places for {count} rows")
    return np.diff(segments), indices
