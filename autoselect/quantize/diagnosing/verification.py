"""What is compared with what, for each node of a model under one recipe; runs nothing.

If the quantizer's debug model verifies a node, its NumericVerify op compares the node's int8 output with the float
kernel's on the *same* inputs: the error of this node alone. In the whole-model variant a float copy of the model runs
beside the integer one: the error accumulated up to there. Nodes without such an op, and those that a recipe leaves out
of integers, are compared between the float model and the candidate itself: accumulated error as well. So are all nodes
of an integer model that another quantizer made: TensorFlow's debugger knows nothing of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoselect.domain.layers import Node
from autoselect.domain.recipe import Recipe
from autoselect.quantize.building.build import Builder
from autoselect.quantize.building.left_out import left_out
from autoselect.quantize.calibrated import CalibratedModel
from autoselect.quantize.preparing import converter
from autoselect.quantize.repairing.repairs import RepairKit
from autoselect.rewrites import names
from autoselect.rewrites.for_quantizer import NEAR_MASKS, without_integer_kernel
from autoselect.rewrites.rewriting import rewritten
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.tflite_file import TfliteFile

_NUMERIC_VERIFY = "NumericVerify"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a node's error is read.

    Attributes:
        node: Index of the node's op in the float model.
        name: The node's name.
        quantized: The node's output in the measured model, a tensor index.
        reference: Its float twin: in the debug model, or in the float model for compared places.
        error: The verifier's output; None where the two are subtracted.
        scale: Step of the quantized output; NaN where it is float.
        zero_point: Level that stands for 0.
    """

    node: int
    name: str
    quantized: int
    reference: int
    error: int | None
    scale: float
    zero_point: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The models to run and where to read; plain values that another process can take.

    Attributes:
        debug: The debug model; empty where it verifies nothing.
        verified: Places in it.
        float_model: The calibrated float model.
        built: The candidate; empty where nothing is left to compare.
        compared: Places in these two.
    """

    debug: bytes
    verified: tuple[Place, ...]
    float_model: bytes
    built: bytes
    compared: tuple[Place, ...]


def plan(
    calibrated: CalibratedModel,
    nodes: Sequence[Node],
    recipe: Recipe,
    *,
    whole_model: bool = False,
    kit: RepairKit | None = None,
) -> Plan:
    """Find out where each node's error is read.

    The debug model knows nothing of repairs and of other quantizers: where the recipe has any of the former, or the
    integer model is given, every node is compared with the float model.

    Raises:
        RecipeError: If the recipe names what the model does not have.
        BuildError: If the quantizer refuses the recipe.
    """
    kit = RepairKit(calibrated) if kit is None else kit
    debug, verified = None, list[Place]()
    if not recipe.repairs and calibrated.integer is None:
        denied, refused = left_out(recipe, nodes).nodes, without_integer_kernel(calibrated.file.model)
        debug = converter.quantize(
            rewritten(calibrated.file, (NEAR_MASKS,)),
            denylisted=[names.canonical_name(i) for i in sorted({*denied, *refused})],
            recipe=recipe,
            verify="model" if whole_model else "layer",
        )
        verified = _verified_places(debug.model, [n for n in nodes if n.index not in denied])
    done = {place.node for place in verified}
    rest = [n for n in nodes if n.index not in done]
    built, compared = b"", []
    if rest:
        candidate = Builder(calibrated, tuple(nodes), kit).build(recipe)
        built = candidate.content
        compared = _compared_places(kit.float_model(recipe.repairs), TfliteFile(built).model, candidate.places, rest)
    return Plan(
        debug=debug.content if debug is not None and verified else b"",
        verified=tuple(verified),
        float_model=kit.calibrated(recipe.repairs).content,
        built=built,
        compared=tuple(compared),
    )


def _verified_places(model: fb.Model, nodes: Sequence[Node]) -> list[Place]:
    graph = model.subgraphs[0]
    by_index = {n.index: n for n in nodes}
    places = []
    for op in graph.operators:
        if fb.op_type(model, op) != _NUMERIC_VERIFY:
            continue
        index = names.op_index_of(fb.tensor_name(graph.tensors[op.inputs[0]]))
        if index in by_index:
            quantized, reference = (int(i) for i in op.inputs[:2])
            places.append(_place(by_index[index], graph, quantized, reference, int(op.outputs[0])))
    return places


def _compared_places(
    float_model: fb.Model, built: fb.Model, where: Mapping[int, int], nodes: Sequence[Node]
) -> list[Place]:
    graph, float_graph = built.subgraphs[0], float_model.subgraphs[0]
    places = []
    for node in nodes:
        if node.index not in where:
            continue
        output = int(graph.operators[where[node.index]].outputs[0])
        twin = int(float_graph.operators[node.index].outputs[0])
        if fb.TENSOR_DTYPES[graph.tensors[output].type] == "float32" or fb.scales(graph.tensors[output]):
            places.append(_place(node, graph, output, twin, None))
    return places


def _place(node: Node, graph: fb.SubGraph, quantized: int, reference: int, error: int | None) -> Place:
    tensor = graph.tensors[quantized]
    is_float = fb.TENSOR_DTYPES[tensor.type] == "float32"
    return Place(
        node=node.index,
        name=node.name,
        quantized=quantized,
        reference=reference,
        error=error,
        scale=math.nan if is_float else fb.scales(tensor)[0],
        zero_point=0 if is_float else fb.zero_points_of(tensor)[0],
    )
