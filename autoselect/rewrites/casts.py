"""CASTs of 8-bit numbers, ``uint8`` or ``int8`` without a scale, to float: in front of what moves them, in integers.

TensorFlow's quantizer leaves such a CAST in float, and puts a QUANTIZE after it. So the first op of a model that takes
a picture as ``uint8`` would be a float one in every candidate. A QUANTIZE alone does the work of both if the CAST's
input has a scale of 1 and a zero point of 0. If its output has a scale of 1, too, it rounds nothing.

An op that only moves numbers writes the same values before a CAST and behind it. Behind it, the numbers have a scale in
the integer model, as all values have: more runtimes move those than numbers without one, and constants may lie beside
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.domain.units import MOVERS
from autoselect.rewrites.rewriting import GraphView, Rewrite, has_ops
from autoselect.tflite import editing, ranges
from autoselect.tflite import flatbuffer as fb

_ENDS = {schema.TensorType.UINT8: (0.0, 255.0), schema.TensorType.INT8: (-128.0, 127.0)}
"""The least and the largest number of each type that LiteRT's QUANTIZE turns into int8 of any scale."""
MOVING = MOVERS | {"CONCATENATION", "PACK"}
"""Ops that write numbers that they read, as they are."""


def _bring_forward(model: fb.Model) -> list[str]:
    """Put each CAST in front of the ops that move numbers from an input of the model to the CAST, in place.

    CASTs of tensors that the model computes stay where they are.

    Returns:
        Names of the tensors that no op writes any more: the 8-bit outputs of these ops, and the outputs of CASTs that
        read the same tensor as another CAST.
    """
    view = GraphView(model)
    gone = _merge(view)
    from_caller = {i for i in fb.indices(view.graph.inputs) if _has_numbers(view.tensor(i))}
    for op in view.graph.operators:
        read = {*fb.indices(op.inputs)}
        if _moves(view, op) and from_caller & read and not any(_computes(view, i) for i in read - from_caller):
            from_caller.update(fb.indices(op.outputs))
    for op in reversed([*view.graph.operators]):
        written = fb.indices(op.outputs)
        used = [i for i in written if view.readers(i) or view.is_output(i)]
        if from_caller.issuperset(written) and used and all(_is_cast_alone(view, i) for i in used):
            gone += [fb.tensor_name(view.tensor(i)) for i in used]
            _swap(view, op)
    return gone


def _merge(view: GraphView) -> list[str]:
    """Let those who read what one of several CASTs of a tensor writes read what the first one writes."""
    gone, casts = list[str](), dict[int, int]()
    for op in _casts(view):
        written = int(op.outputs[0])
        first = casts.setdefault(int(op.inputs[0]), written)
        if first != written and not view.is_output(written):
            for reader in view.readers(written):
                reader.inputs = np.array([first if i == written else i for i in fb.indices(reader.inputs)], np.int32)
            view.replace([op])
            gone.append(fb.tensor_name(view.tensor(written)))
    return gone


def _computes(view: GraphView, index: int) -> bool:
    """Whether an op of the model writes a tensor of 8-bit numbers."""
    return view.writer(index) is not None and _has_numbers(view.tensor(index))


def _moves(view: GraphView, op: fb.Operator) -> bool:
    """Whether an op writes numbers that it reads, as they are."""
    clamps = getattr(op.builtinOptions, "fusedActivationFunction", schema.ActivationFunctionType.NONE)
    return view.type_of(op) in MOVING and clamps == schema.ActivationFunctionType.NONE


def _is_cast_alone(view: GraphView, index: int) -> bool:
    """Whether one CAST to float reads a tensor of 8-bit numbers, and nobody else."""
    reader = view.sole_reader(index)
    return reader is not None and _is_cast(view, reader)


def _has_numbers(tensor: fb.Tensor) -> bool:
    return tensor.type in _ENDS and not fb.scales(tensor) and not tensor.isVariable


def _is_cast(view: GraphView, op: fb.Operator) -> bool:
    """Whether an op is a CAST of 8-bit numbers to float."""
    if view.type_of(op) != "CAST" or view.tensor(op.outputs[0]).type != schema.TensorType.FLOAT32:
        return False
    return _has_numbers(view.tensor(op.inputs[0]))


def _casts(view: GraphView) -> list[fb.Operator]:
    """All CASTs of 8-bit numbers to float."""
    return [op for op in view.typed("CAST") if _is_cast(view, op)]


def _swap(view: GraphView, op: fb.Operator) -> None:
    """Let an op write what the CASTs of its outputs write, and cast what it reads."""
    casts = {i: view.readers(i)[0] for i in fb.indices(op.outputs) if view.readers(i)}
    for i in {*fb.indices(op.outputs)} - {*casts}:  # Nobody reads it.
        view.tensor(i).type = schema.TensorType.FLOAT32
    op.outputs = np.array([casts[i].outputs[0] if i in casts else i for i in fb.indices(op.outputs)], np.int32)
    view.replace([*casts.values()])
    like = next(iter(casts.values()))
    op.inputs = np.array([_in_float(view, i, like) for i in fb.indices(op.inputs)], np.int32)
    view.replace([op], [op])


def _in_float(view: GraphView, index: int, like: fb.Operator) -> int:
    """The float tensor with the numbers of a tensor: a constant, or what a CAST ``like`` another writes.

    The tensor itself if it has no 8-bit numbers.
    """
    if index < 0 or not _has_numbers(tensor := view.tensor(index)):
        return index
    name = f"{fb.tensor_name(tensor)}/cast"
    if fb.is_constant(view.model, tensor):
        return editing.add_constant(view.model, name, fb.constant_values(view.model, tensor).astype(np.float32))
    cast = next((reader for reader in view.readers(index) if _is_cast(view, reader)), None)
    if cast is None:
        twin = copy(tensor)
        twin.name, twin.type = name.encode(), schema.TensorType.FLOAT32
        view.graph.tensors.append(twin)
        cast = copy(like)
        cast.inputs, cast.outputs = (np.array([i], np.int32) for i in (index, len(view.graph.tensors) - 1))
    else:
        view.replace([cast])
    before = view.writer(index)
    first = view.graph.operators[0]
    view.replace([before or first], [cast, first] if before is None else [before, cast])
    return int(cast.outputs[0])


CASTS_FIRST = Rewrite(name="casts before moves", applies=has_ops("CAST"), deed=_bring_forward)


def _of_inputs(model: fb.Model) -> dict[int, fb.Operator]:
    """The CASTs that alone read an 8-bit input, by the input's place; what is an output, too, is not among these."""
    view = GraphView(model)
    inputs = enumerate(fb.indices(view.graph.inputs))
    read = {place: view.readers(i)[0] for place, i in inputs if len(view.readers(i)) == 1 and not view.is_output(i)}
    return {place: op for place, op in read.items() if _is_cast(view, op) and not view.is_output(int(op.outputs[0]))}


def _reach(model: fb.Model) -> list[fb.Operator]:
    casts = _casts(view := GraphView(model))
    held = {int(op.outputs[0]): _ENDS[view.tensor(op.inputs[0]).type] for op in casts}
    for op in view.graph.operators:
        values = [i for i in fb.indices(op.inputs) if i >= 0 and view.tensor(i).type == schema.TensorType.FLOAT32]
        others = [view.tensor(i) for i in {*values} - held.keys()]
        if _moves(view, op) and len(others) < len({*values}) and all(fb.is_constant(model, other) for other in others):
            pairs = [*(held[i] for i in values if i in held), *(_ends_of(model, other) for other in others)]
            ends = min(low for low, _ in pairs), max(high for _, high in pairs)
            held |= dict.fromkeys(fb.indices(op.outputs), ends)
    for index, ends in held.items():
        ranges.set_range(view.tensor(index), *ends)
    return casts


def _ends_of(model: fb.Model, constant: fb.Tensor) -> tuple[float, float]:
    """The least and the largest value of a constant; twice 0 if it has none."""
    values = fb.constant_values(model, constant)
    return float(np.min(values, initial=0.0)), float(np.max(values, initial=0.0))


CASTS_REACH = Rewrite(name="casts reach as far as 8 bits", applies=lambda m: bool(_casts(GraphView(m))), deed=_reach)
"""A calibrated model in which the outputs of CASTs, and of ops that move these numbers on, have the range of the type
that the CAST reads. So the quantizer gives them a scale of 1, whatever numbers the calibration samples had; but a
tensor that an op joins to computed values gets the scale of these."""


def _leave_out(model: fb.Model) -> list[fb.Operator]:
    view, casts = GraphView(model), _of_inputs(model)
    inputs = [*fb.indices(view.graph.inputs)]
    for place, cast in casts.items():
        written = int(cast.outputs[0])
        _reconnect(model, inputs[place], written)
        inputs[place] = written
    view.graph.inputs = np.array(inputs, np.int32)
    view.replace([*casts.values()])
    editing.order_operator_codes(model)
    return [*casts.values()]


def _reconnect(model: fb.Model, old: int, new: int) -> None:
    """Let signatures name another tensor as an input."""
    for signature in model.signatureDefs or []:
        for entry in signature.inputs or []:
            if (signature.subgraphIndex or 0) == 0 and int(entry.tensorIndex) == old:
                entry.tensorIndex = new


CASTS_LEFT_OUT = Rewrite(name="casts left out", applies=lambda model: bool(_of_inputs(model)), deed=_leave_out)
"""A model that takes float values in place of 8-bit numbers: TensorFlow's quantizer leaves ops in float that move what
a CAST writes, and puts a GATHER in front of a CAST."""


def put_back(model: fb.Model, before: fb.Model) -> None:
    """Put the CASTs that :data:`CASTS_LEFT_OUT` leaves out into a quantized model, in place.

    Args:
        model: What the quantizer made of the model without the CASTs; it is changed.
        before: The model with the CASTs.
    """
    view, source = GraphView(model), GraphView(before)
    inputs = [*fb.indices(view.graph.inputs)]
    for place, given in _of_inputs(before).items():
        written, read = (source.tensor(int(row[0])) for row in (given.outputs, given.inputs))
        view.tensor(inputs[place]).name = written.name
        view.graph.tensors.append(numbers := copy(read))
        numbers.buffer = 0
        cast = copy(given)
        cast.inputs, cast.outputs = (np.array([i], np.int32) for i in (len(view.graph.tensors) - 1, inputs[place]))
        model.operatorCodes.append(copy(before.operatorCodes[given.opcodeIndex]))
        cast.opcodeIndex = len(model.operatorCodes) - 1
        _reconnect(model, inputs[place], int(cast.inputs[0]))
        inputs[place] = int(cast.inputs[0])
        view.graph.operators.insert(0, cast)
    view.graph.inputs = np.array(inputs, np.int32)


def write_integers(model: fb.Model, places: Mapping[int, int]) -> dict[int, int]:
    """Replace each CAST of an 8-bit input, and the QUANTIZE that alone reads its output, by one QUANTIZE, in place.

    The input gets a scale of 1 and a zero point of 0.

    Args:
        model: What TensorFlow's quantizer made of the float model; it is changed.
        places: For each op of the float model the index of its twin in ``model``.

    Returns:
        ``places`` after the change.
    """
    view = GraphView(model)
    twins = {index: view.graph.operators[place] for index, place in places.items()}
    ends = {index: end for index, op in twins.items() if (end := _rounded(view, op)) is not None}
    casts = {id(twins[index]) for index in ends}
    numbers = {i for i in fb.indices(view.graph.inputs) if all(id(op) in casts for op in view.readers(i))}
    for index, end in ends.items():
        cast, source = twins[index], int(twins[index].inputs[0])
        if source in numbers and not view.is_output(source):
            view.tensor(source).quantization = editing.symmetric(np.ones(1, np.float32))
            model.operatorCodes.append(editing.conversion_code("QUANTIZE", ()))
            twins[index] = editing.conversion_op(len(model.operatorCodes) - 1, source, end)
            view.replace([cast, *view.readers(int(cast.outputs[0]))], [twins[index]])
    at = {id(op): place for place, op in enumerate(view.graph.operators)}
    return {index: at[id(op)] for index, op in twins.items()}


def _rounded(view: GraphView, op: fb.Operator) -> int | None:
    """The int8 tensor that a CAST of 8-bit numbers is quantized to, if nobody reads what it writes otherwise."""
    if not _is_cast(view, op) or view.is_output(int(op.outputs[0])):
        return None
    readers = view.readers(int(op.outputs[0]))
    ends = [int(reader.outputs[0]) for reader in readers if view.type_of(reader) == "QUANTIZE"]
    is_alone = len(ends) == len(readers) == 1 and view.tensor(ends[0]).type == schema.TensorType.INT8
    return ends[0] if is_alone else None


def take_scales(model: fb.Model, integer: fb.Model) -> None:
    """Copy the scales that :func:`write_integers` gave to inputs of the integer build to another build, in place.

    So an input has the same type and scale in both builds. No op changes.
    """
    graph, theirs = model.subgraphs[0], integer.subgraphs[0]
    for ours, other in zip(graph.inputs, theirs.inputs, strict=True):
        tensor, twin = graph.tensors[ours], theirs.tensors[other]
        if tensor.type == twin.type and tensor.type in _ENDS:
            tensor.quantization = twin.quantization
