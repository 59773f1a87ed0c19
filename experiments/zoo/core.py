"""The one place of this experiment that knows how the product takes a model in, forecasts and builds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autoselect.data.representative import representative_samples
from autoselect.domain.graph import OpKind
from autoselect.domain.layers import Node
from autoselect.domain.recipe import Recipe
from autoselect.errors import BuildError, ScoreError
from autoselect.quantize.building.build import Builder
from autoselect.quantize.building.parts import find_nodes
from autoselect.quantize.building.wholes import make_wholes
from autoselect.quantize.calibrated import CalibratedModel
from autoselect.quantize.preparing import calibration, converter, normalise
from autoselect.quantize.repairing.repairs import RepairKit
from autoselect.rewrites import names
from autoselect.sources import loading
from autoselect.sources.wishes import wishes_of
from autoselect.tflite import comparing, editing, reader
from autoselect.tflite import flatbuffer as fb


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


def intake(path: Path, shapes: Mapping[str, Sequence[int]]) -> tuple[bytes, tuple[str, ...]]:
    """The float model of a source and what there is to say of it; ``shapes`` are those of inputs with free sizes."""
    found = loading.float_model(path, wishes_of(None, shapes))
    return found.content, found.notes


def prepare(content: bytes, samples: Sequence[Mapping[str, np.ndarray]]) -> Prepared:
    """Normalise, calibrate, and find the nodes."""
    fed = list(representative_samples(list(samples), reader.input_specs(fb.parse(content))))
    normalised, told = _normalised(content, fed)
    rows = (list(sample.values()) for sample in fed)
    calibrated = calibration.calibrated_model(normalised.file, rows, normalised.node_names)
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
        apart = comparing.difference(content, normalised.content, fed, delegates=False)
        if comparing.is_rounding(apart, content, fed):
            return normalised, ""
        why = "other outputs"
    except (BuildError, ScoreError) as exc:
        why = str(exc)
    return normalise.as_it_is(content), why


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What TensorFlow's quantizer makes with a denylist and nothing else.

    Attributes:
        content: The model.
        integer: Denied nodes that it keeps in integers.
        hybrid: Denied nodes whose weights it rounds.
        direct: The model with every operand converted once, and float constants as they were.
        detours: What :attr:`direct` does without.
    """

    content: bytes
    integer: tuple[Node, ...]
    hybrid: tuple[Node, ...]
    direct: bytes
    detours: tuple[str, ...]

    def oddities(self) -> tuple[str, ...]:
        """What it does that the denylist does not say."""
        found = [f"the quantizer keeps {op_type} in integers" for op_type in _op_types(self.integer)]
        found += [f"the quantizer rounds weights of {op_type}" for op_type in _op_types(self.hybrid)]
        return (*found, *self.detours)


def _op_types(nodes: Sequence[Node]) -> list[str]:
    return sorted({node.op_type for node in nodes})


def quantizers(prepared: Prepared, denied: Sequence[Node], base: Recipe) -> Reference:
    """Build with TensorFlow's quantizer alone."""
    denylisted = [names.canonical_name(node.index) for node in denied]
    model = converter.quantize(prepared.calibrated.file, denylisted=denylisted, recipe=base).taken()
    names.hide_unused_outputs(model, prepared.calibrated.names)
    graph, places = reader.read_graph(model), names.op_places(model)

    def having(kind: OpKind) -> tuple[Node, ...]:
        return tuple(n for n in denied if any(graph.ops[at].kind is kind for at in places.get(n.index, ())))

    content = fb.serialise(model)
    detours = _take_detours_out(model, fb.parse(prepared.calibrated.content))
    return Reference(
        content=content,
        integer=having(OpKind.INTEGER),
        hybrid=having(OpKind.HYBRID),
        direct=fb.serialise(model),
        detours=tuple(sorted(detours)),
    )


def _take_detours_out(model: fb.Model, float_model: fb.Model) -> set[str]:
    """Convert each operand once, and read constants as the float model has them, in place; says what was otherwise."""
    graph, found = model.subgraphs[0], set[str]()
    for op in graph.operators:
        op.inputs = np.array(op.inputs, dtype=np.int32)
    conversions = {int(op.outputs[0]): op for op in graph.operators if fb.op_type(model, op) in fb.CONVERSIONS}
    for op in (op for op in graph.operators if fb.op_type(model, op) not in fb.CONVERSIONS):
        for position, tensor in enumerate(map(int, op.inputs)):
            chain = [tensor]
            while chain[-1] in conversions:
                chain.append(int(conversions[chain[-1]].inputs[0]))
            is_float = not fb.scales(graph.tensors[tensor])
            if len(chain) > 1 and is_float and fb.is_constant(model, graph.tensors[chain[-1]]):
                found.add("the quantizer rounds a constant that a denied op reads")
                op.inputs[position] = _float_constant(model, float_model, names.op_index(model, op), position)
            elif len(chain) > 2:
                twice = f"quantizes an operand of a {fb.op_type(model, op)} twice"
                found.add(f"the quantizer {'rescales what a denied op reads' if is_float else twice}")
                if is_float and not fb.scales(graph.tensors[chain[-1]]):
                    op.inputs[position] = chain[-1]
                else:
                    conversions[tensor].inputs[0] = chain[-1]
    return found


def _float_constant(model: fb.Model, float_model: fb.Model, index: int | None, position: int) -> int:
    """Bring the constant that the float model's op reads there into a model; its tensor."""
    assert index is not None
    graph = float_model.subgraphs[0]
    tensor = copy(graph.tensors[graph.operators[index].inputs[position]])
    tensor.buffer = editing.add_buffer(model, fb.constant_values(float_model, tensor))
    model.subgraphs[0].tensors.append(tensor)
    return len(model.subgraphs[0].tensors) - 1
