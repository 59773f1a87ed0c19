"""What workers do to say what fewer levels of a node's weights save, and what they do to the outputs.

Each job may die without harm to the run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autoselect.cases.divergence import divergence, samples_of, shares_of_error
from autoselect.cases.open_case import open_case
from autoselect.domain.recipe import ALL_BITS, Recipe, kind_of_repair
from autoselect.quantize.building.parts import packed_bytes
from autoselect.quantize.building.wholes import whole_builds
from autoselect.quantize.repairing.built import Built
from autoselect.quantize.repairing.four_bits import KERNELS
from autoselect.quantize.repairing.weighted_ops import (
    SkipError,
    add,
    bias_of,
    dequantized,
    quantized_ops,
    weights_of,
)
from autoselect.rewrites import names
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.operands import WEIGHTED
from autoselect.tflite.runner import Runner
from autoselect.tflite.wide_kernels import in_8_bits


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """The weights of one node, rounded to the levels of so many bits.

    Attributes:
        node: Name of the node.
        bits: 4 to 8.
        weights: Count of its weights.
        packed_bytes: Bytes of the weights after packing, by the entropy of their levels. Their bytes in the file, if
            the recipe stores weights in 4 bits.
        noise: Error power over signal power, a ratio, of the outputs of a float model in which this node alone has such
            weights; NaN if it is not known.
    """

    node: str
    bits: int
    weights: int
    packed_bytes: float
    noise: float


def weigh(root: Path, recipe_json: str, bits: int, rows: Sequence[int]) -> list[Weighed]:
    """Round the weights of each node to the levels of ``bits`` bits, and run a float model with those of it alone.

    Args:
        root: Folder of the case.
        recipe_json: A recipe, of which granularity and repairs count.
        bits: 8 for the levels that all-integer models have.
        rows: Numbers of the calibration samples to run on; none leaves the noise unknown.

    Returns:
        One for each node with integer weights, in graph order.

    Raises:
        BuildError: If the quantizer refuses the model.
        ScoreError: If the float model cannot run.
    """
    case, recipe = open_case(root), Recipe.from_json(recipe_json)
    own = [name for name in recipe.repairs if kind_of_repair(name) != "levels"]
    chosen = Recipe(per_channel=recipe.per_channel, repairs=(*own, *([f"levels-{bits}"] if bits < ALL_BITS else [])))
    is_packed = KERNELS.keys().isdisjoint(own)
    kit = case.kit
    wholes, float_model = whole_builds(kit, chosen), kit.float_model(chosen.repairs)
    nodes = {node.index: node.name for node in case.prepared.layers.nodes}

    def noise(index: int, values: np.ndarray, bias: np.ndarray | None) -> float:
        if not rows:
            return math.nan
        try:
            changed = _with(wholes.in_float.model, index, values, bias)
            names.restore(changed, kit.names)
        except SkipError:  # Its bias cannot be changed, and nothing else makes up for rounded weights.
            return math.nan
        return divergence(shares_of_error(root, fb.serialise(changed), rows))

    return [
        Weighed(
            node=nodes[index],
            bits=bits,
            weights=levels.size,
            packed_bytes=packed_bytes(levels) if is_packed else float(stored),
            noise=noise(index, values, bias),
        )
        for index, stored, levels, values, bias in _weights(wholes.integer, float_model)
        if index in nodes
    ]


def unlike_its_twin(root: Path, recipe_json: str, rows: Sequence[int]) -> bool:
    """Whether any output of a candidate with 4-bit weights differs from that of its copy by :func:`in_8_bits`.

    No delegate runs in either, since delegates take ops with 8-bit weights that they leave with 4-bit ones.

    Args:
        root: Folder of the case.
        recipe_json: Of the candidate.
        rows: Numbers of the calibration samples to run on.

    Raises:
        BuildError: If it cannot be built.
        ScoreError: If the interpreter refuses one of the two.
    """
    case = open_case(root)
    content = case.builder.content(Recipe.from_json(recipe_json))
    runners = [Runner(each, delegates=False) for each in (content, in_8_bits(content))]
    for sample in samples_of(case, "calibration", rows):
        ours, theirs = (runner(sample) for runner in runners)
        if not all(np.array_equal(value, theirs[key], equal_nan=True) for key, value in ours.items()):
            return True
    return False


def _weights(
    built: Built, float_model: fb.Model
) -> Iterator[tuple[int, int, np.ndarray, np.ndarray, np.ndarray | None]]:
    """Yield five things of each op: index in the float model, bytes, levels and values of its weights, its bias.

    Values and bias are floats. The bias makes up for rounded weights if biases are corrected; None if there is none.
    """
    for index, op in quantized_ops(built.model, float_model, built.places):
        try:
            kind, _, values = weights_of(built.model, op, float_model, index)
            place = bias_of(op, kind)
            bias = dequantized(built.model, built.model.subgraphs[0].tensors[place]) if place >= 0 else None
        except SkipError:
            continue
        tensor = built.model.subgraphs[0].tensors[op.inputs[1]]
        stored = fb.data_of(built.model.buffers[tensor.buffer]).size
        yield index, stored, fb.constant_values(built.model, tensor), values, bias


def _with(float_model: fb.Model, index: int, values: np.ndarray, bias: np.ndarray | None) -> fb.Model:
    """The float model with other weights of one op, and with the bias that goes with them.

    Raises:
        SkipError: If the float model's bias is no constant.
    """
    model = editing.copied(float_model)
    graph = model.subgraphs[0]
    op = graph.operators[index]
    # Each operand is a tensor of its own.
    graph.tensors[op.inputs[1]].buffer = editing.add_buffer(model, values.astype(np.float32))
    if bias is not None:
        place = bias_of(op, WEIGHTED[fb.op_type(model, op)])
        own = fb.constant_values(model, graph.tensors[place]) if place >= 0 else 0.0
        add(model, op, bias - own)
    return model
