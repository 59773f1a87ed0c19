"""What a file writes in a form that the quantizer does not take, written as it takes it: the same numbers.

* Composites of StableHLO, as litert-torch writes them: each becomes the ops that the file says it stands for. LiteRT
  runs these ops for it. TensorFlow's quantizer refuses a model that has one.
* Sparse weights, and float16 weights.
* Custom ops that are builtin ops by another name. XNNPACK runs a ``Convolution2DTransposeBias``, which MediaPipe's
  models have, as what TRANSPOSE_CONV with a bias is now; plain kernels know only that one.
* An alpha of PRELU that has not one axis less than the input, as onnx2tf writes it. LiteRT runs it by broadcasting.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.domain.words import listed
from autoselect.errors import ModelError
from autoselect.rewrites import subgraphs
from autoselect.rewrites.rewriting import Rewrite, has_ops
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb

_COMPOSITE = "STABLEHLO_COMPOSITE"


def _inline(model: fb.Model) -> list[str]:
    """Put the ops in the place of the composites of the main graph, in place, also where one stands for others.

    Returns:
        What their ops are called after.

    Raises:
        ModelError: If a composite is left: the file does not hold its ops, or it is inside a branch.
    """
    graph, prefixes, is_new = model.subgraphs[0], list[str](), True
    while is_new:
        ops, is_new = [], False
        for op in graph.operators or []:
            prefix = f"composite{len(prefixes)}"
            if inlined := _inlined(model, op, prefix):
                prefixes.append(prefix)
                is_new = True
            ops += inlined or [op]
        graph.operators = ops
    if prefixes:
        subgraphs.make_main(model, 0)
    _refuse_what_is_left(model)
    return prefixes


def _refuse_what_is_left(model: fb.Model) -> None:
    ops = [op for graph in model.subgraphs for op in graph.operators or [] if fb.op_type(model, op) == _COMPOSITE]
    names = sorted({(getattr(op.builtinOptions2, "name", None) or b"?").decode(errors="replace") for op in ops})
    if names:
        raise ModelError(
            f"The model has composites that cannot be replaced by their ops: {listed([repr(name) for name in names])} "
            f"({_COMPOSITE}). TensorFlow's quantizer takes none, so the file must hold the ops of each "
            "(its decomposition), and the composite must not be inside a branch or a loop. Convert the model again "
            "with the decompositions, or without these composites."
        )


def _inlined(model: fb.Model, op: fb.Operator, prefix: str) -> list[fb.Operator]:
    if fb.op_type(model, op) != _COMPOSITE or next(subgraphs.reached_subgraphs(op), 0) == 0:
        return []
    main, inner = model.subgraphs[0], model.subgraphs[op.builtinOptions2.decompositionSubgraphIndex]
    ends, given = ((*fb.indices(side.inputs), *fb.indices(side.outputs)) for side in (inner, op))
    place = {-1: -1, **dict(zip(ends, given, strict=False))}
    written = {i for inner_op in inner.operators or [] for i in fb.indices(inner_op.outputs)}
    if len(ends) != len(given) or len(place) <= len(ends) or not written.issuperset(fb.indices(inner.outputs)):
        return []
    for index, tensor in enumerate(inner.tensors):
        if index not in place:
            main.tensors.append(copy(tensor))
            main.tensors[-1].name = f"{prefix}/{fb.tensor_name(tensor)}".encode()
            place[index] = len(main.tensors) - 1
    return [_moved(inner_op, place) for inner_op in inner.operators]


def _moved(op: fb.Operator, place: dict[int, int]) -> fb.Operator:
    moved = copy(op)
    for name in fb.TENSOR_LISTS:
        if (row := getattr(op, name)) is not None:
            setattr(moved, name, np.array([place[i] for i in fb.indices(row)], np.int32))
    return moved


def _densify(model: fb.Model) -> list[str]:
    """Write every sparse constant in full, and drop the DENSIFY ops that did so at run time, in place.

    Who reads such an op's output then reads the same values, so the model's outputs stay the same, bit for bit. Only a
    FULLY_CONNECTED that reads a sparse constant itself may round otherwise: LiteRT sums in another order there.

    LiteRT's DENSIFY is not run for it: it believes what a file says of a sparse tensor, and a damaged file kills it.

    Returns:
        The tensors that were made dense.

    Raises:
        ModelError: If what a file says of a sparse tensor does not fit it.
    """
    names = list[str]()
    buffers: dict[bytes, int] = {}
    for place, graph in enumerate(model.subgraphs):
        indices = [i for i, t in enumerate(graph.tensors or []) if t.sparsity is not None and fb.is_constant(model, t)]
        for tensor in (graph.tensors[index] for index in indices):
            values = _dense_values(model, tensor)
            data = values.tobytes()
            if data not in buffers:
                buffers[data] = editing.add_buffer(model, values)
            tensor.buffer, tensor.sparsity = buffers[data], None
        if indices:
            names += [fb.tensor_name(graph.tensors[index]) for index in indices]
            editing.drop_copies(model, graph, indices, lambda op: fb.op_type(model, op) == "DENSIFY")
            editing.drop_unused_tensors(model, place)
    if names:
        editing.tidy(model)
    return names


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
        elif count * level.denseSize > 16 * max(math.prod(shape), 1):  # Blocks reach over the edges of a tensor.
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


_WIDENING = ("DEQUANTIZE", "CAST")
"""Ops that turn a float16 constant into float32 each time the model runs."""

_FLOAT16, _FLOAT32 = schema.TensorType.FLOAT16, schema.TensorType.FLOAT32


def _widen(model: fb.Model) -> list[str]:
    """Make every float16 constant float32, and drop the ops that did so at run time, in place; none may be sparse.

    Every float16 value has an equal float32 value, so the model's outputs stay the same, bit for bit.

    Returns:
        The tensors that were widened.

    Raises:
        ModelError: If float16 values are more than constants.
    """
    widened: dict[int, int] = {}
    names = list[str]()
    for place, graph in enumerate(model.subgraphs):
        halves = {i for i, t in enumerate(graph.tensors) if t.type == _FLOAT16 and fb.is_constant(model, t)}
        for index in halves:
            _widen_tensor(model, graph.tensors[index], widened)
        if halves:
            names += [fb.tensor_name(graph.tensors[index]) for index in halves]
            editing.drop_copies(model, graph, halves, partial(_is_widening, model, graph))
            editing.drop_unused_tensors(model, place)
        left = next((t for t in graph.tensors if t.type == _FLOAT16), None)
        if left is not None:
            raise ModelError(
                f"The model computes in float16: tensor {fb.tensor_name(left)!r} is float16 and no constant. "
                "Only weights may be float16, not inputs, outputs or values in between. Convert the model to float32."
            )
    if names:
        editing.tidy(model)
    return names


def _is_widening(model: fb.Model, graph: fb.SubGraph, op: fb.Operator) -> bool:
    return fb.op_type(model, op) in _WIDENING and bool(graph.tensors[op.outputs[0]].type == _FLOAT32)


def _widen_tensor(model: fb.Model, tensor: fb.Tensor, widened: dict[int, int]) -> None:
    """Give a tensor a float32 buffer; tensors that share a buffer go on sharing."""
    if tensor.buffer not in widened:
        values = fb.constant_values(model, tensor)
        widened[tensor.buffer] = editing.add_buffer(model, values.astype(np.float32))
    tensor.buffer, tensor.type, tensor.quantization = widened[tensor.buffer], _FLOAT32, None


_TRANSPOSE_CONV = "Convolution2DTransposeBias"
_PADDINGS = {1: schema.Padding.SAME, 2: schema.Padding.VALID}
"""By the number that ``TfLitePadding`` has."""
_OPERANDS = ("input", "weights", "bias")
_OPTIONS = 3
"""Padding and strides, as whole numbers of four bytes."""


def _as_builtins(model: fb.Model) -> list[fb.Operator]:
    """Write custom ops that are builtin ones anew, in place; with options that nobody writes they stay.

    Returns:
        These ops.
    """
    graph = model.subgraphs[0]
    ops = [op for op in graph.operators or [] if _is_known(model, op)]
    for op in ops:
        padding, height, width = _options(op)
        options = schema.TransposeConvOptionsT()
        options.padding, options.strideH, options.strideW = _PADDINGS[padding], height, width
        op.builtinOptionsType, op.builtinOptions = schema.BuiltinOptions.TransposeConvOptions, options
        op.customOptions = None
        source, weights, bias = fb.indices(op.inputs)
        op.inputs = np.array([_sizes(model, op), weights, source, bias], np.int32)
        op.opcodeIndex = editing.add_code(model, "TRANSPOSE_CONV")
        # The version of TRANSPOSE_CONV.
        model.operatorCodes[-1].version = 3
    if ops:
        editing.tidy(model)
    return ops


def _is_known(model: fb.Model, op: fb.Operator) -> bool:
    if fb.op_type(model, op) != _TRANSPOSE_CONV or len(op.inputs) != len(_OPERANDS):
        return False
    given, sizes = _options(op), fb.shape_of(model.subgraphs[0].tensors[op.outputs[0]])
    return len(given) == _OPTIONS and given[0] in _PADDINGS and min(sizes, default=0) > 0


def _options(op: fb.Operator) -> list[int]:
    given = np.asarray([] if op.customOptions is None else op.customOptions, np.uint8)
    return [int(value) for value in given[: given.size // 4 * 4].view("<i4")[:_OPTIONS]]


def _sizes(model: fb.Model, op: fb.Operator) -> int:
    """A constant with the shape of an op's output."""
    output = model.subgraphs[0].tensors[op.outputs[0]]
    return editing.add_constant(model, f"{fb.tensor_name(output)}/sizes", np.array(fb.shape_of(output), np.int32))


def _fit_alphas(model: fb.Model) -> list[fb.Operator]:
    """Give each constant alpha of PRELU one axis less than the op's input, in place.

    Leading axes of 1 are added or removed. The model must have its true shapes; an op whose input is of unknown rank
    stays as it is.

    Returns:
        The ops whose alpha was reshaped.
    """
    graph, prelus = model.subgraphs[0], list[fb.Operator]()
    for op in graph.operators or []:
        if fb.op_type(model, op) != "PRELU" or len(op.inputs) != 2:
            continue
        source, alpha = (graph.tensors[index] for index in fb.indices(op.inputs))
        sizes, rank = fb.shape_of(alpha), len(fb.shape_of(source)) - 1
        fitted = (1,) * (rank - len(sizes)) + sizes[max(len(sizes) - rank, 0) :]
        if rank < 0 or not fb.is_constant(model, alpha) or fitted == sizes or math.prod(fitted) != math.prod(sizes):
            continue
        graph.tensors.append(editing.twin(alpha))
        graph.tensors[-1].shape, graph.tensors[-1].shapeSignature = np.array(fitted, np.int32), None
        op.inputs = np.array([op.inputs[0], len(graph.tensors) - 1], np.int32)
        prelus.append(op)
    if prelus:
        editing.drop_unused_tensors(model)
    return prelus


def _has_tensor(holds: Callable[[fb.Tensor], bool]) -> Callable[[fb.Model], bool]:
    return lambda model: any(holds(tensor) for graph in model.subgraphs for tensor in graph.tensors or [])


INLINED = Rewrite(
    name="composites inlined",
    applies=has_ops(_COMPOSITE),
    deed=_inline,
    note="{} STABLEHLO_COMPOSITE became the ops that the file says they stand for.",
)
DENSE = Rewrite(
    name="sparse weights made dense",
    applies=_has_tensor(lambda tensor: tensor.sparsity is not None),
    deed=_densify,
    note="{} sparse weights were made dense: the same values, with the zeros written out.",
)
WIDE = Rewrite(
    name="float16 weights made float32",
    applies=_has_tensor(lambda tensor: bool(tensor.type == _FLOAT16)),
    deed=_widen,
    note="{} float16 weights were widened to float32: the same values, in twice the bytes.",
)
BUILTIN = Rewrite(
    name="custom ops made builtin ones",
    applies=has_ops(_TRANSPOSE_CONV),
    deed=_as_builtins,
    note="{} Convolution2DTransposeBias became TRANSPOSE_CONV: the same op by another name.",
)
FITTED = Rewrite(
    name="alphas fitted",
    applies=has_ops("PRELU"),
    deed=_fit_alphas,
    note="{} PRELU had alphas with more or fewer axes than the quantizer takes: the same values in another shape.",
)
