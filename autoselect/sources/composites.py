"""Composites of StableHLO, as litert-torch writes them: each becomes the ops that the file says it stands for.

LiteRT runs these ops for it. TensorFlow's quantizer refuses a model that has one.
"""

from __future__ import annotations

from copy import copy

import numpy as np

from autoselect.domain.words import listed
from autoselect.errors import ModelError
from autoselect.sources import signatures
from autoselect.tflite import flatbuffer as fb

_COMPOSITE = "STABLEHLO_COMPOSITE"


def inline(model: fb.Model) -> int:
    """Put the ops in the place of the composites of the main graph, in place, also where one stands for others.

    Returns:
        How many there were.

    Raises:
        ModelError: If a composite is left: the file does not hold its ops, or it is inside a branch.
    """
    graph, count, is_new = model.subgraphs[0], 0, True
    while is_new:
        ops, is_new = [], False
        for op in graph.operators or []:
            inlined = _inlined(model, op, f"composite{count}")
            count, is_new = count + bool(inlined), is_new or bool(inlined)
            ops += inlined or [op]
        graph.operators = ops
    if count:
        signatures.make_main(model, 0)
    _refuse_what_is_left(model)
    return count


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
    if fb.op_type(model, op) != _COMPOSITE or next(signatures.reached_subgraphs(op), 0) == 0:
        return []
    main, inner = model.subgraphs[0], model.subgraphs[op.builtinOptions2.decompositionSubgraphIndex]
    ends, given = ((*fb.indices(one.inputs), *fb.indices(one.outputs)) for one in (inner, op))
    place = {-1: -1, **dict(zip(ends, given, strict=False))}
    written = {i for one in inner.operators or [] for i in fb.indices(one.outputs)}
    if len(ends) != len(given) or len(place) <= len(ends) or not written.issuperset(fb.indices(inner.outputs)):
        return []
    for index, tensor in enumerate(inner.tensors):
        if index not in place:
            main.tensors.append(copy(tensor))
            main.tensors[-1].name = f"{prefix}/{fb.tensor_name(tensor)}".encode()
            place[index] = len(main.tensors) - 1
    return [_moved(one, place) for one in inner.operators]


def _moved(op: fb.Operator, place: dict[int, int]) -> fb.Operator:
    moved = copy(op)
    for name in fb.TENSOR_LISTS:
        if (row := getattr(op, name)) is not None:
            setattr(moved, name, np.array([place[i] for i in fb.indices(row)], np.int32))
    return moved
