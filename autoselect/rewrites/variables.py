"""Variables that are only read, made constants: the same numbers in a form that the quantizer takes.

What a model assigns as it runs is its state, and stays.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator

from autoselect.errors import ModelError
from autoselect.rewrites import subgraphs
from autoselect.rewrites.rewriting import Rewrite, has_ops
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb

_SETTING = frozenset({"VAR_HANDLE", "ASSIGN_VARIABLE"})
_FILLING = frozenset({"ASSIGN_VARIABLE", "HASHTABLE_IMPORT"})

_Key = tuple[bytes, bytes]
"""What LiteRT knows a variable by, whichever subgraph it is in."""


def _freeze(model: fb.Model) -> set[_Key]:
    """Write the initial values of variables that nothing changes where ops read them, and drop these ops, in place.

    Returns:
        The variables that became constants.

    Raises:
        ModelError: If a variable can neither become a constant nor stay.
    """
    subgraphs.make_main(model, 0)  # What it does not run changes nothing.
    started, starts, runs = _parted(model)
    with _whole():
        initial = {key: graph.tensors[op.inputs[1]] for graph, key, op in _uses(model, starts)}
        kept = _assigned(model, runs)
        reads = [(graph, key, op) for graph, key, op in _uses(model, runs) if key not in kept]
        for graph, key, op in reads:
            _read(model, graph, key, op, initial.get(key))
    frozen = {key for _, key, _ in reads}
    settled = {id(op) for _, _, op in reads}
    spent = {i for i in started if all(fb.op_type(model, op) in _SETTING for op in model.subgraphs[i].operators or [])}
    for place, graph in enumerate(model.subgraphs):
        if place not in started:
            ops = [op for op in graph.operators or [] if id(op) not in settled and _handle(model, op) not in frozen]
            graph.operators = [op for op in ops if kept or not spent.issuperset(_started_by(model, op) or {-1})]
            editing.drop_unused_tensors(model, place)
    subgraphs.make_main(model, 0)
    return frozen


@contextlib.contextmanager
def _whole() -> Iterator[None]:
    """Call a file damaged whose variables lack what the schema gives them."""
    try:
        yield
    except (AttributeError, IndexError, TypeError) as exc:
        raise ModelError(f"The TFLite file is damaged: its variables are not whole ({exc}). Copy it again.") from exc


def _parted(model: fb.Model) -> tuple[set[int], list[fb.SubGraph], list[fb.SubGraph]]:
    """The places of the subgraphs that run once, at the start; these subgraphs; and the others."""
    started = {i for graph in model.subgraphs for op in graph.operators or [] for i in _started_by(model, op)}
    parts = ([g for i, g in enumerate(model.subgraphs) if (i in started) is wanted] for wanted in (True, False))
    starts, runs = parts
    return started, starts, runs


def _assigned(model: fb.Model, graphs: Iterable[fb.SubGraph]) -> set[_Key]:
    return {key for _, key, op in _uses(model, graphs) if fb.op_type(model, op) == "ASSIGN_VARIABLE"}


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


def _forget_unread(model: fb.Model) -> list[fb.Operator]:
    """Remove the ops that set up tables and variables which the model's inference never reads, in place.

    TensorFlow's converter lets each signature set up what any signature of the SavedModel needs.

    Returns:
        The ops that were removed: those that set up, and CALL_ONCE ops whose subgraph has no op left.
    """
    subgraphs.make_main(model, 0)
    started, starts, runs = _parted(model)
    with _whole():
        read = {key for graph in runs for op in graph.operators or [] if (key := _resource(model, op)) is not None}
        dropped = [op for graph in starts for op in _setting_up(model, graph, read)]
        gone = {id(op) for op in dropped}
        for graph in starts:
            graph.operators = [op for op in graph.operators or [] if id(op) not in gone]
        idle = {place for place in started if not model.subgraphs[place].operators}
        calls = [
            (place, op)
            for place, graph in enumerate(model.subgraphs)
            for op in graph.operators or []
            if (places := set(_started_by(model, op))) and places <= idle
        ]
    for place, call in calls:
        graph = model.subgraphs[place]
        graph.operators = [op for op in graph.operators if op is not call]
    for place in {place for place, _ in calls} | (started if dropped else set()):
        editing.drop_unused_tensors(model, place)
    subgraphs.make_main(model, 0)
    return dropped + [call for _, call in calls]


def _setting_up(model: fb.Model, graph: fb.SubGraph, read: Collection[object]) -> Iterator[fb.Operator]:
    """The ops of a subgraph that give the handle of an unread table or variable, and those that fill it."""
    handles: set[int] = set()
    for op in graph.operators or []:
        resource = _resource(model, op)
        if resource is not None and resource not in read:
            handles.add(int(op.outputs[0]))
            yield op
        elif handles.intersection(fb.indices(op.inputs)) and fb.op_type(model, op) in _FILLING:
            yield op


def _resource(model: fb.Model, op: fb.Operator) -> object:
    """What tells the variable or table that an op gives the handle of from others; None if it gives none."""
    if fb.op_type(model, op) == "HASHTABLE":
        return op.builtinOptions.tableId
    return _handle(model, op)


UNREAD = Rewrite(name="unread tables and variables forgotten", applies=has_ops("CALL_ONCE"), deed=_forget_unread)
FROZEN = Rewrite(
    name="variables made constants",
    applies=has_ops(*_SETTING),
    deed=_freeze,
    note="Variables became constants, with the initial values in the file: {}.",
)
STATES = Rewrite(
    name="states told",
    applies=has_ops(*_SETTING),
    deed=lambda model: _assigned(model, _parted(model)[2]),
    note="The model keeps a state in variables ({}): a metric starts each sample with the initial one, an evaluator "
    "may run steps, and calibration samples are consecutive steps.",
)
"""Changes nothing: a state stays."""
