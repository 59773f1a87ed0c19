"""Writes values that are the same on every sample as constants: sizes that a model computes from its own shapes.

Keras models compute the shapes of their RESHAPEs as they run, though every size is known once the batch is fixed.
Compilers for accelerators leave such ops to the processor, and cut the graph there. TensorFlow's quantizer folds the
SHAPE by itself, but not what is computed from it.

Knows nothing of samples: a model whose inputs have a free size is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.runner import interpreter_of

MOST_ELEMENTS = 16_384
"""The most elements of a value that is written into the file: a mask over 128 tokens has as many."""

_DRAWING = frozenset({"MULTINOMIAL", "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM", "STABLEHLO_RNG_BIT_GENERATOR"})
"""Op types whose outputs are others on each run."""
_KEEPING = frozenset({"ASSIGN_VARIABLE", "READ_VARIABLE", "VAR_HANDLE"})
"""Op types that have to do with a state; so have those of tables, whose names begin alike."""
_PLAIN = frozenset({"bool", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint32", "uint64"})
"""Types of values that a file holds as NumPy does."""


def fold(model: fb.Model) -> list[int]:
    """Make what depends on constants and shapes alone a constant, in place, and remove what then is not needed.

    A shape counts as known where the file leaves no size of it free. LiteRT computes the values on its plain kernels,
    so that readers get what they got before, bit for bit.

    Args:
        model: With true shapes.

    Returns:
        Where the ops that are left were, in order: all of them in a model with an input of a free size.
    """
    graph = model.subgraphs[0]
    before = list(graph.operators)
    if all(_is_fixed(graph.tensors[i]) for i in graph.inputs):
        read = _read(graph)
        for fold_some in (_told_by_shapes, _computed_beforehand):
            gone = {id(op) for op in fold_some(model)}
            graph.operators = [op for op in graph.operators if id(op) not in gone]
        graph.operators = _needed(model, read)
    left = {id(op) for op in graph.operators}
    return [place for place, op in enumerate(before) if id(op) in left]


def _told_by_shapes(model: fb.Model) -> list[fb.Operator]:
    """Write the outputs of SHAPE and RANK, in place; returns those of them that are not needed any more."""
    graph, folded_ops = model.subgraphs[0], []
    for op in graph.operators:
        op_type = fb.op_type(model, op)
        if op_type not in ("SHAPE", "RANK") or int(op.outputs[0]) in fb.indices(graph.outputs):
            continue
        source, result = (graph.tensors[int(row[0])] for row in (op.inputs, op.outputs))
        shape = fb.shape_of(source)
        if shape and _is_fixed(source):  # Old files have an empty shape where they know none.
            sizes = shape if op_type == "SHAPE" else len(shape)
            _write(model, result, np.array(sizes, fb.TENSOR_DTYPES[result.type]))
            folded_ops.append(op)
    return folded_ops


def _computed_beforehand(model: fb.Model) -> list[fb.Operator]:
    """Write what ops compute from constants alone, in place; returns those of them that are not needed any more."""
    ops = _fed_by_constants(model)
    values = _values(model, ops)
    tensors, folded_ops = model.subgraphs[0].tensors, []
    for op in ops:
        rows = [values.get(int(i)) for i in op.outputs]
        if all(value is not None and 0 < value.size <= MOST_ELEMENTS for value in rows):
            folded_ops.append(op)
            for index, value in zip(op.outputs, rows, strict=True):
                assert value is not None
                _write(model, tensors[index], value)
    return folded_ops


def _fed_by_constants(model: fb.Model) -> list[fb.Operator]:
    """Ops that read constants, or what other such ops write; no outputs of the model."""
    graph = model.subgraphs[0]
    written = fb.computed(graph)
    constants = {i for i, tensor in enumerate(graph.tensors) if i not in written and fb.is_constant(model, tensor)}
    ops, ends = [], set(fb.indices(graph.outputs))
    for op in graph.operators:
        read, results = {i for i in fb.indices(op.inputs) if i >= 0}, fb.indices(op.outputs)
        if not read or not constants.issuperset(read) or not ends.isdisjoint(results):
            continue
        if _repeats(model, op) and all(_is_plain(graph.tensors[i]) for i in (*read, *results)):
            constants.update(results)
            ops.append(op)
    return ops


def _repeats(model: fb.Model, op: fb.Operator) -> bool:
    """Whether an op writes the same whenever it reads the same, and does nothing else."""
    op_type = fb.op_type(model, op)
    is_builtin = model.operatorCodes[op.opcodeIndex].builtinCode != schema.BuiltinOperator.CUSTOM
    return is_builtin and not op_type.startswith("HASHTABLE") and op_type not in fb.CONTROL_FLOW | _DRAWING | _KEEPING


def _is_plain(tensor: fb.Tensor) -> bool:
    return fb.TENSOR_DTYPES[tensor.type] in _PLAIN and not tensor.isVariable and not fb.scales(tensor)


def _values(model: fb.Model, ops: list[fb.Operator]) -> dict[int, np.ndarray]:
    """What these ops write, by tensor; nothing where LiteRT does not run them by themselves."""
    if not ops:
        return {}
    alone = editing.copied(model)
    places = {id(op): place for place, op in enumerate(model.subgraphs[0].operators)}
    graph = alone.subgraphs[0]
    graph.operators = [graph.operators[places[id(op)]] for op in ops]
    graph.inputs, graph.outputs = [], [int(i) for op in ops for i in op.outputs]
    alone.subgraphs, alone.signatureDefs, alone.metadata = [graph], None, None
    indices = list(graph.outputs)
    editing.drop_unused_tensors(alone)
    editing.tidy(alone)
    try:
        interpreter = interpreter_of(fb.serialise(alone), preserve=True, delegates=False)
        interpreter.allocate_tensors()
        interpreter.invoke()
        return {t: np.array(interpreter.get_tensor(int(i))) for t, i in zip(indices, graph.outputs, strict=True)}
    except (ValueError, RuntimeError):
        return {}


def _write(model: fb.Model, tensor: fb.Tensor, value: np.ndarray) -> None:
    tensor.buffer = editing.add_buffer(model, value)
    tensor.shape, tensor.shapeSignature, tensor.hasRank = np.array(value.shape, np.int32), None, True


def _needed(model: fb.Model, read: set[int]) -> list[fb.Operator]:
    """The ops that still have a reader, and those that had none when these tensors were read."""
    graph = model.subgraphs[0]
    still, kept = set(fb.indices(graph.outputs)), list[fb.Operator]()
    for op in reversed(graph.operators):
        results = fb.indices(op.outputs)
        if still.isdisjoint(results) and not read.isdisjoint(results) and _repeats(model, op):
            continue
        still.update(fb.indices(op.inputs))
        kept.append(op)
    return kept[::-1]


def _read(graph: fb.SubGraph) -> set[int]:
    rows: Iterable[fb.Indices] = (graph.outputs, *(op.inputs for op in graph.operators))
    return {i for row in rows for i in fb.indices(row)}


def _is_fixed(tensor: fb.Tensor) -> bool:
    return all(size >= 0 for size in fb.indices(tensor.shapeSignature))
