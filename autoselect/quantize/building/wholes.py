"""The whole builds of one calibrated model that candidates are put together from: all float, all hybrid, all integer.

Knows how each is made and which op of one is which of the other; refuses to know how ops of several join.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ai_edge_litert import schema_py_generated as schema

from autoselect.domain.recipe import Recipe
from autoselect.quantize import names
from autoselect.quantize.building import dynamic_range
from autoselect.quantize.calibrated import CalibratedModel
from autoselect.quantize.preparing import adoption, converter
from autoselect.quantize.repairing.bias import Shift
from autoselect.quantize.repairing.repairs import RepairKit, before_quantizing, repair_whole
from autoselect.tflite import editing, reader
from autoselect.tflite import flatbuffer as fb


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A whole build under canonical names; each operand is a tensor of its own and has the float model's name.

    Attributes:
        model: The editable model.
        places: For each op of the float model, as far as it has a twin here, the place of that.
        shifts: What bias correction found, by op of the float model.
        skipped: By name of a repair, why it left an op alone that it is there for.
    """

    model: fb.Model
    places: Mapping[int, int]
    shifts: Mapping[int, Shift]
    skipped: Mapping[str, Mapping[int, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wholes:
    """The whole builds of one model.

    Attributes:
        names: The key to the canonical names.
        in_float: The float model, without what calibration wrote into it.
        hybrid: The same with every op hybrid that can be.
        integer: What the quantizer makes of all of it, or what another one made of it.
        kept_float: For each op of the float model that cannot be hybrid why.
    """

    names: names.NameMap
    in_float: Whole
    hybrid: Whole
    integer: Whole
    kept_float: Mapping[int, str]

    def of(self, kind: str) -> Whole:
        """The one in which an op is that has become ``kind``."""
        return {"integer": self.integer, "hybrid": self.hybrid}.get(kind, self.in_float)


def whole_builds(kit: RepairKit, recipe: Recipe) -> Wholes:
    """What :func:`make_wholes` makes, made once for all builders of a model; not to be changed."""
    return kit.remember(("wholes", recipe), lambda: make_wholes(kit, recipe))


def make_wholes(kit: RepairKit, recipe: Recipe) -> Wholes:
    """Build all of them, with the recipe's granularity and with those of its repairs that treat each op by itself.

    Raises:
        BuildError: If the quantizer refuses the model.
        ModelError: If a given integer model was not made from this float model.
    """
    calibrated, float_model = kit.calibrated(recipe.repairs)
    everything = range(len(float_model.subgraphs[0].operators))
    in_float = _float(calibrated)
    hybrid = _float(calibrated)
    kept = dynamic_range.to_hybrid(hybrid, everything)
    integer, found = _integer(kit, recipe)
    names.restore_constants(integer, calibrated.names, {index: [place] for index, place in found.items()})
    same = {index: index for index in everything}
    whole = [
        Whole(model=in_float, places=same, shifts={}, skipped=kit.skipped(recipe.repairs)),
        _repaired(hybrid, float_model, same, recipe, kit),
        _repaired(integer, float_model, found, recipe, kit),
    ]
    return Wholes(names=calibrated.names, in_float=whole[0], hybrid=whole[1], integer=whole[2], kept_float=kept)


def _integer(kit: RepairKit, recipe: Recipe) -> tuple[fb.Model, Mapping[int, int]]:
    """The all-integer model, and for each op of the float model the place of its twin."""
    calibrated, float_model = kit.calibrated(recipe.repairs)
    content = integer_model(kit, recipe)
    if calibrated.integer is not None:
        return adoption.adopt(content, float_model, calibrated.names)
    integer = fb.parse(content)
    return integer, _twins(integer, float_model)


def _repaired(
    model: fb.Model, float_model: fb.Model, places: Mapping[int, int], recipe: Recipe, kit: RepairKit
) -> Whole:
    repaired = repair_whole(model, float_model, places, recipe.repairs, kit)
    return Whole(model=model, places=places, shifts=repaired.shifts, skipped=repaired.skipped)


def integer_model(kit: RepairKit, recipe: Recipe) -> bytes:
    """The all-integer model: the given one; else, under canonical names, what the quantizer makes once for all.

    Args:
        kit: Of the calibrated model.
        recipe: For its granularity and its repairs that come before quantizing.

    Raises:
        BuildError: If the quantizer refuses the model.
    """
    calibrated, _ = kit.calibrated(recipe.repairs)
    if calibrated.integer is not None:
        return calibrated.integer
    marks = f"{recipe.per_channel} {' '.join(before_quantizing(recipe.repairs))}"
    name = f"integer_{hashlib.sha256(marks.encode()).hexdigest()[:12]}.tflite"
    plain = Recipe(per_channel=recipe.per_channel)
    made = partial(converter.quantize, calibrated.content, denylisted=(), recipe=plain)
    return kit.keep(name, lambda: _with_own_outputs(made(), calibrated.names))


def _with_own_outputs(content: bytes, key: names.NameMap) -> bytes:
    """The model without outputs that were exposed while the quantizer worked."""
    if len(reader.read_interface(content).outputs) == len(key.outputs):
        return content
    model = fb.parse(content)
    names.hide_unused_outputs(model, key)
    return fb.serialise(model)


def _float(calibrated: CalibratedModel) -> fb.Model:
    """The calibrated model as it was before: no ranges, no intermediate tensors of recurrent ops."""
    model = fb.parse(calibrated.content)
    names.hide_unused_outputs(model, calibrated.names)
    graph = model.subgraphs[0]
    for tensor in graph.tensors:
        if not fb.scales(tensor):
            tensor.quantization = schema.QuantizationParametersT()
    for op in graph.operators:
        op.intermediates = None
    editing.drop_unused_tensors(model)
    names.restore_constants(model, calibrated.names, {i: [i] for i in range(len(graph.operators))})
    return model


def _twins(built: fb.Model, float_model: fb.Model) -> dict[int, int]:
    """For each op of the float model the place of its twin in a whole build.

    Of several ops that are called after it, the last one of its type counts, the others help that one.
    """
    found = {}
    ops, graph = float_model.subgraphs[0].operators, built.subgraphs[0]
    for index, places in names.op_places(built).items():
        wanted = fb.op_type(float_model, ops[index])
        fitting = [p for p in places if len(graph.operators[p].outputs) == len(ops[index].outputs)]
        alike = [p for p in fitting if fb.op_type(built, graph.operators[p]) == wanted]
        if alike or fitting:
            found[index] = (alike or fitting)[-1]
    return found


def form_of(tensor: Any) -> tuple[object, ...]:
    """What tells the forms of one value apart; empty for the form that the float model has it in."""
    if not fb.scales(tensor) or tensor.type not in _QUANTIZED:
        return ()
    zero_points = tensor.quantization.zeroPoint
    return (tensor.type, fb.scales(tensor), () if zero_points is None else tuple(map(int, zero_points)))


_QUANTIZED = (schema.TensorType.INT8, schema.TensorType.UINT8, schema.TensorType.INT16)
