"""The whole builds of one calibrated model that candidates are put together from.

All float, all hybrid, all integer; and, where 16-bit nodes are asked for, all with 16-bit activations.

Knows how each is made and which op of one is which of the other; refuses to know how ops of several join.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ai_edge_litert import schema_py_generated as schema

from autoselect.domain.recipe import Recipe, split_repair
from autoselect.errors import BuildError
from autoselect.quantize.building import int16, passes
from autoselect.quantize.preparing import adoption, converter
from autoselect.quantize.repairing import ranges
from autoselect.quantize.repairing.built import Built, Pass
from autoselect.quantize.repairing.repairs import RepairKit, before_quantizing
from autoselect.rewrites import casts, names
from autoselect.rewrites.for_16_bits import for_16_bits
from autoselect.rewrites.for_quantizer import (
    FOR_QUANTIZER,
    read_integers,
    stood_in_for,
    without_integer_kernel,
    without_stand_ins,
)
from autoselect.rewrites.rewriting import rewritten
from autoselect.tflite import editing, reader
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.tflite_file import TfliteFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Wholes:
    """The whole builds of one model, under canonical names; each operand is a tensor of its own.

    Attributes:
        names: The key to the canonical names.
        in_float: The float model, without what calibration wrote into it.
        hybrid: The same with every op hybrid that can be.
        integer: What the quantizer makes of all of it, or what another one made of it.
        int16: The same with 16-bit activations; None where nobody asks for such nodes, or there is none.
        no_int16: Why there is none; empty where there is one, or nobody asks.
    """

    names: names.NameMap
    in_float: Built
    hybrid: Built
    integer: Built
    int16: Built | None = None
    no_int16: str = ""

    def of(self, kind: str) -> Built:
        """The one in which an op is that has become ``kind``."""
        return {"integer": self.integer, "hybrid": self.hybrid, "int16": self.int16}.get(kind) or self.in_float


def whole_builds(kit: RepairKit, recipe: Recipe) -> Wholes:
    """What :func:`make_wholes` makes, made once for all builders of a model; not to be changed."""
    return kit.remember(("wholes", recipe), lambda: make_wholes(kit, recipe))


def with_int16(kit: RepairKit, recipe: Recipe, *, exact_rewrites: bool) -> Wholes:
    """Whole builds with that of 16-bit activations, if there is one; as lasting.

    Args:
        kit: Of the calibrated model.
        recipe: For its granularity and its repairs.
        exact_rewrites: Write RELU for each 16-bit RELU6 that gives the same bits.
    """
    make = partial(_with_int16, kit, recipe, exact_rewrites=exact_rewrites)
    return kit.remember(("wholes, int16", recipe, exact_rewrites), make)


def make_wholes(kit: RepairKit, recipe: Recipe) -> Wholes:
    """Build all of them, with the recipe's granularity and with those of its repairs that treat each op by itself.

    Raises:
        BuildError: If the quantizer refuses the model.
        ModelError: If a given integer model was not made from this float model.
    """
    float_model = kit.float_model(recipe.repairs)
    same = {index: index for index in range(len(float_model.subgraphs[0].operators))}
    built = partial(_built, kit, recipe)
    wholes = Wholes(
        names=kit.names,
        in_float=built(passes.FLOAT, editing.copied(float_model), same),
        hybrid=built(passes.HYBRID, editing.copied(float_model), same),
        integer=built(passes.INTEGER, *_integer(kit, recipe)),
    )
    for whole in (wholes.in_float, wholes.hybrid):
        casts.take_scales(whole.model, wholes.integer.model)
    return wholes


def _built(kit: RepairKit, recipe: Recipe, steps: Sequence[Pass], model: fb.Model, places: Mapping[int, int]) -> Built:
    skipped = kit.skipped(recipe.repairs)
    return passes.run(steps, Built(model=model, places=places, repairs=recipe.repairs, skipped=skipped), kit)


def _with_int16(kit: RepairKit, recipe: Recipe, *, exact_rewrites: bool) -> Wholes:
    wholes = whole_builds(kit, recipe)
    try:
        model, places = _int16(kit, recipe)
        if exact_rewrites:
            int16.unclip(model)
        built = _built(kit, recipe, passes.INTEGER, model, places)
        casts.take_scales(built.model, wholes.integer.model)
        return replace(wholes, int16=built)
    except BuildError as refused:
        return replace(wholes, no_int16=str(refused))


def _int16(kit: RepairKit, recipe: Recipe) -> tuple[fb.Model, Mapping[int, int]]:
    """The 16-bit model, and for each op of the float model the place of its twin."""
    float_model, given = kit.float_model(recipe.repairs), kit.calibrated(recipe.repairs).int16
    if given is not None:
        model = TfliteFile(given).taken()
        return model, adoption.adopt(model, float_model, kit.names)
    model = int16_model(kit, replace(recipe, per_channel=True)).taken()
    places = _twins(model, float_model)
    if not recipe.per_channel:
        int16.take_weights(model, places, *_integer(kit, recipe), float_model)
    return model, places


def _integer(kit: RepairKit, recipe: Recipe) -> tuple[fb.Model, Mapping[int, int]]:
    """The all-integer model, and for each op of the float model the place of its twin."""
    integer, float_model = integer_model(kit, recipe).taken(), kit.float_model(recipe.repairs)
    if kit.calibrated(recipe.repairs).integer is not None:
        return integer, adoption.adopt(integer, float_model, kit.names)
    return integer, casts.write_integers(integer, _twins(integer, float_model))


def integer_model(kit: RepairKit, recipe: Recipe) -> TfliteFile:
    """The all-integer model: the given one; else, under canonical names, what the quantizer makes once for all.

    Args:
        kit: Of the calibrated model.
        recipe: For its granularity and its repairs that come before quantizing.

    Raises:
        BuildError: If the quantizer refuses the model.
    """
    calibrated = kit.calibrated(recipe.repairs)
    if calibrated.integer is not None:
        return TfliteFile(calibrated.integer)

    def made() -> bytes:
        places, plain = stood_in_for(kit.float_model(recipe.repairs)), Recipe(per_channel=recipe.per_channel)
        source = rewritten(calibrated.file, FOR_QUANTIZER)
        denied = [names.canonical_name(place) for place in without_integer_kernel(source.model)]
        built = read_integers(converter.quantize(source, denylisted=denied, recipe=plain), source.model)
        has_all_ops = not places and not casts.CASTS_LEFT_OUT.applies(calibrated.file.model)
        if has_all_ops and len(reader.read_interface(built.content).outputs) == len(calibrated.names.outputs):
            return built.content
        model = built.taken()
        casts.put_back(model, calibrated.file.model)
        without_stand_ins(model, places)
        names.hide_unused_outputs(model, calibrated.names)
        return fb.serialise(model)

    return TfliteFile(kit.keep(_file_name("integer", recipe), made))


def int16_model(kit: RepairKit, recipe: Recipe) -> TfliteFile:
    """The model with 16-bit activations: the given one; else TensorFlow's, under canonical names, made once for all.

    With one scale for all weights of an op it refuses DEPTHWISE_CONV_2D. Ranges are those of calibration, whatever the
    recipe repairs: they hold every value that a calibration sample showed, and 65,536 steps need no narrower ones.

    Args:
        kit: Of the calibrated model.
        recipe: For its granularity, and for equalization.

    Raises:
        BuildError: If the quantizer refuses the model, or another one made the integer model.
    """
    recipe = replace(recipe, repairs=tuple(r for r in recipe.repairs if split_repair(r)[0] not in ranges.METHODS))
    calibrated = kit.calibrated(recipe.repairs)
    if calibrated.int16 is not None:
        return TfliteFile(calibrated.int16)
    if calibrated.integer is not None:
        raise BuildError("another quantizer made the integer model, and none with 16-bit activations")

    def made() -> bytes:
        source = rewritten(calibrated.file, for_16_bits(calibrated.names))
        model = converter.quantize_to_int16(source, per_channel=recipe.per_channel).taken()
        casts.put_back(model, calibrated.file.model)
        int16.finish(model)
        names.hide_unused_outputs(model, calibrated.names)
        return fb.serialise(model)

    return TfliteFile(kit.keep(_file_name("int16", recipe), made))


def runnable_int16_model(kit: RepairKit, recipe: Recipe) -> TfliteFile:
    """The all-16-bit model as it can be run: ops that the quantizer refuses are float in it.

    Raises:
        BuildError: If the quantizer refuses the model, or an op that runs other parts of it.
    """
    int16_file = int16_model(kit, recipe)
    if kit.calibrated(recipe.repairs).int16 is not None:
        return int16_file
    model = int16_file.taken()
    int16.bring_left_ops(model, kit.float_model(recipe.repairs))
    return TfliteFile(model=model)


def _file_name(kind: str, recipe: Recipe) -> str:
    marks = f"{recipe.per_channel} {' '.join(before_quantizing(recipe.repairs))}"
    return f"{kind}_{hashlib.sha256(marks.encode()).hexdigest()[:12]}.tflite"


def _twins(built: fb.Model, float_model: fb.Model) -> dict[int, int]:
    """For each op of the float model the place of its twin in a whole build.

    Of several ops that are called after it, the last one of its type counts, the others help that one.
    """
    twins = {}
    ops, graph = float_model.subgraphs[0].operators, built.subgraphs[0]
    for index, places in names.op_places(built).items():
        wanted = fb.op_type(float_model, ops[index])
        fitting = [p for p in places if len(graph.operators[p].outputs) == len(ops[index].outputs)]
        alike = [p for p in fitting if fb.op_type(built, graph.operators[p]) == wanted]
        if alike or fitting:
            twins[index] = (alike or fitting)[-1]
    return twins


def form_of(tensor: fb.Tensor) -> tuple[object, ...]:
    """What tells the forms of one value apart; empty for the form that the float model has it in."""
    if not fb.scales(tensor) or tensor.type not in _QUANTIZED:
        return ()
    return (tensor.type, fb.scales(tensor), fb.zero_points_of(tensor))


_QUANTIZED = (schema.TensorType.INT8, schema.TensorType.UINT8, schema.TensorType.INT16)
