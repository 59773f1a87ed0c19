"""Writes candidates for other tools: as a script of TensorFlow's, for ai-edge-quantizer and for Model Explorer."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoselect.domain.graph import Graph, OpKind
from autoselect.domain.layers import Node
from autoselect.domain.looks import OF_NODES
from autoselect.domain.recipe import Recipe
from autoselect.quantize.repairing.repairs import before_quantizing


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOp:
    """One op of the float model.

    Attributes:
        index: In the float model's main subgraph.
        op_type: For example ``CONV_2D``.
        outputs: The float model's own names of its outputs.
        kind: What it is in the candidate: ``integer``, ``int16``, ``hybrid``, ``float``; ``neutral`` for shapes and
            indices.
        denylisted: Whether the recipe leaves it out of full-integer quantization.
    """

    index: int
    op_type: str
    outputs: tuple[str, ...]
    kind: str
    denylisted: bool


def member_ops(
    float_graph: Graph,
    op_outputs: Sequence[Sequence[str]],
    nodes: Sequence[Node],
    kinds: Mapping[str, str],
    denylisted: frozenset[str],
) -> tuple[MemberOp, ...]:
    """Say of every op of the float model what a candidate made of it."""
    by_index = {node.index: node for node in nodes}
    found = []
    for index, (op, outputs) in enumerate(zip(float_graph.ops, op_outputs, strict=True)):
        node = by_index.get(index)
        kind = str(op.kind.value) if node is None else kinds[node.name]
        found.append(
            MemberOp(
                index=index,
                op_type=op.op_type,
                outputs=tuple(outputs),
                kind=kind if kind != OpKind.BOUNDARY.value else OpKind.NEUTRAL.value,
                denylisted=node is not None and node.name in denylisted,
            )
        )
    return tuple(found)


MAIN = "main"
"""Model Explorer's name of a ``.tflite`` file's first subgraph."""
_LEAST, _MOST = "#FFFFFF", "#D55E00"
_CONVERSIONS = ("QUANTIZE", "DEQUANTIZE")

Aliases = Mapping[str, Sequence[str]]
"""By node name, the names of its output in the models that the data are for."""


def statistics_data(name: str, values: Mapping[str, float], aliases: Aliases) -> dict[str, Any]:
    """One statistic of the nodes, from white for the least to vermilion for the largest; finite ones only."""
    results = {key: {"value": value} for key, value in _by_alias(values, aliases).items() if math.isfinite(value)}
    gradient = [{"stop": 0, "bgColor": _LEAST}, {"stop": 1, "bgColor": _MOST}]
    return {MAIN: {"name": name, "results": results, "gradient": gradient}}


def choices_data(name: str, kinds: Mapping[str, str], aliases: Aliases) -> dict[str, Any]:
    """What a candidate made of each node, in words and colours."""
    results = {}
    for key, kind in _by_alias(kinds, aliases).items():
        look = OF_NODES[kind]
        results[key] = {"value": look.node_word, "bgColor": look.colour, "textColor": look.ink}
    return {MAIN: {"name": name, "results": results, "showLabelCountColumnsInChildrenStatsTable": True}}


def names_in(graph: Graph, nodes: Sequence[str]) -> dict[str, str]:
    """Names of the nodes' outputs in a built model, of those that it has.

    An integer node whose output the model gives out in float has another name, since the DEQUANTIZE behind it has the
    node's own.
    """
    tensors = {tensor.name: index for index, tensor in enumerate(graph.tensors) if not tensor.is_constant}
    producers = graph.producers()
    found = {}
    for name in nodes:
        index = tensors.get(name)
        while index in producers and graph.ops[producers[index]].op_type in _CONVERSIONS:
            index = graph.ops[producers[index]].inputs[0]
        if index is not None:
            found[name] = graph.tensors[index].name
    return found


def _by_alias(values: Mapping[str, Any], aliases: Aliases) -> dict[str, Any]:
    found = dict(values)
    for name, value in values.items():
        for alias in aliases.get(name, ()):
            found.setdefault(alias, value)
    return found


_MIN_MAX, _NOTHING = "min_max_uniform_quantize", "no_quantize"
_OPERATIONS = {"TRANSPOSE_CONV": "CONV_2D_TRANSPOSE"}
"""Op types that the package calls otherwise."""
DYNAMIC_OPERATIONS = frozenset(
    {"FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "BATCH_MATMUL", "EMBEDDING_LOOKUP"}
)
"""Op types that the package can make dynamic-range quantized."""


def litert_recipe(ops: Sequence[MemberOp], recipe: Recipe) -> list[dict[str, Any]]:
    """Express a candidate as rules.

    8-bit integers are the rule, and what has none in the candidate is an exception: quantized with 16-bit activations
    or dynamic-range quantized, where the candidate has it so and the package can, else left as it is. The package
    refuses a rule that names an op type that it cannot quantize so, and passes over such ops where none is named.

    Returns:
        What ``Quantizer(float_model, rules)`` takes, calibrated where ``need_calibration`` says so.
    """
    rules = _integers(recipe) if any(op.kind == "integer" for op in ops) else []
    for op in ops:
        if op.kind in ("integer", "neutral", "folded"):
            continue
        scope = f"^{re.escape(''.join(f'{name};' for name in op.outputs))}$"
        rules.append(_rule(scope, "*", None))
        if op.kind == "hybrid" and op.op_type in DYNAMIC_OPERATIONS:
            rules.append(_rule(scope, _OPERATIONS.get(op.op_type, op.op_type), _dynamic()))
        if op.kind == "int16":
            rules.append(_rule(scope, "*", _static(_granularity(recipe), bits=16)))
    return rules


def _integers(recipe: Recipe) -> list[dict[str, Any]]:
    """Everything in integers, but for inputs and outputs that are float; a model without integers has no such rule."""
    rules = [_rule(".*", "*", _static(_granularity(recipe)))]
    if recipe.io_type == "float32":
        rules += [_rule(".*", side, None) for side in ("INPUT", "OUTPUT")]
    return rules


def _granularity(recipe: Recipe) -> str:
    return "CHANNELWISE" if recipe.per_channel else "TENSORWISE"


def _rule(regex: str, operation: str, config: dict[str, Any] | None) -> dict[str, Any]:
    """One rule; without a configuration it leaves the op as it is."""
    if config is None:
        return {"regex": regex, "operation": operation, "algorithm_key": _NOTHING, "op_config": {}}
    return {"regex": regex, "operation": operation, "algorithm_key": _MIN_MAX, "op_config": config}


def _static(granularity: str, bits: int = 8) -> dict[str, Any]:
    return {
        "activation_tensor_config": {**_tensor("TENSORWISE", symmetric=bits == 16), "num_bits": bits},
        **_dynamic(granularity),
    }


def _dynamic(granularity: str = "CHANNELWISE") -> dict[str, Any]:
    """Weights alone; autoselect's dynamic-range weights are per channel, whatever the integer ones are."""
    return {
        "weight_tensor_config": _tensor(granularity, symmetric=True),
        "compute_precision": "INTEGER",
        "explicit_dequantize": False,
        "skip_checks": False,
        "min_weight_elements": 0,
    }


def _tensor(granularity: str, *, symmetric: bool) -> dict[str, Any]:
    return {"num_bits": 8, "symmetric": symmetric, "granularity": granularity, "dtype": "INT"}


_SCRIPT = '''\
"""Build the integer part of {member}.tflite from {calibrated}, with TensorFlow alone.

    python {member}.build.py out.tflite

{words}
"""
import pathlib
import sys

import tensorflow as tf
from tensorflow.lite.python.convert import mlir_quantize

DENYLISTED = {{{denylisted}}}  # name in {calibrated}: name in the float model
calibrated = pathlib.Path(__file__).resolve().parents[1] / "{calibrated}"
model = mlir_quantize(
    calibrated.read_bytes(),
    disable_per_channel={disable_per_channel},
    input_data_type=tf.{io_type},
    output_data_type=tf.{io_type},
    denylisted_nodes=list(DENYLISTED) or None,
)
pathlib.Path(sys.argv[1]).write_bytes(model)
'''


def build_script(
    member: str, ops: Sequence[MemberOp], recipe: Recipe, canonical: Mapping[int, str], calibrated: str
) -> str:
    """Write the script.

    Args:
        member: Id of the candidate.
        ops: The ops of the float model, with what the candidate made of them.
        recipe: For its granularity, its fallback and the type of inputs and outputs.
        canonical: By index of an op the name that all its outputs have in the calibrated model.
        calibrated: Name of the file that holds it, after the repairs that come before quantizing, one folder higher.

    Returns:
        Python source. What plain TensorFlow cannot express of the recipe, its docstring says in words.
    """
    denied = [op for op in ops if op.denylisted]
    entries = "".join(f"\n    {canonical[op.index]!r}: {op.outputs[0]!a}," for op in denied)
    return _SCRIPT.format(
        member=member,
        calibrated=calibrated,
        words="\n".join(_words(member, denied, sum(op.kind == "int16" for op in ops), recipe)),
        denylisted=f"{entries}\n" if entries else "",
        disable_per_channel=not recipe.per_channel,
        io_type=recipe.io_type,
    )


def _words(member: str, denied: Sequence[MemberOp], wide: int, recipe: Recipe) -> list[str]:
    hybrid = sum(op.kind == "hybrid" for op in denied)
    words = [f"Nodes left out of integers: {len(denied)}. Every op has a name here that the quantizer cannot change."]
    if denied:
        words.append(
            "The quantizer may keep one of them in integers beside neighbours that share its scale, and may round"
        )
        words.append(f"round a value twice where ops of both kinds meet; {member}.tflite does neither.")
    lacking = []
    if hybrid:
        lacking.append(f"{hybrid} of them, float here, are dynamic-range quantized in {member}.tflite")
    if wide:
        lacking.append(f"nodes with 16-bit activations in {member}.tflite, which have 8 bits here: {wide}")
    late = sorted(set(recipe.repairs) - set(before_quantizing(recipe.repairs)))
    if late:
        lacking.append(f"{member}.tflite has repairs that this model lacks: {', '.join(late)}")
    if recipe.io_type != "float32" and denied:
        lacking.append(f"an output that is float here is {recipe.io_type} in {member}.tflite")
    if lacking:
        words.append("What plain TensorFlow cannot express of the recipe:")
        words += [f"* {one}." for one in lacking]
    else:
        words.append("Plain TensorFlow expresses the whole recipe.")
    return [*words, f"In {member}.tflite the ops have the float model's names again, and equal constants are shared."]
