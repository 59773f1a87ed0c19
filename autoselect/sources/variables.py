"""Variables that are only read, made constants: the same numbers in a form that the quantizer takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from autoselect.errors import ModelError
from autoselect.sources import signatures
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb

_SETTING = frozenset({"VAR_HANDLE", "ASSIGN_VARIABLE"})

_Key = tuple[bytes, bytes]
"""What LiteRT knows a variable by, whichever subgraph it is in."""


def freeze(model: fb.Model) -> int:
    """Write the initial values of variables where ops read them, and drop these ops, in place.

    Returns:
        How many variables became constants.

    Raises:
        ModelError: If the model changes a variable as it runs, or one's initial value is not in the file.
    """
    if not any(fb.op_type(model, op) in _SETTING for graph in model.subgraphs for op in graph.operators or []):
        return 0
    signatures.make_main(model, 0)  # What it does not run changes nothing.
    started = {i for graph in model.subgraphs for op in graph.operators or [] for i in _started_by(model, op)}
    starts, runs = ([g for i, g in enumerate(model.subgraphs) if (i in started) is wanted] for wanted in (True, False))
    try:
        initial = {key: graph.tensors[op.inputs[1]] for graph, key, op in _uses(model, starts)}
        keys = {_read(model, graph, key, op, initial.get(key)) for graph, key, op in _uses(model, runs)}
    except (AttributeError, IndexError) as exc:
        raise ModelError(f"The TFLite file is damaged: its variables are not whole ({exc}). Copy it again.") from exc
    spent = {i for i in started if all(fb.op_type(model, op) in _SETTING for op in model.subgraphs[i].operators or [])}
    for place, graph in enumerate(model.subgraphs):
        if place not in started:
            graph.operators = [op for op in graph.operators or [] if not _is_spent(model, op, spent)]
            editing.drop_unused_tensors(model, place)
    signatures.make_main(model, 0)
    return len(keys)


def _started_by(model: fb.Model, op: fb.Operator) -> Iterable[int]:
    return signatures.reached_subgraphs(op) if fb.op_type(model, op) == "CALL_ONCE" else ()


def _uses(model: fb.Model, graphs: Iterable[fb.SubGraph]) -> Iterator[tuple[fb.SubGraph, _Key, fb.Operator]]:
    """The ops that read a variable's handle, with its key."""
    for graph in graphs:
        keys: dict[int, _Key] = {}
        for op in graph.operators or []:
            yield from ((graph, keys[i], op) for i in fb.indices(op.inputs) if i in keys)
            if fb.op_type(model, op) == "VAR_HANDLE":
                options = op.builtinOptions
                keys[int(op.outputs[0])] = (options.container or b"", options.sharedName or b"")


def _read(model: fb.Model, graph: fb.SubGraph, key: _Key, op: fb.Operator, value: fb.Tensor | None) -> _Key:
    name, op_type = key[1].decode("utf-8", "replace"), fb.op_type(model, op)
    if op_type == "ASSIGN_VARIABLE":
        raise ModelError(
            f"The model keeps a state from run to run: ASSIGN_VARIABLE writes its variable {name!r}. autoselect needs "
            "outputs that depend on no sample before. Make the state an input and an output of the model, and convert "
            "it again."
        )
    if op_type != "READ_VARIABLE" or value is None or not fb.is_constant(model, value):
        why = "the file has no initial value for it" if op_type == "READ_VARIABLE" else f"{op_type} reads it"
        raise ModelError(
            f"The model's variable {name!r} cannot be made a constant: {why}. Freeze the variables: pass the .keras "
            "file or the SavedModel that the file was made of, or convert what `convert_variables_to_constants_v2` "
            "gives."
        )
    read = graph.tensors[op.outputs[0]]
    read.buffer, read.type, read.shape, read.shapeSignature = value.buffer, value.type, value.shape, None
    return key


def _is_spent(model: fb.Model, op: fb.Operator, spent: set[int]) -> bool:
    if fb.op_type(model, op) == "CALL_ONCE":
        return spent.issuperset(signatures.reached_subgraphs(op))
    return fb.op_type(model, op) in {"VAR_HANDLE", "READ_VARIABLE"}
