"""The one place of this experiment that knows how the product takes a model in, forecasts and builds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autoselect.data.representative import representative_samples
from autoselect.domain.graph import Graph, Op, OpKind
from autoselect.domain.layers import Node
from autoselect.domain.recipe import Recipe
from autoselect.errors import BuildError, ScoreError
from autoselect.quantize import calibration, converter, names, normalise
from autoselect.quantize.build import Builder, CalibratedModel
from autoselect.quantize.nodes import find_nodes
from autoselect.quantize.repairs import RepairKit
from autoselect.quantize.wholes import make_wholes
from autoselect.sources import loading
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A model ready for candidates.

    Attributes:
        content: The float model.
        calibrated: What candidates are built from.
        nodes: In graph order.
        kit: What repairs need.
        builder: Builds recipes.
        samples: The calibration samples, inputs by key.
        folded: Names of ops that normalising took away.
        told: Why the model is not normalised, where it is not.
    """

    content: bytes
    calibrated: CalibratedModel
    nodes: tuple[Node, ...]
    kit: RepairKit
    builder: Builder
    samples: Sequence[Mapping[str, np.ndarray]]
    folded: tuple[str, ...]
    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What is told of a candidate: bytes of its file, kinds of its nodes by name, its ops as :func:`described`."""

    size_bytes: int
    kinds: Mapping[str, str]
    ops: tuple[tuple[Any, ...], ...]


def intake(path: Path, shapes: Mapping[str, Sequence[int]]) -> tuple[bytes, tuple[str, ...]]:
    """The float model of a source and what there is to say of it; ``shapes`` are those of inputs with free sizes."""
    found = loading.float_model(path, shapes=shapes or None)
    return found.content, found.notes


def prepare(content: bytes, samples: Sequence[Mapping[str, np.ndarray]]) -> Prepared:
    """Normalise, calibrate, and find the nodes."""
    fed = list(representative_samples(list(samples), reader.input_specs(fb.parse(content))))
    normalised, told = _normalised(content, fed)
    model = fb.parse(calibration.calibrate(normalised.content, (list(sample.values()) for sample in fed)))
    name_map = names.canonicalise(model, normalised.node_names)
    calibrated = CalibratedModel(content=fb.serialise(model), names=name_map)
    kit = RepairKit(calibrated, lambda: fed)
    nodes = find_nodes(make_wholes(kit, Recipe()))
    return Prepared(
        content=content,
        calibrated=calibrated,
        nodes=nodes,
        kit=kit,
        builder=Builder(calibrated, nodes, kit),
        samples=fed,
        folded=normalised.folded,
        told=told,
    )


def _normalised(content: bytes, fed: Sequence[Mapping[str, np.ndarray]]) -> tuple[normalise.Normalised, str]:
    """As a search does it: the model itself where another would not have the same outputs."""
    try:
        normalised = normalise.normalise(content)
        if normalise.same_outputs(content, normalised.content, fed, delegates=False):
            return normalised, ""
        why = "other outputs"
    except (BuildError, ScoreError) as exc:
        why = str(exc)
    return normalise.as_it_is(content), why


def forecaster(prepared: Prepared, base: Recipe) -> Callable[[Recipe], Told]:
    """Forecasts recipes that have the base's granularity, interface and repairs, and name nodes without globs."""
    blueprint = prepared.builder.blueprint(base)

    def forecast(recipe: Recipe) -> Told:
        denied, floats = (
            [i for i, node in enumerate(prepared.nodes) if escaped(node.name) in chosen]
            for chosen in (recipe.denylisted_nodes, recipe.float_nodes)
        )
        found = blueprint.plan(denied, recipe.fallback, floats)
        kinds = {node.name: kind for node, kind in zip(prepared.nodes, found.kinds, strict=True)}
        return Told(size_bytes=found.size_bytes, kinds=kinds, ops=described(found.graph))

    return forecast


def build(prepared: Prepared, recipe: Recipe) -> tuple[bytes, Told]:
    """A candidate, and what a forecast should have told of it."""
    built = prepared.builder.build(recipe)
    return built.content, Told(size_bytes=len(built.content), kinds=dict(built.kinds), ops=described(built.graph))


def described(graph: Graph) -> tuple[tuple[Any, ...], ...]:
    """Each op by its type, kind, cost and the types and shapes of what it reads and writes; sorted."""

    def row(op: Op) -> tuple[Any, ...]:
        tensors = [graph.tensors[i] for i in (*op.inputs, *op.outputs)]
        return op.op_type, op.kind.value, op.macs, tuple((t.dtype, t.shape) for t in tensors)

    return tuple(sorted(row(op) for op in graph.ops))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What TensorFlow's quantizer makes with a denylist and nothing else.

    Attributes:
        content: The model.
        oddities: What it is known to do otherwise than the denylist says, as far as it did here.
    """

    content: bytes
    oddities: tuple[str, ...]


def quantizers(prepared: Prepared, denied: Sequence[Node], base: Recipe) -> Reference:
    """Build with TensorFlow's quantizer alone."""
    denylisted = [names.canonical_name(node.index) for node in denied]
    model = fb.parse(converter.quantize(prepared.calibrated.content, denylisted=denylisted, recipe=base))
    names.hide_unused_outputs(model, prepared.calibrated.names)
    graph, places = reader.read_graph(model), names.op_places(model)
    integer = (n for n in denied if any(graph.ops[at].kind is OpKind.INTEGER for at in places.get(n.index, ())))
    oddities = [f"the quantizer keeps {op_type} in integers" for op_type in sorted({n.op_type for n in integer})]
    hybrid = (n for n in denied if any(graph.ops[at].kind is OpKind.HYBRID for at in places.get(n.index, ())))
    oddities += [f"the quantizer rounds weights of {op_type}" for op_type in sorted({n.op_type for n in hybrid})]
    if _quantizes_twice(graph):
        oddities.append("the quantizer quantizes an operand of a CONCATENATION twice")
    if _rounds_constants(graph):
        oddities.append("the quantizer rounds a constant that a denied op reads")
    return Reference(content=fb.serialise(model), oddities=tuple(oddities))


def _quantizes_twice(graph: Graph) -> bool:
    """Whether a CONCATENATION reads what was converted from what was converted."""
    producers = {tensor: graph.ops[place] for tensor, place in graph.producers().items()}
    read = [producers[i] for op in graph.ops if op.op_type == "CONCATENATION" for i in op.inputs if i in producers]
    before = [producers[i] for op in read if op.op_type in fb.CONVERSIONS for i in op.inputs if i in producers]
    return any(op.op_type in fb.CONVERSIONS for op in before)


def _rounds_constants(graph: Graph) -> bool:
    """Whether a constant is quantized while the model runs, and read in float."""
    rounded = {op.outputs[0] for op in graph.ops if op.op_type == "QUANTIZE" and not op.inputs}
    return any(op.op_type == "DEQUANTIZE" and op.inputs[0] in rounded for op in graph.ops if op.inputs)


def escaped(name: str) -> str:
    """A node's name as a recipe takes it, where brackets belong to globs."""
    return name.replace("[", "[[]")
