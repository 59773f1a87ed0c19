"""The one place of this experiment that knows how the product takes a model in, forecasts and builds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autoselect.data.representative import representative_samples
from autoselect.domain.graph import Graph, Op
from autoselect.domain.layers import Node
from autoselect.domain.recipe import Recipe
from autoselect.quantize import converter, names, sources
from autoselect.quantize.build import Builder, CalibratedModel, op_places
from autoselect.quantize.nodes import find_nodes
from autoselect.quantize.probing import probe
from autoselect.quantize.repairs import RepairKit
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
    """

    content: bytes
    calibrated: CalibratedModel
    nodes: tuple[Node, ...]
    kit: RepairKit
    builder: Builder
    samples: Sequence[Mapping[str, np.ndarray]]

    @property
    def unreachable(self) -> dict[str, str]:
        """Nodes that never leave integers, with the reason."""
        return {n.name: f"{n.op_type}: {n.unreachable_reason}" for n in self.nodes if n.unreachable_reason}


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What is told of a candidate: bytes of its file, kinds of its nodes by name, its ops as :func:`described`."""

    size_bytes: int
    kinds: Mapping[str, str]
    ops: tuple[tuple[Any, ...], ...]


def intake(path: Path, shapes: Mapping[str, Sequence[int]]) -> bytes:
    """The float model of a source; ``shapes`` are those of inputs with free sizes beside the batch."""
    return sources.float_model(path)


def prepare(content: bytes, samples: Sequence[Mapping[str, np.ndarray]]) -> Prepared:
    """Calibrate, and find the nodes."""
    fed = list(representative_samples(list(samples), reader.input_specs(fb.parse(content))))
    model = fb.parse(converter.calibrate(content, (list(sample.values()) for sample in fed)))
    name_map = names.canonicalise(model)
    calibrated = CalibratedModel(content=fb.serialise(model), names=name_map)
    nodes = find_nodes(calibrated)
    kit = RepairKit(calibrated, lambda: fed)
    return Prepared(
        content=content,
        calibrated=calibrated,
        nodes=nodes,
        kit=kit,
        builder=Builder(calibrated, nodes, kit),
        samples=fed,
    )


def forecaster(prepared: Prepared, base: Recipe) -> Callable[[Recipe], Told]:
    """Forecasts recipes that have the base's granularity, interface and repairs, and name nodes without globs."""
    predictor = probe(
        prepared.calibrated,
        prepared.nodes,
        per_channel=base.per_channel,
        io_type=base.io_type,
        repairs=base.repairs,
        kit=prepared.kit,
    )

    def forecast(recipe: Recipe) -> Told:
        denied, floats = (
            [i for i, node in enumerate(prepared.nodes) if escaped(node.name) in chosen]
            for chosen in (recipe.denylisted_nodes, recipe.float_nodes)
        )
        found = predictor.predict(denied, recipe.fallback, floats)
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
        kept: Op types of the denied nodes that it keeps in integers all the same.
        twice: Whether it quantizes what is quantized already, with another scale, before a CONCATENATION.
    """

    content: bytes
    kept: tuple[str, ...]
    twice: bool


def quantizers(prepared: Prepared, denied: Sequence[Node], base: Recipe) -> Reference:
    """Build with TensorFlow's quantizer alone."""
    denylisted = [names.canonical_name(node.index) for node in denied]
    content = converter.quantize(prepared.calibrated.content, denylisted=denylisted, recipe=base)
    model = fb.parse(content)
    graph, places = reader.read_graph(model), op_places(model)
    kept = {
        node.op_type
        for node in denied
        if any(graph.ops[place].kind.value == "integer" for place in places.get(node.index, ()))
    }
    return Reference(content=content, kept=tuple(sorted(kept)), twice=_quantizes_twice(graph))


def _quantizes_twice(graph: Graph) -> bool:
    producers = graph.producers()
    for op in graph.ops:
        if op.op_type != "CONCATENATION":
            continue
        writers = [graph.ops[producers[i]] for i in op.inputs if i in producers]
        again = [w for w in writers if w.op_type == "QUANTIZE" and w.inputs and w.inputs[0] in producers]
        if any(graph.ops[producers[w.inputs[0]]].op_type in ("QUANTIZE", "DEQUANTIZE") for w in again):
            return True
    return False


def escaped(name: str) -> str:
    """A node's name as a recipe takes it, where brackets belong to globs."""
    return name.replace("[", "[[]")
