"""Node data of Model Explorer: one value a node, with a colour; knows the format, not the package.

A file holds one column of values by graph and node. A node is known by the name of one of its outputs, so the same file
serves the float model and every model made of it. The format is that of the package's ``node_data_builder``:
https://github.com/google-ai-edge/model-explorer
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from autoselect.domain.graph import Graph
from autoselect.domain.looks import OF_NODES

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
    output_names = {}
    for name in nodes:
        index = tensors.get(name)
        while index in producers and graph.ops[producers[index]].op_type in _CONVERSIONS:
            index = graph.ops[producers[index]].inputs[0]
        if index is not None:
            output_names[name] = graph.tensors[index].name
    return output_names


def _by_alias(values: Mapping[str, Any], aliases: Aliases) -> dict[str, Any]:
    aliased_values = dict(values)
    for name, value in values.items():
        for alias in aliases.get(name, ()):
            aliased_values.setdefault(alias, value)
    return aliased_values
