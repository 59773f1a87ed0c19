"""Variables that are only read, made constants: the same numbers in a form that the quantizer takes.

What a model assigns as it runs is its state, and stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from autoselect.errors import ModelError
from autoselect.rewrites import subgraphs
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb

_SETTING = frozenset({"VAR_HANDLE", "ASSIGN_VARIABLE"})

_Key = tuple[bytes, bytes]
"""What LiteRT knows a variable by, whichever subgraph it is in."""


def freeze(model: fb.Model) -> tuple[int, int]:
    """Write the initial values of variables that nothing changes where ops read them, and drop these ops, in place.

    Returns:
        How many variables became constants, and how many the model changes as it runs, which stay.

    Raises:
        ModelError: If a variable can neither become a constant nor stay.
    """
    if not any(fb.op_type(model, op) in _SETTING for graph in model.subgraphs for op in graph.operators or []):
        return 0, 0
    subgraphs.make_main(model, 0)  # What it does not run changes nothing.
    started = {i for graph in model.subgraphs for op in graph.operators or [] for i in _started_by(model, op)}
    starts, runs = ([g for i, g in enumerate(model.subgraphs) if (i in started) is wanted] for wanted in (True, False))
    try:
        initial = {key: graph.tensors[op.inputs[1]] for graph, key, op in _uses(model, starts)}
        kept = {key for _, key, op in _uses(model, runs) if fb.op_type(model, op) == "ASSIGN_VARIABLE"}
        reads = [(graph, key, op) for graph, key, op in _uses(model, runs) if key not in kept]
        for graph, key, op in reads:
            _read(model, graph, key, op, initial.get(key))
    except (AttributeError, IndexError) as exc:
        raise ModelError(f"The TFLite file is damaged: its variables are not whole ({exc}). Copy it again.") from exc
    frozen = {key for _, key, _ in reads}
    settled = {id(op) for _, _, op in reads}
    spent = {i for i in started if all(fb.op_type(model, op) in _SETTING for op in model.subgraphs[i].operators or [])}
    for place, graph in enumerate(model.subgraphs):
        if place not in started:
            ops = [op for op in graph.operators or [] if id(op) not in settled and _handle(model, op) not in frozen]
            graph.operators = [op for op in ops if kept or not spent.issuperset(_started_by(model, op) or {-1})]
            editing.drop_unused_tensors(model, place)
    subgraphs.make_main(model, 0)
    return len(frozen), len(kept)


def _started_by(model: fb.Model, op: fb.Operator) -> Iterable[int]:
    return subgraphs.reached_subgraphs(op) if fb.op_type(model, op) == "CALL_ONCE" else ()


def _uses(model: fb.Model, graphs: Iterable[fb.SubGraph]) -> Iterator[tuple[fb.SubGraph, _Key, fb.Operator]]:
    """The ops that read a variable's handle, with its key."""
    for graph in graphs:
        keys: dict[int, _Key] = {}
        for op in graph.operators or []:
            yield from ((graph, keys[i], op) for i in fb.indices(op.inputs) if i in keys)
            if (key := _handle(model, op)) is not None:
                keys[int(op.outputs[0])] = key


def _handle(model: fb.Model, op: fb.Operator) -> _Key | None:
    """The key of the variable that an op gives the handle of."""
    if fb.op_type(model, op) != "VAR_HANDLE":
        return None
    return op.builtinOptions.container or b"", op.builtinOptions.sharedName or b""


def _read(model: fb.Model, graph: fb.SubGraph, key: _Key, op: fb.Operator, value: fb.Tensor | None) -> None:
    op_type = fb.op_type(model, op)
    if op_type != "READ_VARIABLE" or value is None or not fb.is_constant(model, value):
        why = "the file has no initial value for it" if op_type == "READ_VARIABLE" else f"{op_type} reads it"
        raise ModelError(
            f"The model's variable {key[1].decode('utf-8', 'replace')!r} cannot be made a constant: {why}. Freeze the "
            "variables: pass the .keras file or the SavedModel that the file was made of, or convert what "
            "`convert_variables_to_constants_v2` gives."
        )
    read = graph.tensors[op.outputs[0]]
    read.buffer, read.type, read.shape, read.shapeSignature = value.buffer, value.type, value.shape, None
