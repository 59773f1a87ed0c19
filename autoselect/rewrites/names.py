"""Names that the quantizer cannot spoil: one canonical name an op going in, the model's own coming out.

The quantizer appends digits to make names unique, and a denylist matches the name of an op's location.
So before quantizing, every output of op 7 is called ``op_0007_x``: equal names fuse into one location, which
gives ops with several outputs one name; no digit stands at the end, so nothing is cut or taken for a suffix.
The quantizer rewrites a TRANSPOSE_CONV and puts the names of its constants behind its own, which no denylist
then matches: those constants go in without a name.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb

_CANONICAL = re.compile(r"^op_(\d{4,})_x\d*(_int16)?(;.*)?$")
"""The 16-bit quantizer appends the dtype to an op's output that the model gives out."""
BOUNDARY_OPS = fb.CONVERSIONS
_FLOAT32 = schema.TensorType.FLOAT32


@dataclass(frozen=True, slots=True, kw_only=True)
class NameMap:
    """What the canonical names stand for.

    Attributes:
        inputs: Names of the model's inputs, in order.
        outputs: Names of the model's outputs, in order.
        op_outputs: For each op of the float model, the names of its outputs, in order.
        op_inputs: For each op of the float model, the names of its inputs, in order; empty for an absent one.
        nodes: For each op of the float model the one name that it has as a node, which no other op has.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    op_outputs: tuple[tuple[str, ...], ...]
    op_inputs: tuple[tuple[str, ...], ...]
    nodes: tuple[str, ...]

    def unique_outputs(self) -> tuple[tuple[str, ...], ...]:
        """The names of each op's outputs, with ``#index`` of the op where an op before it has the name."""
        taken: set[str] = set()
        rows = []
        for index, row in enumerate(self.op_outputs):
            rows.append(tuple(f"{name}#{index}" if name in taken else name for name in row))
            taken.update(row)
        return tuple(rows)


def canonical_name(op_index: int) -> str:
    """The name of every output of the op at ``op_index`` while the quantizer works."""
    return f"op_{op_index:04d}_x"


def op_index_of(name: str) -> int | None:
    """Index of the op that a canonical name (with or without what the quantizer appends) belongs to."""
    match = _CANONICAL.match(name)
    return int(match.group(1)) if match else None


def op_index(model: fb.Model, op: fb.Operator) -> int | None:
    """Index of the op that an op of a built model is called after; None for one that is called otherwise."""
    if fb.op_type(model, op) in BOUNDARY_OPS or len(op.outputs) == 0:
        return None
    return op_index_of(fb.tensor_name(model.subgraphs[0].tensors[op.outputs[0]]))


def canonicalise(model: fb.Model, nodes: Sequence[str] = ()) -> NameMap:
    """Give the outputs of every op of the main subgraph their canonical name, in place.

    Args:
        model: A float model.
        nodes: For each op its name as a node; if left out its first output's, ``name#index`` where that is empty or
            taken twice.
    """
    graph = model.subgraphs[0]
    names = NameMap(
        nodes=tuple(nodes) or node_names(model),
        inputs=tuple(fb.tensor_name(graph.tensors[i]) for i in graph.inputs),
        outputs=tuple(fb.tensor_name(graph.tensors[i]) for i in graph.outputs),
        op_outputs=tuple(tuple(fb.tensor_name(graph.tensors[i]) for i in op.outputs) for op in graph.operators),
        op_inputs=tuple(
            tuple(fb.tensor_name(graph.tensors[i]) if i >= 0 else "" for i in op.inputs) for op in graph.operators
        ),
    )
    for index, op in enumerate(graph.operators):
        for tensor in op.outputs:
            graph.tensors[tensor].name = canonical_name(index).encode()
        if fb.op_type(model, op) == "TRANSPOSE_CONV":
            _unname_constants(model, op)
    _expose_unused_outputs(model)
    return names


def node_names(model: fb.Model) -> tuple[str, ...]:
    """For each op of the main subgraph the name that it has as a node, see :func:`canonicalise`."""
    graph = model.subgraphs[0]
    first = [fb.tensor_name(graph.tensors[op.outputs[0]]) if len(op.outputs) else "" for op in graph.operators]
    times = Counter(first)
    return tuple(n if n and times[n] == 1 else f"{n}#{i}" for i, n in enumerate(first))


def op_places(model: fb.Model) -> dict[int, list[int]]:
    """Where the float model's ops are in a built model that still has canonical names."""
    places: dict[int, list[int]] = {}
    for place, op in enumerate(model.subgraphs[0].operators):
        index = op_index(model, op)
        if index is not None:
            places.setdefault(index, []).append(place)
    return places


def _expose_unused_outputs(model: fb.Model) -> None:
    """Make outputs that nobody reads outputs of the model, until :func:`hide_unused_outputs`.

    The quantizer turns a SPLIT or UNPACK with an output that nobody reads integer in one build and leaves it float in
    the next, of the same bytes. Control flow stays as it is in all builds, and its outputs hold no values where nobody
    reads them.
    """
    graph = model.subgraphs[0]
    used = {int(i) for op in graph.operators for i in op.inputs} | {int(i) for i in graph.outputs}
    several = [
        [int(i) for i in op.outputs]
        for op in graph.operators
        if len(op.outputs) > 1 and fb.op_type(model, op) not in fb.CONTROL_FLOW
    ]
    unused = [i for row in several for i in row if i not in used and graph.tensors[i].type == _FLOAT32]
    graph.outputs = np.array([*graph.outputs, *unused], dtype=np.int32)


def hide_unused_outputs(model: fb.Model, names: NameMap) -> None:
    """Undo :func:`canonicalise`'s exposing of outputs that nobody reads, in place, in a built model."""
    graph = model.subgraphs[0]
    if len(graph.outputs) > len(names.outputs):
        graph.outputs = graph.outputs[: len(names.outputs)]
        editing.drop_unread_conversions(model)


def _unname_constants(model: fb.Model, op: fb.Operator) -> None:
    for tensor in (model.subgraphs[0].tensors[i] for i in op.inputs if i >= 0):
        if fb.is_constant(model, tensor):
            tensor.name = b""


def restore(model: fb.Model, names: NameMap) -> None:
    """Put the float model's names back on a built model, in place.

    A model's inputs and outputs keep their names exactly. If a tensor exists both quantized and in float, the
    one that its own op writes has the name, and its converted copy the name with its dtype: ``x_float32``.
    """
    graph = model.subgraphs[0]
    _part_constant_outputs(model)
    fixed = dict(zip([int(i) for i in graph.outputs], names.outputs, strict=True))
    fixed.update(zip([int(i) for i in graph.inputs], names.inputs, strict=True))
    taken = Counter(fixed.values())
    outputs = names.unique_outputs()
    for op in graph.operators:
        converts = fb.op_type(model, op) in BOUNDARY_OPS
        for position, index in enumerate(op.outputs):
            tensor = graph.tensors[index]
            if int(index) in fixed:
                tensor.name = fixed[int(index)].encode()
                continue
            wanted = _own_name(graph, op, position, outputs) if not converts else _source_name(graph, op, tensor)
            if wanted is not None:
                tensor.name = _free(wanted, tensor, taken).encode()
    for index, name in fixed.items():
        graph.tensors[index].name = name.encode()


def _part_constant_outputs(model: fb.Model) -> None:
    """Give each output that is a constant a tensor of its own: the quantizer makes one of equal constants."""
    graph = model.subgraphs[0]
    graph.outputs = np.array(graph.outputs, dtype=np.int32)
    taken = {int(i) for op in graph.operators for i in op.inputs}
    for place, index in enumerate(map(int, graph.outputs)):
        if index in taken and fb.is_constant(model, graph.tensors[index]):
            graph.tensors.append(copy(graph.tensors[index]))
            graph.outputs[place] = len(graph.tensors) - 1
        taken.add(index)


def restore_constants(model: fb.Model, names: NameMap, places: Mapping[int, Sequence[int]]) -> None:
    """Put the float model's names back on the constants and variables of a built model, in place.

    The quantizer makes names unique by counting, so that a constant's name would depend on which other nodes are
    integer. Here a constant has its own name; the quantized forms of one that several operands share, which differ in
    their scales, have the name with their dtype and a checksum of the scales.

    Args:
        model: The built model. Afterwards each operand has a tensor of its own, see
            :func:`autoselect.tflite.editing.share_equal_constants`.
        names: The key to the float model's names.
        places: Where each op of the float model is in the built one.
    """
    graph = model.subgraphs[0]
    written = fb.computed(graph)
    times = Counter(name for row in names.op_inputs for name in row)
    taken: set[int] = set()
    for index, row in enumerate(names.op_inputs):
        for place in places.get(index, ()):
            for position, tensor in _unshared(graph, graph.operators[place], written, taken):
                if position < len(row):
                    wanted = row[position] or f"constant_{index}_{position}"
                    tensor.name = _constant_name(wanted, tensor, shared=times[wanted] > 1).encode()


def unshare_operands(model: fb.Model) -> None:
    """Give every operand of every op that no op writes a tensor of its own, in place."""
    graph = model.subgraphs[0]
    written, taken = fb.computed(graph), set[int]()
    for op in graph.operators:
        list(_unshared(graph, op, written, taken))


def _unshared(
    graph: fb.SubGraph, op: fb.Operator, written: set[int], taken: set[int]
) -> Iterator[tuple[int, fb.Tensor]]:
    """Position among the op's inputs, and tensor, of each constant and variable that it reads.

    A constant that another op has taken before is replaced in this op by a copy. The copy has scales of its own, so
    that a repair of one op's weights leaves those of another as they are.
    """
    op.inputs = np.array(op.inputs, dtype=np.int32)
    for position, index in enumerate(map(int, op.inputs)):
        if index < 0 or index in written:
            continue
        if index in taken and not graph.tensors[index].isVariable:
            twin = copy(graph.tensors[index])
            twin.quantization = copy(twin.quantization)
            graph.tensors.append(twin)
            op.inputs[position] = len(graph.tensors) - 1
        taken.add(index)
        yield position, graph.tensors[op.inputs[position]]


def _constant_name(wanted: str, tensor: fb.Tensor, *, shared: bool) -> str:
    scales = None if tensor.quantization is None else tensor.quantization.scale
    if not shared or scales is None:
        return wanted
    return f"{wanted}_{fb.TENSOR_DTYPES[tensor.type]}_{zlib.crc32(np.asarray(scales, '<f4').tobytes()):08x}"


def _own_name(graph: fb.SubGraph, op: fb.Operator, position: int, outputs: Sequence[Sequence[str]]) -> str | None:
    index = op_index_of(fb.tensor_name(graph.tensors[op.outputs[position]]))
    if index is None or index >= len(outputs) or position >= len(outputs[index]):
        return None
    return outputs[index][position]


def _source_name(graph: fb.SubGraph, op: fb.Operator, tensor: fb.Tensor) -> str:
    source = fb.tensor_name(graph.tensors[op.inputs[0]])
    return f"{source}_{fb.TENSOR_DTYPES[tensor.type]}"


def _free(wanted: str, tensor: fb.Tensor, taken: Counter[str]) -> str:
    """A name no other tensor has: ``wanted`` itself, else with the dtype, else with a count."""
    name = wanted
    if taken[name]:
        name = f"{wanted}_{fb.TENSOR_DTYPES[tensor.type]}"
    if taken[name]:
        name = f"{name}_{taken[name]}"
    taken[name] += 1
    return name
